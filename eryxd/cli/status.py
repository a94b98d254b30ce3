"""`eryx status`: how the daemon is, and what waits for you."""

from typing import Annotated

import typer

from eryxd.cli import kit, render_status
from eryxd.cli.short import print_short


def status(
    short: Annotated[bool, typer.Option("--short", help="A few words, for a shell prompt.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Show the daemon, its store and backends, and how much waits for you.

    With --short: `2 waiting, 1 running`, `idle` or `stopped`.  Exit status 69 when the daemon is not running.
    """
    if short and not as_json:
        raise typer.Exit(print_short())
    with kit.client() as client:
        reply = client.call("daemon.status")
    kit.emit(reply, as_json, render_status.status)
