"""The store read aside, copied, put back, and its journal: replayed, trimmed, and what is no longer there."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from eryxd.api.events import Event, EventType
from eryxd.core.change import Change
from eryxd.daemon.history import JOURNAL_PAGE, LAST, History, JournalRow
from eryxd.daemon.store import Store, written
from eryxd.domain.errors import Invalid, JournalGap
from eryxd.domain.ids import RunId, SessionId
from tests.builders import after, message, run, session, timeline_event
from tests.engine_builders import story
from tests.requirements import requirement

S1: Final = SessionId("s1")


def told(number: int, session_id: str = "s1") -> Event:
    """Return an event that happened so many seconds after noon."""
    return Event(at=after(number), type=EventType.SESSION_DELETED, session_id=SessionId(session_id))


def journalled(folder: Path, count: int) -> Store:
    """Return a store whose journal has so many events, one a second."""
    store = Store(folder)
    store.commit([written(Change((), (), tuple(told(n) for n in range(1, count + 1)), (), None), 1)], 1)
    return store


def stored(store: Store, *records: Any) -> Store:
    """Write rows."""
    store.commit([written(Change(tuple(records), (), (), (), None), int(store.meta("seq")) + 1)], 99)
    return store


def reading(store: Store, work: Callable[[History], Any]) -> Any:
    """Read with a history of its own, and close it."""

    async def read() -> Any:
        history = History(store.path)
        try:
            return await work(history)
        finally:
            await history.close()

    return story(read())


def seqs(store: Store, since: int) -> list[int]:
    """Return the numbers of a page of the journal."""
    return [row.seq for row in reading(store, lambda history: history.journal(since))]


@requirement("DUR-14")
def test_the_journal_is_replayed_as_it_was_sent(tmp_path: Path) -> None:
    """With number, topic and session; from just after the number that was given."""
    store = journalled(tmp_path, 3)
    rows = reading(store, lambda history: history.journal(1))

    assert rows == [
        JournalRow(seq, "sessions", "s1", msgspec.msgpack.encode(msgspec.structs.replace(told(seq), seq=seq)))
        for seq in (2, 3)
    ]


@requirement("DUR-14")
def test_the_journal_is_replayed_in_pages(tmp_path: Path) -> None:
    """A client that was away for long costs nobody a pause."""
    store = journalled(tmp_path, JOURNAL_PAGE + 2)

    assert seqs(store, 0) == list(range(1, JOURNAL_PAGE + 1))
    assert seqs(store, JOURNAL_PAGE) == [JOURNAL_PAGE + 1, JOURNAL_PAGE + 2]
    assert seqs(store, JOURNAL_PAGE + 2) == []


@requirement("DUR-14")
@pytest.mark.parametrize(("trimmed", "since"), [(False, 11), (True, 0), (True, 6), ("all", 3)])
def test_a_number_that_the_journal_does_not_reach_is_a_gap(tmp_path: Path, trimmed: Any, since: int) -> None:
    """Before its first event or after its last: take a snapshot."""
    store = journalled(tmp_path, 10)
    if trimmed:
        store.trim_journal(0 if trimmed == "all" else 3, after(0), 100)
    with pytest.raises(JournalGap) as caught:
        seqs(store, since)

    assert caught.value.data == {"newest": 10}


@requirement("DUR-15")
def test_the_newest_event_is_never_a_gap(tmp_path: Path) -> None:
    """Even where nothing of the journal is left."""
    store = journalled(tmp_path, 10)
    store.trim_journal(0, after(0), 100)

    assert seqs(store, 10) == []


@requirement("DUR-15")
def test_the_journal_is_trimmed_by_number_in_small_steps(tmp_path: Path) -> None:
    """Oldest first; nothing is trimmed that is within the limit."""
    store = journalled(tmp_path, 10)

    assert [store.trim_journal(4, after(0), 4) for _ in range(4)] == [4, 2, 0, 0]
    assert seqs(store, 6) == [7, 8, 9, 10]


@requirement("DUR-15")
def test_the_journal_is_trimmed_by_age(tmp_path: Path) -> None:
    """However few events there are."""
    store = journalled(tmp_path, 10)

    assert [store.trim_journal(100, after(8), 5) for _ in range(3)] == [5, 2, 0]
    assert seqs(store, 7) == [8, 9, 10]


@requirement("DUR-16")
def test_pages_are_in_order_and_say_whether_there_are_more(tmp_path: Path) -> None:
    """Each is as of one moment, and says which."""
    store = journalled(tmp_path, 2)
    messages = [message(f"m{n}", number=n) for n in range(3)]
    events = [timeline_event(f"t{n}", number=n) for n in range(10, 13)]
    stored(store, session(), run(number=20), run("r2", session_id="s2", number=21), *messages, *events)

    async def read(history: History) -> Any:
        return [
            await history.messages(S1, LAST, 2),
            await history.messages(S1, 1, 2),
            await history.timeline(RunId("r1"), 10, 5),
            await history.runs(None, LAST, 5),
            await history.runs(S1, LAST, 5),
        ]

    pages = reading(store, read)
    assert [([row.id for row in page.rows], page.more, page.seq) for page in pages] == [
        (["m2", "m1"], True, 2),
        (["m0"], False, 2),
        (["t11", "t12"], False, 2),
        (["r2", "r1"], False, 2),
        (["r1"], False, 2),
    ]


@requirement("DUR-16", "SES-1")
@pytest.mark.parametrize(
    ("word", "found"), [("pars", {"s1"}), ("mend", {"s1", "s2"}), ('"', set()), ("x OR mend", set())]
)
def test_words_are_found_by_their_beginning_and_nothing_is_an_operator(tmp_path: Path, word: str, found: Any) -> None:
    """Whatever a person types."""
    store = stored(
        Store(tmp_path),
        message("m1", number=1, content="Mend the parser."),
        message("m2", number=2, session_id="s2", content="Mended."),
    )

    assert reading(store, lambda history: history.sessions_saying([word])) == [found]


@requirement("DUR-17")
def test_a_backup_is_a_whole_and_private_copy(tmp_path: Path) -> None:
    """Made while the store is open and written to."""
    store = stored(Store(tmp_path), session())
    target = tmp_path / "copy.db"
    size = reading(store, lambda history: history.backup(target))

    assert (target.stat().st_size, target.stat().st_mode & 0o777) == (size, 0o600)
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert copy.execute("SELECT body FROM session").fetchall() == [(msgspec.msgpack.encode(session()),)]
    assert not list(tmp_path.glob("copy.db-*"))


@requirement("DUR-17")
def test_a_backup_replaces_nothing(tmp_path: Path) -> None:
    """A file that is there is somebody's."""
    store = Store(tmp_path)
    target = tmp_path / "copy.db"
    target.write_bytes(b"mine")
    with pytest.raises(Invalid) as caught:
        reading(store, lambda history: history.backup(target))

    assert (caught.value.data, target.read_bytes()) == ({"problems": ["path"]}, b"mine")


@requirement("DUR-17")
def test_a_backup_of_a_damaged_store_is_not_kept(tmp_path: Path) -> None:
    """It is verified before anybody relies on it; the check of the store itself says the same."""
    store = stored(Store(tmp_path), *(session(f"s{n}", title="x" * 3000) for n in range(50)))
    store.close()
    raw = bytearray(store.path.read_bytes())
    with closing(sqlite3.connect(store.path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session'").fetchone()
    raw[(page - 1) * 4096 + 8 : page * 4096] = b"\xff" * (4096 - 8)
    store.path.write_bytes(raw)
    target = tmp_path / "copy.db"

    with pytest.raises(Invalid, match="damaged"):
        reading(store, lambda history: history.backup(target))
    assert not target.exists()
    assert reading(store, lambda history: history.check()) != []


@requirement("DUR-17")
def test_a_sound_store_checks_as_sound(tmp_path: Path) -> None:
    """No problems."""
    assert reading(stored(Store(tmp_path), session()), lambda history: history.check()) == []


@requirement("WIR-31")
def test_a_clock_that_was_ahead_leaves_no_hole(tmp_path: Path) -> None:
    """Only the oldest rows go, up to the first that stays: a replay never skips anything in silence."""
    store = journalled(tmp_path, 6)
    store._db.execute("UPDATE journal SET at = '2099-01-01T00:00:00.000Z' WHERE seq = 1")
    store._db.execute("UPDATE journal SET at = '2000-01-01T00:00:00.000Z' WHERE seq BETWEEN 2 AND 4")

    assert store.trim_journal(100, after(0), 100) == 0
    assert [row[0] for row in store._db.execute("SELECT seq FROM journal ORDER BY seq")] == [1, 2, 3, 4, 5, 6]
