"""How waiting ends besides an answer: cancelled, deleted, expired; and final responses, which end their run."""

import os

import pytest

from eryxd.client.client import RemoteError
from tests.e2e.daemon_process import DaemonProcess, is_gone
from tests.e2e.stage import HOLD, Stage, create, is_a, shell
from tests.requirements import requirement


@requirement("RUN-3")
def test_cancelling_from_another_client_closes_the_gate_and_kills_the_tree(stage: Stage, daemon: DaemonProcess) -> None:
    """What waited is rejected, what ran is dead, and the session can go on."""
    session_id, watch = stage.session(stage.pattern(auto_approved_tool_names=["shell"])), stage.watch()
    os.mkfifo(stage.folder / "pids")
    sleeping = shell("sleep 600 & echo $$ $! > pids; wait")
    run_id = stage.play(session_id, {"calls": [sleeping, create("a"), create("b")]}, create("later"))
    asked = watch.approvals(2)
    pids = [int(pid) for pid in (stage.folder / "pids").read_text().split()]

    reply = daemon.client("another").call("runs.cancel", run_id=run_id)

    assert (reply["run"]["status"], "cancel_requested_at" in reply["run"]) == ("running", True)
    run = stage.ended(run_id)
    assert run["status"] == "cancelled"
    assert all(is_gone(pid) for pid in pids)
    session = stage.get(session_id)
    assert (session["status"], session["pending_approval_queue"], "last_error" in session) == ("idle", [], False)
    how = [(each["status"], each["resolution"]) for each in map(stage.approval, [one["id"] for one in asked])]
    assert how == [("rejected", "cancelled")] * 2
    assert [path.name for path in stage.folder.iterdir()] == ["pids"]
    assert stage.timeline(run_id)[-1]["kind"] == "run-cancelled"
    assert stage.play(session_id, {"say": "Again."})


@requirement("RUN-3")
def test_cancelling_drops_what_was_withheld(stage: Stage) -> None:
    """A response that nobody read is never published."""
    session_id, watch = stage.session(stage.pattern(HOLD)), stage.watch()
    run_id = stage.play(session_id, {"say": "Unread."})
    asked = watch.approvals(1)[0]

    stage.client.call("runs.cancel", run_id=run_id)

    assert stage.ended(run_id)["status"] == "cancelled"
    assert stage.approval(asked["id"])["resolution"] == "cancelled"
    messages = stage.client.call("messages.list", session_id=session_id)["messages"]
    assert [each["role"] for each in messages] == ["user"]


@requirement("RUN-3", "SES-1")
def test_deleting_a_session_that_waits_ends_it_first(stage: Stage) -> None:
    """Afterwards neither session nor approval is there."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]

    stage.client.call("sessions.delete", session_id=session_id)

    assert watch.run_ended(run_id)["status"] == "cancelled"
    assert watch.until(is_a("session-deleted"))["session_id"] == session_id
    with pytest.raises(RemoteError) as refused:
        stage.resolve(asked)
    assert refused.value.code == "not_found"
    assert stage.client.call("approvals.list")["approvals"] == []
    assert list(stage.folder.iterdir()) == []


@requirement("POL-1")
def test_a_call_that_nobody_answers_in_time_is_rejected(stage: Stage) -> None:
    """It never approves; the agent is told, and the run goes on."""
    session_id = stage.session(stage.pattern(expires_after_s=0.05))
    watch = stage.watch()
    expected = {"outcome": "denied", "contains": "nobody answered in time"}
    run_id = stage.play(session_id, create("made", expected), {"say": "Then not."})
    asked = watch.approvals(1)[0]

    assert stage.ended(run_id)["status"] == "completed"

    approval = stage.approval(asked["id"])
    assert asked["expires_at"] > asked["requested_at"]
    assert (approval["status"], approval["resolution"], "resolved_by" in approval) == ("rejected", "expired", False)
    assert list(stage.folder.iterdir()) == []


@requirement("POL-1")
def test_a_time_limit_beyond_every_calendar_is_none(stage: Stage) -> None:
    """The call waits; it is not the run that fails."""
    session_id, watch = stage.session(stage.pattern(expires_after_s=1e300)), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]

    stage.resolve(asked)

    assert asked["expires_at"].startswith("9999-12-31")
    assert stage.ended(run_id)["status"] == "completed"


@requirement("POL-1", "APR-7")
def test_a_final_response_that_nobody_reads_in_time_fails_the_run(stage: Stage) -> None:
    """And is never published."""
    session_id = stage.session(stage.pattern(HOLD, expires_after_s=0.05))
    run_id = stage.play(session_id, {"say": "Unread."})

    run = stage.ended(run_id)

    assert (run["status"], run["error"]) == ("error", "Nobody answered the final response in time.")
    assert stage.get(session_id)["last_error"] == run["error"]
    assert len(stage.client.call("messages.list", session_id=session_id)["messages"]) == 1


@requirement("APR-7")
def test_an_approved_final_response_is_published_in_order(stage: Stage) -> None:
    """One approval for the run; what a later agent said is held with it, reasoning too."""
    agents = ("scout", "fixer")
    rules = [{"kind": "final-response", "agent_ids": ["scout"]}]
    session_id, watch = stage.session(stage.pattern(rules, agents)), stage.watch()
    run_id = stage.play(
        session_id,
        {"agent": "scout", "say": "First."},
        {"agent": "fixer", "think": "Hm."},
        {"agent": "fixer", "say": "Second."},
    )
    asked = watch.approvals(1)[0]
    shown = stage.approval(asked["id"])["messages"]

    reply = stage.resolve(asked)

    assert asked["title"] == "Approve final response from Fixer"
    assert [(each["author_name"], each["kind"], each["content"]) for each in shown] == [
        ("Scout", "message", "First."),
        ("Fixer", "thinking", "Hm."),
        ("Fixer", "message", "Second."),
    ]
    assert (reply["session"]["status"], "pending_approval" in reply["session"]) == ("idle", False)
    assert stage.ended(run_id)["status"] == "completed"
    messages = stage.client.call("messages.list", session_id=session_id)["messages"]
    assert [each["content"] for each in messages] == ["Go on.", "First.", "Second."]
    assert [event["content"] for event in stage.timeline(run_id, "thinking")] == ["Hm."]


@requirement("APR-7")
def test_a_rejected_final_response_fails_the_run_with_the_note(stage: Stage) -> None:
    """The error is explicit."""
    session_id, watch = stage.session(stage.pattern(HOLD)), stage.watch()
    run_id = stage.play(session_id, {"say": "Wrong."})

    reply = stage.resolve(watch.approvals(1)[0], "rejected", note="check again")

    error = "The final response was rejected: check again"
    assert (reply["session"]["status"], reply["session"]["last_error"]) == ("error", error)
    assert (stage.ended(run_id)["status"], stage.ended(run_id)["error"]) == ("error", error)
    assert stage.timeline(run_id)[-1]["kind"] == "run-failed"
