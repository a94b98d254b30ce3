"""Reading what is not in memory, on a connection and a thread of its own, so that reading never stops deciding.

Law: one call sees one moment of the store.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from eryxd.daemon.schema import APPLICATION_ID
from eryxd.daemon.store import connect, decode_all
from eryxd.domain.approval import Approval
from eryxd.domain.errors import EryxError, Invalid, JournalGap, StoreUnavailable
from eryxd.domain.ids import Record, RunId, SessionId
from eryxd.domain.session import Message, Run
from eryxd.domain.timeline import TimelineEvent

T = TypeVar("T")
R = TypeVar("R", bound=Record)

LAST: Final = 2**62
"""A number after every other."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page ends early when its rows add up to this: a reply has to fit into one frame."""

JOURNAL_PAGE: Final = 500
JOURNAL_PAGE_BYTES: Final = 1024 * 1024
"""How much of the journal is replayed at a time; a subscriber that does not read holds one page."""


class JournalRow(NamedTuple):
    """One journalled event, as it is sent."""

    seq: int
    topic: str
    session_id: str
    body: bytes


class Page(NamedTuple, Generic[R]):
    """Rows in the order asked for, whether there are more, and the journal number that they are as of."""

    rows: tuple[R, ...]
    more: bool
    seq: int


class History:
    """The reading side of the store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = connect(path, read_only=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="eryxd-reader")
        self._at_length: set[sqlite3.Connection] = set()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def at_one_moment() -> T:
            self._db.execute("BEGIN")
            try:
                return work(self._db)
            finally:
                self._db.execute("COMMIT")

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, at_one_moment)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The store cannot be read: {error}.", why=str(error)) from error

    async def timeline(self, run: RunId, after: int, limit: int) -> Page[TimelineEvent]:
        """Return a run's events after a number, in order."""
        sql = "SELECT body FROM timeline WHERE run_id = ? AND number > ? ORDER BY number LIMIT ?"
        return await self._page(TimelineEvent, sql, (run, after), limit)

    async def messages(self, session: SessionId, before: int, limit: int) -> Page[Message]:
        """Return a session's messages before a number, newest first."""
        sql = "SELECT body FROM message WHERE session_id = ? AND number < ? ORDER BY number DESC LIMIT ?"
        return await self._page(Message, sql, (session, before), limit)

    async def runs(self, session: SessionId | None, before: int, limit: int) -> Page[Run]:
        """Return runs before a number, newest first, of one session or of all."""
        where, values = ("session_id = ? AND ", (session,)) if session else ("", ())
        sql = f"SELECT body FROM run WHERE {where}number < ? ORDER BY number DESC LIMIT ?"  # noqa: S608
        return await self._page(Run, sql, (*values, before), limit)

    async def resolved(self, session: SessionId | None, before: int, limit: int) -> Page[Approval]:
        """Return resolved approvals before a number, newest first, of one session or of all."""
        where, values = ("session_id = ? AND ", (session,)) if session else ("", ())
        sql = f"SELECT body FROM approval WHERE {where}live = 0 AND number < ? ORDER BY number DESC LIMIT ?"  # noqa: S608
        return await self._page(Approval, sql, (*values, before), limit)

    async def _page(self, kind: type[R], sql: str, values: tuple[object, ...], limit: int) -> Page[R]:
        """Read at most `limit` rows; a page also ends when its rows add up to `PAGE_BYTES`."""

        def work(db: sqlite3.Connection) -> Page[R]:
            seq = int(db.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0])
            rows: list[tuple[bytes]] = []
            size = 0
            for row in db.execute(sql, (*values, limit + 1)):
                size += len(row[0])
                if len(rows) == limit or (rows and size > PAGE_BYTES):
                    return Page(decode_all(kind, rows), True, seq)
                rows.append(row)
            return Page(decode_all(kind, rows), False, seq)

        return await self._read(work)

    async def sessions_saying(self, words: Sequence[str]) -> list[set[str]]:
        """Return, for each word, the sessions with a published message in which it begins some word."""

        def work(db: sqlite3.Connection) -> list[set[str]]:
            sql = (
                "SELECT DISTINCT message.session_id FROM message_text"
                " JOIN message ON message.number = message_text.rowid WHERE message_text MATCH ?"
            )
            return [{row[0] for row in db.execute(sql, (_phrase(word),))} for word in words]

        return await self._read(work)

    async def journal(self, since: int) -> list[JournalRow]:
        """Return a page of the journal after a number.

        Raises: JournalGap -- the journal no longer reaches back so far.
        """

        def work(db: sqlite3.Connection) -> list[JournalRow]:
            newest = int(db.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0])
            sql = "SELECT seq, topic, session_id, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
            rows: list[JournalRow] = []
            size = 0
            for row in map(JournalRow._make, db.execute(sql, (since, JOURNAL_PAGE))):
                size += len(row.body)
                if rows and size > JOURNAL_PAGE_BYTES:
                    break
                rows.append(row)
            if since > newest or (since < newest and (not rows or rows[0].seq != since + 1)):
                raise JournalGap(
                    f"The journal does not reach back to {since}; take a snapshot with workspace.get.", newest=newest
                )
            return rows

        return await self._read(work)

    async def check(self) -> list[str]:
        """Let SQLite check the whole file; no rows mean that it is sound."""

        def work(db: sqlite3.Connection) -> list[str]:
            rows = [row[0] for row in db.execute("PRAGMA integrity_check")]
            return [] if rows == ["ok"] else rows

        return await self._aside(work)

    async def _aside(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do what takes seconds for each gigabyte on a connection and in a thread of its own: reading goes on."""

        def on_own_connection() -> T:
            with closing(connect(self._path, read_only=True)) as db:
                self._at_length.add(db)
                try:
                    return work(db)
                finally:
                    self._at_length.discard(db)

        try:
            return await asyncio.to_thread(on_own_connection)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The store cannot be read: {error}.", why=str(error)) from error

    async def backup(self, target: Path) -> int:
        """Write a verified copy to a new file; return its size in bytes.

        Raises: Invalid -- the target exists or cannot be written.
        """
        return await self._aside(lambda db: _backup(db, target))

    async def close(self) -> None:
        """Close the connection, and break off what would take long."""
        for db in tuple(self._at_length):
            # It may have ended, and closed, in this moment.
            with suppress(sqlite3.ProgrammingError):
                db.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()


def _backup(source: sqlite3.Connection, target: Path) -> int:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Invalid(f"The backup cannot be written to {target}: {error.strerror}.", problems=["path"]) from error
    try:
        copy_store(source, target)
    except (sqlite3.Error, OSError, EryxError) as error:
        target.unlink(missing_ok=True)
        raise Invalid(f"The backup to {target} failed: {error}.", problems=["path"]) from error
    return target.stat().st_size


def copy_store(source: sqlite3.Connection, target: Path) -> None:
    """Copy a store through SQLite's own backup, and verify the copy.

    Raises: sqlite3.Error; StoreUnavailable -- the copy is not sound.
    """
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        verify(copy, target)
    finally:
        copy.close()


def verify(db: sqlite3.Connection, path: Path) -> None:
    """Check that a file is a sound store of ours.

    Raises: StoreUnavailable.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreUnavailable(f"{path} is not a store of eryx.", path=str(path))
    rows = [row[0] for row in db.execute("PRAGMA integrity_check")]
    if rows != ["ok"]:
        raise StoreUnavailable(f"{path} is damaged: {rows[0]}.", path=str(path), problems=rows[:20])


def _phrase(word: str) -> str:
    """Quote a word for FTS5: nothing in it is an operator, and it matches as the beginning of a word."""
    return '"' + word.replace('"', '""') + '"*'
