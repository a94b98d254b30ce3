"""Real programs, started and ended by `Children`."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from eryxd.daemon import process_tree
from eryxd.daemon.children import MAX_ALIVE, MAX_OWNED, Children, clean_leftovers, environment
from eryxd.daemon.leftovers import name_record, write_record
from eryxd.daemon.marks import is_marked
from eryxd.daemon.process_tree import Tree
from eryxd.daemon.streams import BothEnds
from eryxd.domain.errors import BackendFailed, Invalid, ShuttingDown
from eryxd.plugin.types import ProcessResult
from tests.requirements import requirement

HOSTILE = """
import os, time
print(os.getpid(), flush=True)
for escape in range(8):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(1000)
        os._exit(0)
"""
"""Starts eight processes that leave group and session and lose their parent; everyone prints its pid first."""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Processes with their records in `tmp_path/records`, all ended afterwards."""
    processes = Children(tmp_path / "records")
    yield processes
    processes.close()


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(script), *arguments]


def sh(command: str) -> list[str]:
    return ["/bin/sh", "-c", command]


def run(
    children: Children, argv: list[str], timeout_s: float = 30, limit_bytes: int = 10_000, stdin: bytes = b""
) -> ProcessResult:
    work = children.run(argv, cwd="/", timeout_s=timeout_s, limit_bytes=limit_bytes, stdin=stdin)
    return asyncio.run(work)


def is_alive(pid: int) -> bool:
    found = process_tree.look(pid)
    return found is not None and not found.is_dead


def records(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "records").iterdir())


def test_a_program_reads_its_input_and_reports_both_outputs_and_its_status(children: Children) -> None:
    data = os.urandom(300_000)

    result = run(children, sh("cat; echo problem >&2; exit 3"), limit_bytes=1_000_000, stdin=data)

    assert result == ProcessResult(exit_status=3, output=data, stderr=b"problem\n", truncated_bytes=0, timed_out=False)


def test_a_program_that_leaves_its_input_unread_is_no_error(children: Children) -> None:
    assert run(children, ["true"], stdin=bytes(1_000_000)).exit_status == 0


def test_death_by_a_signal_is_a_negative_status(children: Children) -> None:
    assert run(children, sh("kill -TERM $$")).exit_status == -signal.SIGTERM


def test_the_exit_leaves_no_record(children: Children, tmp_path: Path) -> None:
    run(children, ["true"])

    assert records(tmp_path) == []


@requirement("CHD-1")
def test_children_and_grandchildren_carry_the_mark_and_the_daemon_does_not(children: Children) -> None:
    """The peer guard rests on this."""
    before = is_marked("self")
    status = "grep NoNewPrivs /proc/self/status"

    result = run(children, sh(f"{status}; sh -c '{status}; true'; setsid sh -c '{status}; true'"))

    assert result.output == b"NoNewPrivs:\t1\n" * 3
    assert is_marked("self") == before


@requirement("CHD-1")
def test_without_the_mark_nothing_starts(tmp_path: Path) -> None:
    def refused() -> None:
        raise OSError("the kernel says no")

    unmarked = Children(tmp_path / "records", mark=refused)
    for _ in range(2):
        with pytest.raises(BackendFailed):
            run(unmarked, sh(f"touch {tmp_path}/started"))
    unmarked.close()

    assert not (tmp_path / "started").exists()


@requirement("CHD-2")
def test_only_what_is_listed_is_inherited() -> None:
    own = {
        **{"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "SHELL": "/bin/sh", "TMPDIR": "/t"},
        **{"ERYX_HOME": "/e", "NOTIFY_SOCKET": "/n", "SSH_AUTH_SOCK": "/s", "LD_PRELOAD": "/l", "TOKEN": "t"},
    }

    assert environment({"ADDED": "1"}, own) == {
        **{"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "SHELL": "/bin/sh", "TMPDIR": "/t"},
        **{"ADDED": "1"},
    }


@requirement("CHD-2")
@pytest.mark.parametrize(
    "name",
    ["ERYX_HOME", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_PID", "DBUS_X", "SSH_AUTH_SOCK", "LD_X", "PYTHONX"],
)
def test_some_names_no_caller_can_pass(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        environment({name: "x", "FINE": "x"}, {})

    assert caught.value.data == {"names": [name]}


def test_a_child_gets_three_descriptors(children: Children) -> None:
    result = run(children, python("import os; print(len(os.listdir('/proc/self/fd')))"))

    # The fourth is the listing itself.
    assert result.output == b"4\n"


@pytest.mark.parametrize(
    ("argv", "cwd"),
    [
        (["no-such-program"], "/"),
        (["/etc/hostname"], "/"),
        (["true"], "/no/such/folder"),
        (["echo", "a\0b"], "/"),
        (["echo", "x" * 3_000_000], "/"),
    ],
)
def test_what_cannot_be_started_is_one_kind_of_error(children: Children, argv: list[str], cwd: str) -> None:
    with pytest.raises(BackendFailed):
        asyncio.run(children.run(argv, cwd=cwd, timeout_s=10, limit_bytes=100))


@requirement("CHD-3")
def test_endless_output_costs_no_memory(children: Children) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    result = run(children, sh("echo begin; head -c 200000000 /dev/zero; echo end"), limit_bytes=1000)

    assert result.output == b"begin\n" + bytes(990) + b"end\n"
    assert result.truncated_bytes == 200_000_010 - 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20_000


@requirement("CHD-3")
def test_a_flood_on_stderr_holds_nothing_up(children: Children) -> None:
    result = run(children, sh("head -c 300000 /dev/zero >&2; echo done"), limit_bytes=100)

    assert (result.output, len(result.stderr), result.truncated_bytes) == (b"done\n", 100, 299_900)


@requirement("CHD-3")
@given(st.lists(st.binary(max_size=50)), st.integers(0, 60))
def test_any_chunking_keeps_the_same_two_ends(pieces: list[bytes], limit_bytes: int) -> None:
    kept = BothEnds(limit_bytes)
    for piece in pieces:
        kept.add(piece)

    whole = b"".join(pieces)
    missing = max(len(whole) - limit_bytes, 0)
    half = limit_bytes // 2
    assert kept.missing_bytes == missing
    assert kept.value() == (whole[:half] + whole[half + missing :] if missing else whole)


@requirement("CHD-4")
def test_a_time_out_kills_what_fled_from_group_session_and_parent(children: Children) -> None:
    result = run(children, python(HOSTILE + "time.sleep(1000)"), timeout_s=1.5)

    pids = [int(line) for line in result.output.split()]
    assert (result.timed_out, len(pids)) == (True, 9)
    assert [pid for pid in pids if is_alive(pid)] == []


@requirement("CHD-4")
def test_a_time_out_kills_a_descendant_that_dropped_everything_but_its_parent(children: Children) -> None:
    result = run(children, sh("env -i setsid sh -c 'echo $$; sleep 1000; true'; true"), timeout_s=1)

    assert result.timed_out
    assert not is_alive(int(result.output))


@requirement("CHD-4")
def test_a_program_that_ran_out_of_time_may_tidy_up(children: Children) -> None:
    result = run(children, sh("trap 'echo bye; exit 5' TERM; while :; do sleep 0.05; done"), timeout_s=0.5)

    assert (result.timed_out, result.exit_status, result.output) == (True, 5, b"bye\n")


@requirement("CHD-4")
def test_a_program_that_ignores_the_request_is_killed(children: Children) -> None:
    result = run(children, sh("trap '' TERM; while :; do sleep 0.05; done"), timeout_s=0.2)

    assert (result.timed_out, result.exit_status) == (True, -signal.SIGKILL)


@requirement("CHD-4")
def test_what_a_program_leaves_behind_ends_with_it(children: Children) -> None:
    """The leftovers hold the pipe; the program itself is done."""
    result = run(children, python(HOSTILE))

    pids = [int(line) for line in result.output.split()]
    assert (result.timed_out, result.exit_status, len(pids)) == (False, 0, 9)
    assert [pid for pid in pids if is_alive(pid)] == []


async def started(fifo: Path) -> list[int]:
    """Wait until a child has written pids into the pipe."""
    text = await asyncio.wait_for(asyncio.to_thread(fifo.read_text), 20)
    return [int(word) for word in text.split()]


@requirement("CHD-4")
def test_cancelling_the_caller_kills_the_tree(children: Children, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def cancel() -> list[int]:
        command = sh(f"sleep 1000 & setsid sleep 1000 & echo $! $$ > {fifo}; wait")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(children.run(command, cwd="/", timeout_s=60, limit_bytes=100))
            pids = await started(fifo)
            running.cancel()
        return pids

    pids = asyncio.run(cancel())
    assert [pid for pid in pids if is_alive(pid)] == []
    assert records(tmp_path) == []


@requirement("CHD-4")
@pytest.mark.parametrize("turns", range(6))
def test_a_start_that_is_cancelled_half_way_leaves_nothing(children: Children, tmp_path: Path, turns: int) -> None:
    async def cancel() -> None:
        running = asyncio.ensure_future(children.run(sh("sleep 1000"), cwd="/", timeout_s=60, limit_bytes=100))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert records(tmp_path) == []


@requirement("CHD-4")
def test_closing_kills_what_runs_and_starts_nothing_more(children: Children, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def close() -> ProcessResult:
        command = sh(f"echo $$ > {fifo}; sleep 1000; true")
        running = asyncio.ensure_future(children.run(command, cwd="/", timeout_s=60, limit_bytes=100))
        await started(fifo)
        children.close()
        return await running

    assert asyncio.run(close()).exit_status == -signal.SIGKILL
    with pytest.raises(ShuttingDown):
        run(children, ["true"])


@requirement("CHD-7")
def test_one_owner_holds_up_nobody_else(children: Children, tmp_path: Path) -> None:
    async def both() -> ProcessResult:
        def start(command: str, owner: str) -> asyncio.Task[ProcessResult]:
            work = children.run(sh(command), cwd="/", timeout_s=60, limit_bytes=100, owner=owner)
            return asyncio.ensure_future(work)

        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        greedy = [start(f"echo $$ > {fifo}; sleep 1000", "greedy") for _ in range(MAX_ALIVE)]
        # Open for writing as well: a reader that comes and goes would kill whoever writes in between.
        reading = os.open(fifo, os.O_RDWR)
        running = b""
        while running.count(b"\n") < MAX_OWNED:
            running += await asyncio.wait_for(asyncio.to_thread(os.read, reading, 1000), 20)
        result = await asyncio.wait_for(start("echo done", "other"), 20)
        for task in greedy:
            task.cancel()
        await asyncio.wait(greedy)
        os.close(reading)
        return result

    assert asyncio.run(both()).output == b"done\n"


@requirement("CHD-6")
def test_the_owner_of_a_process_is_found_by_its_ancestors_and_by_its_token(children: Children, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def ask() -> list[str | None]:
        # The input comes when the child is listed; before that it cannot be known whose it is.
        command = sh(f"read go; setsid sh -c 'echo '$$' $$ > {fifo}; sleep 1000; true' & wait")
        work = children.run(command, cwd="/", timeout_s=60, limit_bytes=100, stdin=b"go\n", owner="mine")
        running = asyncio.ensure_future(work)
        leader, fled = await started(fifo)
        owners = [children.owner_of(line) for line in ([1234567, leader, 1], [fled], [os.getpid()], [])]
        running.cancel()
        await asyncio.wait([running])
        return owners

    assert asyncio.run(ask()) == ["mine", "mine", None, None]


KILLED_DAEMON = """
import asyncio, sys
from pathlib import Path
from eryxd.daemon.children import Children

async def main():
    children = Children(Path(sys.argv[1]))
    script = "setsid sleep 1000 & echo $! $$ > " + sys.argv[2] + "; wait"
    await children.run(["/bin/sh", "-c", script], cwd="/", timeout_s=60, limit_bytes=100)

asyncio.run(main())
"""


@requirement("CHD-5")
def test_the_leftovers_of_a_killed_daemon_are_cleaned(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    arguments = [str(tmp_path / "records"), str(fifo)]
    with subprocess.Popen([sys.executable, "-c", KILLED_DAEMON, *arguments]) as daemon:
        pids = asyncio.run(started(fifo))
        daemon.kill()
    assert [pid for pid in pids if is_alive(pid)] == pids

    killed = clean_leftovers(tmp_path / "records")

    assert set(pids) <= set(killed)
    assert [pid for pid in pids if is_alive(pid)] == []
    assert records(tmp_path) == []


@requirement("CHD-5")
def test_a_program_whose_daemon_was_killed_while_starting_it_is_cleaned(tmp_path: Path) -> None:
    """The record is there before the program, which is then found by its token."""
    records_dir = tmp_path / "records"
    records_dir.mkdir()
    write_record(records_dir, b"SPAWN_ID=it")
    with subprocess.Popen(["sleep", "1000"], env={"SPAWN_ID": "it"}) as started:
        assert clean_leftovers(records_dir) == [started.pid]

    assert (started.returncode, records(tmp_path)) == (-signal.SIGKILL, [])


@requirement("CHD-5")
def test_a_record_of_another_start_or_another_boot_kills_nobody(tmp_path: Path) -> None:
    records_dir = tmp_path / "records"
    records_dir.mkdir()
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as innocent:
        seen = process_tree.look(innocent.pid)
        assert seen is not None
        name_record(write_record(records_dir, b"SPAWN_ID=x"), Tree(innocent.pid, seen.start + 1, b""))
        (records_dir / f"{innocent.pid}.{seen.start}").write_bytes(b"another-boot\nSPAWN_ID=it")
        (records_dir / "leave.me").write_bytes(b"")

        killed = clean_leftovers(records_dir)

        assert (killed, is_alive(innocent.pid), list(records_dir.iterdir())) == ([], True, [])
        innocent.kill()
