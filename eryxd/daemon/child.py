"""One program that was started: what it may know of the daemon's environment, its end, and its tree's."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eryxd.daemon import process_tree
from eryxd.daemon.process_tree import Tree
from eryxd.domain.errors import Invalid

INHERITED: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TZ", "TMPDIR", "SHELL"})
"""What a child gets of the daemon's environment, besides `LC_*`: enough to find and understand things."""

NEVER_PASSED: Final = (
    *("ERYX_", "NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_"),
    *("DBUS_", "SSH_AUTH_SOCK", "LD_", "PYTHON"),
)
"""Beginnings of names that no child gets, whoever asks: the daemon's own role, brokers, and code to load."""


def environment(extra: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a child's environment: what it may inherit, and what its caller adds.

    Raises: Invalid -- the caller adds a name that no child may get.
    """
    refused = sorted(name for name in extra if name.startswith(NEVER_PASSED))
    if refused:
        raise Invalid(f"No program is started with {', '.join(refused)} in its environment.", names=refused)
    kept = {name: value for name, value in own.items() if name in INHERITED or name.startswith("LC_")}
    return kept | dict(extra)


class Child:
    """A program and the tree that it leads.  `owner` says for what it was started."""

    def __init__(self, popen: subprocess.Popen[bytes], tree: Tree, pidfd: int, record: Path, owner: str) -> None:
        self.popen = popen
        self.tree = tree
        self.record = record
        self.owner = owner
        self._pidfd = pidfd
        self._escaped: list[Tree] = []
        self._ending = threading.Lock()

    @property
    def exit_status(self) -> int:
        """The status, negative for a signal; a program that SIGKILL has not ended yet counts as killed."""
        status = self.popen.returncode
        return -signal.SIGKILL if status is None else status

    async def exited(self, timeout_s: float) -> bool:
        """Wait for the program's end; False when it has not come in time."""
        loop = asyncio.get_running_loop()
        exit_seen = asyncio.Event()
        loop.add_reader(self._pidfd, exit_seen.set)
        try:
            async with asyncio.timeout(timeout_s):
                await exit_seen.wait()
            return True
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._pidfd)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the leader's group.  Blocks while the process table is read."""
        # Noted first, each as the leader of a tree: a parent that stops takes along the only trace of some.
        found = process_tree.members([self.tree])
        self._escaped = [Tree(process.pid, process.start, self.tree.token) for process in found]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.tree.leader, signal.SIGTERM)

    def end(self) -> bool:
        """Kill the tree and reap the leader; blocks.  False when something hangs in the kernel.

        Once it has answered True, it does nothing.
        """
        with self._ending:
            if self.popen.returncode is not None:
                return True
            _, gone = process_tree.kill([self.tree, *self._escaped])
            # The leader is reaped last: until then its number, and so its group, can be nobody else's.
            return gone and self.popen.poll() is not None

    def let_go(self) -> None:
        """Close what is open here.  Nobody may wait for the exit or read the pipes any more."""
        os.close(self._pidfd)
        close_pipes(self.popen)


def close_pipes(popen: subprocess.Popen[bytes]) -> None:
    """Close our ends of a program's pipes.  Closing twice is fine."""
    for pipe in filter(None, (popen.stdin, popen.stdout, popen.stderr)):
        pipe.close()
