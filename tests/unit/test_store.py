"""The store's file: what is refused and left alone, what a commit writes, and what is removed for good."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from eryxd.api.events import Event, EventType
from eryxd.core.change import Change
from eryxd.core.state import TABLES, State
from eryxd.daemon.rows import COLUMNS
from eryxd.daemon.schema import MIGRATIONS
from eryxd.daemon.store import MARKER_FILE, STORE_FILE, Reader, Store, Written, refuse_unfit, written
from eryxd.domain.approval import ApprovalStatus
from eryxd.domain.errors import Invalid, StoreUnavailable
from eryxd.domain.ids import Record
from eryxd.domain.session import Offers, Run, RunStatus, SessionHead, Withheld
from eryxd.domain.timeline import TimelineStatus
from tests.builders import (
    NOON,
    approval,
    approval_content,
    message,
    offers,
    pattern,
    project,
    run,
    run_input,
    session,
    timeline_event,
    withheld,
)
from tests.core_builders import kept
from tests.requirements import requirement

EVERYTHING: Final = (
    pattern(),
    project(),
    session(),
    offers(),
    run(),
    message(number=2, streaming=True),
    timeline_event(number=3),
    approval(number=4),
    withheld("m5", number=5),
    approval_content(),
    run_input(),
)
"""One row of each kind; those that have an end have not ended."""

ENDED: Final = (
    run("r2", number=12, status=RunStatus.COMPLETED),
    message("m2", number=13),
    timeline_event("t2", number=14, run_id="r2", status=TimelineStatus.COMPLETED),
    approval("a2", number=15, status=ApprovalStatus.APPROVED),
)


def change(*puts: Record, deletes: Any = (), events: int = 0) -> Change:
    """Return a change with so many events of session s1."""
    told = tuple(Event(at=NOON, type=EventType.SESSION_DELETED, session_id="s1") for _ in range(events))  # type: ignore[arg-type]
    return Change(puts, tuple(deletes), told, (), None)


def commit(store: Store, *changes: Change, first_seq: int = 1) -> list[tuple[bytes, ...]]:
    """Commit changes as one batch, numbered from there; return their encoded events."""
    batch: list[Written] = []
    for one in changes:
        batch.append(written(one, first_seq))
        first_seq += len(one.events)
    store.commit(batch, 99)
    return [one.bodies for one in batch]


def loaded(store: Store) -> State:
    """Return what a start would have in memory."""
    state = State()
    store.load(state)
    return state


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Read the file as anybody could."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        return db.execute(sql).fetchall()


def everything(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def foreign(path: Path) -> None:
    """Another program's database."""
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()


def of_the_future(path: Path) -> None:
    """A store of a later version."""
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()


def damaged_inside(path: Path) -> None:
    """A header that is ours, and rubbish behind it."""
    raw = path.read_bytes()
    path.write_bytes(raw[:100] + os.urandom(len(raw) - 100))


@requirement("DUR-9")
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.unlink(), "gone"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "not an SQLite"),
        (lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]), "not an SQLite"),
        (foreign, "not a store of eryx"),
        (of_the_future, "later version"),
        (damaged_inside, "cannot be used"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096]), "cannot be used"),
    ],
    ids=["missing", "empty", "short", "header", "foreign", "future", "damaged", "cut off"],
)
def test_a_file_that_is_not_fit_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], Any], why: str
) -> None:
    """Never replaced by an empty one, never touched by opening it."""
    Store(tmp_path).close()
    spoil(tmp_path / STORE_FILE)
    before = everything(tmp_path)
    with pytest.raises(StoreUnavailable) as caught:
        Store(tmp_path)

    assert why in caught.value.message
    assert caught.value.data["path"] == str(tmp_path / STORE_FILE)
    assert {name: raw for name, raw in everything(tmp_path).items() if not name.endswith(("-shm", "-wal"))} == before


@requirement("DUR-9")
def test_a_file_that_others_may_change_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    (tmp_path / STORE_FILE).chmod(0o666)
    with pytest.raises(Invalid, match=f"chmod go-w {tmp_path / STORE_FILE}"):
        Store(tmp_path)


@requirement("DUR-9")
def test_a_first_start_makes_a_private_store_and_its_marker(tmp_path: Path) -> None:
    """Nothing else is left behind."""
    store = Store(tmp_path)
    store.close()

    assert sorted(everything(tmp_path)) == [STORE_FILE, MARKER_FILE]
    assert (tmp_path / STORE_FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / MARKER_FILE).read_text() == store.epoch + "\n"


@requirement("DUR-9")
@pytest.mark.parametrize("left", ["store.db.new", "store.db.new-wal", "store.db.new-shm"])
def test_a_first_start_that_broke_off_is_begun_again(tmp_path: Path, left: str) -> None:
    """What it left under another name is nobody's."""
    (tmp_path / left).write_bytes(b"half")
    Store(tmp_path).close()

    assert sorted(everything(tmp_path)) == [STORE_FILE, MARKER_FILE]


@requirement("DUR-9")
def test_a_write_ahead_log_without_its_file_is_no_first_start(tmp_path: Path) -> None:
    """With a new file it would be taken for that one's."""
    (tmp_path / f"{STORE_FILE}-wal").write_bytes(b"frames")

    with pytest.raises(StoreUnavailable):
        refuse_unfit(tmp_path)


@requirement("DUR-12")
def test_a_batch_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Memory gets what its kind keeps; a reader finds each row by its key."""
    store = Store(tmp_path)
    commit(store, change(*EVERYTHING, *ENDED))
    store.close()
    again, reader = Store(tmp_path), Reader(tmp_path / STORE_FILE)
    expected = State()
    for record in EVERYTHING:
        expected.put(record)

    assert kept(loaded(again)) == kept(expected)
    for record in (*EVERYTHING, *ENDED):
        assert reader.get(type(record), TABLES[type(record)].key(record)) == record
    assert reader.get(Run, "r9") is None
    assert (again.meta("number"), again.meta("seq"), again.batches()) == ("99", "0", 1)


@requirement("DUR-12")
def test_a_row_is_updated_in_place_and_removed_by_its_key(tmp_path: Path) -> None:
    """What has ended is not loaded again."""
    store = Store(tmp_path)
    commit(store, change(*EVERYTHING))
    done = run(status=RunStatus.ERROR, error="It broke.")
    commit(store, change(done, deletes=[(Offers, ("pattern", "p1")), (Withheld, "m5")]))
    reader = Reader(store.path)

    assert reader.get(Run, "r1") == done
    assert loaded(store).get(Run, "r1") is None
    assert reader.get(Offers, ("pattern", "p1")) is None
    assert reader.get(Withheld, "m5") is None
    assert rows(tmp_path, "SELECT count(*) FROM run") == [(1,)]


@requirement("DUR-12")
def test_a_batch_is_in_the_file_whole_or_not_at_all(tmp_path: Path) -> None:
    """A second change that cannot be written takes the first with it; the next batch is fine."""
    store = Store(tmp_path)
    commit(store, change(*EVERYTHING, events=2))
    with pytest.raises(sqlite3.IntegrityError):
        commit(store, change(session("s2")), change(events=1), first_seq=2)
    assert (Reader(store.path).get(SessionHead, "s2"), store.meta("seq"), store.batches()) == (None, "2", 1)

    commit(store, change(session("s2"), events=1), first_seq=3)
    assert (store.meta("seq"), store.batches()) == ("3", 2)


@requirement("DUR-12", "SES-1")
def test_deleting_a_session_removes_everything_that_hangs_on_it(tmp_path: Path) -> None:
    """And nothing of another session."""
    store = Store(tmp_path)
    other = (session("s2"), run("r9", session_id="s2", number=20), message("m9", session_id="s2", number=21))
    events = (timeline_event("t9", session_id="s2", run_id="r9", number=22),)
    commit(store, change(*EVERYTHING, *ENDED, *other, *events))
    commit(store, change(deletes=[(SessionHead, "s1")]))

    left = {
        columns.table: rows(tmp_path, f"SELECT count(*) FROM {columns.table}")[0][0]  # noqa: S608
        for columns in COLUMNS.values()
    }
    assert left == dict.fromkeys(left, 0) | {
        "pattern": 1, "project": 1, "offers": 1, "session": 1, "run": 1, "message": 1, "timeline": 1
    }  # fmt: skip
    assert rows(tmp_path, "SELECT content FROM message_text") == [("The parser is mended.",)]


@requirement("DUR-13", "APR-7")
def test_what_was_withheld_and_removed_cannot_be_read_in_the_file(tmp_path: Path) -> None:
    """Neither in a free page nor beside a row; nor is it ever in the index of words."""
    store = Store(tmp_path)
    secrets = [f"xyzzy-{n}-" + "plugh" * 2000 for n in range(8)]
    held = [withheld(f"m{n}", number=n, content=text) for n, text in enumerate(secrets)]
    commit(store, change(session(), run(), *held))
    assert rows(tmp_path, "SELECT * FROM message_text WHERE message_text MATCH 'xyzzy'") == []

    commit(store, change(deletes=[(Withheld, row.id) for row in held]))
    store.close()
    assert [name for name, raw in everything(tmp_path).items() if b"xyzzy" in raw or b"plugh" in raw] == []


@requirement("DUR-4", "DUR-12")
@pytest.mark.parametrize("name", [STORE_FILE, f"{STORE_FILE}-wal"])
def test_a_file_that_lost_its_name_takes_no_writes(tmp_path: Path, name: str) -> None:
    """What is written into it nobody would ever find again."""
    store = Store(tmp_path)
    commit(store, change(session()))
    (tmp_path / name).rename(tmp_path / "away")

    with pytest.raises(FileNotFoundError):
        commit(store, change(session(title="Lost")))


@requirement("DUR-9")
def test_a_row_that_cannot_be_read_is_a_store_that_is_not_fit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    commit(store, change(session()))
    store._db.execute("UPDATE session SET body = x'c1'")

    with pytest.raises(StoreUnavailable, match="a row in it cannot be read"):
        store.load(State())


@requirement("DUR-12")
def test_numbers_go_on_behind_what_the_rows_show(tmp_path: Path) -> None:
    """A value that fell behind must not have numbers given twice."""
    store = Store(tmp_path)
    commit(store, change(run(number=70), events=3))
    store._db.execute("UPDATE meta SET value = '0' WHERE key IN ('seq', 'number')")

    assert store.last() == (3, 70)
