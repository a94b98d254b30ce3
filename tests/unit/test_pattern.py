"""Patterns by example: what keeps one from being saved, what is only odd, and the built-in ones."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.domain.pattern import (
    MODE_UNAVAILABLE,
    RUNNABLE_MODES,
    Agent,
    Availability,
    Effort,
    Mode,
    Pattern,
    builtin_patterns,
    pattern_problems,
    pattern_warnings,
)
from eryxd.domain.policy import ASK_POLICY, NO_CHECKPOINTS, ApprovalPolicy
from tests.builders import NOON, agent, pattern, policy, rule
from tests.requirements import requirement


def team(count: int) -> tuple[Agent, ...]:
    """Return so many sound agents."""
    return tuple(agent(f"agent-{number}") for number in range(count))


@requirement("PAT-1")
def test_a_sound_pattern_has_no_problems() -> None:
    """Nor warnings."""
    assert pattern_problems(pattern()) == []
    assert pattern_warnings(pattern()) == []


@requirement("PAT-1")
@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"name": " \t"}, "name"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"agents": ()}, "agents"),
        ({"agents": (agent(name=" "),)}, "agents[0].name"),
        ({"agents": (agent("", name="Coder"),)}, "agents[0].id"),
        ({"agents": (agent(), agent()), "mode": Mode.SEQUENTIAL}, "agents[1].id"),
        ({"agents": (agent(), agent(" coder ")), "mode": Mode.SEQUENTIAL}, "agents[1].id"),
        ({"approval_policy": policy(rules=[rule("tool-call", ["nobody"])])}, "approval_policy.rules[0].agent_ids"),
        ({"approval_policy": policy(expires_after_s=0.0)}, "approval_policy.expires_after_s"),
    ],
)
def test_each_problem_names_its_path(changes: dict[str, Any], path: str) -> None:
    """One thing wrong, one problem."""
    (problem,) = pattern_problems(pattern(**changes))

    assert problem.startswith(f"{path}:")


@requirement("PAT-1", "VAL-1")
def test_all_problems_are_named_at_once() -> None:
    """A person mends them in one go."""
    rules = [rule("tool-call", ["nobody", " "])]
    broken = pattern(
        name="", max_iterations=0, agents=(agent(name=""), agent(name="")), approval_policy=policy(rules=rules)
    )

    paths = [problem.split(":")[0] for problem in pattern_problems(broken)]

    assert paths == [
        "name",
        "max_iterations",
        "agents",
        "agents[0].name",
        "agents[1].id",
        "agents[1].name",
        "approval_policy.rules[0].agent_ids",
        "approval_policy.rules[0].agent_ids",
    ]


@requirement("PAT-1")
@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        (Mode.SINGLE, {1}),
        (Mode.SEQUENTIAL, {1, 2, 3}),
        (Mode.CONCURRENT, {1, 2, 3}),
        (Mode.HANDOFF, {2, 3}),
        (Mode.GROUP_CHAT, {2, 3}),
        (Mode.MAGENTIC, {1, 2, 3}),
    ],
)
def test_each_mode_has_its_number_of_agents(mode: Mode, allowed: set[int]) -> None:
    """At least one; single exactly one; hand-offs and chats need a second."""
    sound = {count for count in range(4) if not pattern_problems(pattern(mode=mode, agents=team(count)))}

    assert sound == allowed


@requirement("PAT-1")
@pytest.mark.parametrize("instructions", ["", " \n"])
def test_blank_instructions_are_only_odd(instructions: str) -> None:
    """Allowed, and probably not meant."""
    odd = pattern(agents=(agent(instructions=instructions),))

    (warning,) = pattern_warnings(odd)

    assert pattern_problems(odd) == []
    assert warning.startswith("agents[0].instructions:")


@requirement("PAT-1")
def test_words_of_patterns_are_stable() -> None:
    """They are stored and written by people."""
    assert set(Mode) == {"single", "sequential", "concurrent", "handoff", "group-chat", "magentic"}
    assert set(Availability) == {"available", "preview", "unavailable"}
    assert set(Effort) == {"low", "medium", "high", "xhigh"}


@requirement("PAT-2")
def test_there_is_a_built_in_pattern_for_each_mode() -> None:
    """Known by the mode's name, the code's own, and sound."""
    made = builtin_patterns(ASK_POLICY, NOON)

    assert [one.id for one in made] == [mode.value for mode in Mode]
    assert [one.mode for one in made] == list(Mode)
    assert all(one.is_builtin for one in made)
    assert [problem for one in made for problem in pattern_problems(one)] == []
    assert [warning for one in made for warning in pattern_warnings(one)] == []


@requirement("PAT-2")
def test_a_built_in_pattern_whose_mode_cannot_run_says_why() -> None:
    """Sending with it is refused with that reason."""
    for one in builtin_patterns(ASK_POLICY, NOON):
        runs = one.mode in RUNNABLE_MODES

        assert (one.availability is Availability.AVAILABLE) == runs
        assert one.unavailability_reason == (UNSET if runs else MODE_UNAVAILABLE[one.mode])


@requirement("PAT-2")
def test_every_mode_runs_or_has_a_reason() -> None:
    """Never both."""
    assert set(Mode) - set(MODE_UNAVAILABLE) == RUNNABLE_MODES
    assert all(MODE_UNAVAILABLE.values())


@requirement("POL-4")
@pytest.mark.parametrize("default", [ASK_POLICY, NO_CHECKPOINTS])
def test_built_in_patterns_carry_the_configured_default(default: ApprovalPolicy) -> None:
    """Written into the record, not looked up later."""
    assert {one.approval_policy for one in builtin_patterns(default, NOON)} == {default}


@requirement("POL-4", "POL-9")
def test_a_stored_pattern_tells_no_policy_from_no_rules() -> None:
    """The first asks (POL-9), the second passes."""
    without, empty = pattern(approval_policy=None), pattern(approval_policy=NO_CHECKPOINTS)

    stored = [msgspec.msgpack.encode(one) for one in (without, empty)]

    assert [msgspec.msgpack.decode(one, type=Pattern) for one in stored] == [without, empty]


@requirement("POL-1", "POL-9")
@pytest.mark.parametrize("written", [None, {}, [], {"auto_approved_tool_names": []}])
def test_a_stored_policy_that_cannot_be_read_is_an_error(written: object) -> None:
    """Never read as absent or as empty."""
    stored = {**msgspec.to_builtins(pattern()), "approval_policy": written}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, Pattern)


@requirement("PAT-3")
def test_the_revision_is_part_of_the_record() -> None:
    """A client sends back what it read; leaving it out of a stored record is refused."""
    stored = msgspec.to_builtins(replace(pattern(), revision=4))

    assert msgspec.convert(stored, Pattern).revision == 4
    del stored["revision"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, Pattern)
