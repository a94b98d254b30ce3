"""A blocking client.  Imports neither asyncio nor msgspec: it is on the path of every command."""
