"""Whole runs, from a message to an outcome, with real tools behind real approvals."""

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from eryxd.client.client import RemoteError
from tests.e2e.daemon_process import DaemonProcess, is_gone
from tests.e2e.stage import Json, Stage, call, create, shell
from tests.requirements import requirement

OK = {"outcome": "ok"}
ERROR = {"outcome": "error"}


def free(stage: Stage) -> str:
    """Make a session whose calls need nobody."""
    return stage.session(stage.pattern(rules=()))


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


@requirement("RUN-1")
def test_a_message_to_a_running_session_is_refused(stage: Stage) -> None:
    """The text says whether it waits for an approval; nothing was added."""
    session_id, watch = stage.session(stage.pattern(auto_approved_tool_names=["shell"])), stage.watch()
    os.mkfifo(stage.folder / "go")
    stage.play(session_id, shell("read line < go"), create("made"))

    told = []
    with (stage.folder / "go").open("w") as go:
        with pytest.raises(RemoteError) as refused:
            stage.play(session_id, {"say": "x"})
        told.append(refused.value)
        go.write("on\n")
    watch.approvals(1)
    with pytest.raises(RemoteError) as refused:
        stage.play(session_id, {"say": "x"})
    told.append(refused.value)

    assert [(each.code, each.data["waiting"]) for each in told] == [("session_running", 0), ("session_running", 1)]
    assert ["waits for 1 approval" in each.message for each in told] == [False, True]
    assert len(stage.client.call("messages.list", session_id=session_id)["messages"]) == 1


@requirement("RUN-1", "SES-2")
def test_a_new_run_clears_the_last_error_and_runs_are_listed_newest_first(stage: Stage) -> None:
    """The title comes from the first message and stays."""
    session_id = free(stage)
    first = stage.play(session_id, call("view", OK, path="absent"), content="Look into it.\nPlease.")
    stage.ended(first)
    failed = stage.get(session_id)

    second = stage.play(session_id, {"say": "Better."}, content="Another thing.")
    stage.ended(second)

    assert (failed["status"], failed["title"], failed["title_source"]) == ("error", "Look into it.", "auto")
    assert "expects of view to end as ok" in failed["last_error"]
    after = stage.get(session_id)
    assert (after["status"], after["title"], "last_error" in after) == ("idle", "Look into it.", False)
    runs = stage.client.call("runs.list", session_id=session_id)["runs"]
    assert [run["id"] for run in runs] == [second, first]


@requirement("RUN-2", "BKD-4")
def test_a_run_keeps_what_it_was_started_with(stage: Stage, daemon: DaemonProcess) -> None:
    """Agents, policy and the plan's text, whatever becomes of the file."""
    session_id, watch = stage.session(stage.pattern(auto_approved_tool_names=["view"])), stage.watch()
    plan = Path(stage.plan(create("made"), {"say": "Done."}))
    started = stage.client.call("messages.send", session_id=session_id, content="Go.", plan=str(plan))
    text = plan.read_text()
    plan.unlink()

    stage.resolve(watch.approvals(1)[0])

    run = stage.ended(started["run_id"])
    assert run["status"] == "completed"
    assert [(each["id"], each["backend"], each["model"]) for each in run["agents"]] == [("coder", "replay", str(plan))]
    policy = run["approval_policy"]
    frozen = (policy["rules"], policy["auto_approved_tool_names"], policy["list_from"])
    assert frozen == ([{"kind": "tool-call"}], ["view"], "pattern")
    with closing(daemon.database()) as store:
        (kept,) = store.execute("SELECT body FROM run_input WHERE run_id = ?", (run["id"],)).fetchone()
    assert text.encode() in kept


@requirement("BKD-4", "BKD-1")
def test_an_agent_plays_the_plan_that_its_model_names(stage: Stage, daemon: DaemonProcess) -> None:
    """A file among the plans of the configuration; they are the models of `replay`."""
    plans = daemon.config / "plans"
    plans.mkdir(parents=True)
    Path(stage.plan({"say": "As planned."})).rename(plans / "usual.toml")
    agent = {"id": "a", "name": "A", "backend": "replay", "model": "usual"}
    pattern = stage.client.call("patterns.save", pattern={"name": "P", "mode": "single", "agents": [agent]})["pattern"]
    session_id = stage.session(pattern["id"])

    started = stage.client.call("messages.send", session_id=session_id, content="Go.")

    assert stage.ended(started["run_id"])["status"] == "completed"
    assert stage.client.call("messages.list", session_id=session_id)["messages"][-1]["content"] == "As planned."
    models = stage.client.call("capabilities.refresh")["backends"][0]["capabilities"]["models"]
    assert [(model["id"], model["label"]) for model in models] == [("usual", "A plan")]


def test_all_tools_work_on_a_real_repository_and_stay_in_it(stage: Stage) -> None:
    """What leads out of the folder is an error of the call, not of the run."""
    (stage.folder / "notes").mkdir()
    (stage.folder / "notes" / "a.md").write_text("one\ntwo words\n")
    (stage.folder / "out").symlink_to("/etc")
    subprocess.run(["git", "init", "-q"], cwd=stage.folder, check=True)
    looking = [
        call("glob", {"outcome": "ok", "contains": "notes/a.md"}, pattern="**/*.md"),
        call("view", {"outcome": "ok", "contains": "two words"}, path="notes/a.md"),
        call("rg", {"outcome": "ok", "contains": "two words"}, pattern="tw."),
    ]
    run_id = stage.play(
        free(stage),
        {"calls": looking if shutil.which("rg") else looking[:2]},
        call("create", OK, path="made/b.md", content="three\n"),
        call("edit", OK, path="notes/a.md", old="two words", new="2 words"),
        shell("git add . && git status --short", {"outcome": "ok", "contains": "A  made/b.md"}),
        call("view", ERROR, path="../secret"),
        call("view", ERROR, path="/etc/passwd"),
        call("view", ERROR, path="out/passwd"),
        call("create", ERROR, path="out/x", content=""),
        call("no_such_tool", ERROR),
    )

    run = stage.ended(run_id)

    assert (run["status"], run.get("error")) == ("completed", None)
    assert (stage.folder / "notes" / "a.md").read_text() == "one\n2 words\n"


def test_a_command_that_takes_too_long_is_killed_with_its_tree_and_the_run_goes_on(stage: Stage) -> None:
    """A failed call, not a failed run."""
    os.mkfifo(stage.folder / "pids")
    late = shell("sleep 600 & echo $$ $! > pids; wait", ERROR, timeout_s=0.3)
    run_id = stage.play(free(stage), late, {"say": "On."})
    pids = [int(pid) for pid in (stage.folder / "pids").read_text().split()]

    assert stage.ended(run_id)["status"] == "completed"

    assert all(is_gone(pid) for pid in pids)


def test_output_without_end_is_cut(stage: Stage) -> None:
    """The event says how much is missing."""
    run_id = stage.play(free(stage), shell("head -c 10000000 /dev/zero | tr '\\0' x", OK))

    assert stage.ended(run_id)["status"] == "completed"

    (event,) = stage.timeline(run_id, "tool-call")
    assert len(event["result"]) < 70_000
    assert event["result_truncated"] > 9_900_000


@requirement("TLN-1", "TLN-3", "TLN-4")
def test_the_timeline_tells_the_run_in_order(stage: Stage) -> None:
    """One event for each thing, with who did it; ids and times are those of the records."""
    agents = ("scout", "fixer")
    session_id = stage.session(stage.pattern((), agents))
    run_id = stage.play(
        session_id,
        {"agent": "scout", "think": "Hm."},
        {"agent": "scout", "say": "Look there."},
        {"agent": "fixer", **create("made")},
        {"agent": "fixer", "say": "Done."},
    )
    stage.ended(run_id)

    events = stage.timeline(run_id)

    assert [(event["kind"], event.get("agent_name"), event["status"]) for event in events] == [
        ("run-started", None, "completed"),
        ("thinking", "Scout", "completed"),
        ("message", "Scout", "completed"),
        ("tool-call", "Fixer", "completed"),
        ("message", "Fixer", "completed"),
        ("run-completed", None, "completed"),
    ]
    messages = stage.client.call("messages.list", session_id=session_id)["messages"]
    assert [event["message_id"] for event in events if event["kind"] == "message"] == [
        message["id"] for message in messages if message["role"] == "assistant"
    ]
    assert len({event["id"] for event in events}) == len(events)


@requirement("RUN-4")
def test_after_the_end_of_a_run_nothing_changes_it(stage: Stage) -> None:
    """Its last event is its end, and what comes late is dropped."""
    session_id, watch = free(stage), stage.watch()
    os.mkfifo(stage.folder / "started")
    run_id = stage.play(session_id, shell("echo x > started; sleep 600"), {"say": "Too late."}, create("late"))
    (stage.folder / "started").read_text()
    stage.client.call("runs.cancel", run_id=run_id)
    watch.run_ended(run_id)
    timeline = stage.timeline(run_id)

    again = stage.client.call("runs.cancel", run_id=run_id)["run"]
    next_run = stage.play(session_id, {"say": "Next."})
    stage.ended(next_run)

    assert again == stage.client.call("runs.get", run_id=run_id)["run"]
    assert stage.timeline(run_id) == timeline
    assert timeline[-1]["kind"] == "run-cancelled"
    assert "Too late." not in str(stage.client.call("messages.list", session_id=session_id))
    assert not (stage.folder / "late").exists()


@requirement("RUN-3")
def test_a_session_is_running_until_what_it_started_is_dead(stage: Stage) -> None:
    """Between the first commit of a cancellation and the second a message is refused."""
    session_id, watch = free(stage), stage.watch()
    os.mkfifo(stage.folder / "started")
    run_id = stage.play(session_id, shell("echo x > started; sleep 600"))
    (stage.folder / "started").read_text()
    watch_from = stage.client.call("workspace.get")["seq"]

    stage.client.call("runs.cancel", run_id=run_id)
    watch.run_ended(run_id)

    story: list[Json] = [event for event in watch.heard if event.get("seq", 0) > watch_from and "run" in event]
    assert [(event["run"]["status"], "cancel_requested_at" in event["run"]) for event in story] == [
        ("running", True),
        ("cancelled", True),
    ]


def test_a_run_whose_plan_is_not_met_fails_and_names_the_step(stage: Stage) -> None:
    """What else was begun in that step has ended first."""
    session_id = free(stage)
    run_id = stage.play(
        session_id, {"say": "First."}, {"calls": [shell("false", OK), create("beside")]}, create("never")
    )

    run = stage.ended(run_id)

    assert run["status"] == "error"
    assert run["error"].startswith("Step 2 of the plan expects of shell to end as ok, but it ended as error")
    assert [path.name for path in stage.folder.iterdir()] == ["beside"]
    assert stage.timeline(run_id)[-1]["kind"] == "run-failed"


@requirement("SES-1")
def test_sessions_are_found_by_all_words_wherever_they_stand(stage: Stage) -> None:
    """Title, project, pattern, messages; archived ones only when asked for."""
    pattern_id = stage.pattern((), ("scout",))
    one, two = stage.session(pattern_id), stage.session(pattern_id)
    stage.ended(stage.play(one, {"say": "The Zirbelkiefer stands in the Straße."}, content="Where is it?"))
    stage.client.call("sessions.rename", session_id=two, title="Zirbelkiefer again, Maße")

    def found(query: str, **more: bool) -> set[str]:
        return {each["id"] for each in stage.client.call("sessions.search", query=query, **more)["sessions"]}

    assert found("zirbel") == {one, two}
    assert found("ZIRBELKIEFER stands") == {one}
    assert found("zirbelkiefer team project") == {one, two}
    assert found("zirbelkiefer absent") == set()
    assert (found("straße"), found("Straße maße"), found("MAßE")) == ({one}, set(), {two})
    stage.client.call("sessions.archive", session_id=one, is_archived=True)
    assert (found("zirbelkiefer"), found("zirbelkiefer", archived=True)) == ({two}, {one, two})


@requirement("SES-1")
def test_a_duplicate_has_the_settings_and_nothing_else(stage: Stage) -> None:
    """No run, no message, nothing that waits; the original goes on."""
    session_id, watch = stage.session(), stage.watch()
    stage.client.call("sessions.update_approval_settings", session_id=session_id, auto_approved_tool_names=["view"])
    stage.play(session_id, create("made"))
    watch.approvals(1)

    copy = stage.client.call("sessions.duplicate", session_id=session_id)["session"]

    assert copy["approval_settings"] == {"auto_approved_tool_names": ["view"]}
    assert (copy["status"], "pending_approval" in copy, copy["pending_approval_queue"]) == ("idle", False, [])
    assert stage.client.call("messages.list", session_id=copy["id"])["messages"] == []
    assert stage.client.call("runs.list", session_id=copy["id"])["runs"] == []
    assert stage.get(session_id)["status"] == "running"


@requirement("POL-5")
def test_the_three_states_of_a_sessions_list_survive_a_restart(stage: Stage, daemon: DaemonProcess) -> None:
    """None of its own, an empty one, and one with names."""
    pattern_id = stage.pattern(auto_approved_tool_names=["glob"])
    wanted: dict[str, Json] = {
        stage.session(pattern_id): {},
        stage.session(pattern_id): {"auto_approved_tool_names": []},
        stage.session(pattern_id): {"auto_approved_tool_names": ["view"]},
    }
    for session_id, settings in wanted.items():
        stage.client.call("sessions.update_approval_settings", session_id=session_id, **settings)

    client = daemon.crash().client()

    kept = [client.call("sessions.get", session_id=session_id)["session"] for session_id in wanted]
    assert [session.get("approval_settings") for session in kept] == [
        None,
        {"auto_approved_tool_names": []},
        {"auto_approved_tool_names": ["view"]},
    ]
    assert [session["effective"] for session in kept] == [
        {"auto_approved_tool_names": ["glob"], "from": "pattern"},
        {"auto_approved_tool_names": [], "from": "session"},
        {"auto_approved_tool_names": ["view"], "from": "session"},
    ]


def test_waiting_for_a_run_answers_when_the_time_is_up(stage: Stage) -> None:
    """With the run as it is."""
    watch = stage.watch()
    run_id = stage.play(stage.session(), create("made"))
    watch.approvals(1)

    reply = stage.client.call("runs.wait", run_id=run_id, timeout_s=0.05)

    assert reply["run"]["status"] == "running"


def test_removing_a_project_ends_its_runs_and_keeps_its_folder(stage: Stage) -> None:
    """After the number of its sessions was confirmed."""
    watch = stage.watch()
    (stage.folder / "kept").write_text("x")
    run_id = stage.play(stage.session(), create("made"))
    watch.approvals(1)

    with pytest.raises(RemoteError) as refused:
        stage.client.call("projects.remove", project_id=stage.project_id)
    stage.client.call("projects.remove", project_id=stage.project_id, confirm=1)

    assert (refused.value.code, refused.value.data["sessions"]) == ("conflict", 1)
    assert watch.run_ended(run_id)["status"] == "cancelled"
    assert stage.client.call("sessions.list")["sessions"] == []
    assert [path.name for path in stage.folder.iterdir()] == ["kept"]
