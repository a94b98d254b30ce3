"""The plugin for Model Context Protocol servers.  Contributes nothing yet.

It will contribute a tool provider whose entries are MCP servers: their tools in the catalog, a check of each
server, and calls that reach it after the gate has let them pass.
"""

from typing import Final

__version__: Final = "0.1.0"
