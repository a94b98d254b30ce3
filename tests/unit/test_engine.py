"""The engine over a real store: batches, the order of what is released, and disks that refuse."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from eryxd.core import approvals, runs, sessions
from eryxd.core.change import Release, Tx
from eryxd.core.settle import FAILED
from eryxd.daemon import clock
from eryxd.daemon.engine import MAX_IN_FLIGHT
from eryxd.domain.approval import Approval, brief
from eryxd.domain.errors import Busy, Invalid
from eryxd.domain.ids import ID_LETTERS
from eryxd.domain.session import Run, SessionHead
from eryxd.domain.timeline import TimelineEvent
from eryxd.plugin.types import Allow
from tests.builders import approval, run, session, timeline_event
from tests.core_builders import kept, resolving
from tests.engine_builders import Machine, put, story, titled, workplace
from tests.requirements import requirement

ASKED = [run(), approval(), timeline_event("t9", number=9_000)]


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
def test_what_cannot_be_encoded_fails_alone(tmp_path: Path) -> None:
    """A file name that is no text must not take everybody's batch with it."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.start(sessions.rename, titled(1), "before")
        machine.start(put, session(title="bad \udcff"), "bad")
        machine.start(sessions.rename, titled(2), "after")
        await machine.idle()

        assert (machine.said("bad"), machine.engine.problem) == (["invalid"], None)
        assert [reply.session.title for reply in machine.said("before", "after")] == ["Title 1", "Title 2"]
        assert kept(machine.engine.head) == kept(machine.engine.committed)

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


@requirement("DUR-2")
def test_a_row_that_nobody_keeps_is_seen_on_its_way_to_the_disk(tmp_path: Path) -> None:
    """A use case that comes next finds the run ended, not running and not gone."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        await machine.holds_the_disk()
        machine.start(runs.end, runs.EndRun(run().id, FAILED))
        seen: list[Any] = []
        machine.start(lambda tx, _: seen.append(tx.get(Run, "r1")), None)
        machine.start(lambda tx, _: seen.append(tx.get(TimelineEvent, "t9")), None)
        await machine.idle()

        assert [one.status.value for one in seen] == ["error", "completed"]
        assert seen[0] == machine.reader.get(Run, "r1")

    story(work())


@requirement("DUR-7")
def test_too_many_changes_in_flight_are_busy(tmp_path: Path) -> None:
    """The disk has stopped; whoever may wait does, and what the daemon itself must record is never refused."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.holds_the_disk()
        for _ in range(MAX_IN_FLIGHT - 1):
            machine.start(lambda tx, _: None, None, "looked")
        with pytest.raises(Busy) as caught:
            await machine.engine.run(sessions.rename, titled(1))
        assert caught.value.data == {"retry_ms": 200}
        assert machine.engine.head.get(SessionHead, "s1") == session()

        persisting = asyncio.ensure_future(machine.engine.persist(sessions.rename, titled(2)))
        await asyncio.sleep(0)
        await machine.idle()
        assert (await persisting).session.title == "Title 2"
        assert len(machine.said("looked")) == MAX_IN_FLIGHT - 1

    story(work())


@requirement("DUR-2")
def test_looking_changes_nothing_and_sees_only_what_is_durable(tmp_path: Path) -> None:
    """What is in flight could still be lost."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.holds_the_disk()
        machine.start(sessions.rename, titled(1))
        seen = machine.engine.look(sessions.rename, titled(2))
        assert seen.session.title == "Title 2"
        assert machine.engine.committed.get(SessionHead, "s1") == session()

        await machine.idle()
        assert machine.engine.committed.get(SessionHead, "s1") == machine.engine.head.get(SessionHead, "s1")
        assert machine.said("reply")[0].session.title == "Title 1"

    story(work())


@requirement("DUR-8", "APR-9")
def test_a_decision_that_was_answered_outlives_the_process(tmp_path: Path) -> None:
    """So do the numbers: neither events nor records use one twice."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.has(*ASKED)
        resolved = await machine.engine.run(approvals.resolve, resolving(approval()))
        number = machine.engine.next_number()
        await machine.engine.run(put, session("s2"))
        seq = machine.engine.seq
        await machine.dies()

        again = Machine(tmp_path)
        assert again.engine.committed.get(Approval, "a1") is None
        decided = again.reader.get(Approval, "a1")
        assert decided is not None
        assert brief(decided) == resolved.approval
        assert again.engine.next_number() > number
        assert (again.engine.seq, kept(again.engine.head)) == (seq, kept(machine.engine.committed))
        assert (await again.engine.run(sessions.rename, titled(1))).seq == seq + 1

    story(work())


@requirement("DUR-8")
@pytest.mark.parametrize("is_sound", [True, False])
def test_closing_commits_what_is_in_flight_and_remembers_a_good_end(tmp_path: Path, is_sound: bool) -> None:
    """The next start need not check a store that was closed in good order and found sound."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.engine.on_writer(lambda store: store.mark_clean(False))
        machine.start(sessions.rename, titled(1))
        await machine.engine.close(is_sound)
        machine.reader.close()

        again = Machine(tmp_path)
        assert again.store.meta("clean") == str(int(is_sound))
        assert again.engine.head.get(SessionHead, "s1") == machine.engine.committed.get(SessionHead, "s1")
        assert machine.said("reply")[0].session.title == "Title 1"

    story(work())


@requirement("APR-9")
@pytest.mark.parametrize("noun", ID_LETTERS)
def test_ids_are_a_kind_letter_and_random_base32(noun: str) -> None:
    """They say nothing about order."""
    made = {clock.new_id(noun) for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch(ID_LETTERS[noun] + "[a-z2-7]{16}", one) for one in made)
