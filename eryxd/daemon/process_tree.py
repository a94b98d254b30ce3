"""Processes as the kernel shows them in /proc, and the end of a whole tree of them.

Starts nothing.  A process is named by its number and its start time, for a number alone may be somebody
else's by the time it is used.  A tree is its leader, everything in the leader's group or session, whatever
carries the tree's token in its environment, and all descendants of these.  A process that left group and
session, dropped the token and lost its parent before anyone looked is not found: only a cgroup or a pid
namespace would hold it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Container, Iterator
from typing import Final, NamedTuple

from eryxd.daemon.marks import is_marked

KILL_BOUND_S: Final = 2.0
"""Longest time spent on killing.  A hundred processes take some 20 ms; a longer-lived one hangs in the kernel."""

FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.02
"""Waits between two looks while killing: a killed process is gone within a millisecond or two."""


NOBODY: Final = 0
"""The leader of a tree whose leader is not known: no process has this number."""

KERNEL_THREAD: Final = 0x00200000
"""Flag of the kernel's own threads, which have no environment."""

EXEC_LOOKS: Final = 4
"""How often an empty environment is read, a millisecond apart: it is empty while a process is in the middle of exec."""


class Process(NamedTuple):
    """One line of the process table.  `start` counts clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    flags: int
    start: int

    @property
    def is_dead(self) -> bool:
        """Whether it has ended and only waits for its parent."""
        return self.state in "ZX"


class Tree(NamedTuple):
    """What one start has led to: the leader, its start time, and the `NAME=value` that it was given."""

    leader: int
    start: int
    token: bytes


def look(pid: int) -> Process | None:
    """Return what the kernel knows of a process, None when there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name comes first, in brackets, and may itself hold brackets and spaces.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), *(int(fields[index]) for index in (1, 2, 3, 6, 19)))


def every_process() -> Iterator[Process]:
    """Walk the process table; what ends meanwhile is left out."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := look(int(name))) is not None:
            yield found


def members(trees: Collection[Tree]) -> list[Process]:
    """Return every process of these trees, also the dead that still have a number; never the caller."""
    table = {process.pid: process for process in every_process()}
    leaders = {tree.leader for tree in trees if _is_leader(table.get(tree.leader), tree)}
    found = {
        pid
        for pid, process in table.items()
        if not leaders.isdisjoint((pid, process.group, process.session)) or _carries_token(process, trees)
    }
    _add_descendants(found, table)
    return [table[pid] for pid in found - {1, os.getpid()}]


def _is_leader(process: Process | None, tree: Tree) -> bool:
    return process is not None and process.start == tree.start


def _carries_token(process: Process, trees: Collection[Tree]) -> bool:
    tokens = {tree.token for tree in trees if tree.start <= process.start}
    if not tokens or process.is_dead or process.flags & KERNEL_THREAD:
        return False
    for _ in range(EXEC_LOOKS):
        environment = _environment(process.pid)
        if environment != b"":
            break
        time.sleep(FIRST_PAUSE_S)
    return environment is not None and not tokens.isdisjoint(environment.split(b"\0"))


def _environment(pid: int) -> bytes | None:
    """Return what a process carries in its environment; None when it has ended or is not ours."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def token_of(pid: int, name: str) -> bytes:
    """Return the `NAME=value` that a process carries in its environment; empty when it has none or is not ours."""
    entries = (_environment(pid) or b"").split(b"\0")
    return next((entry for entry in entries if entry.startswith(name.encode() + b"=")), b"")


def _add_descendants(found: set[int], table: dict[int, Process]) -> None:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    waiting = list(found)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting += new


def kill(trees: Collection[Tree]) -> tuple[set[int], bool]:
    """Kill all members of these trees, again and again until a look finds none alive; takes a thread's time.

    Returns the pids that were killed, and whether all were gone within `KILL_BOUND_S`.
    """
    deadline = time.monotonic() + KILL_BOUND_S
    pause_s = FIRST_PAUSE_S
    killed: set[int] = set()
    while living := [process for process in members(trees) if not process.is_dead]:
        for process in living:
            send(process, signal.SIGKILL)
        killed.update(process.pid for process in living)
        if time.monotonic() > deadline:
            return killed, False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return killed, True


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process; does nothing when it has ended, whoever has its number now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(process.pid)
        try:
            # The descriptor holds whoever has the number now; the start time tells whether that is the one.
            now = look(process.pid)
            if now is not None and now.start == process.start:
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def reap_adopted(own: Container[int]) -> None:
    """Reap the dead that this process adopted as a subreaper, and nobody else's children."""
    for process in _adopted(own):
        # Whoever did start it may wait for it meanwhile.
        with contextlib.suppress(ChildProcessError):
            if process.state == "Z":
                os.waitpid(process.pid, os.WNOHANG)


def kill_adopted(own: Container[int]) -> bool:
    """Kill and reap everything that was adopted: what got away from its tree.  Returns whether all is gone.

    Only for when nothing is running that it could belong to.
    """
    deadline = time.monotonic() + KILL_BOUND_S
    while found := list(_adopted(own)):
        for process in found:
            send(process, signal.SIGKILL)
        reap_adopted(own)
        if time.monotonic() > deadline:
            return False
        time.sleep(FIRST_PAUSE_S)
    return True


def _adopted(own: Container[int]) -> Iterator[Process]:
    """Yield the children that this process did not start.  `own` are the leaders that somebody here waits for.

    An adopted process never was in this session and carries the mark that only our children have; what another
    part of this process started is therefore left alone.
    """
    mine, session = os.getpid(), os.getsid(0)
    for process in every_process():
        if process.parent == mine and process.session != session and process.pid not in own:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if is_marked(process.pid):
                    yield process
