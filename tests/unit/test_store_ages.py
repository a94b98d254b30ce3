"""The store over its life: epochs, older files, and a backup in its place."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eryxd.daemon.restore import restore
from eryxd.daemon.schema import APPLICATION_ID, MIGRATIONS
from eryxd.daemon.store import MARKER_FILE, STORE_FILE, Store
from eryxd.domain.errors import Invalid, StoreUnavailable
from eryxd.domain.session import SessionHead
from tests.builders import session
from tests.requirements import requirement
from tests.unit.test_history import journalled, reading, stored
from tests.unit.test_store import rows


@requirement("DUR-10")
def test_opening_again_keeps_the_epoch(tmp_path: Path) -> None:
    """It names this store; clients hold numbers of its journal."""
    first = Store(tmp_path)
    first.close()
    again = Store(tmp_path)

    assert (again.epoch, again.meta("seq"), again.meta("number")) == (first.epoch, "0", "0")
    assert rows(tmp_path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert rows(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


@requirement("DUR-11")
def test_an_older_file_is_brought_to_the_present_in_one_transaction(tmp_path: Path) -> None:
    """Whole or not at all: a step that fails leaves the file at its version."""
    Store(tmp_path).close()
    db = sqlite3.connect(tmp_path / STORE_FILE)
    db.executescript("DROP TABLE meta; PRAGMA user_version = 0;")
    db.close()
    before = (tmp_path / STORE_FILE).read_bytes()
    with pytest.raises(StoreUnavailable, match="already exists"):
        Store(tmp_path)

    assert (tmp_path / STORE_FILE).read_bytes() == before
    assert rows(tmp_path, "PRAGMA user_version") == [(0,)]
    assert rows(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'meta'") == []


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a store in which session s1 had another title, and whose store has gone on since."""
    state = tmp_path / "state"
    state.mkdir()
    store = stored(journalled(state, 2), session(title="Then"))
    reading(store, lambda history: history.backup(tmp_path / "copy.db"))
    stored(store, session(title="Now")).close()
    return tmp_path / "copy.db"


@requirement("DUR-18")
def test_a_restored_store_is_the_backup_under_another_epoch(tmp_path: Path, backup: Path) -> None:
    """Its journal repeats numbers that clients have seen; the old store is kept aside, whole."""
    state = tmp_path / "state"
    epoch = (state / MARKER_FILE).read_text().strip()
    before = (state / STORE_FILE).read_bytes()
    kept = restore(state, backup)
    store = Store(state)

    assert kept is not None
    assert kept.read_bytes() == before
    assert [one.title for one in _heads(store)] == ["Then"]
    assert (store.meta("seq"), store.epoch != epoch) == ("2", True)
    assert (state / STORE_FILE).stat().st_mode & 0o777 == 0o600
    assert [one.title for one in _heads_of(kept)] == ["Now"]


def _heads(store: Store) -> list[SessionHead]:
    return _heads_of(store.path)


def _heads_of(path: Path) -> list[SessionHead]:
    with closing(sqlite3.connect(path)) as db:
        return [msgspec.msgpack.decode(body, type=SessionHead) for (body,) in db.execute("SELECT body FROM session")]


@requirement("DUR-18")
def test_restoring_where_nothing_is_left_keeps_nothing_aside(tmp_path: Path, backup: Path) -> None:
    """That is what it is for."""
    state = tmp_path / "state"
    (state / STORE_FILE).unlink()

    assert restore(state, backup) is None
    assert [one.title for one in _heads(Store(state))] == ["Then"]


def from_the_future(path: Path) -> None:
    """Make a backup one of a later version."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


@requirement("DUR-18")
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: path.unlink(), Invalid),
        (lambda path: path.write_bytes(b""), StoreUnavailable),
        (lambda path: path.write_bytes(b"rubbish" * 1000), StoreUnavailable),
        (lambda path: path.write_bytes(path.read_bytes()[:8192]), StoreUnavailable),
        (from_the_future, StoreUnavailable),
    ],
    ids=["missing", "empty", "rubbish", "cut off", "future"],
)
def test_a_backup_that_is_not_fit_changes_nothing(tmp_path: Path, backup: Path, spoil: Any, error: Any) -> None:
    """The present store stays in its place."""
    state = tmp_path / "state"
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    spoil(backup)
    with pytest.raises(error):
        restore(state, backup)

    assert {path.name: path.read_bytes() for path in state.iterdir()} == before
