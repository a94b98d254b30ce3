"""Answers that change nothing.

They rest on what is durable: memory for what lives, the reading thread for the rest.
"""

import heapq
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd import __version__
from eryxd.api import replies as out, requests as ask
from eryxd.api.describe import describe
from eryxd.api.methods import PROTOCOL
from eryxd.core import approvals as approval_rules
from eryxd.core.change import Tx
from eryxd.core.lists import shown_pattern
from eryxd.core.state import Key, State, encode
from eryxd.core.views import pending, session_view
from eryxd.daemon import clock
from eryxd.daemon.daemon import Daemon
from eryxd.daemon.history import LAST, PAGE_BYTES, Page
from eryxd.domain.approval import (
    SHOWN_BYTES,
    Approval,
    ApprovalContent,
    ApprovalStatus,
    brief,
    message_content,
    shown_messages,
    tool_content,
    whole_messages,
)
from eryxd.domain.errors import Invalid, NotFound
from eryxd.domain.ids import Record, SessionId
from eryxd.domain.pattern import MODE_UNAVAILABLE, Mode, Pattern
from eryxd.domain.plugins import PluginStatus
from eryxd.domain.policy import CheckpointKind
from eryxd.domain.session import SCRATCHPAD, Project, Run, SessionHead, Withheld

R = TypeVar("R", bound=Record)

MAX_WORDS = 16
"""Words of one search: each is a search of its own, and others wait to read meanwhile."""

SNAPSHOT_SESSIONS = 200
"""How many session heads a snapshot carries; the rest is paged."""


def hello(daemon: Daemon, request: ask.Hello) -> out.HelloReply:
    """Say who answers.

    Raises: Invalid -- the client speaks another protocol; says which side to restart.
    """
    if request.protocol is not UNSET and request.protocol != PROTOCOL:
        older = "the client is older" if request.protocol < PROTOCOL else "the daemon is older"
        fix = "update the client" if request.protocol < PROTOCOL else "restart the daemon: eryx daemon stop"
        raise Invalid(
            f"The daemon speaks protocol {PROTOCOL}, the client {request.protocol}; {older}: {fix}.",
            protocol=PROTOCOL,
        )
    return out.HelloReply(
        protocol=PROTOCOL,
        version=__version__,
        epoch=daemon.epoch,
        plugins=tuple(one.name for one in daemon.plugins.states if one.status is PluginStatus.ENABLED),
        catalog_generation=daemon.sources.catalog.generation,
    )


def ping(daemon: Daemon, request: ask.Nothing) -> out.Pong:
    """Say that the loop turns."""
    return out.Pong(at=clock.now())


def api_describe(daemon: Daemon, request: ask.Nothing) -> out.Description:
    """Describe the interface."""
    return describe()


def status(daemon: Daemon, request: ask.Nothing) -> out.Status:
    """Show the daemon."""
    engine = daemon.engine
    return out.Status(
        version=__version__,
        pid=os.getpid(),
        started_at=daemon.started_at,
        epoch=daemon.epoch,
        seq=engine.seq,
        sessions=engine.committed.count(SessionHead),
        running=engine.committed.count(Run),
        waiting=engine.committed.count(Approval),
        store=out.StoreState(
            path=str(daemon.store_path),
            writable=engine.problem is None,
            problem=UNSET if engine.problem is None else engine.problem,
        ),
        backends=tuple(daemon.backends.states[name] for name in sorted(daemon.backends.states)),
        warnings=(*daemon.warnings, *_file_warnings(daemon), *daemon.plugins.trouble(), *daemon.sources.trouble()),
        refusals=tuple(daemon.refusals),
    )


def _file_warnings(daemon: Daemon) -> list[str]:
    return [] if daemon.reloader is None else daemon.reloader.warnings()


async def capabilities(daemon: Daemon, request: ask.CapabilitiesOf) -> out.CapabilitiesReply:
    """Show what backends can do, asking those that were never asked."""
    states = await daemon.backends.describe(request.backend or None)
    return out.CapabilitiesReply(backends=states, modes=modes())


def modes() -> tuple[out.ModeState, ...]:
    """Return every mode with why it cannot run, where it cannot."""
    return tuple(
        out.ModeState(mode=mode, available=mode not in MODE_UNAVAILABLE, reason=MODE_UNAVAILABLE.get(mode, UNSET))
        for mode in Mode
    )


def projects(daemon: Daemon, request: ask.Nothing) -> out.Projects:
    """List projects, the scratchpad first."""
    return out.Projects(projects=_projects(daemon.engine.committed))


def _projects(state: State) -> tuple[Project, ...]:
    return tuple(sorted(state.all(Project), key=lambda one: (one.id != SCRATCHPAD, one.name.casefold(), one.id)))


def pattern_list(daemon: Daemon, request: ask.Nothing) -> out.Patterns:
    """List patterns, favourites first."""
    return out.Patterns(patterns=_patterns(daemon.engine.committed))


def _patterns(state: State) -> tuple[Pattern, ...]:
    found = (shown_pattern(state, one) for one in state.all(Pattern))
    return tuple(sorted(found, key=lambda one: (not one.is_favorite, one.name.casefold(), one.id)))


def pattern_get(daemon: Daemon, request: ask.PatternsGet) -> out.PatternReply:
    """Show one pattern."""
    pattern = need(daemon, Pattern, request.pattern_id, "pattern")
    return out.PatternReply(pattern=shown_pattern(daemon.engine.committed, pattern))


def sessions(daemon: Daemon, request: ask.SessionsList) -> out.Sessions:
    """List sessions, pinned ones first, then by newest change."""
    state = daemon.engine.committed
    source = state.all(SessionHead)
    if request.project_id is not UNSET:
        need(daemon, Project, request.project_id, "project")
        source = state.of(SessionHead, request.project_id)
    shown = (head for head in source if request.archived or not head.is_archived)
    return _session_page(state, shown, request.limit, request.cursor)


def _session_page(
    state: State, heads: Iterable[SessionHead], limit: int, cursor: str | UnsetType = UNSET, beside: int = 0
) -> out.Sessions:
    """Return a page with at least one session, that ends early when it and the bytes `beside` it are too many."""
    if cursor is not UNSET:
        heads = (head for head in heads if _order(head) < tuple(cursor.split(" ")))
    page = heapq.nlargest(limit + 1, heads, key=_order)
    views: list[out.SessionView] = []
    size = beside
    for head in page[:limit]:
        view = session_view(state, head.id)
        if view is not None:
            size += len(encode(view))
            if views and size > PAGE_BYTES:
                break
            views.append(view)
    more = " ".join(_order(views[-1])) if views and len(views) < len(page) else UNSET
    return out.Sessions(sessions=tuple(views), cursor=more)


def _order(head: SessionHead) -> tuple[str, str, str]:
    return str(int(head.is_pinned)), head.updated_at, head.id


def session_get(daemon: Daemon, request: ask.SessionsGet) -> out.SessionReply:
    """Show one session."""
    return out.SessionReply(session=view_of(daemon, request.session_id))


def view_of(daemon: Daemon, session: SessionId) -> out.SessionView:
    """Return a session as replies carry it.

    Raises: NotFound.
    """
    need(daemon, SessionHead, session, "session")
    view = session_view(daemon.engine.committed, session)
    assert view is not None  # noqa: S101 -- it was there a line ago, and nothing has been awaited
    return view


async def search(daemon: Daemon, request: ask.SessionsSearch) -> out.Sessions:
    """Find sessions in which every word occurs: in title, project, pattern or a published message."""
    # A NUL would end the query for SQLite, and no word has one.
    words = request.query.replace("\0", " ").split()
    if not words:
        raise Invalid("There is nothing to search for.", problems=["query: is blank"])
    if len(words) > MAX_WORDS:
        raise Invalid(f"At most {MAX_WORDS} words can be searched for at once.", problems=["query: has too many words"])
    said = await daemon.history.sessions_saying(words)
    state = daemon.engine.committed
    found = (
        head
        for head in state.all(SessionHead)
        if (request.archived or not head.is_archived)
        and all(head.id in ids or word.casefold() in _words(state, head) for word, ids in zip(words, said, strict=True))
    )
    return _session_page(state, found, request.limit)


def _words(state: State, head: SessionHead) -> str:
    project, pattern = state.get(Project, head.project_id), state.get(Pattern, head.pattern_id)
    return f"{head.title}\n{project.name if project else ''}\n{pattern.name if pattern else ''}".casefold()


async def messages(daemon: Daemon, request: ask.MessagesList) -> out.Messages:
    """Read the transcript, oldest first; the cursor leads to what is older."""
    need(daemon, SessionHead, request.session_id, "session")
    before = _number(request.cursor, LAST)
    page = await daemon.history.messages(request.session_id, before, request.limit)
    return out.Messages(messages=tuple(reversed(page.rows)), cursor=_cursor(page))


def run_get(daemon: Daemon, request: ask.RunsGet) -> out.RunReply:
    """Show one run."""
    return out.RunReply(run=need(daemon, Run, request.run_id, "run"))


async def run_list(daemon: Daemon, request: ask.RunsList) -> out.Runs:
    """List runs, newest first."""
    if request.session_id is not UNSET:
        need(daemon, SessionHead, request.session_id, "session")
    page = await daemon.history.runs(request.session_id or None, _number(request.cursor, LAST), request.limit)
    return out.Runs(runs=page.rows, cursor=_cursor(page))


async def run_wait(daemon: Daemon, request: ask.RunsWait) -> out.RunReply:
    """Answer when the run has ended, or when the time is up."""
    need(daemon, Run, request.run_id, "run")
    await daemon.runs.wait(request.run_id, request.timeout_s)
    return out.RunReply(run=need(daemon, Run, request.run_id, "run"))


async def approval_list(daemon: Daemon, request: ask.ApprovalsList) -> out.Approvals:
    """List what waits, oldest first; or what was decided, newest first."""
    state = daemon.engine.committed
    if request.session_id is not UNSET:
        need(daemon, SessionHead, request.session_id, "session")
    if request.resolved:
        before = _number(request.cursor, LAST)
        past = await daemon.history.resolved(request.session_id or None, before, request.limit)
        return out.Approvals(approvals=tuple(brief(row) for row in past.rows), cursor=_cursor(past))
    waiting = state.all(Approval) if request.session_id is UNSET else pending(state, request.session_id)
    after = _number(request.cursor, 0)
    page = heapq.nsmallest(
        request.limit + 1, (one for one in waiting if one.number > after), key=lambda one: one.number
    )
    more = str(page[request.limit - 1].number) if len(page) > request.limit else UNSET
    return out.Approvals(approvals=tuple(brief(one) for one in page[: request.limit]), cursor=more)


def approval_get(daemon: Daemon, request: ask.ApprovalsGet) -> out.ApprovalReply:
    """Show one approval with what it covers; what is held back is shown here and nowhere else."""
    state = daemon.engine.committed
    approval = need(daemon, Approval, request.approval_id, "approval")
    queue = pending(state, approval.session_id)
    position = next((n for n, one in enumerate(queue, 1) if one.id == approval.id), UNSET)
    if approval.status is not ApprovalStatus.PENDING:
        return out.ApprovalReply(approval=approval, waiting=len(queue))
    if approval.kind is CheckpointKind.FINAL_RESPONSE:
        shown, cut = shown_messages(_withheld(state, approval))
        approval = replace(approval, messages=shown, messages_truncated=cut)
    return out.ApprovalReply(
        approval=approval,
        waiting=len(queue),
        position=position,
        remember=daemon.engine.look(_preview, approval),
    )


def _preview(tx: Tx, approval: Approval) -> out.RememberPreview:
    return approval_rules.preview(tx, approval)


def _withheld(state: State, approval: Approval) -> list[Withheld]:
    return sorted(state.of(Withheld, approval.run_id), key=lambda row: row.number)


def approval_content(daemon: Daemon, request: ask.ApprovalsContent) -> out.ContentPage:
    """Read the whole content behind an approval, a page at a time: JSON in UTF-8, as the digest covers it."""
    approval = need(daemon, Approval, request.approval_id, "approval")
    body = _content(daemon, approval)
    if request.offset > len(body):
        raise Invalid(f"The content ends at byte {len(body)}.", problems=["offset: is beyond the end"])
    page = body[request.offset : request.offset + SHOWN_BYTES]
    end = request.offset + len(page)
    return out.ContentPage(body=page, total=len(body), next_offset=end if end < len(body) else UNSET)


def _content(daemon: Daemon, approval: Approval) -> bytes:
    if approval.kind is CheckpointKind.FINAL_RESPONSE:
        return message_content(whole_messages(_withheld(daemon.engine.committed, approval)))
    stored = daemon.engine.stored(ApprovalContent, approval.id)
    if stored is not None:
        return stored.body
    return tool_content(approval.permission) if approval.permission is not UNSET else b""


async def timeline(daemon: Daemon, request: ask.TimelineGet) -> out.Timeline:
    """Show what a run did, in order."""
    need(daemon, Run, request.run_id, "run")
    page = await daemon.history.timeline(request.run_id, _number(request.cursor, -1), request.limit)
    run = need(daemon, Run, request.run_id, "run")
    return out.Timeline(run=run, events=page.rows, seq=page.seq, cursor=_cursor(page))


def workspace(daemon: Daemon, request: ask.Nothing) -> out.Workspace:
    """Take one consistent snapshot."""
    state = daemon.engine.committed
    projects, patterns = _projects(state), _patterns(state)
    beside = sum(len(encode(row)) for row in (*projects, *patterns))
    page = _session_page(state, state.all(SessionHead), SNAPSHOT_SESSIONS, beside=beside)
    return out.Workspace(
        epoch=daemon.epoch,
        seq=daemon.engine.seq,
        projects=projects,
        patterns=patterns,
        sessions=page.sessions,
        settings=daemon.shown_settings(),
        cursor=page.cursor,
    )


async def store_check(daemon: Daemon, request: ask.Nothing) -> out.StoreChecked:
    """Let the store check itself."""
    problems = await daemon.history.check()
    path = daemon.store_path
    # What was committed lately still lies in the log beside the file.
    size = sum(part.stat().st_size for part in (path, path.with_name(path.name + "-wal")) if part.exists())
    return out.StoreChecked(problems=tuple(problems), path=str(path), bytes=size)


def need(daemon: Daemon, kind: type[R], key: Key, noun: str) -> R:
    """Return a durable row.

    Raises: NotFound -- naming it.
    """
    row: Any = daemon.engine.committed.get(kind, key) or daemon.engine.stored(kind, key)
    if row is None:
        raise NotFound(f"There is no {noun} {key!r}.", id=str(key), noun=noun)
    return row  # type: ignore[no-any-return]


def _cursor(page: Page[Any]) -> str | UnsetType:
    return str(page.rows[-1].number) if page.more else UNSET


def _number(cursor: str | UnsetType, default: int) -> int:
    if cursor is UNSET:
        return default
    if not cursor.isdecimal() or len(cursor) > 18:
        raise Invalid("The cursor is not one of ours.", problems=["cursor"])
    return int(cursor)
