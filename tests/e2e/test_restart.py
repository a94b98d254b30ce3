"""What a restart finds unfinished is ended and told; nothing dangerous is resumed."""

import os
from collections.abc import Callable

import pytest

from eryxd.client.client import RemoteError
from tests.e2e.daemon_process import DaemonProcess, is_gone
from tests.e2e.stage import HOLD, Json, Stage, Watch, create, resolve, shell
from tests.requirements import requirement

End = Callable[[DaemonProcess], object]

ENDS = pytest.mark.parametrize(
    ("end", "error"),
    [
        (DaemonProcess.kill9, "The daemon stopped while this session was running; nothing was resumed."),
        (DaemonProcess.stop, "The daemon was stopped while this session was running."),
    ],
    ids=["kill -9", "stop"],
)


@ENDS
@requirement("APR-11")
def test_what_waited_is_interrupted_and_nothing_runs(stage: Stage, daemon: DaemonProcess, end: End, error: str) -> None:
    """Session, run, approvals and timeline all say so; the files that were asked for are not there."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, {"calls": [create("a"), create("b")]}, create("c"))
    asked = watch.approvals(2)

    end(daemon)
    daemon.start()

    client = daemon.client()
    session = client.call("sessions.get", session_id=session_id)["session"]
    assert (session["status"], session["last_error"]) == ("error", error)
    assert ("pending_approval" in session, session["pending_approval_queue"]) == (False, [])
    run = client.call("runs.get", run_id=run_id)["run"]
    assert (run["status"], run["error"], "completed_at" in run) == ("error", error, True)
    assert client.call("approvals.list")["approvals"] == []
    resolved = client.call("approvals.list", resolved=True)["approvals"]
    assert {(one["id"], one["status"], one["resolution"]) for one in resolved} == {
        (one["id"], "rejected", "interrupted") for one in asked
    }
    events = client.call("timeline.get", run_id=run_id)["events"]
    told = [each for each in events if each["kind"] == "approval"]
    assert {(each["decision"], each["resolution"], each["status"]) for each in told} == {
        ("rejected", "interrupted", "error")
    }
    assert {each["status"] for each in events if each["kind"] == "tool-call"} == {"error"}
    assert (events[-1]["kind"], events[-1]["error"]) == ("run-failed", error)
    assert client.call("daemon.status")["running"] == 0
    assert list(stage.folder.iterdir()) == []


@ENDS
@requirement("APR-11", "APR-4")
def test_a_decision_after_the_restart_comes_too_late(stage: Stage, daemon: DaemonProcess, end: End, error: str) -> None:
    """The approval says what became of it, and the call does not run."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]
    end(daemon)
    daemon.start()

    with pytest.raises(RemoteError) as refused:
        resolve(daemon.client(), asked)

    assert refused.value.code == "approval_not_active"
    assert refused.value.data["resolution"] == "interrupted"
    assert list(stage.folder.iterdir()) == []


@ENDS
@requirement("APR-11", "APR-7")
def test_a_response_that_was_held_is_never_published(stage: Stage, daemon: DaemonProcess, end: End, error: str) -> None:
    """Nobody had read it."""
    session_id, watch = stage.session(stage.pattern(HOLD)), stage.watch()
    stage.play(session_id, {"say": "Unread."})
    asked = watch.approvals(1)[0]
    end(daemon)
    daemon.start()

    client = daemon.client()

    assert [each["role"] for each in client.call("messages.list", session_id=session_id)["messages"]] == ["user"]
    approval = client.call("approvals.get", approval_id=asked["id"])["approval"]
    assert (approval["status"], "messages" in approval) == ("rejected", False)


@ENDS
@requirement("APR-9", "APR-11")
def test_what_was_decided_before_stays_decided(stage: Stage, daemon: DaemonProcess, end: End, error: str) -> None:
    """An answer that was acknowledged is there, with who gave it."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("a"), create("b"))
    decided = stage.resolve(watch.approvals(1)[0], note="fine")["approval"]
    watch.approvals(1)

    end(daemon)
    daemon.start()

    client = daemon.client()
    kept = client.call("approvals.list", resolved=True)["approvals"]
    assert decided in kept
    assert len(kept) == 2
    assert client.call("runs.get", run_id=run_id)["run"]["status"] == "error"


@ENDS
@requirement("APR-11")
def test_the_session_can_go_on_after_the_restart(stage: Stage, daemon: DaemonProcess, end: End, error: str) -> None:
    """A new message clears the error; the new run asks anew."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, create("made"))
    watch.approvals(1)
    end(daemon)
    daemon.start()
    client, plan = daemon.client(), stage.plan(create("made"))

    with Watch(client) as after:
        started = client.call("messages.send", session_id=session_id, content="Again.", plan=plan)
        resolve(client, after.approvals(1)[0])
        run = after.run_ended(started["run_id"])

    assert ("last_error" in started["session"], run["status"]) == (False, "completed")
    assert (stage.folder / "made").exists()


@requirement("APR-11")
def test_a_restart_that_is_interrupted_comes_to_the_same_result(stage: Stage, daemon: DaemonProcess) -> None:
    """Killed again during its recovery, and started once more."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, {"calls": [create("a"), create("b")]})
    asked = watch.approvals(2)
    daemon.kill9()
    for _ in range(3):
        daemon.spawn()
        wait_for_new_bytes(daemon)
        daemon.kill9()
    daemon.start()

    resolved: list[Json] = daemon.client().call("approvals.list", resolved=True)["approvals"]

    assert sorted((one["id"], one["resolution"]) for one in resolved) == sorted(
        (one["id"], "interrupted") for one in asked
    )
    journal = [event["type"] for event in replayed(daemon)]
    assert journal.count("approval-resolved") == 2


def wait_for_new_bytes(daemon: DaemonProcess) -> None:
    """Return as soon as a daemon that starts has begun to write to its store, or is ready."""
    wal = daemon.state / "store.db-wal"
    before = wal.stat().st_size if wal.exists() else -1
    assert daemon.process is not None
    while daemon.process.poll() is None and not daemon._answers():
        if wal.exists() and wal.stat().st_size != before:
            return


def replayed(daemon: DaemonProcess) -> list[Json]:
    """Return the whole journal."""
    client = daemon.client()
    last = client.call("workspace.get")["seq"]
    with Watch(client, since=0) as watch:
        watch.until(lambda event: bool(event["seq"] == last))
        return watch.heard


@requirement("APR-11")
@pytest.mark.parametrize("end", [DaemonProcess.kill9, DaemonProcess.stop], ids=["kill -9", "stop"])
def test_what_an_agent_had_started_does_not_outlive_the_daemon(stage: Stage, daemon: DaemonProcess, end: End) -> None:
    """What a killed daemon left is ended by the next one before it is ready."""
    session_id = stage.session(stage.pattern(rules=()))
    os.mkfifo(stage.folder / "pids")
    stage.play(session_id, shell("(setsid sleep 600 & echo $! > pids); sleep 600"))
    pids = [int(pid) for pid in (stage.folder / "pids").read_text().split()]

    end(daemon)
    daemon.start()

    assert all(is_gone(pid) for pid in pids)
