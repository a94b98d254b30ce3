"""Records of what runs, one small file per program, so that the next daemon can end what a killed one left.

A record is written before the program starts, named after its token; then it is named `<pid>.<start time>`.
It holds the boot it belongs to and the tree's token: a number alone, or a record of before the last boot, may
point at somebody else's process.
"""

import secrets
from pathlib import Path
from typing import Final

from eryxd.daemon import process_tree
from eryxd.daemon.process_tree import NOBODY, Tree

STARTING: Final = "starting"
"""First part of the name of a record whose program has no number yet."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def write_record(records_dir: Path, token: bytes) -> Path:
    """Record a program that is about to start with this token; removing the file forgets it."""
    path = records_dir / f"{STARTING}.{secrets.token_hex(8)}"
    # Not synced: a power cut that loses the record ends the process as well.
    path.write_bytes(_boot_id() + b"\n" + token)
    return path


def name_record(record: Path, tree: Tree) -> Path:
    """Record who it is that has started; return the file's new path."""
    return record.rename(record.with_name(f"{tree.leader}.{tree.start}"))


def clean_leftovers(records_dir: Path) -> list[int]:
    """Kill what a daemon that was killed has left running, and forget it; return the pids that were killed.

    Only for whoever holds the daemon's lock: the records of a daemon that is alive are not leftovers.
    """
    trees = {path: tree for path in sorted(records_dir.glob("*")) if (tree := _read_record(path))}
    killed, gone = process_tree.kill(trees.values()) if trees else (set[int](), True)
    for path in records_dir.glob("*"):
        # What did not die stays on record, for another try at the next start.
        if gone or path not in trees:
            path.unlink(missing_ok=True)
    return sorted(killed)


def _read_record(path: Path) -> Tree | None:
    """Return the tree of a record of this boot; None for anything else."""
    pid, _, start = path.name.partition(".")
    boot, _, token = path.read_bytes().partition(b"\n")
    if not token or boot != _boot_id():
        return None
    if pid == STARTING:
        return Tree(NOBODY, 0, token)
    return Tree(int(pid), int(start), token) if pid.isdecimal() and start.isdecimal() else None


def _boot_id() -> bytes:
    return _BOOT_ID.read_bytes().strip()
