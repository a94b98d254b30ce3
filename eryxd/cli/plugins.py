"""`eryx plugins`: what is installed, and what of it you have enabled.

Source: architecture 4.
"""

from typing import Annotated

import typer

from eryxd.cli import kit, render_tools

app = kit.group("What extends eryx, and what of it you have enabled.")

Name = Annotated[str, typer.Argument(metavar="PLUGIN", help="Its name; `eryx plugins list` has them.")]


@app.command("list")
def list_plugins(as_json: kit.AsJson = False) -> None:
    """List plugins, how each stands, and what to do about it."""
    with kit.client() as client:
        reply = client.call("plugins.list")
    kit.emit(reply, as_json, render_tools.plugins)


@app.command("enable")
def enable(plugin: Name, as_json: kit.AsJson = False) -> None:
    """Let a plugin be imported and used.  It then runs with your rights, in the daemon."""
    _change("plugins.enable", plugin, as_json)


@app.command("disable")
def disable(plugin: Name, as_json: kit.AsJson = False) -> None:
    """Use a plugin no more.  What it alone offers is taken off every list."""
    _change("plugins.disable", plugin, as_json)


@app.command("forget")
def forget(plugin: Name, as_json: kit.AsJson = False) -> None:
    """Remember nothing of a plugin, once it is uninstalled."""
    _change("plugins.forget", plugin, as_json)


def _change(method: str, plugin: str, as_json: bool) -> None:
    with kit.client(timeout_s=60.0) as client:
        reply = client.call(method, name=plugin)
    kit.emit(reply, as_json, render_tools.plugin_changed)
    if reply.get("plugin", {}).get("status") in ("load-error", "config-error", "faulted"):
        raise typer.Exit(69)
