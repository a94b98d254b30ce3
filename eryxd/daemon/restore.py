"""Putting a backup in the place of the store, with the daemon stopped.  The present file is kept aside."""

import os
import sqlite3
from pathlib import Path

from eryxd.daemon import clock
from eryxd.daemon.history import copy_store, verify
from eryxd.daemon.schema import MIGRATIONS
from eryxd.daemon.store import MARKER_FILE, STORE_FILE, connect, install
from eryxd.domain.errors import Invalid, StoreUnavailable


def restore(state_dir: Path, backup: Path) -> Path | None:
    """Install a verified copy of a backup under a new epoch; return where the old store lies now, if there was one.

    Call it under the lock only.  What the backup shows as running or waiting is interrupted at the next start.

    Raises: Invalid, StoreUnavailable -- the backup is missing, foreign, damaged or from a later version.
    """
    fresh = state_dir / f"{STORE_FILE}.new"
    fresh.unlink(missing_ok=True)
    _copy(backup, fresh)
    kept = _keep_aside(state_dir)
    install(fresh, state_dir / STORE_FILE)
    (state_dir / MARKER_FILE).unlink(missing_ok=True)
    return kept


def _copy(backup: Path, fresh: Path) -> None:
    if not backup.is_file():
        raise Invalid(f"There is no backup {backup}.", problems=["file: does not exist"])
    try:
        source = connect(backup, read_only=True)
        try:
            verify(source, backup)
            version = source.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise StoreUnavailable(f"{backup} is from a later version of eryx.", path=str(backup), version=version)
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            copy_store(source, fresh)
        finally:
            source.close()
        _renew_epoch(fresh)
    except (sqlite3.Error, OSError) as error:
        fresh.unlink(missing_ok=True)
        raise StoreUnavailable(f"The backup {backup} cannot be used: {error}.", path=str(backup)) from error


def _renew_epoch(path: Path) -> None:
    """A restored journal repeats numbers that clients have seen; a new epoch tells them."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (os.urandom(8).hex(),))
    finally:
        db.close()


def _keep_aside(state_dir: Path) -> Path | None:
    """Move the present store away with its write-ahead log, which with the new store would be taken for its own.

    The store goes first: whatever happens then, the next start finds none and refuses, rather than one without
    its last commits.
    """
    present = state_dir / STORE_FILE
    stamp = clock.now().replace(":", "").replace(".", "")
    kept = state_dir / f"store.kept-{stamp}.db"
    was_there = present.exists()
    for suffix in ("", "-wal", "-shm"):
        old = Path(f"{present}{suffix}")
        if old.exists():
            os.replace(old, f"{kept}{suffix}")
    return kept if was_there else None
