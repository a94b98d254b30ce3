"""The engine over a real store: batches, the order of what is released, and disks that refuse."""

import asyncio
import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.core import approvals, runs, sessions
from eryxd.core.change import Release, Tx
from eryxd.domain.approval import Approval
from eryxd.domain.errors import Invalid, StoreUnavailable
from eryxd.domain.session import Run, RunStatus, SessionHead
from eryxd.domain.timeline import TimelineEvent
from eryxd.plugin.types import Allow
from tests.builders import approval, run, session, timeline_event
from tests.core_builders import kept, resolving, wanted
from tests.engine_builders import FULL, Machine, put, story, workplace
from tests.requirements import requirement

ASKED = [run(), approval(), timeline_event("t1", number=2)]


def titled(n: int) -> ask.SessionsRename:
    """Return the request that renames session s1."""
    return wanted(ask.SessionsRename, session_id="s1", title=f"Title {n}")


def refuse(tx: Tx, request: Any) -> None:
    """A use case that changes something and then thinks better of it."""
    tx.put(session(title="Never"))
    raise Invalid("No.", problems=["no"])


@requirement("DUR-1")
def test_changes_of_one_turn_are_one_batch_and_land_in_order(tmp_path: Path) -> None:
    """One sync for all of them; each reply has the number of its own last event."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.store.commits.clear()
        first = machine.engine.seq + 1
        for n in range(5):
            machine.start(sessions.rename, titled(n))
        await machine.idle()

        assert machine.store.commits == [5]
        assert [(one.seq, one.event.session.title) for one in machine.said("event")] == [
            (first + n, f"Title {n}") for n in range(5)
        ]
        assert [reply.seq for reply in machine.said("reply")] == [first + n for n in range(5)]
        assert machine.engine.seq == first + 4

    story(work())


@requirement("DUR-1")
def test_what_arrives_while_the_disk_is_busy_is_the_next_batch(tmp_path: Path) -> None:
    """Nobody waits for a sync of his own."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.store.commits.clear()
        await machine.holds_the_disk()
        for n in range(3):
            machine.start(sessions.rename, titled(n))
        await machine.idle()

        assert machine.store.commits == [1, 3]

    story(work())


@requirement("DUR-2", "APR-9")
def test_nothing_is_released_before_it_is_durable_then_events_effects_and_replies(tmp_path: Path) -> None:
    """In commit order; whoever hears of a decision can read it from the file."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        before = kept(machine.engine.committed)
        await machine.holds_the_disk()
        machine.start(approvals.resolve, resolving(approval()))
        machine.start(sessions.rename, titled(1))
        assert machine.log == []
        assert kept(machine.engine.committed) == before
        assert machine.engine.head.get(Approval, "a1") is None

        await machine.idle()
        assert [name for name, _ in machine.log] == ["event", "held", *["event"] * 4, "effect", "reply", "reply"]
        assert machine.said("effect") == [Release(run().id, approval().id, Allow())]
        assert machine.reader.get(Approval, "a1") == replace(
            approval(), **{name: getattr(machine.said("reply")[0].approval, name) for name in DECIDED}
        )
        assert kept(machine.engine.committed) == kept(machine.engine.head)

    story(work())


DECIDED = ("status", "resolution", "resolved_at", "resolved_by")


@requirement("DUR-3")
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_refusal_that_rests_on_something_in_flight_is_released_with_it(tmp_path: Path, is_lost: bool) -> None:
    """If that is lost, so is the reason for the refusal: the store's error is the answer."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        machine.store.breaks_with = FULL if is_lost else None
        machine.start(approvals.resolve, resolving(approval()))
        machine.start(approvals.resolve, resolving(approval(), "rejected"), "late")
        assert machine.log == []
        await machine.idle()

        assert machine.said("late") == ["store_unavailable" if is_lost else "approval_not_active"]
        assert [name for name, _ in machine.log if name in ("reply", "late")] == ["reply", "late"]

    story(work())


@requirement("DUR-3")
def test_a_refusal_that_rests_on_nothing_in_flight_is_given_at_once(tmp_path: Path) -> None:
    """And nothing that it had put stays."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        before = kept(machine.engine.head)
        machine.start(refuse, None)

        assert machine.log == [("reply", "invalid")]
        assert kept(machine.engine.head) == before

    story(work())


def test_a_use_case_that_breaks_down_changes_nothing(tmp_path: Path) -> None:
    """It is the caller's to report; the engine goes on."""

    def break_down(tx: Tx, _: None) -> None:
        tx.put(session(title="Never"))
        raise ZeroDivisionError

    async def work() -> None:
        machine = await workplace(tmp_path)
        with pytest.raises(ZeroDivisionError):
            machine.start(break_down, None)
        assert machine.engine.head.get(SessionHead, "s1") == session()

        assert (await machine.engine.run(sessions.rename, titled(1))).session.title == "Title 1"

    story(work())


def full(machine: Machine) -> None:
    """Let the file grow no more, and write what needs a page."""
    machine.store.fill()
    machine.start(put, session("big", title="x" * 100_000), "big")


def replaced(machine: Machine) -> None:
    """Put another file in the place of the store."""
    path = machine.store.path
    shutil.copy(path, path.with_name("other"))
    os.replace(path, path.with_name("aside"))
    os.replace(path.with_name("other"), path)
    machine.start(put, session("big"), "big")


@requirement("DUR-4")
@pytest.mark.parametrize("breaks", [full, replaced])
def test_a_failed_batch_leaves_memory_as_the_store_is(tmp_path: Path, breaks: Any) -> None:
    """Everything in flight is lost and says so; what came later rested on it.  Reading goes on."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        before, seq = kept(machine.engine.head), machine.engine.seq
        breaks(machine)
        machine.start(approvals.resolve, resolving(approval()))
        machine.start(runs.cancel, "r1")
        machine.start(put, run(status=RunStatus.COMPLETED))
        await machine.idle()

        assert machine.log == [
            ("big", "store_unavailable"),
            *[("reply", "store_unavailable")] * 3,
            ("signal", "failed"),
        ]
        assert kept(machine.engine.head) == kept(machine.engine.committed) == before
        assert machine.engine.seq == seq
        assert machine.reader.get(Approval, "a1") == approval()
        assert machine.engine.look(lambda tx, _: tx.need(Run, "r1", "run"), None) == run()

    story(work())


@requirement("DUR-4", "DUR-5")
@pytest.mark.parametrize("breaks", [full, replaced])
def test_a_store_that_refused_is_refused_at_once_until_a_probe_succeeds(tmp_path: Path, breaks: Any) -> None:
    """Then the journal goes on without a hole."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        seq = machine.engine.seq
        breaks(machine)
        await machine.idle()
        machine.log.clear()
        machine.start(sessions.rename, titled(1))
        assert machine.log == [("reply", "store_unavailable")]

        if breaks is replaced:
            machine.engine._probe()
            await machine.engine.on_writer(lambda store: None)
            await asyncio.sleep(0)
            assert machine.engine.problem is not None
            os.replace(tmp_path / "aside", machine.store.path)
        machine.engine._probe()
        while machine.engine.problem is not None:
            await machine.engine.on_writer(lambda store: None)
        assert machine.log[1:] == [("signal", "recovered")]
        assert (await machine.engine.run(sessions.rename, titled(2))).seq == seq + 1

    story(work())


@requirement("DUR-6")
def test_a_commit_that_reported_an_error_and_happened_is_a_commit(tmp_path: Path) -> None:
    """The file is looked at before anything is said."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.store.breaks_after = sqlite3.OperationalError("disk I/O error")
        for n in range(2):
            machine.start(sessions.rename, titled(n))
        await machine.idle()

        assert [reply.session.title for reply in machine.said("reply")] == ["Title 0", "Title 1"]
        assert [one.event.session.title for one in machine.said("event")] == ["Title 0", "Title 1"]
        assert (machine.engine.problem, machine.said("signal")) == (None, [])
        assert machine.reader.get(SessionHead, "s1") == machine.engine.committed.get(SessionHead, "s1")

    story(work())


@requirement("DUR-4")
def test_a_writer_that_breaks_down_is_a_store_that_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and nobody is told more than that."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.store.breaks_with = ZeroDivisionError("secret")
        with pytest.raises(StoreUnavailable) as caught, caplog.at_level(logging.CRITICAL):
            await machine.engine.run(sessions.rename, titled(1))

        assert caught.value.data == {"why": "internal"}
        assert "secret" not in caught.value.message
        assert machine.engine.head.get(SessionHead, "s1") == session()

    story(work())


@requirement("DUR-2")
def test_a_row_that_nobody_keeps_is_seen_on_its_way_to_the_disk(tmp_path: Path) -> None:
    """A use case that comes next finds the run ended, not running and not gone."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        await machine.holds_the_disk()
        machine.start(runs.end, runs.EndRun(run().id, _failed()))
        seen: list[Any] = []
        machine.start(lambda tx, _: seen.append(tx.get(Run, "r1")), None)
        machine.start(lambda tx, _: seen.append(tx.get(TimelineEvent, "t1")), None)
        await machine.idle()

        assert [one.status.value for one in seen] == ["error", "completed"]
        assert seen[0] == machine.reader.get(Run, "r1")

    story(work())


def _failed() -> Any:
    from eryxd.core.settle import FAILED

    return FAILED
