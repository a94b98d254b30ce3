"""`eryx run`: send a message, follow what comes of it, answer what it asks."""

import os
import sys
from typing import Annotated, Any

import typer

from eryxd.cli import kit, refs
from eryxd.cli.kit import Problem, Reply, visible
from eryxd.client.client import Client, RemoteError
from eryxd.domain.errors import ErrorCode

DEFAULT_PATTERN = "single"
"""The built-in pattern of one agent."""


def run(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to say; - reads it from standard input.")],
    pattern: Annotated[
        str | None, typer.Option("--pattern", "-p", help="Pattern of a new session.  [default: single]")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(help="Folder or project of a new session.  [default: the Git checkout or folder you are in]"),
    ] = None,
    scratch: Annotated[bool, typer.Option("--scratch", help="Work in the scratchpad instead of a project.")] = False,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Go on in this session instead of a new one.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="Play this plan (TOML) instead of asking a model.", metavar="FILE")
    ] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="Offer a new session these entries.", metavar="ENTRY,...")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start the run and leave it alone.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Send a message and follow the run.

    At a terminal you are asked in place about what needs approval; elsewhere the command to type is printed.
    The first Ctrl-C leaves the run alone, a second one within 2 seconds cancels it.  Exit status: 0 completed,
    1 failed, 130 cancelled or left.
    """
    where = (pattern, project, scratch or None, with_)
    if session and any(where):
        raise Problem("--session goes on where it is: leave out --pattern, --project, --scratch and --with.")
    if project and scratch:
        raise Problem("Give only one of --project, --scratch.")
    text, played = _text(message), _plan(plan)
    with kit.client() as client:
        if session:
            session_id = refs.session_id(client, session)
            started = _send(client, session_id, text, played)
        else:
            folder = None if scratch else project or home_of(os.getcwd())
            session_id = _new_session(client, pattern, folder, with_ or [])
            started = _send_first(client, session_id, text, played)
        if detach:
            kit.emit(started, as_json, _started)
            return
        # Imported here: starting a run and leaving it needs no thread and no terminal.
        from eryxd.cli.following import follow

        if not as_json:
            kit.say([f"session {refs.sure(session_id)}  run {refs.sure(started['run_id'])}"])
        status = follow(client, started["run_id"], session_id, as_json=as_json, cancels=True)
    raise typer.Exit(status)


def _text(message: str) -> str:
    return sys.stdin.read() if message == "-" else message


def _plan(file: str | None) -> str | None:
    if file is None:
        return None
    if not os.path.isfile(file):
        raise Problem(f"There is no plan {visible(file)!r}.", code=ErrorCode.NOT_FOUND)
    return os.path.abspath(file)


def home_of(folder: str) -> str:
    """Return the top of the Git checkout that a folder is in, else the folder.

    Raises: Problem -- that is everything the user has: nobody means it without saying so.
    """
    too_much = ("/", os.path.realpath(os.path.expanduser("~")))
    start = at = os.path.realpath(folder)
    if start in too_much:
        raise Problem(
            f"{start} is too much for a project that nobody named; name one with --project.",
            "eryx run --scratch MESSAGE",
        )
    while at not in too_much:
        if os.path.lexists(os.path.join(at, ".git")):
            return at
        at = os.path.dirname(at)
    return start


def _new_session(client: Client, pattern: str | None, project: str | None, entries: list[str]) -> str:
    reply = client.call(
        "sessions.create",
        pattern_id=refs.pattern_id(client, pattern or DEFAULT_PATTERN),
        project_id=project_of(client, project) if project else None,
    )
    session_id = str(reply["session"]["id"])
    if entries:
        from eryxd.cli.tooling import select

        try:
            select(client, session_id, entries)
        except (Problem, RemoteError):
            client.call("sessions.delete", session_id=session_id)
            raise
        return session_id
    for warning in reply.get("warnings", ()):
        print(f"{visible(warning)}  (choose with --with)", file=sys.stderr)
    return session_id


def _send(client: Client, session_id: str, text: str, plan: str | None) -> Reply:
    reply: Reply = client.call("messages.send", session_id=session_id, content=text, plan=plan)
    return reply


def _send_first(client: Client, session_id: str, text: str, plan: str | None) -> Reply:
    """Send to a session that was made for this; it is not left behind when the message is refused."""
    try:
        return _send(client, session_id, text, plan)
    except RemoteError:
        client.call("sessions.delete", session_id=session_id)
        raise


def project_of(client: Client, given: str) -> str:
    """Return the id of a project: of a folder, which becomes one if it is none, or of one that is named."""
    if os.path.isdir(given):
        return str(client.call("projects.add", path=os.path.realpath(given))["project"]["id"])
    if os.path.isfile(given):
        raise Problem(f"{visible(given)} is a file, not a folder.", code=ErrorCode.INVALID)
    if os.sep in given:
        raise Problem(f"There is no folder {visible(given)!r}.", "eryx projects list", ErrorCode.NOT_FOUND)
    return refs.project_id(client, given)


def _started(reply: Any, _: kit.Look) -> list[str]:
    run = refs.sure(reply["run_id"])
    return [
        f"session {refs.sure(reply['session']['id'])}  run {run}",
        f"follow it: eryx timeline {run} --follow",
        f"end it: eryx runs cancel {run}",
    ]
