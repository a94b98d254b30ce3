"""The only place that starts programs.

Every child carries `no_new_privs` for ever, by construction: the attribute belongs to a thread and is
inherited through fork and exec, so one dedicated thread sets it on itself before anything else and does all
the starting.  Where it cannot be set, that thread never runs and nothing starts.  The other threads stay
unmarked.

Laws: a child is recorded on disk before anyone hears of it; nothing that it started outlives its run, except
what `process_tree` says cannot be found; memory is bounded whatever it prints; no wait lasts longer than its
time-out and a few seconds.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from eryxd.daemon import process_tree
from eryxd.daemon.leftovers import clean_leftovers, write_record
from eryxd.daemon.marks import become_subreaper, is_subreaper, mark_this_thread
from eryxd.daemon.process_tree import Tree
from eryxd.daemon.streams import Drain, Feed
from eryxd.domain.errors import BackendFailed, Invalid, ShuttingDown
from eryxd.plugin.types import ProcessResult

__all__ = ["Children", "OwnedProcesses", "become_subreaper", "clean_leftovers", "environment"]

INHERITED: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TZ", "TMPDIR", "SHELL"})
"""What a child gets of the daemon's environment, besides `LC_*`: enough to find and understand things."""

NEVER_PASSED: Final = (
    *("ERYX_", "NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_"),
    *("DBUS_", "SSH_AUTH_SOCK", "LD_", "PYTHON"),
)
"""Beginnings of names that no child gets, whoever asks: the daemon's own role, brokers, and code to load."""

TOKEN_NAME: Final = "SPAWN_ID"
"""Variable by which the members of a tree are found after they left its session.  A mark, not a secret."""

TERM_GRACE_S: Final = 0.5
"""How long a program that ran out of time may tidy up before it is killed."""

PIPE_GRACE_S: Final = 2.0
"""How long output is awaited after a program has ended: something that it left behind may hold the pipe."""

KILLED_PIPE_GRACE_S: Final = 0.5
"""How long output is awaited after the tree was killed: enough to read what is still in the pipe."""


class _Child:
    """One program that was started.  `ending` is held by the thread that ends it."""

    def __init__(self, popen: subprocess.Popen[bytes], tree: Tree, pidfd: int, record: Path) -> None:
        self.popen = popen
        self.tree = tree
        self.pidfd = pidfd
        self.record = record
        self.owner = ""
        self.ending = threading.Lock()

    @property
    def exit_status(self) -> int:
        """The status, negative for a signal; a program that SIGKILL has not ended yet counts as killed."""
        status = self.popen.returncode
        return -signal.SIGKILL if status is None else status


class Children:
    """Starts programs and ends them.  Implements `plugin.types.Processes`; one of it in a daemon."""

    def __init__(self, records_dir: Path, mark: Callable[[], None] = mark_this_thread) -> None:
        """Keep one file per child in `records_dir`, which is made when it is not there.

        `mark` is called once in the thread that starts programs; when it raises, nothing ever starts.
        """
        records_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._records_dir = records_dir
        self._alive: dict[int, _Child] = {}
        self._is_closed = False
        self._spawner = ThreadPoolExecutor(1, "spawner", initializer=mark)
        # Apart from the spawner, so that a tree which is slow to die holds up no other start.
        self._reaper = ThreadPoolExecutor(4, "reaper")

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        timeout_s: float,
        limit_bytes: int,
        stdin: bytes = b"",
        environ: Mapping[str, str] = MappingProxyType({}),
        owner: str = "",
    ) -> ProcessResult:
        """Run one program to its end; output and stderr each keep `limit_bytes`.

        `owner` says for what it is started, and is what `owner_of` answers.

        A time-out, or cancelling the caller, kills the whole tree before this returns.

        Raises: BackendFailed -- the program could not be started; the message says why.
        Invalid -- `environ` holds a name that no child may get.  ShuttingDown -- `close` was called.
        """
        if self._is_closed:
            raise ShuttingDown(f"The daemon is stopping and does not start {argv[0]}.")
        spawning = self._start(argv, cwd, environment(environ), bool(stdin))
        try:
            child = await asyncio.shield(spawning)
            child.owner = owner
            return await self._follow(child, stdin, limit_bytes, timeout_s)
        except BrokenExecutor as error:
            raise _unmarked(argv[0]) from error
        finally:
            await _to_the_end(self._end(spawning))

    def owner_of(self, line: Sequence[int]) -> str | None:
        """Return the owner of the first of these processes that was started here, or that carries a child's token.

        `line` is a process with its ancestors, itself first.
        """
        for pid in line:
            if pid in self._alive:
                return self._alive[pid].owner or None
        token = process_tree.token_of(line[0], TOKEN_NAME) if line else b""
        return next((child.owner for child in self._alive.values() if child.tree.token == token), None) or None

    def close(self) -> None:
        """Start nothing more, and kill everything that is alive; the runs then end by themselves.

        Blocks for as long as killing takes, at most a few seconds.
        """
        self._is_closed = True
        self._spawner.shutdown(wait=True)
        process_tree.kill([child.tree for child in list(self._alive.values())])

    def _start(
        self, argv: Sequence[str], cwd: str, environ: dict[str, str], with_input: bool
    ) -> asyncio.Future[_Child]:
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._spawner, self._spawn, tuple(argv), cwd, environ, with_input)
        except BrokenExecutor as error:
            raise _unmarked(argv[0]) from error

    def _spawn(self, argv: Sequence[str], cwd: str, environ: dict[str, str], with_input: bool) -> _Child:
        token = f"eryxd-{secrets.token_hex(16)}"
        try:
            popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environ | {TOKEN_NAME: token},
                stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _not_started(argv[0], error) from error
        try:
            return self._register(popen, f"{TOKEN_NAME}={token}".encode())
        except OSError as error:
            # It already runs, and nobody would know of it.
            os.killpg(popen.pid, signal.SIGKILL)
            for pipe in filter(None, (popen.stdin, popen.stdout, popen.stderr)):
                pipe.close()
            popen.wait()
            raise _not_started(argv[0], error) from error

    def _register(self, popen: subprocess.Popen[bytes], token: bytes) -> _Child:
        # Until it is waited for, even a child that has ended keeps its number and its line in the table.
        seen = process_tree.look(popen.pid)
        if seen is None:
            raise OSError("it is not in the process table")
        tree = Tree(popen.pid, seen.start, token)
        record = write_record(self._records_dir, tree)
        child = _Child(popen, tree, os.pidfd_open(popen.pid), record)
        self._alive[popen.pid] = child
        return child

    async def _follow(self, child: _Child, stdin: bytes, limit_bytes: int, timeout_s: float) -> ProcessResult:
        with contextlib.ExitStack() as pipes:
            output, stderr = (
                pipes.enter_context(contextlib.closing(Drain(pipe, limit_bytes)))
                for pipe in (child.popen.stdout, child.popen.stderr)
                if pipe is not None
            )
            if child.popen.stdin is not None:
                pipes.enter_context(contextlib.closing(Feed(child.popen.stdin, stdin)))
            ended = (output.ended, stderr.ended)
            timed_out = not await _exited(child, timeout_s)
            if not timed_out:
                await asyncio.wait(ended, timeout=PIPE_GRACE_S)
            await asyncio.get_running_loop().run_in_executor(self._reaper, self._kill, child)
            await asyncio.wait(ended, timeout=KILLED_PIPE_GRACE_S)
        return ProcessResult(
            exit_status=child.exit_status,
            output=output.kept.value(),
            stderr=stderr.kept.value(),
            truncated_bytes=output.kept.missing_bytes + stderr.kept.missing_bytes,
            timed_out=timed_out,
        )

    async def _end(self, spawning: asyncio.Future[_Child]) -> None:
        """Leave nothing of a child that was, or still is being, started.  Its run has let go of the pipes."""
        await asyncio.wait([spawning])
        if spawning.exception() is not None:
            return
        child = spawning.result()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reaper, self._kill, child)
        os.close(child.pidfd)
        for pipe in filter(None, (child.popen.stdin, child.popen.stdout, child.popen.stderr)):
            pipe.close()
        if is_subreaper() and not self._is_closed:
            # In the spawner: there no leader can die between its start and its entry in the list.
            await loop.run_in_executor(self._spawner, process_tree.reap_adopted, self._alive)

    def _kill(self, child: _Child) -> None:
        with child.ending:
            if child.popen.returncode is not None:
                return
            # The leader is waited for last: until then its number, and so its group, can be nobody else's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.tree.leader, signal.SIGKILL)
            _, gone = process_tree.kill([child.tree])
            if not gone or child.popen.poll() is None:
                return
            # From here on the number may already be that of the next child.
            if self._alive.get(child.tree.leader) is child:
                del self._alive[child.tree.leader]
            child.record.unlink(missing_ok=True)


class OwnedProcesses:
    """What one session's turns start: `Children`, with the session written beside each child."""

    def __init__(self, children: Children, owner: str) -> None:
        self._children = children
        self._owner = owner

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        timeout_s: float,
        limit_bytes: int,
        stdin: bytes = b"",
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> ProcessResult:
        """Run one program to its end, as `Children.run` does."""
        return await self._children.run(
            argv,
            cwd=cwd,
            timeout_s=timeout_s,
            limit_bytes=limit_bytes,
            stdin=stdin,
            environ=environ,
            owner=self._owner,
        )


async def _exited(child: _Child, timeout_s: float) -> bool:
    """Wait for the program's end; False when its time ran out and it was asked to stop."""
    loop = asyncio.get_running_loop()
    exit_seen = asyncio.Event()
    loop.add_reader(child.pidfd, exit_seen.set)
    try:
        async with asyncio.timeout(timeout_s):
            await exit_seen.wait()
        return True
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.tree.leader, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERM_GRACE_S):
                await exit_seen.wait()
        return False
    finally:
        loop.remove_reader(child.pidfd)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do work that must not stop half-way; a cancellation that comes meanwhile is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def environment(extra: Mapping[str, str], own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a child's environment: what it may inherit, and what its caller adds.

    Raises: Invalid -- the caller adds a name that no child may get.
    """
    refused = sorted(name for name in extra if name.startswith(NEVER_PASSED))
    if refused:
        raise Invalid(f"No program is started with {', '.join(refused)} in its environment.", names=refused)
    kept = {name: value for name, value in own.items() if name in INHERITED or name.startswith("LC_")}
    return kept | dict(extra)


def _unmarked(program: str) -> BackendFailed:
    return BackendFailed(f"Children cannot be marked here, so {program} was not started.")


def _not_started(program: str, error: Exception) -> BackendFailed:
    """Put the ways in which a start fails into one sentence."""
    if isinstance(error, OSError) and error.strerror:
        return BackendFailed(f"Could not start {program}: {error.strerror} ({error.filename or program}).")
    return BackendFailed(f"Could not start {program}: {error}.")
