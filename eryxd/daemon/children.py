"""The only place that starts programs.

Every child carries `no_new_privs` for ever, by construction: the attribute belongs to a thread and is
inherited through fork and exec, so one dedicated thread sets it on itself before anything else and does all
the starting.  Where it cannot be set, that thread never runs and nothing starts.  The other threads stay
unmarked.

Laws: a child is recorded on disk before it starts; nothing that it started outlives its run, except
what `process_tree` says cannot be found; memory is bounded whatever it prints; no wait lasts longer than its
time-out and a few seconds; one owner's programs never take all places.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary

from eryxd.daemon import process_tree
from eryxd.daemon.child import Child, close_pipes, environment
from eryxd.daemon.leftovers import clean_leftovers, name_record, write_record
from eryxd.daemon.marks import become_subreaper, is_subreaper, mark_this_thread
from eryxd.daemon.process_tree import Tree
from eryxd.daemon.streams import Drain, Feed
from eryxd.domain.errors import BackendFailed, ShuttingDown
from eryxd.plugin.types import ProcessResult

__all__ = ["Children", "OwnedProcesses", "become_subreaper", "clean_leftovers", "environment"]

TOKEN_NAME: Final = "SPAWN_ID"
"""Variable by which the members of a tree are found after they left its session.  A mark, not a secret."""

TERM_GRACE_S: Final = 0.5
"""How long a program that ran out of time may tidy up before it is killed."""

MAX_ALIVE: Final = 32
"""Programs that run at once; more wait for a place.  Each takes three descriptors and a share of the machine."""

MAX_OWNED: Final = 8
"""Programs of one owner that run at once: no session holds up the others."""

REAP_PAUSE_S: Final = 0.05
"""Shortest time between two looks for dead that were adopted: a program that forks on and on must not keep us busy."""

PIPE_GRACE_S: Final = 2.0
"""How long output is awaited after a program has ended: something that it left behind may hold the pipe."""

KILLED_PIPE_GRACE_S: Final = 0.5
"""How long output is awaited after the tree was killed: enough to read what is still in the pipe."""


log = logging.getLogger("eryxd.children")


class Children:
    """Starts programs and ends them.  Implements `plugin.types.Processes`; one of it in a daemon."""

    def __init__(self, records_dir: Path, mark: Callable[[], None] = mark_this_thread) -> None:
        """Keep one file per child in `records_dir`, which is made when it is not there.

        `mark` is called once in the thread that starts programs; when it raises, nothing ever starts.
        """
        records_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._records_dir = records_dir
        self._alive: dict[int, Child] = {}
        self._places = asyncio.Semaphore(MAX_ALIVE)
        self._shares = WeakValueDictionary[str, asyncio.Semaphore]()
        self._is_closed = False
        self._is_reaping = False
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

        `owner` says for what it is started, and is what `owner_of` answers.  A time-out, or cancelling the
        caller, kills the whole tree before this returns.

        Raises: BackendFailed -- the program could not be started; the message says why.
        Invalid -- `environ` holds a name that no child may get.  ShuttingDown -- `close` was called.
        """
        share = self._shares.setdefault(owner, asyncio.Semaphore(MAX_OWNED))
        async with share, self._places:
            if self._is_closed:
                raise ShuttingDown(f"The daemon is stopping and does not start {argv[0]}.")
            spawning = self._start(argv, cwd, environment(environ), bool(stdin), owner)
            try:
                child = await asyncio.shield(spawning)
                return await self._follow(child, stdin, limit_bytes, timeout_s)
            except BrokenExecutor as error:
                raise _unmarked(argv[0]) from error
            finally:
                await _to_the_end(self._end(spawning))

    def owner_of(self, line: Sequence[int]) -> str | None:
        """Return the owner of the first of these processes that was started here, or that carries a child's token.

        `line` is a process with its ancestors, itself first.
        """
        # A copy, made in one step: the threads that start and end programs change the list meanwhile.
        alive = dict(self._alive)
        for pid in line:
            if pid in alive:
                return alive[pid].owner or None
        token = process_tree.token_of(line[0], TOKEN_NAME) if line else b""
        return next((child.owner for child in alive.values() if child.tree.token == token), None) or None

    def close(self) -> None:
        """Start nothing more, and kill everything that is alive; the runs then end by themselves.

        Blocks for as long as killing takes, at most a few seconds.
        """
        self._is_closed = True
        self._spawner.shutdown(wait=True)
        process_tree.kill([child.tree for child in list(self._alive.values())])
        if is_subreaper():
            process_tree.kill_adopted(self._alive)

    def _start(
        self, argv: Sequence[str], cwd: str, environ: dict[str, str], with_input: bool, owner: str
    ) -> asyncio.Future[Child]:
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._spawner, self._spawn, tuple(argv), cwd, environ, with_input, owner)
        except BrokenExecutor as error:
            raise _unmarked(argv[0]) from error

    def _spawn(self, argv: Sequence[str], cwd: str, environ: dict[str, str], with_input: bool, owner: str) -> Child:
        token = f"eryxd-{secrets.token_hex(16)}"
        try:
            record = write_record(self._records_dir, f"{TOKEN_NAME}={token}".encode())
        except OSError as error:
            raise _not_started(argv[0], error) from error
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
            record.unlink()
            raise _not_started(argv[0], error) from error
        try:
            return self._register(popen, f"{TOKEN_NAME}={token}".encode(), record, owner)
        except OSError as error:
            # It already runs, and nobody would know of it.
            os.killpg(popen.pid, signal.SIGKILL)
            close_pipes(popen)
            popen.wait()
            raise _not_started(argv[0], error) from error

    def _register(self, popen: subprocess.Popen[bytes], token: bytes, record: Path, owner: str) -> Child:
        # Until it is waited for, even a child that has ended keeps its number and its line in the table.
        seen = process_tree.look(popen.pid)
        if seen is None:
            raise OSError("it is not in the process table")
        tree = Tree(popen.pid, seen.start, token)
        child = Child(popen, tree, os.pidfd_open(popen.pid), name_record(record, tree), owner)
        self._alive[popen.pid] = child
        return child

    async def _follow(self, child: Child, stdin: bytes, limit_bytes: int, timeout_s: float) -> ProcessResult:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as pipes:
            output, stderr = (
                pipes.enter_context(contextlib.closing(Drain(pipe, limit_bytes)))
                for pipe in (child.popen.stdout, child.popen.stderr)
                if pipe is not None
            )
            if child.popen.stdin is not None:
                pipes.enter_context(contextlib.closing(Feed(child.popen.stdin, stdin)))
            ended = (output.ended, stderr.ended)
            timed_out = not await child.exited(timeout_s)
            if timed_out:
                await loop.run_in_executor(self._reaper, child.ask_to_stop)
                await child.exited(TERM_GRACE_S)
            else:
                await asyncio.wait(ended, timeout=PIPE_GRACE_S)
            await loop.run_in_executor(self._reaper, self._finish, child)
            await asyncio.wait(ended, timeout=KILLED_PIPE_GRACE_S)
        return ProcessResult(
            exit_status=child.exit_status,
            output=output.kept.value(),
            stderr=stderr.kept.value(),
            truncated_bytes=output.kept.missing_bytes + stderr.kept.missing_bytes,
            timed_out=timed_out,
        )

    async def _end(self, spawning: asyncio.Future[Child]) -> None:
        """Leave nothing of a child that was, or still is being, started.  Its run has let go of the pipes."""
        await asyncio.wait([spawning])
        if spawning.exception() is not None:
            return
        child = spawning.result()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._reaper, self._finish, child)
        child.let_go()
        if is_subreaper() and not self._is_closed:
            # In the spawner: there no leader can die between its start and its entry in the list.
            await loop.run_in_executor(self._spawner, self._sweep)

    def child_ended(self) -> None:
        """Reap what was adopted and has died; for SIGCHLD.

        Unreaped, the dead of one program that forks without end would fill the machine's process table.
        """
        if not self._is_reaping and not self._is_closed:
            self._is_reaping = True
            asyncio.get_running_loop().call_later(REAP_PAUSE_S, self._begin_reaping)

    def _begin_reaping(self) -> None:
        if not self._is_closed:
            self._spawner.submit(self._reap)

    def _reap(self) -> None:
        self._is_reaping = False
        process_tree.reap_adopted(self._alive)

    def _sweep(self) -> None:
        """Reap what was adopted; with nothing else running it belongs to nobody, and is killed as well."""
        if self._alive:
            process_tree.reap_adopted(self._alive)
        elif not process_tree.kill_adopted(self._alive):
            log.error("some of what a program left behind does not die")

    def _finish(self, child: Child) -> None:
        if child.end():
            # Its number may already be that of the next child.
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


def _unmarked(program: str) -> BackendFailed:
    return BackendFailed(f"Children cannot be marked here, so {program} was not started.")


def _not_started(program: str, error: Exception) -> BackendFailed:
    """Put the ways in which a start fails into one sentence."""
    if isinstance(error, OSError) and error.strerror:
        return BackendFailed(f"Could not start {program}: {error.strerror} ({error.filename or program}).")
    return BackendFailed(f"Could not start {program}: {error}.")
