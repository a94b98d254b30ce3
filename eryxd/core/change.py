"""The transaction in which a use case changes the state, and the change that comes of it.

A use case is a plain function of a `Tx` over head; what it puts is visible to it at once, and `Tx.finish` returns the
`Change` that the engine commits.

Laws: a use case that raises leaves head as it was; every put that has an event type is announced once per change, in
the order of first putting, as it ended up.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api.events import Event, EventType
from eryxd.api.replies import BackendState, SessionView, SourceState
from eryxd.core.lists import in_force
from eryxd.core.state import TABLES, Key, R, State, always
from eryxd.core.views import session_view
from eryxd.domain.approval import Approval, ApprovalStatus, Decider, brief
from eryxd.domain.catalog import SourceId
from eryxd.domain.errors import NotFound
from eryxd.domain.ids import ApprovalId, BackendName, ProviderId, Record, RunId, SessionId, Timestamp, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import ApprovalPolicy
from eryxd.domain.providers import ProviderEntry
from eryxd.domain.session import (
    ListOwner,
    Message,
    Offers,
    Project,
    Run,
    SessionHead,
)
from eryxd.domain.timeline import TimelineEvent
from eryxd.domain.tools import Catalog
from eryxd.plugin.types import Answer


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


class Sweep(NamedTuple):
    """Write the prunes into the stored lists, a few at a time."""


class Ask(NamedTuple):
    """Ask a source which tools it has; its definition has changed."""

    source: SourceId


Effect = StartRun | Release | StopRun | ForgetRun | Expire | Sweep | Ask


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
    own_folders: tuple[str, ...]
    sources: Mapping[SourceId, SourceState] = {}
    select_all: bool = False


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
        return None if TABLES[kind].keep is always else self._stored(kind, key)

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
            case ProviderEntry():
                return self._event(EventType.PROVIDER_SAVED, UNSET, entry=record)
        return None

    def _event(self, type: EventType, session: SessionId | UnsetType, **fields: Any) -> Event:
        return Event(at=self.now, type=type, session_id=session, **fields)

    def session_view(self, session: SessionId) -> SessionView:
        """Return a session as replies carry it."""
        view = session_view(self._head, session)
        if view is None:
            raise NotFound(f"There is no session {session!r}.", id=session, noun="session")
        return view


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
    key = (owner, owner_id)
    row = tx.get(Offers, key)
    if not tools:
        if row is not None:
            tx.delete(Offers, key)
        return
    known = in_force(tx, owner, owner_id, () if row is None else tuple(row.providers)).providers
    tx.put(
        Offers(
            owner=owner,
            owner_id=owner_id,
            providers={
                tool: tuple(offered[tool]) if tool in offered else known[tool]
                for tool in tools
                if tool in offered or tool in known
            },
            number=tx.number(),
            drifted=tuple(tool for tool in row.drifted if tool in tools and tool not in offered) if row else (),
        )
    )


def touch(tx: Tx, head: SessionHead, **changes: Any) -> SessionHead:
    """Put a session's head with changes, stamped now."""
    head = replace(head, updated_at=tx.now, **changes)
    tx.put(head)
    return head
