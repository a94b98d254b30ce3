"""Sources: asked when they must be, in the background; what fails costs nobody anything."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eryxd.domain.catalog import SourceAnswer, SourceId, SourceStatus
from eryxd.domain.ids import ToolId
from eryxd.domain.providers import ProviderEntry
from eryxd.plugin.types import ProvidedTool
from tests.engine_builders import story
from tests.requirements import requirement
from tests.unit.provider_stage import FAILED, FakeProvider, Place
from tests.unit.test_core_entries import entry

GIT = SourceId("mcp:git")


async def settled(place: Place) -> None:
    """Wait until nobody is pending."""
    await asyncio.wait_for(place.sources.settled(lambda: False), 20)


def tools(place: Place) -> set[str]:
    """Return the ids of the catalog."""
    return set(place.sources.catalog)


def state(place: Place, source: SourceId = GIT) -> Any:
    """Return how far a source is."""
    return place.sources.by_status()[source]


@requirement("CAT-7")
def test_a_source_without_an_answer_is_asked_in_the_background_and_one_with_it_is_not(tmp_path: Path) -> None:
    """After a restart its stored answer stands, until it is asked something else."""

    async def work() -> None:
        provider = FakeProvider()
        place = Place(tmp_path, provider)
        await place.machine.has(entry())
        await place.sources.start()
        await settled(place)
        assert (tools(place), state(place).status) == ({"status", "log"}, SourceStatus.ANSWERED)

        await place.sources.start()
        await settled(place)
        assert len(provider.asked) == 1

        provider.version = "2"
        await place.sources.start()
        await settled(place)
        assert len(provider.asked) == 2
        await place.ends()

    story(work())


FAILURES: dict[str, Callable[[FakeProvider], None]] = {
    "it says so": lambda one: setattr(one, "fails", FAILED),
    "it breaks down": lambda one: setattr(one, "fails", ZeroDivisionError("division by zero")),
    "it exits": lambda one: setattr(one, "fails", SystemExit(3)),
    "no tools": lambda one: setattr(one, "listed", [7]),
    "not well formed": lambda one: setattr(one, "listed", [ProvidedTool(id=7)]),  # type: ignore[arg-type]
    "too many": lambda one: setattr(one, "listed", [f"t{number}" for number in range(5000)]),
    "too large": lambda one: setattr(one, "listed", [ProvidedTool(id=ToolId("t"), description="x" * 3_000_000)]),
    "late": lambda one: setattr(one, "listed", (1 // 0 for _ in range(1))),
}


@requirement("CAT-7", "PRN-2")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_source_that_fails_keeps_its_last_good_answer(tmp_path: Path, failure: Any) -> None:
    """Whatever it does; it says why, and the others go on."""

    async def work() -> None:
        provider, other = FakeProvider(), FakeProvider("make", record=None)
        other.listed = ["build"]
        place = Place(tmp_path, provider, other)
        await place.machine.has(entry())
        await place.sources.start()
        await settled(place)

        failure(provider)
        failed = await place.sources.check(GIT)
        assert failed.status is SourceStatus.FAILED
        assert failed.reason
        assert tools(place) == {"status", "log", "build"}
        assert state(place).tools == 2

        other.listed = ["test"]
        await place.sources.check(SourceId("make"))
        assert tools(place) == {"status", "log", "test"}
        await place.ends()

    story(work())


@requirement("VAL-2")
def test_validation_waits_for_a_source_that_is_pending_and_for_no_longer(tmp_path: Path) -> None:
    async def work() -> None:
        provider = FakeProvider()
        provider.gate = asyncio.Event()
        place = Place(tmp_path, provider)
        await place.machine.has(entry())
        await place.sources.start()
        waiting = asyncio.create_task(place.sources.settled(lambda: "log" in place.sources.catalog))
        await asyncio.sleep(0)
        assert not waiting.done()

        provider.gate.set()
        await asyncio.wait_for(waiting, 20)
        assert "log" in place.sources.catalog
        await asyncio.wait_for(place.sources.settled(lambda: False), 1)
        await place.ends()

    story(work())


@requirement("CAT-7")
def test_an_answer_to_a_definition_that_was_changed_meanwhile_is_nobodys(tmp_path: Path) -> None:
    async def work() -> None:
        provider = FakeProvider()
        provider.gate = asyncio.Event()
        place = Place(tmp_path, provider)
        await place.machine.has(entry())
        checking = asyncio.create_task(place.sources.check(GIT))
        while not provider.asked:
            await asyncio.sleep(0)
        await place.machine.has(entry(record={"command": "another"}))
        provider.gate.set()
        await checking

        assert tools(place) == set()
        await place.ends()

    story(work())


@requirement("CAT-4")
def test_a_tool_that_cannot_be_named_without_doubt_is_quarantined_with_the_reason(tmp_path: Path) -> None:
    """The others are taken."""

    async def work() -> None:
        provider = FakeProvider()
        provider.listed = ["log", " log", "", "a\x1bb", "x" * 300, "log"]
        place = Place(tmp_path, provider)
        await place.machine.has(entry())
        await place.sources.start()
        await settled(place)

        assert tools(place) == {"log"}
        assert [(one.name[:4], one.why) for one in state(place).quarantined] == [
            (" log", "its name has outer white space"),
            ("", "its name is blank"),
            ("a\x1bb", "its name has characters that cannot be seen"),
            ("xxxx", "its name is longer than 256 characters"),
        ]
        await place.ends()

    story(work())


@requirement("CAT-7", "PRN-3")
def test_what_only_an_answer_is_left_of_is_a_failed_source(tmp_path: Path) -> None:
    """Its definition vanished, or its plugin is not there: nothing is lost."""

    async def work() -> None:
        place = Place(tmp_path, FakeProvider())
        await place.machine.has(entry())
        await place.sources.start()
        await settled(place)
        await place.machine.engine.run(lambda tx, _: tx.delete(ProviderEntry, ("mcp", "git")), None)
        place.sources.forget(GIT)

        assert tools(place) == {"status", "log"}
        assert (state(place).status, state(place).reason) == (
            SourceStatus.FAILED,
            "withdrawn: its definition is not there any more",
        )
        place.providers.by_name.clear()
        assert state(place).reason == "its plugin is not installed"
        await place.ends()

    story(work())


@requirement("CAT-7")
def test_callers_that_ask_at_once_share_one_question(tmp_path: Path) -> None:
    async def work() -> None:
        provider = FakeProvider()
        place = Place(tmp_path, provider)
        await place.machine.has(entry())
        await asyncio.gather(*(place.sources.check(GIT) for _ in range(5)))

        assert len(provider.asked) == 1
        assert place.machine.engine.committed.get(SourceAnswer, GIT) is not None
        await place.ends()

    story(work())
