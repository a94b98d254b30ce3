"""Approval policy by example: shapes, normal form, and the list in force."""

from typing import Any, Final

import msgspec
import pytest
from msgspec import UNSET

from eryxd.domain.ids import AgentId, ToolId
from eryxd.domain.policy import (
    ASK_POLICY,
    NO_CHECKPOINTS,
    ApprovalPolicy,
    ApprovalSettings,
    CheckpointKind,
    covering_rule,
    effective,
    normalise,
    normalise_names,
    problems,
)
from tests.builders import effective_policy, policy, rule, settings
from tests.requirements import requirement

CODER: Final = AgentId("coder")

# Shapes


@requirement("POL-1", "POL-9")
@pytest.mark.parametrize("written", [{}, {"auto_approved_tool_names": ["view"]}])
def test_a_policy_without_rules_is_refused(written: dict[str, Any]) -> None:
    """Reading it as empty would ask nothing."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=ApprovalPolicy)


@requirement("POL-1")
@pytest.mark.parametrize(
    "written",
    [
        {"rules": [{"kind": "tool_call"}]},
        {"rules": [{"kind": "Tool-Call"}]},
        {"rules": [{"agent_ids": ["coder"]}]},
        {"rules": [{"kind": "tool-call", "agent_ids": None}]},
        {"rules": [{"kind": "tool-call", "agents": ["coder"]}]},
        {"rules": None},
        {"rules": [], "auto_approved_tool_names": None},
        {"rules": [], "auto_approved_tool_names": "view"},
        {"rules": [], "auto_approve": ["view"]},
    ],
)
def test_a_policy_of_another_shape_is_refused(written: dict[str, Any]) -> None:
    """Unknown kinds and fields, nil, and a text where a list belongs."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=ApprovalPolicy)


@requirement("POL-1")
@pytest.mark.parametrize("agents", [None, []])
def test_a_rule_without_agents_covers_everybody(agents: list[str] | None) -> None:
    """Absent and empty alike."""
    rules = [rule("tool-call", agents)]

    assert covering_rule(rules, CheckpointKind.TOOL_CALL, CODER) == 0
    assert covering_rule(rules, CheckpointKind.TOOL_CALL, UNSET) == 0
    assert covering_rule(rules, CheckpointKind.FINAL_RESPONSE, CODER) is None


@requirement("POL-1")
@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_agent_is_refused(blank: str) -> None:
    """Without it the rule would cover every agent."""
    found = problems(policy(rules=[rule("tool-call", ["coder", blank])]), [CODER])

    assert len(found) == 1
    assert "approval_policy.rules[0].agent_ids" in found[0]


@requirement("POL-1")
@pytest.mark.parametrize("expires", [0.0, -1.0, float("inf"), float("nan")])
def test_an_expiry_that_is_no_time_is_refused(expires: float) -> None:
    """It is a number of seconds, more than none."""
    found = problems(policy(expires_after_s=expires), [CODER])

    assert len(found) == 1
    assert "approval_policy.expires_after_s" in found[0]


@requirement("POL-1")
def test_the_expiry_reaches_the_run() -> None:
    """It belongs to the policy, whoever's list is in force."""
    assert effective(policy(expires_after_s=90.0), settings()).expires_after_s == 90.0


@requirement("VAL-1")
def test_unknown_agents_are_named_all_at_once() -> None:
    """With the path of each."""
    rules = [rule("tool-call", ["coder", "nobody"]), rule("final-response", ["someone"])]

    found = problems(policy(rules=rules), [CODER])

    assert len(found) == 2
    assert "approval_policy.rules[0].agent_ids" in found[0]
    assert "nobody" in found[0]
    assert "approval_policy.rules[1].agent_ids" in found[1]
    assert "someone" in found[1]


@requirement("VAL-1")
def test_a_misspelt_agent_is_told_what_was_meant() -> None:
    """A near match is named."""
    (problem,) = problems(policy(rules=[rule("tool-call", ["codr"])]), [CODER, AgentId("reviewer")])

    assert "codr" in problem
    assert "'coder'" in problem


def test_a_sound_policy_has_no_problems() -> None:
    """Agents are compared as they will be stored: trimmed."""
    sound = policy(rules=[rule("tool-call", [" coder "])], auto_approved=["view"], expires_after_s=60.0)

    assert problems(sound, [CODER]) == []


# Normal form


@requirement("POL-2")
def test_scoped_rules_of_a_kind_are_unioned_in_first_seen_order() -> None:
    """And tool-call comes before final-response."""
    rules = [
        rule("final-response", ["b"]),
        rule("tool-call", [" b ", "a"]),
        rule("tool-call", ["a", "c"]),
    ]

    assert normalise(policy(rules=rules)).rules == (rule("tool-call", ["b", "a", "c"]), rule("final-response", ["b"]))


@requirement("POL-2")
def test_an_unscoped_rule_leaves_the_other_kind_alone() -> None:
    """It beats scoped rules of its own kind only."""
    rules = [rule("tool-call", ["a"]), rule("final-response", ["b"]), rule("tool-call")]

    assert normalise(policy(rules=rules)).rules == (rule("tool-call"), rule("final-response", ["b"]))


@requirement("POL-2")
def test_names_are_trimmed_and_kept_once_in_order() -> None:
    """Case counts: an id is compared exactly."""
    names = [ToolId(name) for name in (" view", "glob\n", "", "  ", "view", "View")]

    assert normalise_names(names) == ("view", "glob", "View")


@requirement("POL-2")
def test_rules_are_not_read_as_wider_when_a_blank_agent_slips_through() -> None:
    """Validation refuses it; if it ever comes this far, it still covers nobody but itself."""
    (tidy,) = normalise(policy(rules=[rule("tool-call", [" "])])).rules

    assert tidy.agent_ids


@requirement("POL-3")
def test_a_list_without_a_checkpoint_is_stored() -> None:
    """It has no effect, and is there when a checkpoint comes."""
    mine = policy(rules=[], auto_approved=["view"])

    assert normalise(mine) == mine


@requirement("POL-4")
def test_the_default_policy_asks_about_every_call() -> None:
    """One unscoped tool-call rule, nothing automatic."""
    assert policy(rules=[rule("tool-call")]) == ASK_POLICY


@requirement("POL-4")
def test_explicit_no_rules_survive() -> None:
    """They mean no checkpoints, and stay different from no policy at all."""
    assert msgspec.json.encode(normalise(policy(rules=[]))) == b'{"rules":[]}'
    assert normalise(NO_CHECKPOINTS) == NO_CHECKPOINTS


@requirement("POL-5")
def test_an_empty_list_on_a_pattern_becomes_absent() -> None:
    """There the two mean the same."""
    assert normalise(policy(auto_approved=[])) == policy()
    assert normalise(policy(auto_approved=[" "])) == policy()


# The list in force


@requirement("POL-5")
def test_no_override_inherits_the_patterns_list() -> None:
    """Absence is not a decision."""
    mine = policy(auto_approved=["view"])

    assert effective(mine, None) == effective_policy(auto_approved=["view"], list_from="pattern")


@requirement("POL-5")
def test_empty_override_approves_nothing() -> None:
    """An explicit empty list is a decision, not an absence."""
    mine = policy(auto_approved=["view"])

    assert effective(mine, settings([])) == effective_policy(list_from="session")


@requirement("POL-5")
def test_an_override_replaces_the_list() -> None:
    """Merging would approve what the user just took away."""
    mine = policy(auto_approved=["view", "glob"])

    assert effective(mine, settings(["shell"])) == effective_policy(auto_approved=["shell"], list_from="session")


@requirement("POL-6")
@pytest.mark.parametrize("written", [policy(), policy(auto_approved=[])])
def test_the_effective_policy_always_carries_the_list(written: ApprovalPolicy) -> None:
    """Possibly empty."""
    assert effective(written, None).auto_approved_tool_names == ()
    assert "auto_approved_tool_names" in msgspec.to_builtins(effective(written, None))


@requirement("POL-5")
def test_settings_without_their_list_are_refused() -> None:
    """An object that says nothing is neither inherit nor empty."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({}, ApprovalSettings)
