"""Deciding costs the same in a large store.  Counted in steps, which no busy machine changes: `make bench` has the
times.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from msgspec import UNSET, UnsetType

import eryxd
from bench.asker import ASKING, DONE, started
from bench.records import AUTOMATIC, NOON, SESSION
from bench.stores import Size, write
from eryxd.api import requests as ask
from eryxd.backends.tools import available_tools
from eryxd.core import approvals
from eryxd.daemon import actions
from eryxd.daemon.children import Children
from eryxd.daemon.daemon import Daemon
from eryxd.daemon.store import Store
from eryxd.domain.approval import Approval, ApprovalStatus, Decider
from eryxd.domain.ids import BackendName, CallId, ProviderId, ToolId
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import (
    Allow,
    BackendDescriptor,
    Capabilities,
    Connection,
    ConnectionState,
    Gate,
    ToolCall,
    Turn,
)
from eryxd.settings import Settings
from tests.requirements import requirement

SMALL: Final = Size(3, 2)
LARGE: Final = Size(400, 30)

PERSON: Final = Decider(uid=0, pid=1, client_name="test")

SOURCES: Final = str(Path(eryxd.__file__).parent)

WAIT_S: Final = 20.0


class Steps(NamedTuple):
    """How many lines of eryx ran on the loop, and how many instructions SQLite executed for the commit."""

    lines: int
    instructions: int


class Counter:
    """Counts what happens while it is `on`."""

    def __init__(self) -> None:
        self.lines = 0
        self.instructions = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(SOURCES) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += event == "line"
        return self._line

    def watch(self, store: Store) -> None:
        store._db.set_progress_handler(self._instruction, 1)

    def _instruction(self) -> int:
        self.instructions += 1
        return 0


class Rehearsal:
    """A backend whose turn lasts until it is told to end; the gate is for whoever waits for it."""

    descriptor = BackendDescriptor(name=BackendName("bench"), label="Bench", by_default=True)

    def __init__(self) -> None:
        self.gate: asyncio.Future[Gate] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def describe(self) -> Capabilities:
        state = ConnectionState(status=Connection.READY, summary="It rehearses.", checked_at=NOON)
        return Capabilities(connection=state, runtime_tools=available_tools())

    async def prepare(self, agent: RunAgent) -> str | UnsetType:
        return UNSET

    async def run_turn(self, turn: Turn, gate: Gate) -> None:
        self.gate.set_result(gate)
        await self.over.wait()


def call(number: int, tool: ToolId) -> ToolCall:
    return ToolCall(call_id=CallId(f"c{number}"), tool_id=tool, provider=ProviderId(f"builtin:{tool}"))


async def decide(daemon: Daemon, gate: Gate, number: int) -> None:
    """Have one call decided by the list, and end it."""
    assert await gate.tool_call(call(number, AUTOMATIC)) == Allow()
    await gate.tool_done(CallId(f"c{number}"), DONE)


async def approve(daemon: Daemon, gate: Gate, number: int) -> None:
    """Have one call ask, approve it, and end it."""
    asked = asyncio.create_task(gate.tool_call(call(number, ASKING)))
    while not daemon.engine.committed.count(Approval):
        await asyncio.sleep(0)
        await daemon.engine.idle()
    [waiting] = daemon.engine.committed.all(Approval)
    decision = ask.ApprovalsResolve(
        session_id=waiting.session_id, approval_id=waiting.id, decision=ApprovalStatus.APPROVED
    )
    await daemon.engine.run(approvals.resolve, decision, caller=PERSON)
    assert await asked == Allow()
    await gate.tool_done(CallId(f"c{number}"), DONE)


Work = Callable[[Daemon, Gate, int], Awaitable[None]]


async def steps(work: Work, state: Path) -> Steps:
    """Do the work once to warm up, and count the second time."""
    backend, counter = Rehearsal(), Counter()
    children = Children(state / "children")
    daemon = await started(state, Settings(), children, backend)
    try:
        await actions.send(daemon, PERSON, ask.MessagesSend(session_id=SESSION, content="Go on."))
        gate = await asyncio.wait_for(backend.gate, WAIT_S)
        await work(daemon, gate, 1)
        await daemon.engine.on_writer(counter.watch)
        with counter.on():
            await work(daemon, gate, 2)
        return Steps(counter.lines, counter.instructions)
    finally:
        backend.over.set()
        await daemon.runs.stop_all()
        await asyncio.to_thread(children.close)
        await daemon.close()


def steps_in(size: Size, work: Work, folder: Path) -> Steps:
    write(size, folder)
    return asyncio.run(steps(work, folder))


@requirement("TLN-5")
@pytest.mark.parametrize("work", [decide, approve])
def test_a_decision_takes_the_same_steps_in_a_large_store(work: Work, tmp_path: Path) -> None:
    """Neither sessions nor runs nor messages that lie there make a decision or its record longer."""
    small, large = (steps_in(size, work, tmp_path / str(size.sessions)) for size in (SMALL, LARGE))

    assert large == small
    assert small.lines > 100
    assert small.instructions > 50
