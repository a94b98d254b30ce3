"""`eryx approvals`: what waits for a person, and the answers.

Source: APR-1 to APR-6, APR-9.
"""

import sys
from typing import Annotated, Any, Final

import typer

from eryxd.cli import kit, refs, render, render_approvals
from eryxd.cli.kit import Look, Problem, Reply
from eryxd.cli.text import block, columns, cut
from eryxd.client.client import Client, RemoteError
from eryxd.domain.errors import ErrorCode

app = kit.group("What waits for you, and your answers.")

DETAILED: Final = 20
"""How many rows of a list say which command or path: each is a call of its own."""

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, or at least four characters of each.")]
Note = Annotated[str | None, typer.Option("--note", "-n", help="Kept with the decision.", metavar="TEXT")]


@app.command("list")
def list_approvals(
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only of this session.")] = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="What was decided, newest first.")] = False,
    limit: kit.Limit = 100,
    cursor: kit.Cursor = None,
    as_json: kit.AsJson = False,
) -> None:
    """List what waits for you, oldest first."""
    with kit.client() as client:
        reply = client.call(
            "approvals.list",
            session_id=refs.session_id(client, session) if session else None,
            resolved=resolved or None,
            limit=limit,
            cursor=cursor,
        )
        details = {} if as_json else _details(client, reply["approvals"][:DETAILED])
    kit.emit(reply, as_json, lambda listing, look: render_approvals.approvals(listing, look, details))


def _details(client: Client, briefs: list[Reply]) -> dict[str, Reply]:
    """Return approvals of tool calls whole, by id; one that is gone meanwhile is left out."""
    found = {}
    for brief in briefs:
        if brief["kind"] == "tool-call":
            try:
                found[brief["id"]] = client.call("approvals.get", approval_id=brief["id"])["approval"]
            except RemoteError as refusal:
                if refusal.code != ErrorCode.NOT_FOUND:
                    raise
    return found


@app.command("show")
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="An id, or at least four characters of it.")],
    full: Annotated[bool, typer.Option("--full", help="Print the content alone, whole, however long.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Show one approval.

    What is asked, what remembering it would do, how many wait.  Of a final response it shows the messages as they
    would be published.
    """
    with kit.client() as client:
        approval_id = refs.approval_id(client, id)
        if full:
            kit.emit(_content(client, approval_id), as_json, _whole)
            return
        reply = client.call("approvals.get", approval_id=approval_id)
    kit.emit(reply, as_json, render_approvals.approval)


@app.command("approve")
def approve(
    ids: Ids,
    note: Note = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="Let the session auto-approve this tool from now on.")
    ] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Approve.  What you approve is compared with what is shown now, so that neither can change unseen."""
    _resolve_all(ids, "approved", note, "session" if remember else None, as_json)


@app.command("reject")
def reject(ids: Ids, note: Note = None, as_json: kit.AsJson = False) -> None:
    """Reject.  The note is told to the agent."""
    _resolve_all(ids, "rejected", note, None, as_json)


def _resolve_all(ids: list[str], decision: str, note: str | None, remember: str | None, as_json: bool) -> None:
    """Decide each in turn; the exit status is that of the first that failed."""
    statuses = []
    with kit.client() as client:
        # All names before the first decision: a slip in the last one changes nothing.
        whole = list(dict.fromkeys(refs.approval_id(client, id) for id in ids))
        for approval_id in whole:
            try:
                statuses.append(_resolve(client, approval_id, decision, note, remember, as_json))
            except RemoteError as refusal:
                statuses.append(kit.fail(refusal, as_json))
    raise typer.Exit(next((status for status in statuses if status), 0))


def _resolve(
    client: Client, approval_id: str, decision: str, note: str | None, remember: str | None, as_json: bool
) -> int:
    shown = client.call("approvals.get", approval_id=approval_id)["approval"]
    try:
        reply = client.call(
            "approvals.resolve",
            session_id=shown["session_id"],
            approval_id=approval_id,
            decision=decision,
            digest=shown["digest"],
            note=note,
            remember=remember,
        )
    except RemoteError as refusal:
        if refusal.code != ErrorCode.APPROVAL_NOT_ACTIVE:
            raise
        return _too_late(client, shown, refusal, as_json)
    kit.emit(reply, as_json, lambda resolved, look: _resolved(shown, resolved, look))
    return 0


def _too_late(client: Client, shown: Reply, refusal: RemoteError, as_json: bool) -> int:
    """Say who decided what and when, and how the session stands.  The same decision is a success."""
    status = 0 if refusal.data.get("same_decision") else refusal.exit_status
    if as_json:
        kit.fail(refusal, as_json)
        return status
    session = client.call("sessions.get", session_id=shown["session_id"])["session"]
    output = sys.stderr if status else sys.stdout
    print(f"{refs.sure(shown['id'])} was already {render_approvals.decided(refusal.data)}", file=output)
    print(f"session {refs.sure(session['id'])}: {render.state(session)}", file=output)
    return status


def _resolved(shown: Reply, reply: Reply, look: Look) -> list[str]:
    """Say what was decided; what it would do is in the approval as it was shown."""
    record = {**shown, **reply["approval"], "permission": shown.get("permission")}
    summary = render_approvals.summary({key: value for key, value in record.items() if value is not None})
    head = f"{render_approvals.state(record, look)}  {refs.sure(record['id'])}  "
    lines = [head + (cut(summary, max(look.width - columns(head), 8)) if look.width else summary)]
    lines += [f"{render_approvals.APPROVED} also released  {refs.sure(each)}" for each in reply["released"]]
    waiting = render.pending(reply["session"])
    if waiting:
        short = refs.shorten(each["id"] for each in waiting)
        lines.append(f"next in this session: eryx approvals show {short[waiting[0]['id']]}")
    return lines


def _content(client: Client, approval_id: str) -> Reply:
    """Return the whole content: all pages of `approvals.content` as one, or what `approvals.get` shows whole."""
    body, offset = b"", 0
    while True:
        page = client.call("approvals.content", approval_id=approval_id, offset=offset)
        body += page["body"]
        next_offset = page.get("next_offset")
        if next_offset is None:
            return {"body": body, "total": page["total"]}
        if next_offset <= offset:
            raise Problem("The daemon's pages do not go on.", code=ErrorCode.INTERNAL)
        offset = next_offset


def _whole(page: Reply, look: Look) -> list[str]:
    """Return the content as text: the parts of a call, or messages, each behind its name."""
    import json

    content: Any = json.loads(page["body"])
    parts = (
        content.items() if isinstance(content, dict) else ((each["author_name"], each["content"]) for each in content)
    )
    lines = []
    for name, value in parts:
        lines += [kit.visible(name), *block(render_approvals.argument(value), look)]
    return lines
