"""Running runs: turns them into turns, carries out what was decided, ends them.

Laws: every task belongs to a run and is awaited; a run that has started is settled exactly once, whatever happens to
its backend, its person, the disk or the daemon.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, UnsetType

from eryxd.core import approvals, runs
from eryxd.core.change import Effect, Expire, ForgetRun, Release, StartRun, StopRun
from eryxd.core.settle import CANCELLED, FAILED, INTERRUPTED, End
from eryxd.daemon.bus import Bus
from eryxd.daemon.children import Children, OwnedProcesses
from eryxd.daemon.engine import Engine
from eryxd.daemon.gate import RunHandle, TurnGate
from eryxd.daemon.history import LAST, History
from eryxd.daemon.offered import OfferedTools
from eryxd.daemon.provided import Providers
from eryxd.domain.errors import EryxError, StoreUnavailable
from eryxd.domain.ids import ApprovalId, BackendName, MessageId, RunId, SessionId
from eryxd.domain.policy import CORE_INFRASTRUCTURE
from eryxd.domain.session import Message, Role, Run, RunAgent, RunInput
from eryxd.orchestration.modes import PLAY
from eryxd.plugin.types import Backend, DeniedBy, Turn

log = logging.getLogger("eryxd.runs")

STOP_S: Final = 5.0
"""How long a backend may take to end a turn that was cancelled."""

TRANSCRIPT_MESSAGES: Final = 200
"""How much of a session's transcript an agent is given: its newest messages."""

STORE_ERROR: Final = "The store refused writes while this session was running; nothing was resumed."


class Runs:
    """All running runs of the daemon."""

    def __init__(
        self,
        engine: Engine,
        bus: Bus,
        history: History,
        backends: Mapping[BackendName, Backend],
        children: Children,
        providers: Providers,
    ) -> None:
        self._engine = engine
        self._bus = bus
        self._history = history
        self._backends = backends
        self._children = children
        self._providers = providers
        self._handles: dict[RunId, RunHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def effects(self, effects: list[Effect]) -> None:
        """Carry out what has become durable."""
        for effect in effects:
            match effect:
                case StartRun(run_id):
                    self._start(run_id)
                case Release(run_id, approval_id, answer):
                    if run_id in self._handles:
                        self._handles[run_id].release(approval_id, answer)
                case StopRun(run_id):
                    self._spawn(self._stop(run_id, CANCELLED))
                case ForgetRun(run):
                    self._forget(run)
                case Expire(approval_id, after_s):
                    asyncio.get_running_loop().call_later(after_s, self._expire, approval_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of a run broke down", exc_info=task.exception())

    def _start(self, run_id: RunId) -> None:
        run = self._engine.committed.get(Run, run_id)
        if run is None:
            return
        handle = self._handles[run_id] = RunHandle(run)
        handle.task = self._spawn(self._play(run, handle))

    async def _play(self, run: Run, handle: RunHandle) -> None:
        """Play a run to its end and settle it; a cancelled task is settled by whoever cancelled it."""
        try:
            transcript = await self._history.messages(run.session_id, LAST, TRANSCRIPT_MESSAGES)
            said = list(reversed(transcript.rows))

            async def take_turn(agent: RunAgent) -> None:
                await self._turn(run, handle, agent, said)

            await PLAY[run.pattern_mode](run.agents, take_turn)
            await self._engine.persist(runs.finish, run.id)
        except StoreUnavailable:
            log.warning("run %s waits for the store before it can be settled", run.id)
        except EryxError as error:
            await self._end(run.id, FAILED, error.message, handle.partial)
        except Exception as error:
            log.error("the backend of run %s broke down", run.id, exc_info=error)
            error = _first_cause(error)
            await self._end(run.id, FAILED, f"The backend broke down: {type(error).__name__}: {error}", handle.partial)

    async def _turn(self, run: Run, handle: RunHandle, agent: RunAgent, said: list[Message]) -> None:
        backend = self._backends[agent.backend]
        gate = TurnGate(
            self._engine, self._bus, handle, agent, CORE_INFRASTRUCTURE & frozenset(backend.descriptor.infrastructure)
        )
        kept = self._engine.stored(RunInput, (run.id, agent.id))
        turn = Turn(
            run_id=run.id,
            session_id=run.session_id,
            agent=agent,
            project_path=run.project_path,
            policy=run.approval_policy,
            messages=tuple(said),
            processes=OwnedProcesses(self._children, run.session_id),
            tools=OfferedTools(self._engine.committed, self._providers, run.session_id),
            input=kept.text if kept is not None else UNSET,
        )
        before = len(handle.said)
        await backend.run_turn(turn, gate)
        said += [_as_message(run, speaker, text) for speaker, text in handle.said[before:]]

    async def _end(
        self, run_id: RunId, end: End, error: str | UnsetType, partial: Mapping[MessageId, str] = {}
    ) -> None:
        try:
            await self._engine.persist(runs.end, runs.EndRun(run_id, end, error, dict(partial)))
        except StoreUnavailable:
            log.warning("run %s waits for the store before it can be settled", run_id)

    def _expire(self, approval_id: ApprovalId) -> None:
        self._spawn(self._engine.persist(approvals.expire, approval_id))

    async def _stop(self, run_id: RunId, end: End, error: str | UnsetType = UNSET) -> None:
        """End what a run has started, then settle it; a backend that does not let go is given up after a while."""
        handle = self._handles.get(run_id)
        partial: Mapping[MessageId, str] = {}
        if handle is not None:
            handle.deny_all(end.denied_by)
            if handle.task is not None and not handle.task.done():
                handle.task.cancel()
                _, left = await asyncio.wait([handle.task], timeout=STOP_S)
                if left:
                    log.error("the backend of run %s did not let go within %.0f s", run_id, STOP_S)
            partial = handle.partial
        await self._end(run_id, end, error, partial)

    def _forget(self, run: Run) -> None:
        handle = self._handles.pop(run.id, None)
        if handle is not None:
            handle.deny_all(DeniedBy.CANCELLED)
            if not handle.ended.done():
                handle.ended.set_result(run)

    def failed(self) -> None:
        """The store refuses: deny everything that waits and end every process; settling comes when it takes writes."""
        for handle in self._handles.values():
            handle.deny_all(DeniedBy.STORE)
            if handle.task is not None:
                handle.task.cancel()

    def recovered(self) -> None:
        """The store takes writes again: settle what was running."""
        for run in list(self._engine.committed.all(Run)):
            self._spawn(self._stop(run.id, INTERRUPTED, STORE_ERROR))

    def owner_of(self, line: Sequence[int]) -> SessionId | None:
        """Return the session for which one of these processes was started, nearest first."""
        owner = self._children.owner_of(line)
        return None if owner is None else SessionId(owner)

    async def wait(self, run_id: RunId, timeout_s: float) -> None:
        """Wait until a run has ended, at most so long."""
        handle = self._handles.get(run_id)
        if handle is not None:
            await asyncio.wait([handle.ended], timeout=timeout_s)

    async def end_session(self, session: SessionId) -> None:
        """Cancel a session's run and wait until it is settled."""
        for run in self._engine.committed.of(Run, session):
            await self._engine.run(runs.cancel, run.id)
            await self.wait(run.id, STOP_S * 2)

    async def stop_all(self) -> None:
        """Interrupt every run, because the daemon stops."""
        error = "The daemon was stopped while this session was running."
        ids = [run.id for run in self._engine.committed.all(Run)]
        await asyncio.gather(*(self._stop(run_id, INTERRUPTED, error) for run_id in ids))
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=STOP_S)


def _first_cause(error: Exception) -> Exception:
    """Return what went wrong first in a group of tasks; a group says nothing to a person."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _as_message(run: Run, agent: RunAgent, text: str) -> Message:
    """What one agent tells the next inside a run, published or not."""
    return Message(
        id=MessageId(""),
        session_id=run.session_id,
        run_id=run.id,
        role=Role.ASSISTANT,
        author_name=agent.name,
        agent_id=agent.id,
        content=text,
        created_at=run.started_at,
        number=0,
    )
