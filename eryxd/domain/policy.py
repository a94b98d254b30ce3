"""Approval policy: what needs a person, and what a decision about one tool call is.

Laws (each has a property test, and the small state space is enumerated whole):

- an explicit empty override approves nothing;
- adding a name to the list never turns `auto` into `ask`;
- a tool that is not in the catalog is never `auto`;
- without a checkpoint over the agent the verdict is `pass`, whatever the list;
- a revoked run only asks;
- normalising is idempotent, and decides as the policy it came from;
- pruning is idempotent, keeps rules, never turns *inherit* into *explicit* or back, and commutes with `effective`.

Source: POL-1 to POL-11.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from eryxd.domain.ids import AgentId, ProviderId, Record, ToolId

MAX_AGENTS: Final = 64
"""Agents of a pattern, rules of a policy, and agents of a rule.  A team that a person can follow has a handful."""

MAX_TOOL_NAMES: Final = 4096
"""Ids on one list.  Twenty MCP servers offer some hundreds."""

ToolNames = Annotated[tuple[ToolId, ...], Meta(max_length=MAX_TOOL_NAMES)]
"""An auto-approve list."""


class CheckpointKind(StrEnum):
    """A place where a person decides."""

    TOOL_CALL = "tool-call"
    FINAL_RESPONSE = "final-response"


class CheckpointRule(Record, frozen=True, kw_only=True):
    """One checkpoint; without `agent_ids`, or with an empty list, it covers every agent."""

    kind: CheckpointKind
    agent_ids: Annotated[tuple[AgentId, ...], Meta(max_length=MAX_AGENTS)] | UnsetType = UNSET


class ApprovalPolicy(Record, frozen=True, kw_only=True):
    """A pattern's policy.  `rules` is required: an object without it is refused, never read as empty."""

    rules: Annotated[tuple[CheckpointRule, ...], Meta(max_length=MAX_AGENTS)]
    auto_approved_tool_names: ToolNames | UnsetType = UNSET
    expires_after_s: float | UnsetType = UNSET


class ApprovalSettings(Record, frozen=True, kw_only=True):
    """A session's override of the list.  Empty is a decision: approve nothing by itself."""

    auto_approved_tool_names: ToolNames


class ListFrom(StrEnum):
    """Whose list is in force."""

    PATTERN = "pattern"
    SESSION = "session"


class EffectivePolicy(Record, frozen=True, kw_only=True):
    """What a run obeys: the pattern's rules and the list in force, always present."""

    rules: tuple[CheckpointRule, ...]
    auto_approved_tool_names: tuple[ToolId, ...]
    list_from: ListFrom
    expires_after_s: float | UnsetType = UNSET
    is_unavailable: bool = False
    """The policy could not be read: everything asks, and says so (POL-9)."""


class Verdict(StrEnum):
    """`pass`: no checkpoint looks at it.  `auto`: the list names it.  `ask`: a person decides."""

    PASS = "pass"
    AUTO = "auto"
    ASK = "ask"


class Reason(StrEnum):
    """Why a decision came out as it did.  The words are stable."""

    CHECKPOINT_OFF = "checkpoint-off"
    INFRASTRUCTURE = "infrastructure"
    PATTERN_LIST = "pattern-list"
    SESSION_LIST = "session-list"
    REMEMBERED = "remembered"
    REVOKED = "revoked"
    NO_TOOL = "no-tool"
    UNKNOWN_TOOL = "unknown-tool"
    NOT_LISTED = "not-listed"
    NEW_PROVIDER = "new-provider"
    UNKNOWN_AGENT = "unknown-agent"
    POLICY_UNAVAILABLE = "policy-unavailable"


class Decision(Record, frozen=True, kw_only=True):
    """The answer about one tool call, with what it rests on.

    `rule_index` counts into the effective rules; `entry` is the list entry that matched.
    """

    verdict: Verdict
    reason: Reason
    rule_index: int | UnsetType = UNSET
    entry: ToolId | UnsetType = UNSET
    list_from: ListFrom | UnsetType = UNSET


ASK_REVOKED: Final = Decision(verdict=Verdict.ASK, reason=Reason.REVOKED)
ASK_POLICY_UNAVAILABLE: Final = Decision(verdict=Verdict.ASK, reason=Reason.POLICY_UNAVAILABLE)
PASS_CHECKPOINT_OFF: Final = Decision(verdict=Verdict.PASS, reason=Reason.CHECKPOINT_OFF)

MAX_HINTS: Final = 8
"""How many unknown ids are compared with the known ones for what may have been meant."""

CORE_INFRASTRUCTURE: Final = frozenset({"ask_user", "report_intent", "task_complete", "update_todo", "exit_plan_mode"})
"""Tools that only move the conversation.  They count as such only where the backend's descriptor names them."""

ASK_POLICY: Final = ApprovalPolicy(rules=(CheckpointRule(kind=CheckpointKind.TOOL_CALL),))
"""The configured default `ask`: every tool call of every agent."""

UNAVAILABLE: Final = EffectivePolicy(
    rules=tuple(CheckpointRule(kind=kind) for kind in CheckpointKind),
    auto_approved_tool_names=(),
    list_from=ListFrom.PATTERN,
    is_unavailable=True,
)
"""What stands in for a policy that is missing: every call asks, no list counts, and what is said is held back."""

NO_CHECKPOINTS: Final = ApprovalPolicy(rules=())
"""The configured default `none`, and a pattern's explicit `rules: []`."""


class ToolAsk(Record, frozen=True, kw_only=True):
    """Which tool wants to run, for whom: all that a decision looks at.

    `provider` is absent where the backend cannot say who would run the call.
    """

    agent_id: AgentId | UnsetType = UNSET
    tool_id: ToolId | UnsetType = UNSET
    provider: ProviderId | UnsetType = UNSET


class Grants(Record, frozen=True, kw_only=True):
    """What changes a running run's frozen policy (POL-6), and the providers known when each id was listed (POL-11)."""

    remembered: tuple[ToolId, ...] = ()
    revoked: bool = False
    providers: dict[ToolId, tuple[ProviderId, ...]] = {}


def normalise(policy: ApprovalPolicy) -> ApprovalPolicy:
    """Return the canonical form: an unscoped rule beats scoped ones, scoped ones are unioned.

    Rules come out as tool-call, then final-response; names are trimmed and de-duplicated in order.  An empty
    list becomes absent: on a pattern the two mean the same.

    Source: POL-2, POL-5.
    """
    rules = tuple(rule for kind in CheckpointKind if (rule := _merge(kind, policy.rules)) is not None)
    names = normalise_names(policy.auto_approved_tool_names or ())
    return replace(policy, rules=rules, auto_approved_tool_names=names or UNSET)


def normalise_names(names: Iterable[ToolId]) -> tuple[ToolId, ...]:
    """Trim, drop blanks and repeats, keep first-seen order."""
    trimmed = (ToolId(name.strip()) for name in names)
    return tuple(dict.fromkeys(name for name in trimmed if name))


def _merge(kind: CheckpointKind, rules: Iterable[CheckpointRule]) -> CheckpointRule | None:
    same = [rule for rule in rules if rule.kind is kind]
    if not same:
        return None
    if any(not rule.agent_ids for rule in same):
        return CheckpointRule(kind=kind)
    agents = (AgentId(agent.strip()) for rule in same for agent in rule.agent_ids or ())
    return CheckpointRule(kind=kind, agent_ids=tuple(dict.fromkeys(agents)))


def problems(policy: ApprovalPolicy, agents: Collection[AgentId]) -> list[str]:
    """Name everything that makes a policy unfit to store, all at once.

    A blank agent id is refused rather than dropped: without it the rule would cover every agent.

    Source: POL-1, VAL-1.
    """
    found = []
    for index, rule in enumerate(policy.rules):
        for agent in rule.agent_ids or ():
            where = f"approval_policy.rules[{index}].agent_ids"
            if not agent.strip():
                found.append(f"{where}: an agent id is blank")
            elif agent.strip() not in agents:
                # A comparison with every agent: only for as many as a person reads.
                near = get_close_matches(agent.strip(), agents, n=1) if len(found) < MAX_HINTS else []
                hint = f"; did you mean {near[0]!r}?" if near else ""
                found.append(f"{where}: there is no agent {agent!r} in this pattern{hint}")
    expires = policy.expires_after_s
    if expires is not UNSET and not 0 < expires < float("inf"):
        found.append("approval_policy.expires_after_s: must be more than 0 seconds")
    return found


def effective(policy: ApprovalPolicy, settings: ApprovalSettings | None) -> EffectivePolicy:
    """Return the policy a run must obey.

    `None` inherits the pattern's list; an override, even an empty one, replaces it.  The rules are never touched.

    Source: POL-5, POL-6.  Total: raises nothing.
    """
    # Take the override as it is: merging would approve tools that the user just removed.
    names = policy.auto_approved_tool_names or () if settings is None else settings.auto_approved_tool_names
    return EffectivePolicy(
        rules=policy.rules,
        auto_approved_tool_names=names,
        list_from=ListFrom.PATTERN if settings is None else ListFrom.SESSION,
        expires_after_s=policy.expires_after_s,
    )


def covering_rule(rules: Iterable[CheckpointRule], kind: CheckpointKind, agent: AgentId | UnsetType) -> int | None:
    """Return the index of the first rule of that kind that covers the agent, None when no checkpoint does.

    An agent that cannot be identified is covered by every scoped rule (POL-8): it might be the one named.
    """
    found = None
    for index, rule in enumerate(rules):
        if rule.kind is not kind:
            continue
        if not rule.agent_ids:
            return index
        if found is None and (unidentified(agent) or agent in rule.agent_ids):
            found = index
    return found


def unidentified(agent: AgentId | UnsetType) -> bool:
    """Say whether nobody can tell which agent this is."""
    return agent is UNSET or not agent.strip()


def decide_tool_call(
    policy: EffectivePolicy,
    grants: Grants,
    catalog: Mapping[ToolId, Collection[ProviderId]],
    infrastructure: Set[str],
    ask: ToolAsk,
) -> Decision:
    """Decide one tool call; the first match wins.

    `catalog` maps each tool id that exists now to its providers; `infrastructure` holds the ids that the
    backend's descriptor names as only moving the conversation.

    Source: POL-7, POL-8, POL-10, POL-11.  Total: raises nothing.
    """
    if grants.revoked:
        return ASK_REVOKED
    if policy.is_unavailable:
        return ASK_POLICY_UNAVAILABLE
    index = covering_rule(policy.rules, CheckpointKind.TOOL_CALL, ask.agent_id)
    if index is None:
        return PASS_CHECKPOINT_OFF
    if unidentified(ask.agent_id) and policy.rules[index].agent_ids:
        return _ask(Reason.UNKNOWN_AGENT, index)
    if ask.tool_id is UNSET or not ask.tool_id:
        return _ask(Reason.NO_TOOL, index)
    if ask.tool_id in infrastructure & CORE_INFRASTRUCTURE and ask.tool_id not in catalog:
        return Decision(verdict=Verdict.PASS, reason=Reason.INFRASTRUCTURE, rule_index=index)
    if ask.tool_id not in catalog:
        return _ask(Reason.UNKNOWN_TOOL, index)
    return _decide_listed(policy, grants, catalog[ask.tool_id], ask.tool_id, ask.provider, index)


def _decide_listed(
    policy: EffectivePolicy,
    grants: Grants,
    offered: Collection[ProviderId],
    tool: ToolId,
    provider: ProviderId | UnsetType,
    index: int,
) -> Decision:
    if tool in policy.auto_approved_tool_names:
        reason = Reason.PATTERN_LIST if policy.list_from is ListFrom.PATTERN else Reason.SESSION_LIST
    elif tool in grants.remembered:
        reason = Reason.REMEMBERED
    else:
        return _ask(Reason.NOT_LISTED, index)
    if not _known_provider(grants.providers.get(tool), offered, provider):
        return _ask(Reason.NEW_PROVIDER, index)
    # What is remembered went into the session's list.
    origin = ListFrom.SESSION if reason is Reason.REMEMBERED else policy.list_from
    return Decision(verdict=Verdict.AUTO, reason=reason, rule_index=index, entry=tool, list_from=origin)


def _known_provider(
    recorded: Collection[ProviderId] | None, offered: Collection[ProviderId], provider: ProviderId | UnsetType
) -> bool:
    """Say whether the call would run on a provider that offered the id when it was listed (POL-11)."""
    if provider is UNSET:
        if len(offered) != 1:
            return False
        (provider,) = offered
    # An id that was kept while its source was down has no record of who offered it, and so nobody to trust.
    return recorded is not None and provider in recorded and provider in offered


def _ask(reason: Reason, index: int) -> Decision:
    return Decision(verdict=Verdict.ASK, reason=reason, rule_index=index)


def prune_names(names: tuple[ToolId, ...], gone: Set[ToolId]) -> tuple[ToolId, ...]:
    """Drop the ids that no longer exist; order is kept."""
    return tuple(name for name in names if name not in gone)


def prune_policy(policy: ApprovalPolicy, gone: Set[ToolId]) -> ApprovalPolicy:
    """Drop ids from a pattern's list; the rules stay."""
    return replace(policy, auto_approved_tool_names=prune_names(policy.auto_approved_tool_names or (), gone) or UNSET)


def prune_settings(settings: ApprovalSettings, gone: Set[ToolId]) -> ApprovalSettings:
    """Drop ids from a session's list; an override that becomes empty stays an explicit override (PRN-4)."""
    return ApprovalSettings(auto_approved_tool_names=prune_names(settings.auto_approved_tool_names, gone))
