"""`eryx store`: check, back up and restore what is remembered."""

import os
import subprocess
from typing import Annotated

import typer

from eryxd.cli import kit
from eryxd.cli.kit import Problem, visible
from eryxd.cli.process import daemon_command
from eryxd.client.client import Client, DaemonNotRunning
from eryxd.domain.errors import ErrorCode

app = kit.group("Check, back up and restore what is remembered.")

CHECK_S = 600.0
"""How long a check or a backup may take: they read the whole store."""


@app.command("check")
def check(as_json: kit.AsJson = False) -> None:
    """Check the store.  Exit status 74 when it is damaged."""
    with kit.client(timeout_s=CHECK_S) as client:
        reply = client.call("store.check")
    sound = [f"✓ sound: {visible(reply['path'])}, {reply['bytes']} bytes"]
    kit.emit(reply, as_json, lambda found, _: [f"✗ {visible(each)}" for each in found["problems"]] or sound)
    if reply["problems"]:
        raise typer.Exit(74)


@app.command("backup")
def backup(
    path: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A new file.  [default: a dated one in the state folder]")
    ] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Write a verified copy of the store, while the daemon runs."""
    with kit.client(timeout_s=CHECK_S) as client:
        reply = client.call("store.backup", path=os.path.abspath(path) if path else None)
    kit.emit(reply, as_json, lambda made, _: [f"✓ {visible(made['path'])}, {made['bytes']} bytes"])


@app.command("restore")
def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A copy that `eryx store backup` made.")],
    as_json: kit.AsJson = False,
) -> None:
    """Put a backup in the store's place.  The daemon must be stopped; what was there is kept aside."""
    if not os.path.isfile(file):
        raise Problem(f"There is no file {visible(file)!r}.", code=ErrorCode.NOT_FOUND)
    try:
        Client.connect(name=kit.CLIENT_NAME).close()
    except DaemonNotRunning:
        pass
    else:
        raise Problem(
            "The daemon is running; it must not while its store is replaced.",
            "eryx daemon stop",
            ErrorCode.CONFLICT,
        )
    # The daemon's own lock, not the look above, is what keeps two from writing.
    done = subprocess.run([*daemon_command(), "--restore", os.path.abspath(file)], capture_output=True, text=True)
    output = (done.stdout + done.stderr).strip().removeprefix("eryxd: ")
    if done.returncode:
        raise Problem(output or f"eryxd ended with status {done.returncode}.", code=ErrorCode.STORE_UNAVAILABLE)
    kit.emit({"path": os.path.abspath(file), "output": output}, as_json, lambda _, __: [visible(output, lines=True)])
