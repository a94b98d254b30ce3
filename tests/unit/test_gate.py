"""The gate of a turn, over the real engine: what was streamed is never lost."""

import asyncio
from pathlib import Path

import pytest
from msgspec import UNSET

from eryxd.core import approvals
from eryxd.daemon.bus import Bus
from eryxd.daemon.gate import MAX_NAME, RunHandle, TurnGate
from eryxd.domain.approval import Approval
from eryxd.domain.ids import CallId, ProviderId, ToolId
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import Allow, ToolCall, ToolOutcome
from tests.builders import run
from tests.core_builders import resolving
from tests.engine_builders import story, workplace
from tests.requirements import requirement


@requirement("RUN-3")
def test_streamed_text_is_kept_until_its_message_is_on_disk(tmp_path: Path) -> None:
    """A cancel that comes in between settles the run with what had been streamed, not with nothing."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        made = run()
        await machine.has(made)
        handle = RunHandle(made)
        gate = TurnGate(machine.engine, Bus(), handle, made.agents[0], frozenset())
        await gate.delta("Hel")
        await machine.holds_the_disk()

        finishing = asyncio.create_task(gate.message("Hello"))
        await asyncio.sleep(0)
        assert list(handle.partial.values()) == ["Hel"]

        await machine.idle()
        await finishing
        assert handle.partial == {}

    story(work())


@requirement("TLN-3", "POL-11")
@pytest.mark.parametrize("name", ["call_id", "tool_id", "provider", "backend_session"])
def test_a_call_with_names_beyond_all_measure_is_asked_and_recorded(tmp_path: Path, name: str) -> None:
    """It is the call of a tool that nobody knows, listed or not, and everything that shows it stays small."""
    names = {"call_id": "c1", "tool_id": "view", "provider": "builtin:view", name: "x" * (MAX_NAME + 1)}
    call = ToolCall(
        call_id=CallId(names["call_id"]),
        tool_id=ToolId(names["tool_id"]),
        provider=ProviderId(names["provider"]),
        backend_session=names.get("backend_session", ""),
    )

    async def work() -> None:
        machine = await workplace(tmp_path)
        made = run()
        await machine.has(made)
        handle = RunHandle(made)
        gate = TurnGate(machine.engine, Bus(), handle, made.agents[0], frozenset())
        asking = asyncio.create_task(gate.tool_call(call))
        await asyncio.sleep(0)
        await machine.engine.idle()
        (approval,) = machine.engine.committed.all(Approval)
        [event] = [one for one in machine.engine.committed.all(TimelineEvent) if one.kind is TimelineKind.TOOL_CALL]
        shown = (approval.detail or "", approval.call_id or "", event.call_id or "")
        assert all(len(text) <= 2 * MAX_NAME for text in shown)
        assert (approval.tool_name, approval.provider) == (
            ("view", "builtin:view") if name in ("call_id", "backend_session") else (UNSET, UNSET)
        )

        await machine.engine.persist(approvals.resolve, resolving(approval, "approved"))
        handle.release(approval.id, Allow())
        assert await asking == Allow()
        await gate.tool_done(call.call_id, ToolOutcome(ok=True, text="done"))
        ended = machine.engine.stored(TimelineEvent, event.id)
        assert ended is not None
        assert ended.status is TimelineStatus.COMPLETED

    story(work())
