"""`eryx timeline`: what a run did, and who allowed it.

Source: TLN-1 to TLN-4.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from eryxd.cli import kit, narrate, refs
from eryxd.cli.kit import Problem, Reply
from eryxd.client.client import Client
from eryxd.domain.errors import ErrorCode


def timeline(
    of: Annotated[
        str, typer.Argument(metavar="RUN|SESSION", help="A run, or a session for its newest run; an id or its start.")
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Show what a run did, each decision with its reason and who made it.

    With --follow the exit status is that of `eryx run`; at a terminal you are asked in place, and Ctrl-C leaves.
    With --follow --json every line is one event.
    """
    with kit.client() as client:
        run_id = _run_id(client, of)
        if not follow:
            kit.emit(_whole(client, run_id), as_json, narrate.timeline)
            return
        from eryxd.cli import following

        status = following.follow(client, run_id, None, as_json=as_json, cancels=False, joins=True)
    raise typer.Exit(status)


def _run_id(client: Client, given: str) -> str:
    """Return the run that is meant: ids of sessions and runs begin with different letters."""
    if not given.lower().startswith("s"):
        return _known(given, refs.run_id, client)
    session_id = _known(given, refs.session_id, client)
    runs = client.call("runs.list", session_id=session_id, limit=1)["runs"]
    if not runs:
        raise Problem(
            f"Session {refs.sure(session_id)} has no run.", f"eryx run --session {refs.sure(session_id)} MESSAGE"
        )
    return str(runs[0]["id"])


def _known(given: str, find: Callable[[Client, str], str], client: Client) -> str:
    """Return the id that begins so.  Raises: Problem -- none does, of either kind."""
    try:
        return find(client, given)
    except Problem as problem:
        if problem.code != ErrorCode.NOT_FOUND:
            raise
        message = f"No run or session begins with {kit.visible(given)!r}."
        raise Problem(message, "eryx runs list", ErrorCode.NOT_FOUND) from problem


def _whole(client: Client, run_id: str) -> Reply:
    """Return all pages of a timeline as one reply; `seq` is the first one's, to subscribe from."""
    reply: Reply = client.call("timeline.get", run_id=run_id)
    events = list(reply["events"])
    cursor = reply.pop("cursor", None)
    while cursor is not None:
        page = client.call("timeline.get", run_id=run_id, cursor=cursor)
        events += page["events"]
        cursor = page.get("cursor")
    return {**reply, "events": events}
