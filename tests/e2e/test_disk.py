"""A disk that takes no more: nothing is granted, nothing changes, reading goes on, and it recovers by itself.

The limit on the size of a process's files stands in for a full disk: it can be lowered and lifted while the daemon
runs, needs no root, and fails writes in the same place.  What only a real disk can show is in `tests/system`.
"""

import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess, is_gone
from tests.e2e.stage import HOLD, Stage, create, resolve, shell
from tests.requirements import requirement

UNLIMITED: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def fill(daemon: DaemonProcess) -> None:
    """Let no file of the daemon grow over what its write-ahead log has now."""
    size = (daemon.state / "store.db-wal").stat().st_size
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def empty(daemon: DaemonProcess) -> None:
    """Make room again."""
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, UNLIMITED)


@contextmanager
def full(daemon: DaemonProcess) -> Iterator[None]:
    """Take the room away for a while."""
    fill(daemon)
    yield
    empty(daemon)


def wait_until_writable(daemon: DaemonProcess, client: Client) -> None:
    """Return when the store takes writes again."""
    deadline = time.monotonic() + WAIT_S
    while not client.call("daemon.status")["store"]["writable"]:
        assert time.monotonic() < deadline, daemon.log()
        daemon.pause()


def refused(client: Client, method: str, **params: object) -> str:
    """Return the code with which a call is refused."""
    with pytest.raises(RemoteError) as refusal:
        client.call(method, **params)
    return refusal.value.code


@requirement("DUR-25", "DUR-26")
def test_writes_are_refused_and_change_nothing_until_there_is_room_again(stage: Stage, daemon: DaemonProcess) -> None:
    """Reads answer from what is durable and the status says why; afterwards the journal has no hole."""
    session_id, watch = stage.session(), stage.watch()
    plan = stage.plan({"say": "x"})
    before = stage.client.call("workspace.get")
    client = daemon.client()

    with full(daemon):
        codes = [
            refused(client, "sessions.rename", session_id=session_id, title="New"),
            refused(client, "sessions.create", pattern_id="single"),
            refused(client, "sessions.delete", session_id=session_id),
            refused(client, "patterns.favorite", pattern_id="single", is_favorite=True),
            refused(client, "messages.send", session_id=session_id, content="x", plan=plan),
        ]
        during = client.call("workspace.get")
        store = client.call("daemon.status")["store"]

    assert codes == ["store_unavailable"] * 5
    assert during == before
    assert (store["writable"], bool(store["problem"])) == (False, True)
    wait_until_writable(daemon, client)
    assert client.call("workspace.get") == before
    run_id = stage.play(session_id, create("made"))
    stage.resolve(watch.approvals(1)[0])
    assert watch.run_ended(run_id)["status"] == "completed"
    seqs = [event["seq"] for event in watch.heard if "seq" in event]
    assert seqs == list(range(before["seq"] + 1, seqs[-1] + 1))
    assert client.call("store.check")["problems"] == []


@requirement("DUR-25", "APR-9")
def test_a_decision_that_cannot_be_stored_grants_nothing(stage: Stage, daemon: DaemonProcess) -> None:
    """The gate is denied, and the run is settled when there is room again."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("loot"), create("more"))
    asked = watch.approvals(1)[0]

    with full(daemon):
        with pytest.raises(RemoteError) as refusal:
            stage.resolve(asked)
        during = stage.approval(asked["id"])

    assert refusal.value.code == "store_unavailable"
    assert during["status"] == "pending"
    run = watch.run_ended(run_id)
    assert (run["status"], "store refused" in run["error"]) == ("error", True)
    assert stage.approval(asked["id"])["resolution"] == "interrupted"
    assert stage.get(session_id)["status"] == "error"
    assert list(stage.folder.iterdir()) == []


@requirement("DUR-25", "BKD-2")
def test_what_runs_is_ended_and_nothing_runs_unrecorded(stage: Stage, daemon: DaemonProcess) -> None:
    """A tree is killed; a call that needed no person is not made, since nobody could write down that it was."""
    pattern_id = stage.pattern(auto_approved_tool_names=["shell", "create"])
    sleeping, going = stage.session(pattern_id), stage.session(pattern_id)
    for name in ("pids", "go"):
        os.mkfifo(stage.folder / name)
    runs = [
        stage.play(sleeping, shell("sleep 600 & echo $$ $! > pids; wait")),
        stage.play(going, shell("read line < go"), create("loot")),
    ]
    pids = [int(pid) for pid in (stage.folder / "pids").read_text().split()]

    with (stage.folder / "go").open("w") as go, full(daemon):
        go.write("on\n")
        go.flush()
        deadline = time.monotonic() + WAIT_S
        while not all(map(is_gone, pids)):
            assert time.monotonic() < deadline
            daemon.pause()

    assert [stage.ended(run_id)["status"] for run_id in runs] == ["error", "error"]
    assert sorted(path.name for path in stage.folder.iterdir()) == ["go", "pids"]


@requirement("DUR-25", "APR-7")
def test_a_response_whose_approval_cannot_be_stored_is_not_published(stage: Stage, daemon: DaemonProcess) -> None:
    """Neither now nor later."""
    session_id, watch = stage.session(stage.pattern(HOLD)), stage.watch()
    run_id = stage.play(session_id, {"say": "Unread."})
    asked = watch.approvals(1)[0]

    with full(daemon), pytest.raises(RemoteError):
        stage.resolve(asked)

    assert watch.run_ended(run_id)["status"] == "error"
    assert "Unread." not in str(watch.heard)
    messages = stage.client.call("messages.list", session_id=session_id)["messages"]
    assert [each["role"] for each in messages] == ["user"]


@requirement("DUR-26", "APR-11")
@pytest.mark.parametrize("end", [DaemonProcess.kill9, DaemonProcess.stop], ids=["kill -9", "stop"])
def test_a_daemon_that_ends_while_the_disk_is_full_starts_well_afterwards(
    stage: Stage, daemon: DaemonProcess, end: object
) -> None:
    """What waited is interrupted, whatever could not be written before."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, create("loot"))
    asked = watch.approvals(1)[0]
    fill(daemon)
    with pytest.raises(RemoteError):
        stage.resolve(asked)
    assert callable(end)
    end(daemon)

    client = daemon.start().client()

    assert client.call("sessions.get", session_id=session_id)["session"]["status"] == "error"
    assert client.call("approvals.get", approval_id=asked["id"])["approval"]["resolution"] == "interrupted"
    with pytest.raises(RemoteError):
        resolve(client, asked)
    assert client.call("store.check")["problems"] == []


@requirement("DUR-25")
@pytest.mark.parametrize("replaced", [False, True], ids=["moved away", "replaced"])
def test_a_store_that_is_not_where_it_was_takes_no_writes(
    stage: Stage, daemon: DaemonProcess, tmp_path: Path, replaced: bool
) -> None:
    """What would be written could not be found again; put back, it holds what was acknowledged."""
    session_id = stage.session()
    away = tmp_path / "away.db"
    daemon.store_path.rename(away)
    if replaced:
        shutil.copy(away, daemon.store_path)

    code = refused(stage.client, "sessions.rename", session_id=session_id, title="New")

    assert code == "store_unavailable"
    assert stage.get(session_id)["title"] == "New session"
    away.replace(daemon.store_path)
    assert daemon.crash().client().call("sessions.get", session_id=session_id)["session"]["title"] == "New session"


@requirement("DUR-25")
def test_a_backup_to_where_there_is_no_room_is_refused(stage: Stage, daemon: DaemonProcess) -> None:
    """Without leaving half of one behind, and the daemon goes on."""
    target = stage.folder / "backup.db"
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    code = refused(stage.client, "store.backup", path=str(target))

    empty(daemon)
    assert (code, target.exists()) == ("invalid", False)
    assert stage.client.call("daemon.status")["store"]["writable"]
    with closing(daemon.database()) as store:
        assert store.execute("SELECT count(*) FROM journal").fetchone()[0] > 0
