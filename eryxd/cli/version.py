"""`eryx version`."""

from eryxd import __version__
from eryxd.cli import kit


def version(as_json: kit.AsJson = False) -> None:
    """Print the version of the command line; `eryx status` shows the daemon's."""
    kit.emit({"version": __version__}, as_json, lambda _, __: [f"eryx {__version__}"])
