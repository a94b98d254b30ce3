"""Generators for property tests, all of them.

The alphabets are tiny on purpose: two agents and three tools are enough for every way in which rules, lists and
questions can meet, and they make them meet often.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import UNSET, UnsetType

from eryxd.domain.approval import (
    Approval,
    ApprovalMessage,
    ApprovalStatus,
    Decider,
    Permission,
    PermissionKind,
    Resolution,
)
from eryxd.domain.ids import AgentId, BackendName, CallId, MessageId, ProviderId, ToolId
from eryxd.domain.policy import (
    ApprovalPolicy,
    ApprovalSettings,
    CheckpointKind,
    CheckpointRule,
    Decision,
    EffectivePolicy,
    Grants,
    ListFrom,
    ToolAsk,
    Verdict,
    decide_tool_call,
)
from eryxd.domain.session import Withheld, WithheldKind
from eryxd.domain.tools import RuntimeTool, ToolDefinition, ToolKind
from tests import builders

AGENTS: Final = (AgentId("a"), AgentId("b"))
BYSTANDER: Final = AgentId("c")
"""An agent that no rule names."""

TOOLS: Final = (ToolId("view"), ToolId("edit"), ToolId("update_todo"))
"""The last one bears a name from the core's infrastructure list, and may all the same be offered by a source."""

INFRASTRUCTURE: Final = frozenset({"update_todo", "report_intent"})
PROVIDERS: Final = (ProviderId("p"), ProviderId("q"))

Offers = Mapping[ToolId, tuple[ProviderId, ...]]


def absent() -> SearchStrategy[UnsetType]:
    """An optional field that is not there."""
    return st.just(UNSET)


tool_ids: Final = st.sampled_from(TOOLS)
some_tools: Final = st.lists(tool_ids, unique=True).map(tuple)
tool_sets: Final = st.frozensets(tool_ids)
some_providers: Final = st.sampled_from(((), PROVIDERS[:1], PROVIDERS[1:], PROVIDERS))
scopes: Final = absent() | st.lists(st.sampled_from(AGENTS)).map(tuple)
rules: Final = st.builds(CheckpointRule, kind=st.sampled_from(CheckpointKind), agent_ids=scopes)
policies: Final = st.builds(
    ApprovalPolicy,
    rules=st.lists(rules, max_size=4).map(tuple),
    auto_approved_tool_names=absent() | st.lists(tool_ids).map(tuple),
    expires_after_s=absent() | st.just(60.0),
)
overrides: Final = st.none() | st.builds(ApprovalSettings, auto_approved_tool_names=some_tools)
effective_policies: Final = st.builds(
    EffectivePolicy,
    rules=st.lists(rules, max_size=4).map(tuple),
    auto_approved_tool_names=some_tools,
    list_from=st.sampled_from(ListFrom),
)
offers: Final = st.dictionaries(tool_ids, some_providers)
grants: Final = st.builds(Grants, remembered=some_tools, revoked=st.booleans(), providers=offers)
asks: Final = st.builds(
    ToolAsk,
    agent_id=absent() | st.sampled_from((*AGENTS, BYSTANDER)),
    tool_id=absent() | st.sampled_from((*TOOLS, ToolId("report_intent"), ToolId("elsewhere"))),
    provider=absent() | st.sampled_from(PROVIDERS),
)


class Question(NamedTuple):
    """Everything that a decision looks at."""

    policy: EffectivePolicy
    grants: Grants
    catalog: Offers
    infrastructure: frozenset[str]
    ask: ToolAsk

    def decide(self) -> Decision:
        """Return the decision."""
        return decide_tool_call(*self)


questions: Final = st.builds(
    Question,
    policy=effective_policies,
    grants=grants,
    catalog=offers,
    infrastructure=st.just(INFRASTRUCTURE) | st.just(frozenset()),
    ask=asks,
)


@st.composite
def _likely(draw: st.DrawFn) -> Question:
    """A question whose tool is offered, and listed or remembered, by a provider that probably had it then."""
    tool, agent = draw(tool_ids), draw(absent() | st.sampled_from((*AGENTS, BYSTANDER)))
    named = Grants(remembered=(tool,), providers={tool: draw(st.sampled_from((PROVIDERS, PROVIDERS[:1])))})
    return Question(
        policy=draw(effective_policies),
        grants=named,
        catalog={tool: draw(st.sampled_from((PROVIDERS, PROVIDERS[:1], PROVIDERS[1:])))},
        infrastructure=frozenset(),
        ask=ToolAsk(agent_id=agent, tool_id=tool, provider=draw(absent() | st.sampled_from(PROVIDERS))),
    )


likely_questions: Final = _likely()
auto_questions: Final = likely_questions.filter(lambda question: question.decide().verdict is Verdict.AUTO)

padding: Final = st.sampled_from(("", " ", "\t", "\n"))
padded_tools: Final = st.lists(st.builds("{}{}{}".format, padding, st.just("") | tool_ids, padding)).map(tuple)
untidy_policies: Final = st.builds(
    ApprovalPolicy,
    rules=st.lists(
        st.builds(
            CheckpointRule,
            kind=st.sampled_from(CheckpointKind),
            agent_ids=absent()
            | st.lists(st.builds("{}{}{}".format, padding, st.sampled_from(AGENTS), padding)).map(tuple),
        ),
        max_size=5,
    ).map(tuple),
    auto_approved_tool_names=absent() | padded_tools,
)
"""Policies as a client may write them: outer white space, repeats, blank tool names."""

short_text: Final = st.text(max_size=20)
long_text: Final = st.builds(
    lambda text, times: text * times, st.text(min_size=1, max_size=8), st.sampled_from((1, 500, 60_000))
)
"""Text of every width of UTF-8, often longer than an approval shows."""

plain_values: Final = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | short_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_text, inner, max_size=3),
    max_leaves=6,
)
permissions: Final = st.builds(
    Permission,
    kind=absent() | st.sampled_from(PermissionKind),
    command=absent() | long_text,
    path=absent() | long_text,
    diff=absent() | long_text,
    url=absent() | long_text,
    server=absent() | long_text,
    arguments=absent() | st.dictionaries(short_text, plain_values | long_text, max_size=3),
)
approval_messages: Final = st.builds(
    ApprovalMessage,
    id=st.integers(0, 99).map(lambda number: MessageId(f"m{number}")),
    author_name=short_text,
    content=short_text,
    kind=st.sampled_from(WithheldKind),
)
withheld_rows: Final = st.builds(
    lambda number, content, kind: builders.withheld(f"m{number}", content=content, kind=kind),
    st.integers(0, 99),
    long_text,
    st.sampled_from(WithheldKind),
)
withheld_lists: Final[SearchStrategy[list[Withheld]]] = st.lists(withheld_rows, min_size=1, max_size=6)
deciders: Final = st.builds(Decider, uid=st.integers(0, 2000), pid=st.integers(1, 99_999), client_name=short_text)
tool_approvals: Final[SearchStrategy[Approval]] = st.builds(
    lambda permission, call: builders.approval(permission=permission, call_id=call),
    absent() | permissions,
    absent() | st.just(CallId("call-1")),
)
final_approvals: Final[SearchStrategy[Approval]] = st.builds(
    lambda messages: builders.approval(
        kind=CheckpointKind.FINAL_RESPONSE,
        title="Approve final response from Coder",
        tool_name=None,
        permission=None,
        messages=tuple(messages),
        message_count=len(messages),
    ),
    st.lists(approval_messages, min_size=1, max_size=4),
)
pending_approvals: Final = tool_approvals | final_approvals


class Ending(NamedTuple):
    """One way for an approval to end."""

    status: ApprovalStatus
    resolution: Resolution
    by: Decider | UnsetType
    note: str | UnsetType


approvals_given: Final = st.builds(
    Ending,
    status=st.just(ApprovalStatus.APPROVED),
    resolution=st.sampled_from((Resolution.USER, Resolution.REMEMBERED)),
    by=deciders,
    note=absent() | short_text,
)
rejections: Final = st.builds(
    Ending,
    status=st.just(ApprovalStatus.REJECTED),
    resolution=st.sampled_from([one for one in Resolution if one is not Resolution.REMEMBERED]),
    by=absent() | deciders,
    note=absent() | short_text,
)
endings: Final = approvals_given | rejections

labels: Final = st.sampled_from(("View", "view", "Edit", "ändern"))
descriptions: Final = absent() | st.sampled_from(("Reads a file.", "Writes a file."))
backends: Final = st.lists(st.sampled_from((BackendName("replay"), BackendName("copilot"))), unique=True).map(tuple)


@st.composite
def tool_definitions(draw: st.DrawFn, ids: SearchStrategy[ToolId] = tool_ids) -> ToolDefinition:
    """One contribution to the catalog.  A provider has the same name wherever it appears."""
    offered = draw(st.lists(st.sampled_from(("p", "q", "r")), min_size=1, unique=True))
    return builders.tool(
        draw(ids),
        providers=offered,
        label=draw(labels),
        kind=draw(st.sampled_from([kind for kind in ToolKind if kind is not ToolKind.MIXED])),
        description=draw(descriptions),
        backends=draw(backends),
    )


contributions: Final = st.lists(tool_definitions(), max_size=6)
distinct_definitions: Final = st.lists(tool_definitions(), unique_by=lambda tool: tool.id, max_size=3)
runtime_tools: Final = st.builds(
    RuntimeTool,
    id=st.builds("{}{}{}".format, padding, st.just("") | tool_ids, padding).map(ToolId),
    label=absent() | labels,
    description=descriptions,
)
