"""The store: one SQLite file, one writer.

Laws: a batch is in the file whole or not at all; a commit that returned has been synced; a file that is missing,
foreign, broken or from a later version is refused and left alone, never replaced by an empty one.

Source: DUR rules of the project; `docs/architecture.md`, "The store".
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from eryxd.api.events import TOPIC, Event
from eryxd.core.change import Change
from eryxd.core.state import Key, R, State, encode
from eryxd.daemon.rows import COLUMNS, DECODERS, DELETE, DELETE_SESSION, LOADED, LOADED_LIVE, SELECT, UPSERT, key_values
from eryxd.daemon.schema import APPLICATION_ID, MIGRATIONS
from eryxd.domain.errors import Invalid, StoreUnavailable
from eryxd.domain.ids import Record
from eryxd.domain.session import Message, SessionHead
from eryxd.trust import require_trusted

STORE_FILE: Final = "store.db"
MARKER_FILE: Final = "store.epoch"
"""Lies beside the store and says that there must be one: without it a lost file would look like a first start."""

LEAST_SQLITE: Final = (3, 37, 0)
"""STRICT tables."""

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_USER_VERSION_AT: Final = slice(60, 64)
_APPLICATION_ID_AT: Final = slice(68, 72)
"""How every SQLite file begins, and where in it stands what tells whose it is."""


class Written(NamedTuple):
    """A change on its way to the file, encoded: a row for each put, and its events, numbered from `first_seq`."""

    change: Change
    first_seq: int
    rows: tuple[tuple[Any, ...], ...]
    bodies: tuple[bytes, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.rows or self.change.deletes or self.bodies)


def written(change: Change, first_seq: int) -> Written:
    """Encode a change, before it joins a batch: what cannot be encoded then fails alone.

    Raises: Invalid -- a text in it has no UTF-8, a number no 64 bits.
    """
    try:
        rows = tuple((*COLUMNS[type(record)].values(record), encode(record)) for record in change.puts)
        bodies = tuple(encoded(event, first_seq + n) for n, event in enumerate(change.events))
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        problem = f"something in it cannot be stored ({type(error).__name__})"
        raise Invalid(f"That cannot be recorded: {problem}.", problems=[problem]) from error
    return Written(change, first_seq, rows, bodies)


class Store:
    """The writer's connection.  After `load` only one thread may use it."""

    def __init__(self, state_dir: Path) -> None:
        """Open the store, or create it where none has ever been.

        Raises: StoreUnavailable -- saying what is wrong with the file and what to do.
        """
        self.path = state_dir / STORE_FILE
        refuse_unfit(state_dir)
        try:
            if not self.path.exists():
                _create(self.path)
            self._db = connect(self.path)
            _migrate(self._db)
            self.epoch = self.meta("epoch")
            self._inode = os.stat(self.path).st_ino
            self._log_inode: int | None = None
            (state_dir / MARKER_FILE).write_text(self.epoch + "\n")
        except (sqlite3.Error, OSError, TypeError) as error:
            raise unusable(self.path, str(error)) from error

    def meta(self, name: str) -> str:
        """Return one of the store's own values."""
        return str(self._db.execute("SELECT value FROM meta WHERE key = ?", (name,)).fetchone()[0])

    def load(self, *states: State) -> None:
        """Fill states with everything that lives in memory.  They share the records, which nothing changes.

        Raises: StoreUnavailable -- a row cannot be read.
        """
        try:
            for kind in LOADED:
                self._load(states, kind, "")
            for kind in LOADED_LIVE:
                self._load(states, kind, " WHERE live = 1")
        except (msgspec.DecodeError, sqlite3.Error) as error:
            raise unusable(self.path, f"a row in it cannot be read ({error})") from error

    def last(self) -> tuple[int, int]:
        """Return the last event's number and the last record's: as written down, or as the rows show, if that is more.

        Raises: StoreUnavailable -- what is written down is no number.
        """
        try:
            seq, number = int(self.meta("seq")), int(self.meta("number"))
            found = self._db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0]
            tables = ("run", "message", "timeline", "approval")
            rows = [self._db.execute(f"SELECT max(number) FROM {table}").fetchone()[0] or 0 for table in tables]  # noqa: S608
        except (ValueError, TypeError, sqlite3.Error) as error:
            raise unusable(self.path, f"its own values cannot be read ({error})") from error
        return max(seq, found), max(number, *rows)

    def _load(self, states: Sequence[State], kind: type[Record], where: str) -> None:
        decode = DECODERS[kind].decode
        rows = self._db.execute(f"SELECT body FROM {COLUMNS[kind].table}{where}")  # noqa: S608
        for (body,) in rows:
            record = decode(body)
            for state in states:
                state.put(record)

    def commit(self, batch: Sequence[Written], number: int) -> None:
        """Write a batch as one synced transaction.

        Raises: OSError, sqlite3.Error -- the batch is not in the file, unless `batches` says that it is after all.
        """
        self._refuse_replaced()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for one in batch:
                self._write(one)
            last = max(one.first_seq + len(one.bodies) - 1 for one in batch)
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'seq'", (str(last),))
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'number'", (str(number),))
            self._db.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'batch'")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _refuse_replaced(self) -> None:
        """Refuse to write into files that no longer have their names: nobody would ever find it again.

        Raises: OSError.
        """
        log = f"{self.path}-wal"
        if os.stat(self.path).st_ino != self._inode:
            raise OSError(f"{self.path} was replaced under the running daemon")
        if self._log_inode is None and os.path.exists(log):
            self._log_inode = os.stat(log).st_ino
        elif self._log_inode is not None and os.stat(log).st_ino != self._log_inode:
            raise OSError(f"{log} was replaced under the running daemon")

    def batches(self) -> int:
        """Return how many batches the file holds, to learn whether a COMMIT that reported an error happened."""
        return int(self.meta("batch"))

    def _write(self, one: Written) -> None:
        change = one.change
        for record, row in zip(change.puts, one.rows, strict=True):
            self._db.execute(UPSERT[type(record)], row)
            if isinstance(record, Message) and record.streaming is not True:
                self._index(record)
        for kind, key in change.deletes:
            self._db.execute(DELETE[kind], key_values(key))
            if kind is SessionHead:
                self._delete_session(str(key))
        for seq, (event, body) in enumerate(zip(change.events, one.bodies, strict=True), one.first_seq):
            row = (seq, event.at, TOPIC[event.type].value, event.session_id or "", body)
            self._db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row)

    def _index(self, message: Message) -> None:
        self._db.execute("DELETE FROM message_text WHERE rowid = ?", (message.number,))
        self._db.execute("INSERT INTO message_text (rowid, content) VALUES (?, ?)", (message.number, message.content))

    def _delete_session(self, session: str) -> None:
        for statement in DELETE_SESSION:
            self._db.execute(statement, (session,))

    def trim_journal(self, keep_events: int, before: str, step: int) -> int:
        """Drop those of the `step` oldest journal rows that are beyond the limits; return how many."""
        newest = int(self.meta("seq"))
        oldest = self._db.execute("SELECT seq, at FROM journal ORDER BY seq LIMIT ?", (step,))
        # Up to the first that stays: behind a clock that was ahead, dropping by age alone would leave holes.
        gone = list(takewhile(lambda row: row[0] <= newest - keep_events or row[1] < before, oldest))
        if gone:
            self._db.execute("DELETE FROM journal WHERE seq <= ?", (gone[-1][0],))
        return len(gone)

    def mark_clean(self, clean: bool) -> None:
        """Write down whether the daemon stopped in good order."""
        self._refuse_replaced()
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'clean'", (str(int(clean)),))
        self._refuse_replaced()

    def probe(self) -> None:
        """Try the disk again with a fresh connection and a real write.

        Raises: OSError, sqlite3.Error, StoreUnavailable -- it still refuses.
        """
        self._refuse_replaced()
        self._db.close()
        self._db = connect(self.path)
        # Where nobody else had it open, the log went with our connection.
        self._log_inode = None
        self.mark_clean(False)

    def close(self) -> None:
        """Close the connection; the WAL is folded into the file."""
        self._db.close()


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection as every connection of ours is: bounded waiting, no schema tricks, synced commits."""
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        raise unusable(path, f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or later is needed")
    uri = f"file:{_quoted(path)}?mode={'ro' if read_only else 'rw'}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
    db.execute("PRAGMA trusted_schema = OFF")
    if read_only:
        db.execute("PRAGMA query_only = ON")
        return db
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    # What was withheld and rejected should not stay readable in free pages.
    db.execute("PRAGMA secure_delete = ON")
    # Commits are twice as quick once the log is written over instead of growing, and a checkpoint holds them up.
    db.execute("PRAGMA wal_autocheckpoint = 1000")
    return db


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _create(path: Path) -> None:
    """Make an empty store, whole or not at all: a first start that is killed half-way leaves nothing in its place."""
    fresh = path.with_name(f"{path.name}.new")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = connect(fresh)
    try:
        _migrate(db)
    finally:
        db.close()
    install(fresh, path)


def install(fresh: Path, path: Path) -> None:
    """Put a whole file in its place, for good."""
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _migrate(db: sqlite3.Connection) -> None:
    """Bring a file to the present schema, in one transaction."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == len(MIGRATIONS):
        return
    db.execute("BEGIN IMMEDIATE")
    for step in MIGRATIONS[version:]:
        for statement in step.split(";\n"):
            if statement.strip():
                db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    if version == 0:
        for name, value in (("epoch", os.urandom(8).hex()), ("seq", "0"), ("number", "0"), ("batch", "0")):
            db.execute("INSERT INTO meta VALUES (?, ?)", (name, value))
        db.execute("INSERT INTO meta VALUES ('clean', '1')")
    db.execute("COMMIT")


def refuse_unfit(state_dir: Path) -> None:
    """Refuse a file that is not ours, and to start on nothing where there was a store before.

    Looks at the first bytes only: SQLite would change a foreign file by opening it as we do.

    Raises: StoreUnavailable; Invalid -- somebody else owns the file, or may write to it.
    """
    path = state_dir / STORE_FILE
    try:
        with path.open("rb") as file:
            require_trusted(str(path), os.fstat(file.fileno()))
            _refuse_header(path, file.read(_HEADER_BYTES))
    except FileNotFoundError:
        # A write-ahead log belongs to a file: with another one it would be taken for that one's.
        if (state_dir / MARKER_FILE).exists() or Path(f"{path}-wal").exists():
            raise unusable(path, "the file is gone") from None
    except OSError as error:
        raise unusable(path, str(error.strerror)) from error


def _refuse_header(path: Path, header: bytes) -> None:
    if not header:
        raise unusable(path, "the file is empty")
    if len(header) < _HEADER_BYTES or not header.startswith(_SQLITE_MAGIC):
        raise unusable(path, "it is not an SQLite database")
    if int.from_bytes(header[_APPLICATION_ID_AT]) != APPLICATION_ID:
        raise unusable(path, "it is not a store of eryx")
    version = int.from_bytes(header[_USER_VERSION_AT])
    if version > len(MIGRATIONS):
        raise StoreUnavailable(
            f"The store {path} was written by a later version of eryx (schema {version}, this one knows"
            f" {len(MIGRATIONS)}). Install that version, or restore a backup: eryx store restore FILE",
            path=str(path),
            version=version,
        )


def unusable(path: Path, why: str) -> StoreUnavailable:
    """Say what is wrong with a store's file and what to type; whatever is there is left as it is."""
    return StoreUnavailable(
        f"The store {path} cannot be used: {why}. Nothing was changed."
        " Restore a backup with: eryx store restore FILE  (what is there now is kept aside)",
        path=str(path),
        why=why,
    )


def encoded(event: Event, seq: int) -> bytes:
    """Return an event as it is journalled and sent."""
    return encode(msgspec.structs.replace(event, seq=seq))


class Reader:
    """Reads single rows from the store; for use on the loop, where one row by key costs microseconds."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path, read_only=True)

    def get(self, kind: type[R], key: Key) -> R | None:
        """Return one row as the store has it."""
        row = self._db.execute(SELECT[kind], key_values(key)).fetchone()
        return None if row is None else DECODERS[kind].decode(row[0])  # type: ignore[return-value]

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


def decode_all(kind: type[R], rows: Iterable[tuple[bytes]]) -> tuple[R, ...]:
    """Decode the rows of a query."""
    decode = DECODERS[kind].decode
    return tuple(decode(body) for (body,) in rows)  # type: ignore[misc]
