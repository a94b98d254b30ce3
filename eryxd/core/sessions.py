"""Sessions: what they are called, where they stand, and their own auto-approve list.

Source: SES-1 to SES-3, POL-5, VAL-1, VAL-3.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.api.events import EventType, Widening
from eryxd.core.change import Tx, record_offers, touch
from eryxd.core.lists import offers_of, pattern_list, session_list, shown_session
from eryxd.core.views import effective_policy, live_run, pending
from eryxd.domain.catalog import SourceStatus
from eryxd.domain.errors import Invalid, SessionRunning
from eryxd.domain.ids import SessionId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import MAX_HINTS, ApprovalSettings, normalise_names
from eryxd.domain.providers import EntryId, ProviderEntry
from eryxd.domain.session import (
    SCRATCHPAD,
    UNTITLED,
    ListOwner,
    Project,
    Run,
    SessionHead,
    SessionStatus,
    TitleSource,
)

SCRATCHPAD_OVERRIDE: Final = (
    "A scratchpad session takes no auto-approve list of its own; it uses its pattern's."
    " Clearing the list and an empty one are accepted."
)


def create(tx: Tx, request: ask.SessionsCreate) -> out.SessionChanged:
    """Create a session; of the entries that it can see all or none are selected, as the settings say (SES-1)."""
    project = tx.need(Project, SCRATCHPAD if request.project_id is UNSET else request.project_id, "project")
    pattern = tx.need(Pattern, request.pattern_id, "pattern")
    head = SessionHead(
        id=SessionId(tx.new_id("session")),
        project_id=project.id,
        pattern_id=pattern.id,
        title=UNTITLED if request.title is UNSET else _title(request.title),
        title_source=TitleSource.AUTO if request.title is UNSET else TitleSource.MANUAL,
        status=SessionStatus.IDLE,
        created_at=tx.now,
        updated_at=tx.now,
        tooling=_everything(tx, project) if tx.context.select_all else {},
    )
    tx.put(head)
    left = {} if tx.context.select_all else _everything(tx, project)
    names = ", ".join(f"{provider}:{id}" for provider in sorted(left) for id in left[provider])
    warnings = (f"not selected: {names}",) if names else ()
    return replace(changed(tx, head), warnings=warnings)


def _everything(tx: Tx, project: Project) -> dict[str, tuple[str, ...]]:
    """Return every entry that a session of a project can see."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in sorted(tx.all(ProviderEntry), key=lambda entry: (entry.provider, entry.id)):
        if entry.project_id in (UNSET, project.id):
            found[entry.provider] = (*found.get(entry.provider, ()), entry.id)
    return found


def duplicate(tx: Tx, request: ask.SessionsGet) -> out.SessionChanged:
    """Copy a session's settings; its runs, messages and approvals stay where they are."""
    head = shown_session(tx, need(tx, request.session_id))
    copy = replace(
        head,
        id=SessionId(tx.new_id("session")),
        title=f"{head.title} (copy)",
        title_source=TitleSource.MANUAL,
        status=SessionStatus.IDLE,
        last_error=UNSET,
        is_pinned=False,
        is_archived=False,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.put(copy)
    if copy.approval_settings is not UNSET:
        known = offers_of(tx, ListOwner.SESSION, head.id)
        record_offers(tx, ListOwner.SESSION, copy.id, known, known)
    return changed(tx, copy)


def rename(tx: Tx, request: ask.SessionsRename) -> out.SessionChanged:
    """Give a title; from now on it is a person's."""
    head = need(tx, request.session_id)
    return changed(tx, touch(tx, head, title=_title(request.title), title_source=TitleSource.MANUAL))


def _title(text: str) -> str:
    title = text.strip()
    if not title:
        raise Invalid("A title cannot be blank.", problems=["title: is blank"])
    return title


def pin(tx: Tx, request: ask.SessionsPin) -> out.SessionChanged:
    """Pin or unpin."""
    return changed(tx, touch(tx, need(tx, request.session_id), is_pinned=request.is_pinned))


def archive(tx: Tx, request: ask.SessionsArchive) -> out.SessionChanged:
    """Archive or bring back."""
    return changed(tx, touch(tx, need(tx, request.session_id), is_archived=request.is_archived))


def delete(tx: Tx, request: ask.SessionsDelete) -> out.Ended:
    """Delete a session with everything that hangs on it.  A running one must have been settled before."""
    head = need(tx, request.session_id)
    refuse_running(tx, head, "deleted")
    remove(tx, head)
    return out.Ended(seq=0)


def remove(tx: Tx, head: SessionHead) -> None:
    """Take a settled session out, and say so."""
    tx.delete(SessionHead, head.id)
    record_offers(tx, ListOwner.SESSION, head.id, (), {})
    tx.emit(EventType.SESSION_DELETED, session_id=head.id)


def update_tooling(tx: Tx, request: ask.SessionsUpdateTooling) -> out.SessionChanged:
    """Choose provider entries among those that the session can see; unknown ones are refused (SES-1)."""
    head = need(tx, request.session_id)
    refuse_running(tx, head, "changed")
    unknown = list(_unknown_entries(tx, head, request.tooling))
    if unknown:
        raise Invalid(
            "The tooling names what does not exist: " + "; ".join(unknown),
            problems=unknown,
            next="eryx providers list",
        )
    return changed(tx, touch(tx, head, tooling=request.tooling))


def _unknown_entries(tx: Tx, head: SessionHead, tooling: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for provider, ids in tooling.items():
        entries = {entry.id: entry for entry in tx.of(ProviderEntry, provider)}
        kept = head.tooling.get(provider, ())
        if not entries and not kept:
            yield f"tooling.{provider}: there is no tool provider of that name, or it has no entries"
            continue
        for id in ids:
            entry = entries.get(EntryId(id))
            # What was selected before stays: its file may be back in a moment.
            if entry is None and id not in kept:
                near = get_close_matches(id, list(entries), n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                yield f"tooling.{provider}: there is no entry {id!r}{hint}"
            elif entry is not None and entry.project_id not in (UNSET, head.project_id):
                yield f"tooling.{provider}: {id!r} belongs to another project"


def update_approval_settings(tx: Tx, request: ask.SessionsUpdateApprovalSettings) -> out.SessionChanged:
    """Set, empty or clear the session's own list; the three stay distinct (POL-5)."""
    head = need(tx, request.session_id)
    refuse_running(tx, head, "changed")
    before = current_list(tx, head)
    settings: ApprovalSettings | UnsetType = UNSET
    names: tuple[ToolId, ...] = ()
    warnings: list[str] = []
    if request.auto_approved_tool_names is not UNSET:
        names = normalise_names(request.auto_approved_tool_names)
        warnings = _refuse_unfit(tx, head, names)
        settings = ApprovalSettings(auto_approved_tool_names=names)
    record_offers(tx, ListOwner.SESSION, head.id, names, tx.context.catalog)
    head = touch(tx, head, approval_settings=settings)
    for tool in current_list(tx, head):
        if tool not in before:
            tx.emit(EventType.POLICY_WIDENED, session_id=head.id, widening=Widening(tool_id=tool, why="listed"))
    return replace(changed(tx, head), warnings=tuple(warnings))


def _refuse_unfit(tx: Tx, head: SessionHead, names: tuple[ToolId, ...]) -> list[str]:
    """Refuse a list, or return what to warn of."""
    where = "auto_approved_tool_names"
    problems, kept = unknown_tools(tx, names, where, {*current_list(tx, head), *inherited_list(tx, head)})
    if names and head.project_id == SCRATCHPAD:
        raise Invalid(SCRATCHPAD_OVERRIDE, problems=[f"{where}: must be empty or absent", *problems])
    if problems:
        raise Invalid("There are unknown tools in the list: " + "; ".join(problems), problems=problems)
    return kept + shared_tools(tx, names, where)


def revoke(tx: Tx, request: ask.SessionsGet) -> out.SessionChanged:
    """Make every further tool call ask, now, also of a running run and also where no rule covered it (SES-3)."""
    head = need(tx, request.session_id)
    record_offers(tx, ListOwner.SESSION, head.id, (), {})
    head = touch(tx, head, approval_settings=ApprovalSettings(auto_approved_tool_names=()))
    run = live_run(tx, head.id)
    if run is not None:
        tx.put(replace(run, grants=replace(run.grants, revoked=True)))
    return changed(tx, head)


def need(tx: Tx, session: SessionId) -> SessionHead:
    """Return a session's head.

    Raises: NotFound -- naming it.
    """
    return tx.need(SessionHead, session, "session")


def changed(tx: Tx, head: SessionHead) -> out.SessionChanged:
    """Return the reply that carries a session; the engine fills in the seq of its commit."""
    return out.SessionChanged(session=tx.session_view(head.id), seq=0)


def refuse_running(tx: Tx, head: SessionHead, verb: str) -> None:
    """Refuse while a run has not ended.

    Raises: SessionRunning -- saying whether it waits for a person.
    """
    run = live_run(tx, head.id)
    if run is None:
        return
    waiting = len(pending(tx, head.id))
    state = f"waits for {waiting} approval{'s' * (waiting != 1)}" if waiting else "is running"
    raise SessionRunning(
        f"Session {head.id} {state} and cannot be {verb} until its run ends.",
        session_id=head.id,
        run_id=run.id,
        waiting=waiting,
    )


def current_list(tx: Tx, head: SessionHead) -> tuple[ToolId, ...]:
    """Return the list that is in force for the session now: its own, its pattern's, or its frozen run's."""
    if head.approval_settings is not UNSET:
        return session_list(tx, head).names
    pattern = tx.get(Pattern, head.pattern_id)
    run: Run | None = live_run(tx, head.id)
    if pattern is None and run is not None:
        return run.approval_policy.auto_approved_tool_names
    return effective_policy(tx, pattern, head).auto_approved_tool_names


def inherited_list(tx: Tx, head: SessionHead) -> tuple[ToolId, ...]:
    """Return the list that the session has without one of its own."""
    pattern = tx.get(Pattern, head.pattern_id)
    return () if pattern is None else pattern_list(tx, pattern).names


class UnknownTools(NamedTuple):
    """Ids that the catalog does not have: those that are refused, and those that are kept for now."""

    refused: list[str]
    kept: list[str]


def unknown_tools(tx: Tx, names: Iterable[ToolId], where: str, held: Collection[ToolId] = ()) -> UnknownTools:
    """Name the ids that the catalog does not have, all at once, each with what may have been meant (VAL-1).

    While a source is pending or has failed, an id that is `held` already is kept: the list can be edited meanwhile
    (VAL-2).
    """
    catalog = tx.context.catalog
    silent = [source.id for source in tx.context.sources.values() if source.status is not SourceStatus.ANSWERED]
    refused, kept = list[str](), list[str]()
    for name in names:
        if name in catalog:
            continue
        if silent and name in held:
            kept.append(f"{where}: {name!r} is kept; nobody offers it now, and {', '.join(silent)} did not answer")
            continue
        near = get_close_matches(name, list(catalog), n=1) if len(refused) < MAX_HINTS else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        waiting = f" ({', '.join(silent)} did not answer)" if silent else ""
        refused.append(f"{where}: there is no tool {name!r}{hint}{waiting}")
    return UnknownTools(refused, kept)


def shared_tools(tx: Tx, names: Iterable[ToolId], where: str) -> list[str]:
    """Name the ids that several offer: an approval of the id is one of all that offer it today (CAT-8)."""
    catalog = tx.context.catalog
    return [
        f"{where}: {name!r} is offered by {', '.join(catalog[name])}; all of them are approved"
        for name in names
        if name in catalog and len(catalog[name]) > 1
    ]
