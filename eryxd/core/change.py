"""State, and the transaction in which a use case changes it.

`State` is one view of what is kept in memory.  There are two: *committed* is what the store has, *head* is that
plus what is in flight.  A use case is a plain function of a `Tx` over head; what it puts is visible to it at once,
and `Tx.finish` returns the `Change` that the engine commits.

Laws: a use case that raises leaves head as it was; a state holds exactly the kept rows of what was put into it;
every put that has an event type is announced once per change, in the order of first putting, as it ended up.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api.events import Event, EventType
from eryxd.api.replies import BackendState, Effective, SessionView
from eryxd.domain.approval import Approval, ApprovalContent, ApprovalStatus, Decider, brief
from eryxd.domain.errors import NotFound
from eryxd.domain.ids import ApprovalId, BackendName, ProviderId, Record, RunId, SessionId, Timestamp, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import ASK_POLICY, UNAVAILABLE, ApprovalPolicy, EffectivePolicy, effective
from eryxd.domain.session import (
    ListOwner,
    Message,
    Offer,
    Project,
    Run,
    RunInput,
    RunStatus,
    SessionHead,
    Withheld,
)
from eryxd.domain.timeline import TimelineEvent, TimelineStatus
from eryxd.domain.tools import Catalog
from eryxd.plugin.types import Answer

R = TypeVar("R", bound=Record)
Key = Hashable


class Table(NamedTuple):
    """How records of one kind are kept in memory: by key, in groups, while `keep` holds."""

    key: Callable[[Any], Key]
    group: Callable[[Any], Hashable]
    keep: Callable[[Any], bool]


def _id(record: Any) -> Key:
    return str(record.id)


def _always(record: Any) -> bool:
    return True


def _never(record: Any) -> bool:
    return False


TABLES: dict[type[Record], Table] = {
    Pattern: Table(_id, lambda _: None, _always),
    Project: Table(_id, lambda _: None, _always),
    SessionHead: Table(_id, lambda session: session.project_id, _always),
    Offer: Table(
        lambda offer: (offer.owner, offer.owner_id, offer.tool_id),
        lambda offer: (offer.owner, offer.owner_id),
        _always,
    ),
    Run: Table(_id, lambda run: run.session_id, lambda run: run.status is RunStatus.RUNNING),
    Approval: Table(
        _id, lambda approval: approval.session_id, lambda approval: approval.status is ApprovalStatus.PENDING
    ),
    TimelineEvent: Table(_id, lambda event: event.run_id, lambda event: event.status is TimelineStatus.RUNNING),
    Message: Table(_id, lambda message: message.run_id, lambda message: message.streaming is True),
    Withheld: Table(_id, lambda row: row.run_id, _always),
    RunInput: Table(lambda row: (row.run_id, row.agent_id), lambda row: row.run_id, _never),
    ApprovalContent: Table(lambda row: row.approval_id, lambda row: None, _never),
}
"""Every stored kind.  What is not kept in memory is read from the store when it is asked for."""


class State:
    """The rows of one view, by kind and key, with one index each."""

    def __init__(self) -> None:
        self._rows: dict[type[Record], dict[Key, Any]] = {kind: {} for kind in TABLES}
        self._groups: dict[type[Record], dict[Hashable, dict[Key, Any]]] = {kind: {} for kind in TABLES}

    def get(self, kind: type[R], key: Key) -> R | None:
        """Return a kept row."""
        return self._rows[kind].get(key)

    def all(self, kind: type[R]) -> Iterable[R]:
        """Return every kept row of a kind."""
        return self._rows[kind].values()

    def count(self, kind: type[Record]) -> int:
        """Return how many rows of a kind are kept."""
        return len(self._rows[kind])

    def of(self, kind: type[R], group: Hashable) -> list[R]:
        """Return the kept rows of one group: a session's runs, a run's open events."""
        return list(self._groups[kind].get(group, {}).values())

    def put(self, record: Record) -> None:
        """Take a row, or forget it where its kind says so."""
        kind = type(record)
        table = TABLES[kind]
        key = table.key(record)
        self.delete(kind, key)
        if table.keep(record):
            self._rows[kind][key] = record
            self._groups[kind].setdefault(table.group(record), {})[key] = record

    def delete(self, kind: type[Record], key: Key) -> None:
        """Forget a row; forgetting twice is nothing."""
        old = self._rows[kind].pop(key, None)
        if old is None:
            return
        groups = self._groups[kind]
        group = TABLES[kind].group(old)
        del groups[group][key]
        if not groups[group]:
            del groups[group]


class StartRun(NamedTuple):
    """Begin the agents' turns."""

    run_id: RunId


class Release(NamedTuple):
    """Give a waiting gate its answer."""

    run_id: RunId
    approval_id: ApprovalId
    answer: Answer


class StopRun(NamedTuple):
    """End everything the run has started; the run is settled when that is done."""

    run_id: RunId


class ForgetRun(NamedTuple):
    """The run has ended: wake who waits for it, let go of its resources."""

    run: Run


class Expire(NamedTuple):
    """Reject an approval after so many seconds, unless it was resolved."""

    approval_id: ApprovalId
    after_s: float


Effect = StartRun | Release | StopRun | ForgetRun | Expire


class Change(NamedTuple):
    """What one use case wants: rows, events in order, effects after the commit, and the reply."""

    puts: tuple[Record, ...]
    deletes: tuple[tuple[type[Record], Key], ...]
    events: tuple[Event, ...]
    effects: tuple[Effect, ...]
    reply: Any


class Stored(Protocol):
    """How a transaction reads one row that is not kept in memory."""

    def __call__(self, kind: type[R], key: Key) -> R | None:
        """Return the row as the store has it."""


class Context(NamedTuple):
    """The world as a use case may know it.  `own_folders` are eryx's own, which no project may touch."""

    now: Timestamp
    caller: Decider
    new_id: Callable[[str], str]
    number: Callable[[], int]
    later: Callable[[float], Timestamp]
    catalog: Catalog
    backends: Mapping[BackendName, BackendState]
    default_policy: ApprovalPolicy
    default_backend: BackendName | UnsetType
    own_folders: tuple[str, ...]


class Tx:
    """A use case's view of head, and the change it is making."""

    def __init__(
        self,
        head: State,
        committed: State,
        departed: Mapping[tuple[type[Record], Key], Record | None],
        stored: Stored,
        context: Context,
    ) -> None:
        self.committed = committed
        self.context = context
        self.now = context.now
        self._head = head
        self._departed = departed
        self._stored = stored
        self._puts: dict[tuple[type[Record], Key], Record | None] = {}
        self._undo: list[tuple[type[Record], Key, Record | None]] = []
        self._extra: list[Event] = []
        self._effects: list[Effect] = []
        self._sessions: dict[SessionId, None] = {}

    def get(self, kind: type[R], key: Key) -> R | None:
        """Return a row, wherever it is: put just now, in flight, in memory, in the store."""
        row = self._head.get(kind, key)
        if row is not None:
            return row
        for recent in (self._puts, self._departed):
            if (kind, key) in recent:
                return recent[kind, key]  # type: ignore[return-value]
        return None if TABLES[kind].keep is _always else self._stored(kind, key)

    def need(self, kind: type[R], key: Key, noun: str) -> R:
        """Return a row.

        Raises: NotFound -- naming it.
        """
        row = self.get(kind, key)
        if row is None:
            raise NotFound(f"There is no {noun} {key!r}.", id=str(key), noun=noun)
        return row

    def all(self, kind: type[R]) -> Iterable[R]:
        """Return every kept row of a kind."""
        return self._head.all(kind)

    def of(self, kind: type[R], group: Hashable) -> list[R]:
        """Return the kept rows of one group."""
        return self._head.of(kind, group)

    def put(self, record: Record) -> None:
        """Store a row with this change."""
        kind = type(record)
        key = TABLES[kind].key(record)
        self._remember(kind, key)
        self._head.put(record)
        self._puts[kind, key] = record
        if isinstance(record, SessionHead):
            self._sessions[record.id] = None
        elif isinstance(record, Approval) and self._changes_head(record):
            self._sessions[record.session_id] = None

    def _changes_head(self, approval: Approval) -> bool:
        """Whether the session's first waiting approval may be another one now.

        One that joins a queue is told by its own event: telling the whole queue each time would cost its square.
        """
        return approval.status is not ApprovalStatus.PENDING or len(self.of(Approval, approval.session_id)) == 1

    def delete(self, kind: type[Record], key: Key) -> None:
        """Remove a row with this change.  Removing a session's head removes everything that hangs on it."""
        self._remember(kind, key)
        self._head.delete(kind, key)
        self._puts[kind, key] = None

    def _remember(self, kind: type[Record], key: Key) -> None:
        if (kind, key) not in self._puts:
            self._undo.append((kind, key, self._head.get(kind, key)))

    def emit(self, type: EventType, **fields: Any) -> None:
        """Announce something that is not the plain putting of a row."""
        self._extra.append(Event(at=self.now, type=type, **fields))

    def then(self, effect: Effect) -> None:
        """Do something outside once this change is durable."""
        self._effects.append(effect)

    def new_id(self, noun: str) -> str:
        """Return a fresh id for a kind of record."""
        return self.context.new_id(noun)

    def number(self) -> int:
        """Return the next number that orders records."""
        return self.context.number()

    def rollback(self) -> None:
        """Put head back as it was."""
        for kind, key, old in reversed(self._undo):
            if old is None:
                self._head.delete(kind, key)
            else:
                self._head.put(old)

    def finish(self, reply: Any) -> Change:
        """Return the change: rows as they ended up, and what is to be announced of them."""
        puts = tuple(record for record in self._puts.values() if record is not None)
        deletes = tuple(key for key, record in self._puts.items() if record is None)
        # A follower stops at the run's end, so whatever else happened in the same commit comes before it.
        in_order = sorted(puts, key=lambda record: isinstance(record, Run))
        events = [event for record in in_order if (event := self._announce(record)) is not None]
        events += self._extra
        events += [
            Event(at=self.now, type=EventType.SESSION_UPDATED, session_id=session, session=view)
            for session in self._sessions
            if (view := session_view(self._head, session)) is not None
        ]
        return Change(puts, deletes, tuple(events), tuple(self._effects), reply)

    def _announce(self, record: Record) -> Event | None:
        match record:
            case Run():
                return self._event(EventType.RUN_UPDATED, record.session_id, run=record)
            case TimelineEvent():
                return self._event(EventType.TIMELINE_EVENT, record.session_id, timeline_event=record)
            case Message():
                return self._event(EventType.MESSAGE_PUBLISHED, record.session_id, message=record)
            case Approval(status=ApprovalStatus.PENDING):
                return self._event(EventType.APPROVAL_REQUESTED, record.session_id, approval=brief(record))
            case Approval():
                return self._event(EventType.APPROVAL_RESOLVED, record.session_id, approval=brief(record))
            case Pattern():
                return self._event(EventType.PATTERN_SAVED, UNSET, pattern=record)
            case Project():
                return self._event(EventType.PROJECT_UPDATED, UNSET, project=record)
        return None

    def _event(self, type: EventType, session: SessionId | UnsetType, **fields: Any) -> Event:
        return Event(at=self.now, type=type, session_id=session, **fields)

    def session_view(self, session: SessionId) -> SessionView:
        """Return a session as replies carry it."""
        view = session_view(self._head, session)
        if view is None:
            raise NotFound(f"There is no session {session!r}.", id=session, noun="session")
        return view


def pending(state: State | Tx, session: SessionId) -> list[Approval]:
    """Return what waits in a session, in request order."""
    return sorted(state.of(Approval, session), key=lambda approval: approval.number)


def live_run(state: State | Tx, session: SessionId) -> Run | None:
    """Return the session's run that has not ended."""
    return next(iter(state.of(Run, session)), None)


def session_view(state: State, session: SessionId) -> SessionView | None:
    """Join a session's head with its approvals, as briefs, and the list in force.  None: no such session."""
    head = state.get(SessionHead, session)
    if head is None:
        return None
    waiting = [brief(approval) for approval in pending(state, session)]
    pattern = state.get(Pattern, head.pattern_id)
    in_force: Effective | UnsetType = UNSET
    if pattern is not None or head.approval_settings is not UNSET:
        policy = effective_policy(pattern, head)
        in_force = Effective(auto_approved_tool_names=policy.auto_approved_tool_names, list_from=policy.list_from)
    return SessionView(
        **{name: getattr(head, name) for name in head.__struct_fields__},
        pending_approval=waiting[0] if waiting else UNSET,
        pending_approval_queue=tuple(waiting[1:]),
        effective=in_force,
    )


def effective_policy(pattern: Pattern | None, head: SessionHead) -> EffectivePolicy:
    """Return what a run of this session would obey; without a pattern or a policy everything asks (POL-9)."""
    settings = None if head.approval_settings is UNSET else head.approval_settings
    if pattern is None:
        return effective(ASK_POLICY, settings)
    if pattern.approval_policy is UNSET:
        # Nobody knows what the session's own list was meant to go with, so it allows nothing either.
        return UNAVAILABLE
    return effective(pattern.approval_policy, settings)


def record_offers(
    tx: Tx,
    owner: ListOwner,
    owner_id: str,
    tools: Collection[ToolId],
    offered: Mapping[ToolId, tuple[ProviderId, ...]],
) -> None:
    """Keep, with ids of a list, the providers that they are granted to (POL-11); forget ids that left the list.

    An id of the list that `offered` does not name keeps the record it has.  One without a record asks.
    """
    for offer in tx.of(Offer, (owner, owner_id)):
        if offer.tool_id not in tools:
            tx.delete(Offer, (owner, owner_id, offer.tool_id))
    for tool in tools:
        if tool in offered:
            tx.put(Offer(owner=owner, owner_id=owner_id, tool_id=tool, providers=offered[tool]))


def offers_of(state: State | Tx, owner: ListOwner, owner_id: str) -> dict[ToolId, tuple[ProviderId, ...]]:
    """Return the recorded providers of a list's ids."""
    return {offer.tool_id: offer.providers for offer in state.of(Offer, (owner, owner_id))}


def touch(tx: Tx, head: SessionHead, **changes: Any) -> SessionHead:
    """Put a session's head with changes, stamped now."""
    head = replace(head, updated_at=tx.now, **changes)
    tx.put(head)
    return head


encode = msgspec.msgpack.Encoder().encode
"""A record as bytes, for the store and the socket."""
