"""The plugin for language servers.  Contributes nothing yet.

It will contribute a tool provider whose entries are language server profiles, each with five read-only tools:
workspace symbols, document symbols, definition, hover and references.
"""

from typing import Final

__version__: Final = "0.1.0"
