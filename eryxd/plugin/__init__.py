"""What a plugin sees of eryx: typed protocols and descriptors, and the mark of its hooks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eryxd.plugin.spec import hookimpl

__all__ = ["hookimpl"]


def __getattr__(name: str) -> Any:
    # Importing pluggy costs 23 ms, which only plugins should pay.
    if name == "hookimpl":
        from eryxd.plugin.spec import hookimpl

        return hookimpl
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
