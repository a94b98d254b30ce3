"""Plans: read whole, or refused with all their problems."""

import os
import re
from pathlib import Path

import pytest

from eryxd.backends.plan import MAX_PLAN_BYTES, Call, Ending, Expect, Plan, Step, find, list_plans, parse, read
from eryxd.domain.errors import BackendFailed
from eryxd.domain.ids import AgentId, BackendName
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import Model
from tests.requirements import requirement

DOCUMENT = Path(__file__).parents[2] / "docs" / "plans.md"


def problems(text: str) -> list[str]:
    with pytest.raises(BackendFailed) as caught:
        parse(text, "the test's plan")
    assert caught.value.data["place"] == "the test's plan"
    found = caught.value.data["problems"]
    assert isinstance(found, list)
    assert all(problem in caught.value.message for problem in found)
    return found


def agent(id: str = "a", name: str = "Anna") -> RunAgent:
    return RunAgent(id=AgentId(id), name=name, backend=BackendName("replay"))


def test_the_documented_example_is_a_plan() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)

    assert parse(example, "docs/plans.md") == Plan(
        title="Look, change, check",
        steps=(
            Step(agent="planner", think="I should see what is there before I change it."),
            Step(
                agent="planner",
                calls=(
                    Call(
                        call="glob",
                        arguments={"pattern": "**/*.md"},
                        expect=Expect(outcome=Ending.OK, contains="README.md"),
                    ),
                    Call(call="rg", arguments={"pattern": "colou?r", "path": "."}),
                ),
            ),
            Step(agent="planner", say='The README spells it both ways. I would settle on "colour".'),
            Step(
                agent="builder",
                call="edit",
                arguments={"path": "README.md", "old": "one color", "new": "one colour"},
                expect=Expect(outcome=Ending.OK),
            ),
            Step(
                agent="builder",
                call="shell",
                arguments={"command": "git diff --stat", "timeout_s": 10},
                expect=Expect(contains="README.md"),
            ),
            Step(say="Done."),
        ),
    )


def test_the_document_names_every_key_and_ending() -> None:
    text = DOCUMENT.read_text()

    for word in (*Step.__struct_fields__, *Expect.__struct_fields__, *Ending, "title"):
        assert f"`{word}`" in text


def test_one_call_and_a_list_of_one_are_the_same() -> None:
    call = Call(call="view", arguments={"path": "a"}, expect=Expect(outcome=Ending.DENIED))

    assert Step(call="view", arguments={"path": "a"}, expect=Expect(outcome=Ending.DENIED)).all_calls() == (call,)
    assert Step(calls=(call,)).all_calls() == (call,)


def test_an_agent_plays_its_own_steps_and_those_of_nobody() -> None:
    steps = (Step(agent="a", say="1"), Step(agent="b", say="2"), Step(agent="Anna", say="3"), Step(say="4"))

    mine = list(Plan(title="t", steps=steps).steps_of(agent()))

    assert mine == [(1, steps[0]), (3, steps[2]), (4, steps[3])]


HEAD = 'title = "t"\n'
STEP = HEAD + "[[step]]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title = ", ["it is not TOML: Invalid value (at end of document)"]),
        ("[[step]]\nsay = 'x'", ["title: a plan needs one, a text"]),
        ("title = 3\n[[step]]\nsay = 'x'", ["title: a plan needs one, a text"]),
        (HEAD, ["step: a plan needs at least one `[[step]]` table"]),
        (HEAD + "step = 3", ["step: a plan needs at least one `[[step]]` table"]),
        (HEAD + "step = [3]", ["step 1: Expected `object`, got `int`"]),
        (HEAD + "steps = 1\n[[step]]\nsay = 'x'", ["steps: a plan has only `title` and `[[step]]`"]),
        (STEP, ["step 1: needs exactly one of say, think, call and calls, and has none"]),
        (
            STEP + "say = 'x'\ncall = 'view'",
            ["step 1: needs exactly one of say, think, call and calls, and has say and call"],
        ),
        (STEP + "say = 3", ["step 1: Expected `str`, got `int` - at `$.say`"]),
        (STEP + "say = ' '", ["step 1: say is blank"]),
        (STEP + "says = 'x'", ["step 1: Object contains unknown field `says`"]),
        (
            STEP + "say = 'x'\narguments = {}",
            ["step 1: arguments and expect stand beside `call`, or in each entry of `calls`"],
        ),
        (STEP + "calls = []", ["step 1: calls is empty"]),
        (STEP + "calls = [{call = ''}]", ["step 1: the tool of a call is blank"]),
        (
            STEP + "calls = [{call = 'a'}, {tool = 'b'}]",
            ["step 1: Object contains unknown field `tool` - at `$.calls[1]`"],
        ),
        (
            STEP + "call = 'a'\nexpect = {outcome = 'fine'}",
            ["step 1: Invalid enum value 'fine' - at `$.expect.outcome`"],
        ),
        (
            STEP + "call = 'a'\narguments = {at = 2026-11-30, many = [inf, {big = 9223372036854775808}]}",
            [
                "step 1: a: arguments.at is a date or time; write it as text",
                "step 1: a: arguments.many[0] is not a finite number",
                "step 1: a: arguments.many[1].big does not fit 64 bits",
            ],
        ),
    ],
)
def test_each_problem_is_named(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_a_plan_that_is_nested_without_end_is_refused() -> None:
    """Whatever meets it first: the parser, the conversion or the check of what it says."""
    head = "title = 't'\n[[step]]\ncall = 'a'\narguments.a = "
    for depth in (32, 900, 960, 970, 980, 5000):
        assert len(problems(head + "[" * depth + "]" * depth)) == 1, depth

    assert parse(head + "[" * 30 + "1" + "]" * 30, "here").steps


def test_all_problems_are_named_at_once_with_their_steps() -> None:
    text = "[[step]]\nsay = 1\n[[step]]\nsay = 'fine'\n[[step]]\n"

    assert problems(text) == [
        "step 1: Expected `str`, got `int` - at `$.say`",
        "step 3: needs exactly one of say, think, call and calls, and has none",
        "title: a plan needs one, a text",
    ]


@requirement("BKD-4")
def test_a_plan_is_found_by_name_and_by_absolute_path(tmp_path: Path) -> None:
    plan = tmp_path / "demo.toml"
    plan.write_text(STEP)

    assert find("demo", tmp_path) == plan
    assert find(str(plan), tmp_path / "elsewhere") == plan


@requirement("BKD-4")
def test_a_missing_plan_names_the_places_looked_at(tmp_path: Path) -> None:
    for name, place in (("none", f"{tmp_path}/none.toml"), ("/no/such.toml", "/no/such.toml")):
        with pytest.raises(BackendFailed) as caught:
            find(name, tmp_path)
        assert caught.value.data == {"places": [place]}
        assert place in caught.value.message


@pytest.mark.parametrize("name", ["", "../demo", "a/b", "a\0b"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "demo.toml").write_text(STEP)

    with pytest.raises(BackendFailed):
        find(name, tmp_path / "plans")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"\xe4")
    (tmp_path / "long.toml").write_bytes(b"#" * (MAX_PLAN_BYTES + 1))
    os.mkfifo(tmp_path / "fifo.toml")

    reasons = []
    for name in ("latin", "long", "fifo", "none"):
        with pytest.raises(BackendFailed) as caught:
            read(tmp_path / f"{name}.toml")
        reasons.append(caught.value.data["problems"])

    assert reasons == [
        ["it is not UTF-8"],
        ["it is larger than 1,048,576 bytes"],
        ["it is not a regular file"],
        ["No such file or directory"],
    ]


@requirement("BKD-4")
def test_plans_are_listed_and_broken_ones_say_so(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(STEP + "say = 'x'")
    (tmp_path / "bad.toml").write_text(STEP)
    (tmp_path / "notes.txt").write_text("no plan")

    assert list_plans(tmp_path) == (
        Model(
            id="bad",
            label="The plan bad.toml cannot be played: "
            "step 1: needs exactly one of say, think, call and calls, and has none.",
        ),
        Model(id="good", label="t"),
    )
    assert list_plans(tmp_path / "none") == ()
