"""The gate of a turn, over the real engine: what was streamed is never lost."""

import asyncio
from pathlib import Path

from eryxd.daemon.bus import Bus
from eryxd.daemon.gate import RunHandle, TurnGate
from tests.builders import run
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
