"""`eryx messages`: transcripts."""

from typing import Annotated

import typer

from eryxd.cli import kit, refs, render

app = kit.group("Transcripts.")


@app.command("list")
def list_messages(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="An id, or at least four characters of it.")],
    limit: kit.Limit = 100,
    cursor: kit.Cursor = None,
    as_json: kit.AsJson = False,
) -> None:
    """Show a session's latest messages, oldest first."""
    with kit.client() as client:
        session_id = refs.session_id(client, session)
        reply = client.call("messages.list", session_id=session_id, limit=limit, cursor=cursor)
    kit.emit(reply, as_json, render.messages)
