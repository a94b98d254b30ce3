"""Records of what runs, one small file per program, so that the next daemon can end what a killed one left.

A record is named `<pid>.<start time>` and holds the boot it belongs to and the tree's token: a number alone,
or a record of before the last boot, may point at somebody else's process.
"""

from pathlib import Path
from typing import Final

from eryxd.daemon import process_tree
from eryxd.daemon.process_tree import Tree

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def write_record(records_dir: Path, tree: Tree) -> Path:
    """Record a program that runs, whole or not at all; return the file, whose removal forgets it."""
    path = records_dir / f"{tree.leader}.{tree.start}"
    new = path.with_name(f"{path.name}.new")
    # Not synced: a power cut that loses the record ends the process as well.
    new.write_bytes(_boot_id() + b"\n" + tree.token)
    new.replace(path)
    return path


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
    if not (pid.isdecimal() and start.isdecimal() and token and boot == _boot_id()):
        return None
    return Tree(int(pid), int(start), token)


def _boot_id() -> bytes:
    return _BOOT_ID.read_bytes().strip()
