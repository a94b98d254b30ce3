"""eryx: a daemon that stands between AI coding agents and the machine they work on."""

from typing import Final

__version__: Final = "0.1.0"
