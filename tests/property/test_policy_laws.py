"""The laws at the top of `eryxd.domain.policy`, each as a property of generated policies and questions."""

from itertools import permutations
from typing import Any

from hypothesis import given, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.domain.ids import ToolId
from eryxd.domain.policy import (
    ApprovalPolicy,
    ApprovalSettings,
    CheckpointKind,
    CheckpointRule,
    ListFrom,
    Reason,
    Verdict,
    covering_rule,
    effective,
    normalise,
    prune_names,
    prune_policy,
    prune_settings,
)
from tests.requirements import requirement
from tests.strategies import (
    AGENTS,
    BYSTANDER,
    Question,
    auto_questions,
    likely_questions,
    overrides,
    policies,
    questions,
    scopes,
    tool_ids,
    tool_sets,
    untidy_policies,
)


def change(question: Question, **changes: Any) -> Question:
    """Return the question under a policy that differs in the given fields."""
    return question._replace(policy=replace(question.policy, **changes))


@requirement("POL-5")
@given(question=questions, policy=policies)
def test_an_explicit_empty_override_approves_nothing(question: Question, policy: ApprovalPolicy) -> None:
    """Whatever the pattern's list says; only what was remembered since is in the list again (POL-6)."""
    mine = effective(policy, ApprovalSettings(auto_approved_tool_names=()))
    forgetful = replace(question.grants, remembered=())

    decision = question._replace(policy=mine, grants=forgetful).decide()

    assert decision.verdict is not Verdict.AUTO


@requirement("POL-7")
@given(question=auto_questions, name=tool_ids)
def test_adding_a_name_never_turns_auto_into_ask(question: Question, name: ToolId) -> None:
    """A longer list is never a narrower one."""
    longer = (*question.policy.auto_approved_tool_names, name)

    assert change(question, auto_approved_tool_names=longer).decide().verdict is Verdict.AUTO


@requirement("POL-7")
@given(question=questions)
def test_a_tool_outside_the_catalog_is_never_auto(question: Question) -> None:
    """An id that nobody offers is inactive, listed or not."""
    offers = {tool: names for tool, names in question.catalog.items() if tool != question.ask.tool_id}

    assert question._replace(catalog=offers).decide().verdict is not Verdict.AUTO


@requirement("POL-3", "POL-7")
@given(question=questions)
def test_without_a_checkpoint_over_the_agent_the_verdict_is_pass(question: Question) -> None:
    """The list has no say where nobody is asked."""
    held = [one for one in question.policy.rules if one.kind is not CheckpointKind.TOOL_CALL]
    working = replace(question.grants, revoked=False)

    decision = change(question, rules=tuple(held))._replace(grants=working).decide()

    assert (decision.verdict, decision.reason) == (Verdict.PASS, Reason.CHECKPOINT_OFF)


@requirement("POL-6", "SES-3")
@given(question=questions)
def test_a_revoked_run_only_asks(question: Question) -> None:
    """Also where it had no checkpoint, and for tools that only move the conversation."""
    revoked = question._replace(grants=replace(question.grants, revoked=True))

    assert (revoked.decide().verdict, revoked.decide().reason) == (Verdict.ASK, Reason.REVOKED)


@requirement("POL-2")
@given(policy=untidy_policies)
def test_normalising_is_idempotent(policy: ApprovalPolicy) -> None:
    """What is normal stays as it is."""
    once = normalise(policy)

    assert normalise(once) == once


@requirement("POL-2")
@given(question=likely_questions, policy=policies)
def test_normalising_decides_as_the_policy_it_came_from(question: Question, policy: ApprovalPolicy) -> None:
    """Up to the place of a rule: `rule_index` counts into the rules that are in force."""
    raw = question._replace(policy=effective(policy, None)).decide()
    tidy = question._replace(policy=effective(normalise(policy), None)).decide()

    assert replace(tidy, rule_index=UNSET) == replace(raw, rule_index=UNSET)


@requirement("POL-2")
@given(policy=untidy_policies)
def test_normalising_leaves_one_rule_of_a_kind_in_a_fixed_order(policy: ApprovalPolicy) -> None:
    """Tool-call, then final-response; a kind that had no rule gets none, and one that had keeps one."""
    kinds = [one.kind for one in normalise(policy).rules]

    assert kinds == [kind for kind in CheckpointKind if any(one.kind is kind for one in policy.rules)]


@requirement("POL-2")
@given(scoped=st.lists(scopes, max_size=3))
def test_an_unscoped_rule_beats_scoped_ones_in_any_order(scoped: list[Any]) -> None:
    """One rule for everybody is what is left, wherever it stood."""
    wide = CheckpointRule(kind=CheckpointKind.TOOL_CALL)
    narrow = [CheckpointRule(kind=CheckpointKind.TOOL_CALL, agent_ids=scope) for scope in scoped]

    outcomes = {normalise(ApprovalPolicy(rules=order)).rules for order in permutations([wide, *narrow])}

    assert outcomes == {(wide,)}


@requirement("POL-2")
@given(policy=policies)
def test_normalising_covers_the_same_agents(policy: ApprovalPolicy) -> None:
    """Scoped rules of one kind become their union."""
    tidy = normalise(policy).rules

    for kind in CheckpointKind:
        for agent in (*AGENTS, BYSTANDER, UNSET):
            before, now = covering_rule(policy.rules, kind, agent), covering_rule(tidy, kind, agent)
            assert (now is None) == (before is None)


@requirement("POL-3")
@given(policy=untidy_policies)
def test_normalising_keeps_a_list_that_has_no_effect(policy: ApprovalPolicy) -> None:
    """The list does not depend on the rules."""
    without = normalise(replace(policy, rules=()))

    assert without.auto_approved_tool_names == normalise(policy).auto_approved_tool_names


@requirement("POL-8")
@given(question=questions)
def test_an_unidentified_agent_is_never_waved_through_by_scoped_rules(question: Question) -> None:
    """It might be the one that is named."""
    scoped = CheckpointRule(kind=CheckpointKind.TOOL_CALL, agent_ids=AGENTS[:1])
    nobody = question._replace(ask=replace(question.ask, agent_id=UNSET))

    assert change(nobody, rules=(scoped,)).decide().verdict is Verdict.ASK


@requirement("POL-11")
@given(question=auto_questions)
def test_auto_means_that_the_provider_offered_it_when_it_was_listed(question: Question) -> None:
    """A provider that came later, or that nobody can name, does not inherit a grant."""
    tool, provider = question.ask.tool_id, question.ask.provider
    assert tool is not UNSET
    runs_on = question.catalog[tool] if provider is UNSET else (provider,)

    assert len(runs_on) == 1
    assert runs_on[0] in question.grants.providers[tool]


@requirement("POL-5")
@given(policy=policies, settings=overrides)
def test_the_override_replaces_the_list_and_never_touches_the_rules(
    policy: ApprovalPolicy, settings: ApprovalSettings | None
) -> None:
    """Nothing is merged."""
    mine = effective(policy, settings)
    source = policy if settings is None else settings

    assert mine.rules == policy.rules
    assert mine.auto_approved_tool_names == (source.auto_approved_tool_names or ())
    assert mine.list_from is (ListFrom.PATTERN if settings is None else ListFrom.SESSION)


@requirement("PRN-4")
@given(policy=policies, settings=overrides, gone=tool_sets)
def test_pruning_is_idempotent(
    policy: ApprovalPolicy, settings: ApprovalSettings | None, gone: frozenset[ToolId]
) -> None:
    """What is gone is gone."""
    once = prune_policy(policy, gone)

    assert prune_policy(once, gone) == once
    if settings is not None:
        mine = prune_settings(settings, gone)
        assert prune_settings(mine, gone) == mine


@requirement("PRN-4")
@given(policy=policies, gone=tool_sets)
def test_pruning_keeps_rules(policy: ApprovalPolicy, gone: frozenset[ToolId]) -> None:
    """Only the list gets shorter."""
    pruned = prune_policy(policy, gone)

    assert replace(pruned, auto_approved_tool_names=UNSET) == replace(policy, auto_approved_tool_names=UNSET)


@requirement("PRN-4")
@given(settings=overrides, policy=policies, gone=tool_sets)
def test_pruning_never_turns_inherit_into_explicit_or_back(
    settings: ApprovalSettings | None, policy: ApprovalPolicy, gone: frozenset[ToolId]
) -> None:
    """An override that becomes empty is still an override, and inheriting is still inheriting."""
    pruned = None if settings is None else prune_settings(settings, gone)

    assert effective(prune_policy(policy, gone), pruned).list_from is effective(policy, settings).list_from


@requirement("PRN-4")
@given(policy=policies, settings=overrides, gone=tool_sets)
def test_pruning_commutes_with_effective(
    policy: ApprovalPolicy, settings: ApprovalSettings | None, gone: frozenset[ToolId]
) -> None:
    """Pruning what is stored or what is in force comes to the same."""
    whole = effective(policy, settings)
    pruned = None if settings is None else prune_settings(settings, gone)

    assert effective(prune_policy(policy, gone), pruned) == replace(
        whole, auto_approved_tool_names=prune_names(whole.auto_approved_tool_names, gone)
    )
