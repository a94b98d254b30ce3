"""`eryx sessions`: conversations, how they stand, and what each approves by itself.

Source: SES-1 to SES-3, POL-5.
"""

from typing import Annotated, Any

import typer

from eryxd.cli import kit, refs, render
from eryxd.cli.coverage import unasked
from eryxd.cli.kit import Look, Problem, Reply
from eryxd.cli.run import DEFAULT_PATTERN, project_of
from eryxd.client.client import Client, RemoteError
from eryxd.domain.errors import ErrorCode

app = kit.group("Conversations, and what each approves by itself.")

Session = Annotated[str, typer.Argument(metavar="SESSION", help="An id, or at least four characters of it.")]
Off = Annotated[bool, typer.Option("--off", help="The other way round.")]


def _tools_option(help: str) -> Any:
    return typer.Option(help=help, metavar="TOOL,...")


@app.command("list")
def list_sessions(
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones instead.")] = False,
    limit: kit.Limit = 100,
    cursor: kit.Cursor = None,
    as_json: kit.AsJson = False,
) -> None:
    """List sessions, newest change first, pinned ones before all."""
    with kit.client() as client:
        reply = client.call(
            "sessions.list",
            project_id=refs.project_id(client, project) if project else None,
            archived=archived or None,
            limit=limit,
            cursor=cursor,
        )
        _emit_list(client, reply, as_json)


@app.command("search")
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="All must match.")],
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones as well.")] = False,
    limit: kit.Limit = 100,
    as_json: kit.AsJson = False,
) -> None:
    """Find sessions by words.

    They are looked for in the title, the project, the pattern and the messages.
    """
    with kit.client() as client:
        reply = client.call("sessions.search", query=" ".join(words), archived=archived or None, limit=limit)
        _emit_list(client, reply, as_json, "Nothing matches.")


@app.command("show")
def show(session: Session, as_json: kit.AsJson = False) -> None:
    """Show one session and what waits in it."""
    _call_one("sessions.get", session, as_json)


@app.command("create")
def create(
    pattern: Annotated[str, typer.Option("--pattern", "-p", help="Its pattern.")] = DEFAULT_PATTERN,
    project: Annotated[str | None, typer.Option(help="Folder or project.  [default: the scratchpad]")] = None,
    title: Annotated[str | None, typer.Option(help="Title.  [default: from the first message]")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Create a session without sending anything."""
    with kit.client() as client:
        reply = client.call(
            "sessions.create",
            pattern_id=refs.pattern_id(client, pattern),
            project_id=project_of(client, project) if project else None,
            title=title,
        )
        _emit_one(client, reply, as_json)


@app.command("tooling")
def tooling(
    session: Session,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="Offer exactly these entries.", metavar="ENTRY,...")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Offer no entry.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Show or change which entries of providers the session is offered."""
    chosen = kit.choice(**{"with": with_, "none": none})
    with kit.client() as client:
        session_id = refs.session_id(client, session)
        if chosen:
            from eryxd.cli.tooling import select

            reply = select(client, session_id, with_ or [])
        else:
            reply = client.call("sessions.get", session_id=session_id)
    kit.emit(reply, as_json, render.tooling)


@app.command("approvals")
def approvals(
    session: Session,
    only: Annotated[list[str] | None, _tools_option("Auto-approve exactly these.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Auto-approve nothing.")] = False,
    inherit: Annotated[bool, typer.Option("--inherit", help="Use the pattern's list again.")] = False,
    add: Annotated[list[str] | None, _tools_option("Auto-approve these as well.")] = None,
    remove: Annotated[list[str] | None, _tools_option("Ask about these again.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Show or change which tools the session approves by itself.

    Without options: whether it inherits its pattern's list or has one of its own, and every tool.  `--only` sets
    the list; `--add` and `--remove` start from the list in force, and so make it the session's own.
    """
    chosen = kit.choice(only=only, none=none, inherit=inherit, add=add or remove)
    with kit.client() as client:
        session_id = refs.session_id(client, session)
        if not chosen:
            _show_approvals(client, session_id, as_json)
            return
        names: list[str] | None = kit.split(only)
        if chosen == "only" and not names:
            raise Problem("--only names no tool; to auto-approve nothing say --none.")
        if chosen == "add":
            names = _changed(client, session_id, kit.split(add), kit.split(remove), as_json)
        reply = client.call(
            "sessions.update_approval_settings",
            session_id=session_id,
            auto_approved_tool_names=None if inherit else names,
        )
        pattern = None if as_json else _pattern_of(client, reply["session"])
    kit.emit(reply, as_json, lambda changed, _: _approves(changed, pattern))


@app.command("revoke")
def revoke(session: Session, as_json: kit.AsJson = False) -> None:
    """Make every further tool call ask, now.

    Also in a run that is under way, and there also where no rule covers the call.
    """
    with kit.client() as client:
        reply = client.call("sessions.revoke", session_id=refs.session_id(client, session))
        pattern = None if as_json else _pattern_of(client, reply["session"])
    kit.emit(reply, as_json, lambda revoked, _: [_revoked(revoked["session"], pattern)])


@app.command("rename")
def rename(
    session: Session,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="In quotes where it has spaces.")],
    as_json: kit.AsJson = False,
) -> None:
    """Give it a title of your own."""
    _call_one("sessions.rename", session, as_json, title=title)


@app.command("pin")
def pin(session: Session, off: Off = False, as_json: kit.AsJson = False) -> None:
    """Pin it to the top of the list, or unpin it with --off."""
    _call_one("sessions.pin", session, as_json, is_pinned=not off)


@app.command("archive")
def archive(session: Session, off: Off = False, as_json: kit.AsJson = False) -> None:
    """Archive it, or bring it back with --off."""
    _call_one("sessions.archive", session, as_json, is_archived=not off)


@app.command("duplicate")
def duplicate(session: Session, as_json: kit.AsJson = False) -> None:
    """Copy its settings to a new session.  Messages and runs are not copied."""
    _call_one("sessions.duplicate", session, as_json)


@app.command("delete")
def delete(
    session: Session,
    remove_folder: Annotated[
        bool, typer.Option("--remove-folder", help="Also remove a scratchpad session's folder.")
    ] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Delete it with its messages and runs.  A run that is under way is ended first."""
    with kit.client() as client:
        session_id = refs.session_id(client, session)
        reply = client.call("sessions.delete", session_id=session_id, remove_folder=remove_folder or None)
    kit.emit(reply, as_json, lambda _, __: [f"deleted session {session_id}"])


def _emit_list(
    client: Client, reply: Reply, as_json: bool, nothing: str = "No sessions.  Start one with: eryx run MESSAGE"
) -> None:
    names = {} if as_json or not reply["sessions"] else refs.names(client)
    kit.emit(reply, as_json, lambda listing, look: render.sessions(listing, look, names, nothing))


def _call_one(method: str, session: str, as_json: bool, **params: object) -> None:
    with kit.client() as client:
        reply = client.call(method, session_id=refs.session_id(client, session), **params)
        _emit_one(client, reply, as_json)


def _emit_one(client: Client, reply: Reply, as_json: bool) -> None:
    names = {} if as_json else refs.names(client)
    kit.emit(reply, as_json, lambda shown, look: render.session(shown, look, names))


def _pattern_of(client: Client, session: Reply) -> Reply | None:
    """Return the pattern of a session, or None when it is gone."""
    try:
        pattern: Reply = client.call("patterns.get", pattern_id=session["pattern_id"])["pattern"]
    except RemoteError as refusal:
        if refusal.code == ErrorCode.NOT_FOUND:
            return None
        raise
    return pattern


def _show_approvals(client: Client, session_id: str, as_json: bool) -> None:
    reply = client.call("sessions.get", session_id=session_id)
    tools = [] if as_json else client.call("tools.list", session_id=session_id)["tools"]
    pattern = None if as_json else _pattern_of(client, reply["session"])
    kit.emit(reply, as_json, lambda shown, look: _tools_text(shown, tools, look, pattern))


def _tools_text(reply: Reply, tools: list[Reply], look: Look, pattern: Reply | None) -> list[str]:
    return render.session_tools(reply["session"], tools, look, pattern)


def _changed(client: Client, session_id: str, add: list[str], remove: list[str], as_json: bool) -> list[str]:
    """Return the list in force with names added and removed.

    Raises: Problem -- a name to remove is not on it.
    """
    session = client.call("sessions.get", session_id=session_id)["session"]
    names = list((session.get("effective") or {}).get("auto_approved_tool_names", ()))
    absent = [name for name in remove if name not in names]
    if absent:
        raise Problem(
            f"Not auto-approved in this session anyway: {', '.join(map(kit.visible, absent))}.",
            f"eryx sessions approvals {refs.sure(session_id)}",
        )
    if session.get("approval_settings") is None and not as_json:
        kit.say([f"Starting from the pattern's list: {', '.join(map(kit.visible, names)) or 'nothing'}."])
    return [name for name in dict.fromkeys([*names, *add]) if name not in remove]


def _approves(reply: Reply, pattern: Reply | None) -> list[str]:
    loose = unasked(pattern)
    return [f"auto-approves: {render.auto_approves(reply['session'])}", *([f"tool calls: {loose}"] if loose else [])]


def _revoked(session: Reply, pattern: Reply | None) -> str:
    """Say what asks from now on: a run that is under way asks whatever the rules, a later one follows them."""
    loose = unasked(pattern)
    if not loose:
        return "✓ every further call asks"
    if session["status"] == "running":
        return f"✓ every further call of this run asks; in later runs: {loose}"
    return f"✓ nothing is auto-approved; yet of tool calls {loose}"
