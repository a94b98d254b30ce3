"""The engine and a disk that refuses: nothing is granted, nothing is half done, and it recovers."""

import asyncio
import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from eryxd.core import approvals, runs, sessions
from eryxd.domain.approval import Approval
from eryxd.domain.errors import StoreUnavailable
from eryxd.domain.session import Run, RunStatus, SessionHead
from tests.builders import approval, run, session, timeline_event
from tests.core_builders import kept, resolving
from tests.engine_builders import FULL, Machine, put, story, titled, workplace
from tests.requirements import requirement

ASKED: Final = (run(), approval(), timeline_event("t9", number=9_000))


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


BROKEN: Final = pytest.mark.parametrize("breaks", [full, replaced])


@requirement("DUR-4")
@BROKEN
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
@BROKEN
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


@requirement("DUR-4")
def test_what_came_while_a_failing_batch_was_written_is_lost_with_it(tmp_path: Path) -> None:
    """It was computed on what is not in the file."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        before = kept(machine.engine.head)
        await machine.holds_the_disk()
        machine.start(sessions.rename, titled(1))
        machine.store.breaks_with = FULL
        await machine.idle()

        assert machine.log == [("held", "store_unavailable"), ("reply", "store_unavailable"), ("signal", "failed")]
        assert kept(machine.engine.head) == kept(machine.engine.committed) == before

    story(work())


@requirement("DUR-5")
def test_a_probe_that_is_alone_with_the_file_succeeds_too(tmp_path: Path) -> None:
    """Closing the last connection removes the log, opening one makes another."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.reader.close()
        machine.store.breaks_with = FULL
        machine.start(sessions.rename, titled(1))
        await machine.idle()
        machine.store.breaks_with = None
        # Held open, the old log keeps its inode from being used again.
        with (tmp_path / "store.db-wal").open("rb"):
            machine.engine._probe()
            for _ in range(3):
                await machine.engine.on_writer(lambda store: None)

        assert machine.engine.problem is None

    story(work())


def another_programs(path: Path) -> bytes:
    """Put another program's database in the place of the store; return it as it is then."""
    theirs = path.with_name("theirs")
    db = sqlite3.connect(theirs)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    os.replace(path, path.with_name("aside"))
    os.replace(theirs, path)
    return path.read_bytes()


@requirement("DUR-5")
def test_a_probe_leaves_a_file_that_is_not_ours_alone(tmp_path: Path) -> None:
    """Our log would be taken for its own; and when our file is back, everything that was acknowledged is in it."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        await machine.engine.run(sessions.rename, titled(1))
        machine.reader.close()
        theirs = another_programs(machine.store.path)
        machine.start(sessions.rename, titled(2))
        await machine.idle()
        machine.engine._probe()
        await machine.engine.on_writer(lambda store: None)
        untouched = machine.store.path.read_bytes() == theirs
        os.replace(tmp_path / "aside", machine.store.path)
        await machine.dies()
        found = Machine(tmp_path).engine.head.get(SessionHead, "s1")

        assert untouched
        assert found == machine.engine.committed.get(SessionHead, "s1")

    story(work())


@requirement("DUR-6")
def test_nothing_is_acknowledged_after_a_commit_of_which_nobody_knows(tmp_path: Path) -> None:
    """It reported an error, happened, and the file could not be asked: memory and file may no longer agree."""

    async def work() -> None:
        machine = await workplace(tmp_path)
        machine.store.breaks_after = sqlite3.OperationalError("disk I/O error")
        machine.store.is_mute = True
        machine.start(sessions.rename, titled(1))
        await machine.idle()
        machine.store.breaks_after, machine.store.is_mute = None, False
        machine.engine._probe()
        for _ in range(3):
            await machine.engine.on_writer(lambda store: None)
        machine.log.clear()
        machine.start(sessions.rename, titled(2))
        await machine.idle()
        stored = machine.reader.get(SessionHead, "s1")

        assert stored is not None
        assert machine.said("reply") == ["store_unavailable"] or stored.title == "Title 2"

    story(work())
