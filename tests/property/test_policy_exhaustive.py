"""Every policy of two agents and three tools with an optional override, decided and compared with a second opinion.

The whole product has some ten thousand million cases, so it is cut where one function's answer is all that the
next one sees, and each part is enumerated without sampling:

1. every set of rules, in both orders, is normalised: it comes out as one of 25 canonical ones, for everybody alike;
2. every pattern list with every override gives one of 16 lists in force, whatever the rules;
3. the 25 canonical rules x 16 lists x 8 remembered sets x 8 catalogs x 24 questions are decided, running and revoked;
4. who offers an id now, who did when it was listed, and who would run it, are combined for one tool;
5. every list and override is pruned of every set of tools.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations, product
from typing import Final, NamedTuple, TypeVar

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.domain.ids import AgentId, ProviderId, ToolId
from eryxd.domain.policy import (
    ApprovalPolicy,
    ApprovalSettings,
    CheckpointKind,
    CheckpointRule,
    Decision,
    EffectivePolicy,
    Grants,
    ListFrom,
    Reason,
    ToolAsk,
    Verdict,
    covering_rule,
    decide_tool_call,
    effective,
    normalise,
    prune_names,
    prune_policy,
    prune_settings,
)
from tests.requirements import requirement
from tests.strategies import AGENTS, BYSTANDER, INFRASTRUCTURE, TOOLS

T = TypeVar("T")


def subsets(items: Iterable[T]) -> list[tuple[T, ...]]:
    """Return every subset, the empty one first, each in the order of the items."""
    found = tuple(items)
    return [chosen for size in range(len(found) + 1) for chosen in combinations(found, size)]


TOOL_CALL: Final = CheckpointKind.TOOL_CALL
A, B = AGENTS
AGENT_IDS: Final[tuple[AgentId | UnsetType, ...]] = (UNSET, A, B, BYSTANDER)
TOOL_IDS: Final[tuple[ToolId | UnsetType, ...]] = (UNSET, *TOOLS, ToolId("report_intent"), ToolId("elsewhere"))
LISTS: Final = subsets(TOOLS)
PATTERN_LISTS: Final[tuple[tuple[ToolId, ...] | UnsetType, ...]] = (UNSET, *LISTS)
OVERRIDES: Final = (None, *(ApprovalSettings(auto_approved_tool_names=names) for names in LISTS))
PROVIDER: Final[tuple[ProviderId, ...]] = (ProviderId("p"),)
KNOWN: Final = dict.fromkeys(TOOLS, PROVIDER)

Scope = tuple[AgentId, ...] | UnsetType | None
"""Whom a checkpoint covers: None where there is none, absent or empty for everybody."""

WRITTEN_SCOPES: Final[tuple[tuple[AgentId, ...] | UnsetType, ...]] = (UNSET, (), (A,), (B,), (A, B))
CANONICAL_SCOPES: Final[tuple[Scope, ...]] = (None, UNSET, (A,), (B,), (A, B))
WRITTEN_RULES: Final = [
    CheckpointRule(kind=kind, agent_ids=scope) for kind, scope in product(CheckpointKind, WRITTEN_SCOPES)
]


def canonical_rules(scopes: tuple[Scope, Scope]) -> tuple[CheckpointRule, ...]:
    """Return the rules of a tool-call and of a final-response checkpoint."""
    both = zip(CheckpointKind, scopes, strict=True)
    return tuple(CheckpointRule(kind=kind, agent_ids=scope) for kind, scope in both if scope is not None)


CANONICAL: Final = [canonical_rules((calls, answers)) for calls, answers in product(CANONICAL_SCOPES, repeat=2)]


def written_policies() -> Iterator[tuple[CheckpointRule, ...]]:
    """Yield each set of rules in two orders."""
    for rules in subsets(WRITTEN_RULES):
        yield rules
        yield rules[::-1]


def covered(rules: Iterable[CheckpointRule], kind: CheckpointKind) -> frozenset[AgentId | UnsetType]:
    """Say with sets whom a kind of checkpoint covers (POL-1, POL-8): the second opinion on `covering_rule`."""
    everybody: frozenset[AgentId | UnsetType] = frozenset(AGENT_IDS)
    scopes = [frozenset(rule.agent_ids or ()) for rule in rules if rule.kind is kind]
    if not scopes:
        return frozenset()
    if frozenset() in scopes:
        return everybody
    return frozenset({UNSET}).union(*scopes)


class Case(NamedTuple):
    """One question in one state, with canonical rules."""

    rules: tuple[CheckpointRule, ...]
    names: tuple[ToolId, ...]
    list_from: ListFrom
    remembered: tuple[ToolId, ...]
    revoked: bool
    catalog: Mapping[ToolId, tuple[ProviderId, ...]]
    infrastructure: frozenset[str]
    agent: AgentId | UnsetType
    tool: ToolId | UnsetType


@cache
def outcome(
    verdict: Verdict,
    reason: Reason,
    rule: int | UnsetType = UNSET,
    entry: ToolId | UnsetType = UNSET,
    source: ListFrom | UnsetType = UNSET,
) -> Decision:
    """Return a decision; there are few, and making each of a million anew would cost more than the test."""
    return Decision(verdict=verdict, reason=reason, rule_index=rule, entry=entry, list_from=source)


def second_opinion(case: Case) -> Decision:
    """Decide straight from the text of POL-7, POL-8 and POL-10: a table of conditions, the first that holds wins."""
    scope = next((rule.agent_ids or () for rule in case.rules if rule.kind is TOOL_CALL), None)
    tool, index = case.tool, 0
    source = case.list_from
    listed = Reason.PATTERN_LIST if source is ListFrom.PATTERN else Reason.SESSION_LIST
    table = (
        (case.revoked, (Verdict.ASK, Reason.REVOKED)),
        (scope is None, (Verdict.PASS, Reason.CHECKPOINT_OFF)),
        (scope and case.agent is UNSET, (Verdict.ASK, Reason.UNKNOWN_AGENT, index)),
        (scope and case.agent not in scope, (Verdict.PASS, Reason.CHECKPOINT_OFF)),
        (
            tool in case.infrastructure and tool not in case.catalog,
            (Verdict.PASS, Reason.INFRASTRUCTURE, index),
        ),
        (tool is UNSET, (Verdict.ASK, Reason.NO_TOOL, index)),
        (tool not in case.catalog, (Verdict.ASK, Reason.UNKNOWN_TOOL, index)),
        (tool in case.names, (Verdict.AUTO, listed, index, tool, source)),
        (tool in case.remembered, (Verdict.AUTO, Reason.REMEMBERED, index, tool, ListFrom.SESSION)),
        (True, (Verdict.ASK, Reason.NOT_LISTED, index)),
    )
    return outcome(*next(answer for holds, answer in table if holds))


def decide(case: Case) -> Decision:
    """Ask the domain.  Every tool is offered by the one provider that offered it when it was listed."""
    policy = EffectivePolicy(rules=case.rules, auto_approved_tool_names=case.names, list_from=case.list_from)
    granted = Grants(remembered=case.remembered, revoked=case.revoked, providers=KNOWN)
    asked = ToolAsk(agent_id=case.agent, tool_id=case.tool)
    return decide_tool_call(policy, granted, case.catalog, case.infrastructure, asked)


# 1. Rules


@requirement("POL-2")
def test_every_set_of_rules_normalises_to_a_canonical_one_that_covers_the_same() -> None:
    """Which is why the other parts need no more than the canonical ones."""
    for rules in written_policies():
        tidy = normalise(ApprovalPolicy(rules=rules)).rules

        assert {rule.agent_ids for rule in tidy} <= {UNSET, (A,), (B,), (A, B), (B, A)}
        assert normalise(ApprovalPolicy(rules=tidy)).rules == tidy
        for kind in CheckpointKind:
            assert covered(tidy, kind) == covered(rules, kind)


@requirement("POL-1", "POL-8")
def test_every_set_of_rules_covers_whom_it_should() -> None:
    """A rule without agents covers all; one with agents covers those, and whoever cannot be identified."""
    for rules in written_policies():
        for kind, agent in product(CheckpointKind, AGENT_IDS):
            index = covering_rule(rules, kind, agent)

            assert (index is not None) == (agent in covered(rules, kind))
            assert index is None or rules[index].kind is kind


@requirement("POL-2", "POL-8")
@pytest.mark.parametrize("names", [(), TOOLS[:1]], ids=["empty", "listed"])
def test_every_set_of_rules_decides_as_its_normal_form(names: tuple[ToolId, ...]) -> None:
    """Up to the place of the rule, which counts into the rules in force."""
    granted = Grants(providers=KNOWN)
    for rules, agent in product(written_policies(), AGENT_IDS):
        asked = ToolAsk(agent_id=agent, tool_id=TOOLS[0])
        written = ApprovalPolicy(rules=rules, auto_approved_tool_names=names)
        raw, tidy = (
            decide_tool_call(effective(policy, None), granted, KNOWN, frozenset(), asked)
            for policy in (written, normalise(written))
        )

        assert replace(raw, rule_index=UNSET) == replace(tidy, rule_index=UNSET), (rules, agent)


# 2. The list in force


@requirement("POL-5", "POL-6")
def test_every_list_with_every_override_is_in_force_as_it_should() -> None:
    """The override, even an empty one, else the pattern's; absent and empty mean the same on a pattern."""
    for rules, names, settings in product(CANONICAL, PATTERN_LISTS, OVERRIDES):
        mine = effective(ApprovalPolicy(rules=rules, auto_approved_tool_names=names), settings)
        expected = (
            (names or (), ListFrom.PATTERN)
            if settings is None
            else (settings.auto_approved_tool_names, ListFrom.SESSION)
        )

        assert (mine.auto_approved_tool_names, mine.list_from) == expected
        assert mine.rules == rules


# 3. Decisions


def decisions(scope: Scope, revoked: bool) -> Iterator[tuple[Case, Decision]]:
    """Decide every question under the policies whose tool-call checkpoint has one scope."""
    catalogs = [dict.fromkeys(tools, PROVIDER) for tools in LISTS]
    policies = [canonical_rules((scope, answers)) for answers in CANONICAL_SCOPES]
    states = product(policies, LISTS, ListFrom, LISTS, (revoked,), catalogs, (INFRASTRUCTURE,), AGENT_IDS, TOOL_IDS)
    for state in states:
        case = Case(*state)
        yield case, decide(case)


SCOPES: Final = pytest.mark.parametrize("scope", CANONICAL_SCOPES, ids=["none", "all", "a", "b", "ab"])


@requirement("POL-7", "POL-8", "POL-10")
@SCOPES
def test_every_decision_is_as_the_rules_say(scope: Scope) -> None:
    """Word for word: verdict, reason, rule, entry and whose list."""
    for case, decision in decisions(scope, revoked=False):
        assert decision == second_opinion(case), case


@requirement("POL-6", "SES-3")
@SCOPES
def test_every_decision_of_a_revoked_run_asks(scope: Scope) -> None:
    """Whatever the rules, the list and the tool."""
    expected = outcome(Verdict.ASK, Reason.REVOKED)
    assert all(decision == expected for _, decision in decisions(scope, revoked=True))


@requirement("POL-5", "POL-7")
@SCOPES
def test_every_law_of_decisions_holds_everywhere(scope: Scope) -> None:
    """An empty list grants nothing, outside the catalog nothing is automatic, without a checkpoint all passes,
    and what is automatic stays so when the list grows.
    """
    automatic: dict[tuple[object, ...], set[frozenset[ToolId]]] = {}
    for case, decision in decisions(scope, revoked=False):
        if scope is None:
            assert decision.verdict is Verdict.PASS, case
        if decision.verdict is Verdict.AUTO:
            assert case.names or case.remembered, case
            assert case.tool in case.catalog, case
            # A catalog is a dict, and so stands here by the tools that it offers.
            rest = (case.rules, case.list_from, case.remembered, tuple(case.catalog), case.agent, case.tool)
            automatic.setdefault(rest, set()).add(frozenset(case.names))

    for state, lists in automatic.items():
        for names, tool in product(lists, TOOLS):
            assert names | {tool} in lists, (state, names, tool)


@requirement("POL-10")
def test_every_infrastructure_tool_asks_where_the_backend_does_not_name_it() -> None:
    """The core's own list alone excuses nothing."""
    catalogs = [dict.fromkeys(tools, PROVIDER) for tools in LISTS]
    states = product(CANONICAL, LISTS, ListFrom, ((),), (False,), catalogs, (frozenset[str](),), AGENT_IDS, TOOL_IDS)
    for state in states:
        case = Case(*state)

        assert decide(case) == second_opinion(case), case


# 4. Providers

P, Q = ProviderId("p"), ProviderId("q")
OFFERS: Final[tuple[tuple[ProviderId, ...], ...]] = ((), (P,), (Q,), (P, Q))


@requirement("POL-11")
@pytest.mark.parametrize("source", ["pattern-list", "session-list", "remembered"])
def test_every_grant_holds_for_the_providers_that_were_there_when_it_was_given(source: str) -> None:
    """A later one asks, and so does one that nobody can tell from the others."""
    tool = TOOLS[0]
    policy = EffectivePolicy(
        rules=(CheckpointRule(kind=TOOL_CALL),),
        auto_approved_tool_names=() if source == "remembered" else (tool,),
        list_from=ListFrom.SESSION if source == "session-list" else ListFrom.PATTERN,
    )
    for now, then in product(OFFERS, (None, *OFFERS)):
        callers: tuple[ProviderId | UnsetType, ...] = (UNSET, *now)
        for runs_on in callers:
            recorded = {} if then is None else {tool: then}
            granted = Grants(remembered=(tool,) if source == "remembered" else (), providers=recorded)
            asked = ToolAsk(agent_id=A, tool_id=tool, provider=runs_on)
            decision = decide_tool_call(policy, granted, {tool: now}, frozenset(), asked)

            candidates = set(now) if runs_on is UNSET else {runs_on}
            trusted = len(candidates) == 1 and candidates <= set(then or ())
            assert decision.verdict is (Verdict.AUTO if trusted else Verdict.ASK), (now, then, runs_on)
            assert decision.reason == (source if trusted else "new-provider")


# 5. Pruning


@requirement("PRN-4")
def test_every_pruning_keeps_the_laws() -> None:
    """Idempotent, rules kept, inherit stays inherit, empty stays explicit, and it commutes with `effective`."""
    for rules, names, settings, gone in product(CANONICAL, PATTERN_LISTS, OVERRIDES, map(frozenset, LISTS)):
        policy = ApprovalPolicy(rules=rules, auto_approved_tool_names=names)
        pruned = prune_policy(policy, gone)
        mine = None if settings is None else prune_settings(settings, gone)

        assert prune_policy(pruned, gone) == pruned
        assert mine is None or prune_settings(mine, gone) == mine
        assert pruned.rules == rules
        assert (mine is None) == (settings is None)
        whole = effective(policy, settings)
        kept = prune_names(whole.auto_approved_tool_names, gone)
        assert effective(pruned, mine) == replace(whole, auto_approved_tool_names=kept)
        assert set(kept) == set(whole.auto_approved_tool_names) - gone
