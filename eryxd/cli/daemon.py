"""`eryx daemon`: start and stop it, read its log, find its socket."""

from typing import Annotated

import typer

from eryxd import paths
from eryxd.cli import kit, process, render_status
from eryxd.cli.kit import CLIENT_NAME, Reply, visible
from eryxd.cli.text import plural

app = kit.group("Start, stop and look at the daemon.")


@app.command("start")
def start(as_json: kit.AsJson = False) -> None:
    """Start the daemon in the background.

    Waits until it answers; one that runs already is left alone.
    """
    client = process.answers(CLIENT_NAME)
    if client is None:
        process.start(CLIENT_NAME, process.daemon_command())
        client, words = process.answers(CLIENT_NAME), "started"
    else:
        words = "was running already"
    with client or kit.client() as connected:
        reply = connected.call("daemon.status")
    kit.emit(reply, as_json, lambda status, _: [f"✓ the daemon {words}: pid {status['pid']}"])


@app.command("stop")
def stop(
    when_idle: Annotated[bool, typer.Option("--when-idle", help="Refuse while a session runs.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Stop the daemon and wait until it is gone.  Sessions that run end as interrupted.

    Nothing to stop is no failure.
    """
    client = process.answers(CLIENT_NAME)
    if client is None:
        kit.emit({}, as_json, lambda _, __: ["✓ the daemon is not running"])
        return
    with client:
        before = client.call("daemon.status")
        reply = client.call("daemon.shutdown", when_idle=when_idle or None)
    process.wait_until_gone(CLIENT_NAME)
    kit.emit(reply, as_json, lambda _, __: [_stopped(before)])


def _stopped(before: Reply) -> str:
    ended = f"; {before['running']} running, {before['waiting']} waiting were ended" if before["running"] else ""
    return f"✓ the daemon stopped: pid {before['pid']}{ended}"


@app.command("reload")
def reload(as_json: kit.AsJson = False) -> None:
    """Read config.toml and workspace.d again.  They are watched, so this only tells what is wrong."""
    with kit.client() as client:
        reply = client.call("daemon.reload")
    kit.emit(reply, as_json, lambda found, _: [_taken_over(found)])


def _taken_over(reply: kit.Reply) -> str:
    entries = f"{reply['entries']} {'entry' if reply['entries'] == 1 else 'entries'}"
    return f"taken over: {plural(reply['patterns'], 'pattern')} and {entries} of workspace.d"


@app.command("status")
def status(as_json: kit.AsJson = False) -> None:
    """Show the daemon: the same as `eryx status`."""
    with kit.client() as client:
        reply = client.call("daemon.status")
    kit.emit(reply, as_json, render_status.status)


@app.command("logs")
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines.", min=0)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are added.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Show the log of a daemon that `eryx daemon start` started.  With --json every line is a JSON string."""
    show = kit.to_json if as_json else visible
    last, offset = process.tail(lines)
    kit.say(map(show, last))
    if follow:
        for line in process.growing(offset):
            kit.say([show(line)])


@app.command("socket")
def socket(as_json: kit.AsJson = False) -> None:
    """Print the path of the socket, whether or not anybody listens."""
    kit.emit({"path": paths.socket_path()}, as_json, lambda found, _: [found["path"]])
