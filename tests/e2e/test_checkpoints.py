"""Checkpoints: asked, answered from anywhere in any order, remembered, revoked, cancelled, expired."""

import json
import os
from typing import Any

import pytest

from eryxd.client.client import RemoteError
from eryxd.core.approvals import MAX_WAITING
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.stage import ASK, Json, Stage, call, create, resolve, shell
from tests.requirements import requirement

DENIED = {"outcome": "denied"}
ALLOWED = {"outcome": "ok"}


def ids(approvals: list[Json]) -> list[str]:
    """Return what approvals are called by."""
    return [approval["id"] for approval in approvals]


def refusal(of: pytest.ExceptionInfo[RemoteError]) -> tuple[str, Json]:
    """Return what an error says to a program."""
    return of.value.code, of.value.data


@requirement("APR-2", "APR-3")
def test_several_calls_of_one_session_wait_in_request_order(stage: Stage) -> None:
    """The session runs; the first is its head, the others queue behind it."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, {"calls": [create("a"), create("b"), create("c")]})

    asked = watch.approvals(3)

    session = stage.get(session_id)
    queue = session["pending_approval_queue"]
    assert session["status"] == "running"
    assert ids([session["pending_approval"], *queue]) == ids(asked)
    assert ids(stage.client.call("approvals.list")["approvals"]) == ids(asked)
    assert not any({"permission", "messages"} & approval.keys() for approval in queue)
    assert list(stage.folder.iterdir()) == []


@requirement("APR-3", "APR-5")
def test_calls_are_answered_out_of_order_from_different_clients(stage: Stage, daemon: DaemonProcess) -> None:
    """Each answer lets its own call go on and nothing else; the next becomes the head at once."""
    session_id, watch = stage.session(), stage.watch()
    calls = [create("a", ALLOWED), create("b", DENIED), create("c", ALLOWED)]
    run_id = stage.play(session_id, {"calls": calls})
    asked = watch.approvals(3)
    by_path = {stage.approval(one["id"])["permission"]["arguments"]["path"]: one for one in asked}

    last = resolve(daemon.client("terminal"), by_path["c"])
    middle = resolve(daemon.client("editor"), by_path["b"], "rejected", note="no b")
    first = resolve(daemon.client("browser"), by_path["a"])

    assert stage.ended(run_id)["status"] == "completed"
    assert sorted(path.name for path in stage.folder.iterdir()) == ["a", "c"]
    who = [each["approval"]["resolved_by"]["client_name"] for each in (last, middle, first)]
    assert who == ["terminal", "editor", "browser"]
    waiting = [[first["id"], *ids(rest)] for first, rest in map(queue_of, (last, middle)) if first]
    assert waiting == [ids([by_path["a"], by_path["b"]]), ids([by_path["a"]])] or waiting == [
        ids([by_path["b"], by_path["a"]]),
        ids([by_path["a"]]),
    ]
    assert queue_of(first) == (None, [])


def queue_of(reply: Json) -> tuple[Json | None, list[Json]]:
    """Return head and queue of the session in a reply."""
    return reply["session"].get("pending_approval"), reply["session"]["pending_approval_queue"]


@requirement("APR-3")
def test_sessions_do_not_queue_behind_each_other(stage: Stage) -> None:
    """The second one's answer does not wait for the first one's."""
    watch = stage.watch()
    pattern_id = stage.pattern()
    slow, quick = stage.session(pattern_id), stage.session(pattern_id)
    stage.play(slow, create("slow"))
    first = watch.approvals(1)[0]
    run_id = stage.play(quick, create("quick"))
    second = watch.approvals(1)[0]

    stage.resolve(second)

    assert stage.ended(run_id)["status"] == "completed"
    assert ids(stage.client.call("approvals.list")["approvals"]) == [first["id"]]
    assert stage.client.call("approvals.list", session_id=quick)["approvals"] == []
    assert stage.get(slow)["pending_approval"]["id"] == first["id"]


@requirement("APR-1", "APR-8")
def test_an_approval_says_what_would_run(stage: Stage) -> None:
    """Title, sentence, command, and how much waits."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, shell("git push --force"))
    asked = watch.approvals(1)[0]

    reply = stage.client.call("approvals.get", approval_id=asked["id"])

    approval = reply["approval"]
    assert approval["title"] == "Approve shell"
    assert approval["detail"] == 'Coder requested shell permission for tool "shell" in replay.'
    assert approval["permission"]["command"] == "git push --force"
    assert (approval["session_id"], approval["run_id"], approval["status"]) == (session_id, run_id, "pending")
    assert (reply["waiting"], reply["position"]) == (1, 1)
    assert {key: value for key, value in approval.items() if key != "permission"} == asked


@requirement("APR-1")
def test_a_call_too_long_to_show_is_cut_and_can_be_read_whole(stage: Stage) -> None:
    """In pages; the digest covers all of it."""
    session_id, watch = stage.session(), stage.watch()
    text = "".join(f"line {number}\n" for number in range(40_000))
    stage.play(session_id, call("create", path="long", content=text))
    asked = watch.approvals(1)[0]

    body, offset = b"", 0
    while offset is not None:
        page = stage.client.call("approvals.content", approval_id=asked["id"], offset=offset)
        body, offset = body + page["body"], page.get("next_offset")

    assert json.loads(body)["arguments"] == {"path": "long", "content": text}
    assert len(body) == page["total"]
    assert stage.approval(asked["id"])["permission"]["truncated"]["bytes"] > 0


@requirement("APR-4")
def test_a_decision_on_something_else_than_was_shown_is_a_conflict(stage: Stage) -> None:
    """Nothing is decided; with the digest that was shown it is."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]

    with pytest.raises(RemoteError) as refused:
        stage.resolve(asked, digest="0" * 64)

    assert refused.value.code == "conflict"
    assert stage.approval(asked["id"])["status"] == "pending"
    stage.resolve(asked, digest=asked["digest"])
    assert stage.ended(run_id)["status"] == "completed"


@requirement("APR-4")
@pytest.mark.parametrize(("again", "same"), [("approved", True), ("rejected", False)])
def test_a_second_decision_is_told_of_the_first_and_changes_nothing(stage: Stage, again: str, same: bool) -> None:
    """Who, what and when; repeating it is an error too."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]
    decided = stage.resolve(asked, note="fine")["approval"]
    stage.ended(run_id)

    with pytest.raises(RemoteError) as refused:
        stage.resolve(asked, again)

    told = {key: decided[key] for key in ("status", "resolution", "resolved_at", "resolved_by")}
    assert refusal(refused) == (
        "approval_not_active",
        {"approval_id": asked["id"], "same_decision": same, **told},
    )
    assert stage.client.call("approvals.list", resolved=True)["approvals"] == [decided]


@requirement("APR-4")
def test_an_approval_is_not_found_in_another_session(stage: Stage) -> None:
    """An id alone is no address."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]

    with pytest.raises(RemoteError) as refused:
        stage.resolve({**asked, "session_id": stage.session()})

    assert refusal(refused) == ("not_found", {"id": asked["id"], "noun": "approval"})
    assert stage.approval(asked["id"])["status"] == "pending"


@requirement("APR-5", "TLN-2", "TLN-3")
def test_a_rejection_with_its_note_reaches_the_agent_and_the_timeline(stage: Stage) -> None:
    """The run goes on; one event for the approval, one for the call."""
    session_id, watch = stage.session(), stage.watch()
    expected = {"outcome": "denied", "contains": "Rejected by the user: use git instead"}
    run_id = stage.play(session_id, shell("rm -rf .git", expected), {"say": "Understood."})
    asked = watch.approvals(1)[0]

    stage.resolve(asked, "rejected", note="use git instead")

    assert stage.ended(run_id)["status"] == "completed"
    (event,) = stage.timeline(run_id, "approval")
    seen = {key: event[key] for key in ("approval_id", "status", "decision", "resolution", "note", "occurred_at")}
    assert seen == {
        "approval_id": asked["id"],
        "status": "error",
        "decision": "rejected",
        "resolution": "user",
        "note": "use git instead",
        "occurred_at": asked["requested_at"],
    }
    (tool,) = stage.timeline(run_id, "tool-call")
    (one,) = tool["asks"]
    assert (tool["status"], tool["result"]) == ("error", "Rejected by the user: use git instead")
    assert (one["approval_id"], one["decision"]["verdict"], one["decision"]["reason"]) == (
        asked["id"],
        "ask",
        "not-listed",
    )


def test_the_timeline_has_the_reason_of_every_decision(stage: Stage) -> None:
    """Also of those that no person took."""
    session_id = stage.session(stage.pattern(auto_approved_tool_names=["glob"]))
    watch = stage.watch()
    run_id = stage.play(
        session_id,
        call("report_intent", intent="look around"),
        call("glob", pattern="*"),
        call("no_such_tool", {"outcome": "denied"}),
    )

    stage.resolve(watch.approvals(1)[0], "rejected")

    assert stage.ended(run_id)["status"] == "completed"
    reasons = [event["asks"][0]["decision"] for event in stage.timeline(run_id, "tool-call")]
    assert reasons == [
        {"verdict": "pass", "reason": "infrastructure", "rule_index": 0},
        {"verdict": "auto", "reason": "pattern-list", "rule_index": 0, "entry": "glob", "list_from": "pattern"},
        {"verdict": "ask", "reason": "unknown-tool", "rule_index": 0},
    ]


@requirement("APR-6")
def test_remember_releases_what_waits_for_the_same_tool_and_nothing_else(stage: Stage) -> None:
    """Each with an event of its own; later calls need no answer."""
    session_id, watch = stage.session(stage.pattern(auto_approved_tool_names=["glob"])), stage.watch()
    calls = [create("a"), create("b"), shell("touch c")]
    run_id = stage.play(session_id, {"calls": calls}, create("d"))
    asked = watch.approvals(3)
    creates = [one for one in asked if one["tool_name"] == "create"]
    (other,) = [one for one in asked if one["tool_name"] == "shell"]
    preview = stage.client.call("approvals.get", approval_id=creates[0]["id"])["remember"]

    reply = stage.resolve(creates[0], remember="session")

    assert preview == {"stores": ["glob", "create"], "releases": [creates[1]["id"]]}
    assert reply["released"] == [creates[1]["id"]]
    assert reply["session"]["effective"] == {"auto_approved_tool_names": ["glob", "create"], "from": "session"}
    assert reply["session"]["pending_approval"]["id"] == other["id"]
    stage.resolve(other)
    assert stage.ended(run_id)["status"] == "completed"
    assert sorted(path.name for path in stage.folder.iterdir()) == ["a", "b", "c", "d"]
    how = {event["approval_id"]: event["resolution"] for event in stage.timeline(run_id, "approval")}
    assert how == {creates[0]["id"]: "user", creates[1]["id"]: "remembered", other["id"]: "user"}
    last = stage.timeline(run_id, "tool-call")[-1]["asks"][0]["decision"]
    assert (last["verdict"], last["reason"]) == ("auto", "remembered")


@requirement("APR-6")
def test_a_one_time_approval_releases_nothing_else(stage: Stage) -> None:
    """The same tool still waits."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, {"calls": [create("a"), create("b")]})
    first, second = watch.approvals(2)

    reply = stage.resolve(first)

    assert (reply["released"], reply["session"]["pending_approval"]["id"]) == ([], second["id"])
    assert "approval_settings" not in reply["session"]


@requirement("APR-4")
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("create", {"decision": "rejected", "remember": "session"}),
        ("create", {"decision": "approved", "remember": "pattern"}),
        ("no_such_tool", {"decision": "approved", "remember": "session"}),
    ],
    ids=["rejected", "unknown scope", "unknown tool"],
)
def test_what_cannot_be_remembered_decides_nothing(stage: Stage, tool: str, more: Json) -> None:
    """The approval still waits."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, call(tool, path="a", content=""))
    asked = watch.approvals(1)[0]

    with pytest.raises(RemoteError) as refused:
        stage.resolve(asked, **more)

    assert refused.value.code == "invalid"
    assert stage.approval(asked["id"])["status"] == "pending"


@requirement("VAL-3", "APR-4")
def test_a_scratchpad_session_remembers_nothing(stage: Stage) -> None:
    """It has a folder of its own, and its pattern's list."""
    session_id, watch = stage.session(project_id="scratchpad"), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]

    with pytest.raises(RemoteError) as refused:
        stage.resolve(asked, remember="session")

    assert refused.value.code == "invalid"
    stage.resolve(asked)
    run = stage.ended(run_id)
    assert (run["status"], run["workspace_kind"]) == ("completed", "scratchpad")
    assert (stage.daemon.state / "scratch" / session_id / "made").exists()


@requirement("SES-3", "POL-6")
@pytest.mark.parametrize("rules", [ASK, ()], ids=["listed", "no rule"])
def test_revoking_makes_the_next_call_of_a_running_run_ask(stage: Stage, rules: tuple[Any, ...]) -> None:
    """Also where nothing asked before."""
    session_id = stage.session(stage.pattern(rules, auto_approved_tool_names=["shell", "create"]))
    watch = stage.watch()
    os.mkfifo(stage.folder / "go")
    run_id = stage.play(session_id, shell("read line < go"), create("made", DENIED))

    # Opening it for writing returns when the command has opened it for reading.
    with (stage.folder / "go").open("w") as go:
        reply = stage.client.call("sessions.revoke", session_id=session_id)
        go.write("on\n")
    stage.resolve(watch.approvals(1)[0], "rejected")

    assert reply["session"]["approval_settings"] == {"auto_approved_tool_names": []}
    assert stage.ended(run_id)["status"] == "completed"
    last = stage.timeline(run_id, "tool-call")[-1]["asks"][0]["decision"]
    assert (last["verdict"], last["reason"]) == ("ask", "revoked")


@requirement("POL-6")
def test_edits_of_a_pattern_do_not_reach_a_run_that_runs(stage: Stage) -> None:
    """It obeys what was frozen at its start."""
    pattern_id = stage.pattern()
    session_id, watch = stage.session(pattern_id), stage.watch()
    run_id = stage.play(session_id, create("a"), create("b", DENIED))
    first = watch.approvals(1)[0]
    pattern = stage.client.call("patterns.get", pattern_id=pattern_id)["pattern"]

    stage.client.call("patterns.save", pattern={**pattern, "approval_policy": {"rules": []}})
    stage.resolve(first)
    second = watch.approvals(1)[0]

    stage.resolve(second, "rejected")
    assert stage.ended(run_id)["approval_policy"]["rules"] == [{"kind": "tool-call"}]


@requirement("SES-3")
def test_settings_cannot_be_changed_while_the_session_runs(stage: Stage) -> None:
    """The error says what it waits for."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made"))
    watch.approvals(1)

    with pytest.raises(RemoteError) as refused:
        stage.client.call("sessions.update_approval_settings", session_id=session_id, auto_approved_tool_names=[])

    assert refusal(refused) == ("session_running", {"session_id": session_id, "run_id": run_id, "waiting": 1})
    assert "approval_settings" not in stage.get(session_id)


@requirement("APR-3")
def test_a_flood_of_calls_fills_the_queue_and_no_more(stage: Stage, daemon: DaemonProcess) -> None:
    """What does not fit is denied by rule and recorded; the others still wait for their answers."""
    session_id, watch = stage.session(), stage.watch(topics=["approvals"])
    run_id = stage.play(session_id, {"calls": [create(f"f{number}") for number in range(MAX_WAITING + 44)]})
    asked = watch.approvals(MAX_WAITING)

    for one in asked:
        stage.resolve(one)

    assert stage.ended(run_id)["status"] == "completed"
    assert len(list(stage.folder.iterdir())) == MAX_WAITING
    results = [event["result"] for event in stage.timeline(run_id, "tool-call")]
    assert sum(result.startswith("Denied by a rule") for result in results) == 44
    assert sum(path.stat().st_size for path in daemon.stored_files()) < 100_000_000


def test_approvals_are_listed_in_pages(stage: Stage) -> None:
    """What waits by request order; what was decided, newest first."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, {"calls": [create(f"f{number}") for number in range(5)]})
    asked = watch.approvals(5)

    assert paged(stage, limit=2) == ids(asked)

    for one in asked:
        stage.resolve(one)
    stage.ended(run_id)
    assert paged(stage, limit=2, resolved=True) == ids(asked)[::-1]


def paged(stage: Stage, **asked: Any) -> list[str]:
    """Return the ids of all pages of a list."""
    found, cursor = [], None
    while True:
        page = stage.client.call("approvals.list", cursor=cursor, **asked)
        found += ids(page["approvals"])
        cursor = page.get("cursor")
        if cursor is None:
            return found
