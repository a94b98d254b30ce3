"""Stores of any size: real records, through the store's own tables and encoder, written without the daemon.

A store of a million runs takes a while to make, so it is kept in the cache under a name that changes with whatever
it is made from.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from bench import records
from bench.records import FINISHED, NOON, SESSION, TEXT, Letters
from eryxd.api.events import TOPIC, Event, EventType
from eryxd.core.state import encode
from eryxd.daemon.rows import COLUMNS
from eryxd.daemon.schema import MIGRATIONS
from eryxd.daemon.store import STORE_FILE, Store, encoded
from eryxd.domain.approval import Approval
from eryxd.domain.ids import Record, SessionId
from eryxd.domain.pattern import Pattern
from eryxd.domain.session import Message, Offers, Project, Run, SessionHead
from eryxd.domain.timeline import TimelineEvent, TimelineKind

JOURNAL_EVENTS: Final = 100_000
"""As many events as the journal keeps by default."""


class Size(NamedTuple):
    """How many sessions, and how many finished runs each has had."""

    sessions: int
    runs_each: int

    def __str__(self) -> str:
        return f"{self.sessions:,} sessions of {self.runs_each} runs"


LARGE: Final = Size(10_000, 100)
SMALL: Final = Size(10, 100)


def cached(size: Size, cache: Path) -> Path:
    """Return a store of this size, made if it is not in the cache.  To be copied, not to be used."""
    path = cache / f"store-{size.sessions}x{size.runs_each}-{_fingerprint()}.db"
    if not path.exists():
        for old in cache.glob(f"store-{size.sessions}x{size.runs_each}-*.db"):
            old.unlink()
        folder = cache / "making"
        shutil.rmtree(folder, ignore_errors=True)
        write(size, folder)
        (folder / STORE_FILE).replace(path)
        shutil.rmtree(folder)
    return path


def install(store: Path, state_dir: Path) -> None:
    """Put a copy of a store where a daemon will find it."""
    state_dir.mkdir(mode=0o700, parents=True)
    copy = state_dir / STORE_FILE
    shutil.copyfile(store, copy)
    copy.chmod(0o600)
    # Or the daemon's first checkpoint would wait for what was only copied.
    with copy.open("rb") as file:
        os.fsync(file.fileno())


def write(size: Size, state_dir: Path) -> None:
    """Make a store of this size in a new folder."""
    state_dir.mkdir(mode=0o700, parents=True)
    Store(state_dir).close()
    db = sqlite3.connect(state_dir / STORE_FILE, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -1000000")
        db.execute("BEGIN")
        _fill(db, size)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()


def _fingerprint() -> str:
    sources = (Path(file).read_text(encoding="utf-8") for file in (__file__, records.__file__))
    layouts = json.dumps(msgspec.json.schema_components(tuple(COLUMNS)), sort_keys=True)
    return hashlib.sha256("\0".join([*MIGRATIONS, *sources, layouts]).encode()).hexdigest()[:12]


def _fill(db: sqlite3.Connection, size: Size) -> None:
    letters = Letters(Random(size.sessions))  # noqa: S311 -- the same store each time
    _insert(db, Project, [records.project()])
    _insert(db, Pattern, [records.pattern()])
    _insert(db, Offers, [records.offers()])
    sessions = [
        records.session(SESSION),
        *(records.session(SessionId("s" + letters.next())) for _ in range(size.sessions - 1)),
    ]
    _insert(db, SessionHead, sessions)
    last_runs = list(_write_runs(db, sessions, size.runs_each, letters))
    number = size.sessions * size.runs_each
    _insert(db, Message, records.messages(last_runs, number, letters))
    _insert(db, TimelineEvent, records.timeline(last_runs, number, letters))
    _insert(db, Approval, (records.approval(run, number + n, letters) for n, run in enumerate(last_runs)))
    db.execute("INSERT INTO message_text (rowid, content) SELECT number, ? FROM message", (TEXT,))
    _write_journal(db, sessions, min(JOURNAL_EVENTS, number))
    db.execute("UPDATE meta SET value = ? WHERE key = 'number'", (str(number + 8 * size.sessions),))


def _insert(db: sqlite3.Connection, kind: type[Record], rows: Iterable[Record]) -> None:
    columns = COLUMNS[kind]
    names = (*columns.names, "body")
    sql = f"INSERT INTO {columns.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    db.executemany(sql, ((*columns.values(record), encode(record)) for record in rows))


def _write_runs(db: sqlite3.Connection, sessions: list[SessionHead], each: int, letters: Letters) -> Iterator[Run]:
    """Write rounds of one run for each session, as time would; yield the last run of each session."""
    number = 0
    for turn in range(each):
        first = number
        runs = [records.run(session.id, first + n, letters) for n, session in enumerate(sessions)]
        number += len(runs)
        _insert(db, Run, runs)
        if turn == each - 1:
            yield from runs


def _write_journal(db: sqlite3.Connection, sessions: list[SessionHead], events: int) -> None:
    """End the journal with this many events, numbered as if there had been others before."""
    first = 1_000_000
    event = Event(
        at=NOON, type=EventType.TIMELINE_EVENT, timeline_event=records.event(FINISHED, TimelineKind.MESSAGE, 0, "")
    )
    topic = TOPIC[event.type].value
    rows = (
        (seq, NOON, topic, sessions[seq % len(sessions)].id, encoded(event, seq))
        for seq in range(first, first + events)
    )
    db.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("UPDATE meta SET value = ? WHERE key = 'seq'", (str(first + events - 1),))
