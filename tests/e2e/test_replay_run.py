"""Whole runs, from a message to an outcome, with real tools behind real approvals."""

from tests.e2e.stage import Stage, create, shell
from tests.requirements import requirement


@requirement("RUN-1", "RUN-2", "APR-5")
def test_a_message_starts_a_run_whose_allowed_calls_really_run(stage: Stage) -> None:
    """One call approved, one rejected, and what was said in the transcript."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made.txt"), shell("touch never", {"outcome": "denied"}), {"say": "Done."})

    stage.resolve(watch.approvals(1)[0])
    stage.resolve(watch.approvals(1)[0], "rejected", note="Not here.")

    run = stage.ended(run_id)
    assert (run["status"], run["project_path"], run["pattern_mode"]) == ("completed", str(stage.folder), "single")
    assert (stage.folder / "made.txt").read_text() == "x"
    assert not (stage.folder / "never").exists()
    messages = stage.client.call("messages.list", session_id=session_id)["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [("user", "Go on."), ("assistant", "Done.")]
    assert stage.get(session_id)["status"] == "idle"
