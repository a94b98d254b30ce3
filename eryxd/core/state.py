"""One view of what is kept in memory: rows by kind and key, with one index each.

There are two: *committed* is what the store has, *head* is that plus what is in flight.

Law: a state holds exactly the kept rows of what was put into it, and of those each in its group.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from eryxd.domain.approval import Approval, ApprovalContent, ApprovalStatus
from eryxd.domain.catalog import Generation, Prune, SourceAnswer
from eryxd.domain.ids import Record
from eryxd.domain.pattern import Pattern
from eryxd.domain.providers import ProviderEntry, Shadowed
from eryxd.domain.session import (
    Message,
    Offers,
    Project,
    Run,
    RunInput,
    RunStatus,
    SessionHead,
    Withheld,
)
from eryxd.domain.timeline import TimelineEvent, TimelineStatus

R = TypeVar("R", bound=Record)
Key = Hashable


GENERATION: Final = "catalog"
"""Key of the one row that counts the catalog's changes."""


class Table(NamedTuple):
    """How records of one kind are kept in memory: by key, in groups, while `keep` holds."""

    key: Callable[[Any], Key]
    group: Callable[[Any], Hashable]
    keep: Callable[[Any], bool]


def _id(record: Any) -> Key:
    return str(record.id)


def always(record: Any) -> bool:
    """Keep every row of a kind."""
    return True


def _never(record: Any) -> bool:
    return False


TABLES: dict[type[Record], Table] = {
    Pattern: Table(_id, lambda _: None, always),
    Project: Table(_id, lambda _: None, always),
    SessionHead: Table(_id, lambda session: session.project_id, always),
    Offers: Table(lambda row: (row.owner, row.owner_id), lambda _: None, always),
    SourceAnswer: Table(lambda row: str(row.source), lambda _: None, always),
    Generation: Table(lambda _: GENERATION, lambda _: None, always),
    Prune: Table(lambda row: str(row.number), lambda _: None, always),
    Shadowed: Table(lambda row: (row.kind, row.id), lambda _: None, always),
    ProviderEntry: Table(lambda row: (row.provider, row.id), lambda row: row.provider, always),
    Run: Table(_id, lambda run: run.session_id, lambda run: run.status is RunStatus.RUNNING),
    Approval: Table(
        _id, lambda approval: approval.session_id, lambda approval: approval.status is ApprovalStatus.PENDING
    ),
    TimelineEvent: Table(_id, lambda event: event.run_id, lambda event: event.status is TimelineStatus.RUNNING),
    Message: Table(_id, lambda message: message.run_id, lambda message: message.streaming is True),
    Withheld: Table(_id, lambda row: row.run_id, always),
    RunInput: Table(lambda row: (row.run_id, row.agent_id), lambda row: row.run_id, _never),
    ApprovalContent: Table(lambda row: row.approval_id, lambda row: None, _never),
}
"""Every stored kind.  What is not kept in memory is read from the store when it is asked for."""


class View(Protocol):
    """What both a state and a transaction can tell."""

    def get(self, kind: type[R], key: Key) -> R | None:
        """Return a row."""

    def of(self, kind: type[R], group: Hashable) -> list[R]:
        """Return the kept rows of one group."""


class State:
    """The rows of one view, by kind and key, with one index each."""

    def __init__(self) -> None:
        self._rows: dict[type[Record], dict[Key, Any]] = {kind: {} for kind in TABLES}
        self._groups: dict[type[Record], dict[Hashable, dict[Key, Any]]] = {kind: {} for kind in TABLES}
        self.answers_version = 0
        """Grows whenever what the catalog is made of changes."""

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
        self.answers_version += kind is SourceAnswer
        if table.keep(record):
            self._rows[kind][key] = record
            self._groups[kind].setdefault(table.group(record), {})[key] = record

    def delete(self, kind: type[Record], key: Key) -> None:
        """Forget a row; forgetting twice is nothing."""
        old = self._rows[kind].pop(key, None)
        if old is None:
            return
        self.answers_version += kind is SourceAnswer
        groups = self._groups[kind]
        group = TABLES[kind].group(old)
        del groups[group][key]
        if not groups[group]:
            del groups[group]


encode = msgspec.msgpack.Encoder().encode
"""A record as bytes, for the store and the socket."""
