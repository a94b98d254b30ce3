"""The plugin for the GitHub Copilot CLI.  Contributes nothing yet.

It will contribute a backend that runs an agent's turn on the CLI and puts each of its tool calls to the gate
before it runs.
"""

from typing import Final

__version__: Final = "0.1.0"
