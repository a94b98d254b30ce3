"""Approval policy by example: shapes, normal form, the list in force, and each reason of a decision."""

from typing import Any, Final

import msgspec
import pytest
from msgspec import UNSET

from eryxd.domain.ids import AgentId, ToolId
from eryxd.domain.policy import (
    ASK_POLICY,
    ASK_POLICY_UNAVAILABLE,
    CORE_INFRASTRUCTURE,
    NO_CHECKPOINTS,
    ApprovalPolicy,
    ApprovalSettings,
    CheckpointKind,
    Decision,
    Grants,
    ListFrom,
    Reason,
    Verdict,
    covering_rule,
    decide_tool_call,
    effective,
    normalise,
    normalise_names,
    problems,
)
from tests.builders import ask, catalog, effective_policy, grants, policy, rule, settings
from tests.requirements import requirement

CODER: Final = AgentId("coder")
KNOWN: Final = grants(providers={"view": ["p"], "shell": ["p"]})
OFFERED: Final = {"view": ["p"], "shell": ["p"]}
INFRASTRUCTURE: Final = frozenset({"report_intent"})


def decide(
    *,
    rules: Any = (rule(),),
    auto_approved: tuple[str, ...] = (),
    list_from: str = "pattern",
    granted: Grants = KNOWN,
    offered: dict[str, list[str]] = OFFERED,
    infrastructure: frozenset[str] = INFRASTRUCTURE,
    **asked: Any,
) -> Decision:
    """Decide a call of `view` by the coder, unless the test says otherwise."""
    mine = effective_policy(rules=rules, auto_approved=auto_approved, list_from=list_from)
    return decide_tool_call(mine, granted, catalog(offered), infrastructure, ask(**asked))


def decision(verdict: str, reason: str, **changes: Any) -> Decision:
    """Return a decision that rests on the first rule, unless the test says otherwise."""
    return Decision(verdict=Verdict(verdict), reason=Reason(reason), **{"rule_index": 0, **changes})


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
    assert decide(rules=(), auto_approved=("view",)).verdict is Verdict.PASS


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


# Reasons


@requirement("POL-7")
def test_without_a_checkpoint_calls_pass() -> None:
    """A final-response rule is not one."""
    expected = decision("pass", "checkpoint-off", rule_index=UNSET)

    assert decide(rules=(rule("final-response"),)) == expected
    assert decide(rules=(rule("tool-call", ["reviewer"]),)) == expected
    assert decide(rules=(), tool=None) == expected


@requirement("POL-7", "POL-10")
def test_a_named_infrastructure_tool_passes() -> None:
    """It only moves the conversation."""
    assert decide(tool="report_intent") == decision("pass", "infrastructure")


@requirement("POL-10")
def test_an_id_that_a_source_offers_is_never_infrastructure() -> None:
    """Else a server could name its tool so and never be asked about."""
    offered = {**OFFERED, "report_intent": ["mcp:odd"]}

    assert decide(tool="report_intent", offered=offered) == decision("ask", "not-listed")


@requirement("POL-10")
@pytest.mark.parametrize("tool", sorted(CORE_INFRASTRUCTURE))
def test_a_core_name_that_the_backend_does_not_name_asks(tool: str) -> None:
    """Both have to say so."""
    assert decide(tool=tool, infrastructure=frozenset()) == decision("ask", "unknown-tool")


@requirement("POL-10")
@pytest.mark.parametrize("tool", ["sql", "task", "bash"])
def test_a_name_of_the_backends_own_making_asks(tool: str) -> None:
    """A descriptor chooses from the core's list; it cannot add to it."""
    assert decide(tool=tool, infrastructure=frozenset({tool})) == decision("ask", "unknown-tool")


@requirement("POL-10")
def test_the_core_names_no_tool_that_reaches_outside_the_conversation() -> None:
    """Files, processes, the network, memory and other sessions are not infrastructure."""
    assert {"sql", "task", "skill", "store_memory", "shell", "bash"}.isdisjoint(CORE_INFRASTRUCTURE)
    assert {"ask_user", "report_intent", "task_complete", "update_todo", "exit_plan_mode"} == CORE_INFRASTRUCTURE


@requirement("POL-7")
@pytest.mark.parametrize("tool", [None, ""])
def test_a_call_without_a_tool_asks(tool: str | None) -> None:
    """What cannot be named cannot be on a list."""
    assert decide(tool=tool, auto_approved=("",)) == decision("ask", "no-tool")


@requirement("POL-7")
@pytest.mark.parametrize("tool", ["gone", "View", " view"])
def test_a_tool_that_nobody_offers_asks_even_when_listed(tool: str) -> None:
    """Ids are compared exactly."""
    assert decide(tool=tool, auto_approved=(tool,)) == decision("ask", "unknown-tool")


@requirement("POL-7")
@pytest.mark.parametrize("source", ["pattern", "session"])
def test_a_listed_tool_is_automatic(source: str) -> None:
    """The decision names the entry and whose list it stands on."""
    expected = decision("auto", f"{source}-list", entry="view", list_from=ListFrom(source))

    assert decide(auto_approved=("glob", "view"), list_from=source) == expected


@requirement("POL-6", "POL-7")
def test_a_remembered_tool_is_automatic() -> None:
    """Remembering put it on the session's list."""
    granted = grants(remembered=["view"], providers={"view": ["p"]})

    assert decide(granted=granted) == decision("auto", "remembered", entry="view", list_from=ListFrom.SESSION)


@requirement("POL-7")
def test_an_unlisted_tool_asks() -> None:
    """A list is no pattern: `view` says nothing of `view_all`."""
    offered = {**OFFERED, "view_all": ["p"]}

    assert decide(tool="view_all", offered=offered, auto_approved=("view",)) == decision("ask", "not-listed")


@requirement("POL-6", "SES-3")
def test_a_revoked_run_asks_before_anything_else_counts() -> None:
    """Also where it had no checkpoint."""
    expected = decision("ask", "revoked", rule_index=UNSET)

    assert decide(rules=(), granted=grants(revoked=True)) == expected
    assert decide(tool="report_intent", granted=grants(revoked=True)) == expected


@requirement("POL-8")
@pytest.mark.parametrize("agent", [None, "", " "])
def test_an_unidentified_agent_asks_under_a_scoped_rule(agent: str | None) -> None:
    """A blank name identifies nobody."""
    expected = decision("ask", "unknown-agent")

    assert decide(rules=(rule("tool-call", ["coder"]),), auto_approved=("view",), agent=agent) == expected


@requirement("POL-8")
def test_an_unidentified_agent_is_as_any_other_under_an_unscoped_rule() -> None:
    """The rule covers it whoever it is."""
    expected = decision("auto", "pattern-list", entry="view", list_from=ListFrom.PATTERN)

    assert decide(auto_approved=("view",), agent=None) == expected


@requirement("POL-2", "POL-8")
def test_an_unscoped_rule_covers_an_unidentified_agent_wherever_it_stands() -> None:
    """It beats the scoped one in any order."""
    rules = (rule("tool-call", ["coder"]), rule("tool-call"))

    assert decide(rules=rules, agent=None) == decision("ask", "not-listed", rule_index=1)


@requirement("POL-8")
def test_a_final_response_of_an_unidentified_agent_is_held() -> None:
    """A scoped final-response rule covers whoever cannot be told from its agents."""
    assert covering_rule([rule("final-response", ["coder"])], CheckpointKind.FINAL_RESPONSE, UNSET) == 0


@requirement("POL-9")
def test_an_unavailable_policy_asks() -> None:
    """It never widens."""
    assert decision("ask", "policy-unavailable", rule_index=UNSET) == ASK_POLICY_UNAVAILABLE


@requirement("POL-11")
def test_a_provider_that_came_later_asks() -> None:
    """The grant was for another one's tool."""
    offered = {"view": ["p", "late"]}

    assert decide(auto_approved=("view",), offered=offered, provider="late") == decision("ask", "new-provider")
    assert decide(auto_approved=("view",), offered=offered, provider="p").verdict is Verdict.AUTO


@requirement("POL-11")
def test_a_call_whose_provider_is_unknown_asks_when_there_are_several() -> None:
    """It might be the later one."""
    both = grants(providers={"view": ["p", "q"]})

    asked = decide(auto_approved=("view",), offered={"view": ["p", "q"]}, granted=both)

    assert asked == decision("ask", "new-provider")


@requirement("POL-11")
def test_an_id_that_nobody_offered_when_it_was_listed_trusts_nobody() -> None:
    """It was kept while its source was away."""
    assert decide(auto_approved=("view",), granted=grants()) == decision("ask", "new-provider")


@requirement("POL-7")
def test_the_words_are_stable() -> None:
    """Clients branch on them, and the store keeps them."""
    assert set(Verdict) == {"pass", "auto", "ask"}
    assert set(Reason) == {
        "checkpoint-off",
        "infrastructure",
        "pattern-list",
        "session-list",
        "remembered",
        "revoked",
        "no-tool",
        "unknown-tool",
        "not-listed",
        "new-provider",
        "unknown-agent",
        "policy-unavailable",
    }
