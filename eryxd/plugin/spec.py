"""What a plugin can implement.  Write `from eryxd.plugin import hookimpl` and put `@hookimpl` on a function.

Every hook is synchronous, is called apart from every other plugin's, in a thread, for at most five seconds, and returns
objects; what works asynchronously are the methods of those objects.  A hook may leave out arguments that it does not
need.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

from eryxd.domain.ids import Record
from eryxd.plugin.types import Backend, Observer, PluginContext, ToolProvider

if TYPE_CHECKING:
    import typer

hookspec = pluggy.HookspecMarker("eryxd")
hookimpl = pluggy.HookimplMarker("eryxd")


@hookspec
def eryxd_settings() -> type[Record]:
    """Return the type of the plugin's table `[plugins.NAME]` in config.toml."""
    raise NotImplementedError


@hookspec
def eryxd_tool_providers(context: PluginContext) -> Iterable[ToolProvider]:
    """Return what lists and runs tools."""
    raise NotImplementedError


@hookspec
def eryxd_backends(context: PluginContext) -> Iterable[Backend]:
    """Return what runs agents."""
    raise NotImplementedError


@hookspec
def eryxd_observers(context: PluginContext) -> Iterable[Observer]:
    """Return what sees every event.  It never alters one, and never delays one."""
    raise NotImplementedError


@hookspec
def eryxd_commands() -> "typer.Typer | Any":
    """Return the command group `eryx NAME`.  Called by the command line, never by the daemon."""
    raise NotImplementedError
