"""Decisions about one tool call by example: each reason, and what it wins against."""

from typing import Any, Final

import pytest
from msgspec import UNSET

from eryxd.domain.policy import (
    ASK_POLICY_UNAVAILABLE,
    CORE_INFRASTRUCTURE,
    CheckpointKind,
    Decision,
    Grants,
    ListFrom,
    Reason,
    Verdict,
    covering_rule,
    decide_tool_call,
)
from tests.builders import EVERY_CALL, ask, catalog, effective_policy, grants, rule
from tests.requirements import requirement

KNOWN: Final = grants(providers={"view": ["p"], "shell": ["p"]})
OFFERED: Final = {"view": ["p"], "shell": ["p"]}
INFRASTRUCTURE: Final = frozenset({"report_intent"})


def decide(
    *,
    rules: Any = EVERY_CALL,
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
