"""How records lie in tables: the key columns of each kind, and the statements that write, remove and read one."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from eryxd.core.state import GENERATION, TABLES, Key
from eryxd.domain.approval import Approval, ApprovalContent
from eryxd.domain.catalog import Generation, Prune, SourceAnswer
from eryxd.domain.ids import Record
from eryxd.domain.pattern import Pattern
from eryxd.domain.providers import ProviderEntry, Shadowed
from eryxd.domain.session import Message, Offers, Project, Run, RunInput, SessionHead, Withheld
from eryxd.domain.timeline import TimelineEvent


class Columns(NamedTuple):
    """How a kind is written: its table, key columns in order, and their values for a record."""

    table: str
    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    key: tuple[str, ...] = ("id",)


def _live(record: Any) -> int:
    return int(TABLES[type(record)].keep(record))


COLUMNS: Final[dict[type[Record], Columns]] = {
    Pattern: Columns("pattern", ("id",), lambda r: (r.id,)),
    Project: Columns("project", ("id",), lambda r: (r.id,)),
    SessionHead: Columns("session", ("id",), lambda r: (r.id,)),
    Offers: Columns("offers", ("owner", "owner_id"), lambda r: (r.owner.value, r.owner_id), ("owner", "owner_id")),
    SourceAnswer: Columns("answer", ("source",), lambda r: (r.source,), ("source",)),
    Generation: Columns("generation", ("id",), lambda _: (GENERATION,)),
    Prune: Columns("prune", ("id",), lambda r: (str(r.number),)),
    Shadowed: Columns("shadowed", ("kind", "id"), lambda r: (r.kind, r.id), ("kind", "id")),
    ProviderEntry: Columns("entry", ("provider", "id"), lambda r: (r.provider, r.id), ("provider", "id")),
    Run: Columns("run", ("id", "session_id", "number", "live"), lambda r: (r.id, r.session_id, r.number, _live(r))),
    Message: Columns(
        "message", ("id", "session_id", "number", "live"), lambda r: (r.id, r.session_id, r.number, _live(r))
    ),
    TimelineEvent: Columns(
        "timeline",
        ("id", "run_id", "number", "live"),
        lambda r: (r.id, r.run_id, r.number, _live(r)),
    ),
    Approval: Columns(
        "approval", ("id", "session_id", "number", "live"), lambda r: (r.id, r.session_id, r.number, _live(r))
    ),
    ApprovalContent: Columns(
        "approval_content",
        ("approval_id", "session_id"),
        lambda r: (r.approval_id, r.session_id),
        ("approval_id",),
    ),
    Withheld: Columns(
        "withheld",
        ("id", "session_id", "run_id", "number"),
        lambda r: (r.id, r.session_id, r.run_id, r.number),
    ),
    RunInput: Columns(
        "run_input",
        ("run_id", "agent_id", "session_id"),
        lambda r: (r.run_id, r.agent_id, r.session_id),
        ("run_id", "agent_id"),
    ),
}

DECODERS: Final = {kind: msgspec.msgpack.Decoder(kind) for kind in COLUMNS}
LOADED: Final[tuple[type[Record], ...]] = (
    Pattern,
    Project,
    SessionHead,
    Offers,
    Withheld,
    SourceAnswer,
    Generation,
    Prune,
    ProviderEntry,
    Shadowed,
)
"""Kept in memory whole."""
LOADED_LIVE: Final[tuple[type[Record], ...]] = (Run, Message, TimelineEvent, Approval)
"""Kept in memory while they are not finished."""


def _upsert(columns: Columns) -> str:
    names = (*columns.names, "body")
    # A record's number never changes, and setting a row's own number would move the row.
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in (*columns.key, "number"))
    return (
        f"INSERT INTO {columns.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        f" ON CONFLICT ({', '.join(columns.key)}) DO UPDATE SET {updates}"
    )


def _where_key(columns: Columns) -> str:
    return " AND ".join(f"{name} = ?" for name in columns.key)


UPSERT: Final = {kind: _upsert(columns) for kind, columns in COLUMNS.items()}
DELETE: Final = {
    kind: f"DELETE FROM {columns.table} WHERE {_where_key(columns)}"  # noqa: S608
    for kind, columns in COLUMNS.items()
}
SELECT: Final = {
    kind: f"SELECT body FROM {columns.table} WHERE {_where_key(columns)}"  # noqa: S608
    for kind, columns in COLUMNS.items()
}

DELETE_SESSION: Final = (
    "DELETE FROM message_text WHERE rowid IN (SELECT number FROM message WHERE session_id = ?)",
    "DELETE FROM timeline WHERE run_id IN (SELECT id FROM run WHERE session_id = ?)",
    *(
        f"DELETE FROM {table} WHERE session_id = ?"  # noqa: S608
        for table in ("run", "message", "approval", "approval_content", "withheld", "run_input")
    ),
)
"""Everything that hangs on a session; the timeline goes while its runs can still be found."""


def key_values(key: Key) -> tuple[str, ...]:
    """Return a record's key as SQL parameters."""
    return tuple(str(part) for part in key) if isinstance(key, tuple) else (str(key),)
