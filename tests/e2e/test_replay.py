"""Plans played with real tools in a real git repository, through a gate that a test answers."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, UnsetType

from eryxd.backends.replay import pieces
from eryxd.backends.tools import available_tools
from eryxd.daemon import process_tree
from eryxd.domain.approval import Permission, PermissionKind
from eryxd.domain.errors import BackendFailed
from eryxd.domain.ids import BackendName, CallId, ProviderId, ToolId
from eryxd.plugin.types import (
    Answer,
    BackendDescriptor,
    Capabilities,
    Connection,
    ConnectionState,
    DeniedBy,
    Model,
    ToolCall,
    ToolOutcome,
    Turn,
)
from tests.e2e.replaying import ALLOW, NOW, Answerer, FakeGate, Stage, agent, allow, deny
from tests.requirements import requirement


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "README.md").write_text("one\ntwo\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def stage(repository: Path, tmp_path: Path) -> Iterator[Stage]:
    ready = Stage(repository, tmp_path)
    yield ready
    ready.children.close()


@requirement("BKD-3", "POL-10")
def test_replay_says_what_it_is(stage: Stage) -> None:
    assert stage.backend.descriptor == BackendDescriptor(
        name=BackendName("replay"),
        label="Replay",
        infrastructure=("report_intent",),
        needs_model=True,
        by_default=False,
    )


@requirement("BKD-1", "BKD-4")
def test_replay_is_ready_and_its_models_are_the_plans(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "demo.toml").write_text('title = "Demo"\n[[step]]\nsay = "x"')

    assert asyncio.run(stage.backend.describe()) == Capabilities(
        connection=ConnectionState(status=Connection.READY, summary="Plays plans; needs no login.", checked_at=NOW),
        models=(Model(id="demo", label="Demo"),),
        runtime_tools=available_tools(),
    )


@requirement("BKD-4")
def test_preparing_returns_the_text_of_the_plan(stage: Stage, tmp_path: Path) -> None:
    plan = tmp_path / "anywhere.toml"
    plan.write_text('title = "Demo"\n[[step]]\nagent = "a"\nsay = "x"')

    assert asyncio.run(stage.backend.prepare(agent(model=str(plan)))) == plan.read_text()
    with pytest.raises(BackendFailed) as caught:
        asyncio.run(stage.backend.prepare(agent("b", model=str(plan))))
    assert caught.value.data == {"place": str(plan)}


@requirement("BKD-4")
@pytest.mark.parametrize(("model", "place"), [(UNSET, ""), ("none", "none.toml")])
def test_preparing_without_a_plan_names_the_places(
    stage: Stage, tmp_path: Path, model: str | UnsetType, place: str
) -> None:
    with pytest.raises(BackendFailed) as caught:
        asyncio.run(stage.backend.prepare(agent(model=model)))

    assert caught.value.data == {"places": [str(tmp_path / "plans" / place)]}


def test_a_turn_without_its_plan_fails(stage: Stage) -> None:
    turn = stage.turn("", agent())
    turn = Turn(**{name: getattr(turn, name) for name in turn.__struct_fields__ if name != "input"})

    with pytest.raises(BackendFailed):
        asyncio.run(stage.backend.run_turn(turn, FakeGate(allow)))


def test_saying_and_thinking(stage: Stage) -> None:
    gate = stage.play('[[step]]\nthink = "Hm."\n[[step]]\nsay = "This is what I think about it."')

    assert gate.seen == [
        ("thinking", "Hm."),
        ("delta", "This is what I think about"),
        ("delta", " it."),
        ("message", "This is what I think about it."),
    ]


@given(st.text())
def test_the_pieces_of_a_message_are_the_message(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_each_agent_plays_its_own_steps(stage: Stage) -> None:
    plan = """
    [[step]]
    agent = "a"
    say = "one"
    [[step]]
    agent = "Agent b"
    say = "two"
    [[step]]
    say = "three"
    """

    assert stage.play(plan, id="a").only("message") == ["one", "three"]
    assert stage.play(plan, id="b").only("message") == ["two", "three"]


EDIT = """
[[step]]
call = "edit"
arguments = { path = "README.md", old = "two", new = "2" }
"""


@requirement("BKD-2", "APR-5")
def test_a_call_is_described_whole_and_runs_when_it_is_allowed(stage: Stage, repository: Path) -> None:
    gate = stage.play(EDIT)

    arguments = {"path": "README.md", "old": "two", "new": "2"}
    permission = Permission(
        kind=PermissionKind.WRITE,
        path="README.md",
        diff="--- a/README.md\n+++ b/README.md\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
        arguments=arguments,
    )
    assert gate.seen == [
        (
            "ask",
            ToolCall(
                call_id=CallId("c1"),
                tool_id=ToolId("edit"),
                provider=ProviderId("builtin:edit"),
                permission=permission,
                arguments=arguments,
            ),
        ),
        ("done", ("c1", ToolOutcome(ok=True, text="Edited README.md, 8 bytes before and 6 now."))),
    ]
    diff = subprocess.run(["git", "diff", "--stat"], cwd=repository, check=True, capture_output=True)
    assert b"README.md | 2 +-" in diff.stdout


@requirement("BKD-2", "APR-5")
@pytest.mark.parametrize(
    ("by", "note", "text"),
    [
        (DeniedBy.PERSON, "use three", "Rejected by the user: use three"),
        (DeniedBy.PERSON, UNSET, "Rejected by the user."),
        (DeniedBy.CANCELLED, UNSET, "Denied: the run was cancelled."),
        (DeniedBy.INTERRUPTED, UNSET, "Denied: the run was interrupted."),
        (DeniedBy.EXPIRED, UNSET, "Denied: nobody answered in time."),
        (DeniedBy.STORE, UNSET, "Denied: the decision could not be recorded."),
        (DeniedBy.RULE, "not here", "Denied by a rule: not here"),
    ],
)
def test_a_denied_call_does_not_run_and_the_plan_goes_on(
    stage: Stage, repository: Path, by: DeniedBy, note: str | UnsetType, text: str
) -> None:
    gate = stage.play(EDIT + '[[step]]\nsay = "after"', deny(by, note))

    assert gate.only("done") == [("c1", ToolOutcome(ok=False, text=text))]
    assert gate.only("message") == ["after"]
    assert (repository / "README.md").read_text() == "one\ntwo\n"


@requirement("BKD-2")
def test_what_runs_is_what_was_asked_whatever_is_done_to_the_question(stage: Stage, repository: Path) -> None:
    async def meddle(call: ToolCall) -> Answer:
        call.arguments["new"] = "something else"
        assert call.permission.arguments
        call.permission.arguments["new"] = "something else"
        return ALLOW

    stage.play(EDIT, meddle)

    assert (repository / "README.md").read_text() == "one\n2\n"


@requirement("BKD-2")
def test_a_providers_tool_is_asked_for_by_its_provider_and_run_by_it(stage: Stage) -> None:
    gate = stage.play('[[step]]\ncall = "build"\narguments = { target = "all" }')

    (asked,) = gate.only("ask")
    assert (asked.tool_id, asked.provider) == ("build", "make")
    assert asked.permission == Permission(kind=PermissionKind.CUSTOM_TOOL, server="make", arguments={"target": "all"})
    ((_, outcome),) = gate.only("done")
    assert outcome == ToolOutcome(ok=True, text="make build {'target': 'all'} in repository")


def test_a_tool_that_is_not_ours_is_asked_for_and_fails(stage: Stage) -> None:
    plan = '[[step]]\ncall = "fetch"\narguments = { url = "x" }'

    gate = stage.play(plan)

    assert [call.permission for call in gate.only("ask")] == [Permission(arguments={"url": "x"})]
    assert gate.only("done") == [("c1", ToolOutcome(ok=False, text="There is no such tool here: fetch."))]


def test_reporting_an_intent_does_nothing(stage: Stage) -> None:
    gate = stage.play('[[step]]\ncall = "report_intent"\narguments = { intent = "Reading" }')

    assert gate.only("done") == [("c1", ToolOutcome(ok=True, text="Reading"))]


SEVERAL = """
[[step]]
calls = [
    { call = "shell", arguments = { command = "echo first > first" } },
    { call = "shell", arguments = { command = "echo second > second" }, expect = { outcome = "ok" } },
]
[[step]]
call = "glob"
arguments = { pattern = "*" }
expect = { outcome = "ok", contains = "first\\nsecond" }
"""


def test_calls_of_one_step_wait_at_the_same_time(stage: Stage) -> None:
    """Neither is answered before both are asked."""
    both = asyncio.Barrier(2)

    async def answer(call: ToolCall) -> Answer:
        if call.tool_id == "shell":
            await asyncio.wait_for(both.wait(), 20)
        return ALLOW

    gate = stage.play(SEVERAL, answer)

    assert [call.call_id for call in gate.only("ask")] == ["c1", "c2", "c3"]
    assert gate.only("done")[2] == ("c3", ToolOutcome(ok=True, text="README.md\nfirst\nsecond"))


@pytest.mark.parametrize(
    ("expect", "answer", "ended"),
    [
        ('outcome = "error"', allow, "ok"),
        ('outcome = "denied"', allow, "ok"),
        ('outcome = "ok"', deny(DeniedBy.PERSON), "denied"),
        ('outcome = "ok", contains = "bye"', allow, "ok"),
        ('contains = "note"', deny(DeniedBy.PERSON), "denied"),
    ],
)
def test_what_a_plan_does_not_expect_fails_the_turn(stage: Stage, expect: str, answer: Answerer, ended: str) -> None:
    plan = f"""
    [[step]]
    say = "before"
    [[step]]
    call = "shell"
    arguments = {{ command = "echo hello" }}
    expect = {{ {expect} }}
    """

    with pytest.raises(BackendFailed) as caught:
        stage.play(plan, answer)

    assert caught.value.data == {"step": 2, "tool": "shell", "ended": ended}


def test_what_a_plan_expects_passes(stage: Stage) -> None:
    plan = """
    [[step]]
    call = "shell"
    arguments = { command = "echo problem; exit 3" }
    expect = { outcome = "error", contains = "problem" }
    """

    assert len(stage.play(plan).only("done")) == 1


@requirement("BKD-2")
def test_cancelling_a_turn_ends_all_its_calls(stage: Stage, tmp_path: Path) -> None:
    """One waits for a person, two run; all of them end, and so does what they started."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Held open for both, so that no writer finds it closed.
    reading = os.open(fifo, os.O_RDWR)
    command = f"sleep 1000 & echo $! $$ > {fifo}; wait"
    plan = f"""
    [[step]]
    calls = [
        {{ call = "view", arguments = {{ path = "README.md" }} }},
        {{ call = "shell", arguments = {{ command = "{command}" }} }},
        {{ call = "shell", arguments = {{ command = "{command}" }} }},
    ]
    """

    async def answer(call: ToolCall) -> Answer:
        if call.tool_id == "view":
            await asyncio.Event().wait()
        return ALLOW

    async def cancel() -> list[int]:
        playing = asyncio.ensure_future(stage.backend.run_turn(stage.turn(plan, agent()), FakeGate(answer)))
        pids: list[int] = []
        while len(pids) < 4:
            text = await asyncio.wait_for(asyncio.to_thread(os.read, reading, 100), 20)
            pids += [int(word) for word in text.split()]
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return pids

    found = [process_tree.look(pid) for pid in asyncio.run(cancel())]
    os.close(reading)
    assert [process for process in found if process is not None and not process.is_dead] == []


@requirement("RTL-5")
@pytest.mark.parametrize("swap", ["content", "link"])
def test_what_runs_is_what_was_shown(stage: Stage, repository: Path, swap: str) -> None:
    """A file or a symlink that is changed while a person looks makes another call of it: nothing is done."""
    (repository / "other").write_text("one\n")
    (repository / "link").symlink_to("README.md")

    async def swap_then_allow(call: ToolCall) -> Answer:
        if swap == "link":
            (repository / "link").unlink()
            (repository / "link").symlink_to("other")
        else:
            (repository / "README.md").write_text("zero\none\ntwo\n")
        return ALLOW

    gate = stage.play(
        '[[step]]\ncall = "edit"\narguments = { path = "link", old = "one", new = "ONE" }', swap_then_allow
    )

    ((_, outcome),) = gate.only("done")
    assert (outcome.ok, "changed since it was shown" in outcome.text) == (False, True)
    assert "ONE" not in (repository / "README.md").read_text() + (repository / "other").read_text()
