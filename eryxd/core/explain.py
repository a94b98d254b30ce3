"""What every tool would meet for every agent, told before anything runs.

Law: the decision told for a tool, an agent and a provider is the one that a run started now would get.

Source: POL-7, POL-11, PRN-2.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec import UNSET

from eryxd.api import replies as out, requests as ask, tool_replies as told
from eryxd.core.change import Tx
from eryxd.core.lists import offers_of
from eryxd.core.patterns import from_draft
from eryxd.core.views import effective_policy
from eryxd.domain.catalog import SourceStatus
from eryxd.domain.errors import Invalid
from eryxd.domain.ids import PatternId, ProviderId, SessionId, Timestamp, ToolId
from eryxd.domain.pattern import Agent, Pattern
from eryxd.domain.policy import Grants, ToolAsk, decide_tool_call
from eryxd.domain.session import ListOwner, SessionHead, SessionStatus, TitleSource

Infrastructure = Callable[[Agent], frozenset[str]]


class Question(NamedTuple):
    """What to explain, and which tools only move the conversation on an agent's backend."""

    request: ask.ToolsExplain
    infrastructure: Infrastructure


def explain(tx: Tx, question: Question) -> told.Explanation:
    """Decide every tool of the catalog for every agent.

    Raises: NotFound; Invalid -- nothing, or a pattern beside a draft, was named.
    """
    pattern, head = _subject(tx, question.request)
    policy = effective_policy(tx, pattern, head)
    grants = Grants(providers=dict(_trusted(tx, question.request, pattern, head)))
    catalog = tx.context.catalog
    rows = tuple(
        told.Explained(
            agent_id=agent.id,
            tool_id=tool.id,
            provider=provider,
            decision=decide_tool_call(
                policy,
                grants,
                catalog,
                question.infrastructure(agent),
                ToolAsk(agent_id=agent.id, tool_id=tool.id, provider=provider),
            ),
        )
        for agent in pattern.agents
        for tool in catalog.tools
        for provider in tool.provider_ids
    )
    listed = policy.auto_approved_tool_names
    return told.Explanation(
        agents=pattern.agents,
        rows=rows,
        effective=out.Effective(auto_approved_tool_names=listed, list_from=policy.list_from),
        inactive=tuple(tool for tool in listed if tool not in catalog),
        notes=tuple(_notes(tx, policy.is_unavailable)),
    )


def _notes(tx: Tx, is_unavailable: bool) -> Iterator[str]:
    if is_unavailable:
        yield "the policy cannot be read, so everything asks"
    for source in tx.context.sources.values():
        if source.status is not SourceStatus.ANSWERED:
            yield f"{source.id} is {source.status.value}: {source.reason or 'no reason is known'}"


def _subject(tx: Tx, request: ask.ToolsExplain) -> tuple[Pattern, SessionHead]:
    named = [one for one in (request.pattern_id, request.session_id, request.draft) if one is not UNSET]
    if not named or (request.pattern_id is not UNSET and len(named) > 1):
        problem = "give pattern_id, or session_id, or a draft, or a draft with session_id"
        raise Invalid(f"What is to be explained? {problem.capitalize()}.", problems=[problem])
    head = None if request.session_id is UNSET else tx.need(SessionHead, request.session_id, "session")
    if request.draft is not UNSET:
        old = None if request.draft.id is UNSET else tx.get(Pattern, request.draft.id)
        pattern = from_draft(tx, request.draft, old)
    else:
        wanted = request.pattern_id or (head.pattern_id if head else PatternId(""))
        pattern = tx.need(Pattern, wanted, "pattern")
    return pattern, head or _nobody(pattern)


def _nobody(pattern: Pattern) -> SessionHead:
    """Stand for a session without settings of its own."""
    return SessionHead(
        id=SessionId(""),
        project_id=pattern.id,  # type: ignore[arg-type]  # no project: nothing looks at it
        pattern_id=pattern.id,
        title="",
        title_source=TitleSource.AUTO,
        status=SessionStatus.IDLE,
        created_at=Timestamp(""),
        updated_at=Timestamp(""),
    )


def _trusted(
    tx: Tx, request: ask.ToolsExplain, pattern: Pattern, head: SessionHead
) -> Mapping[ToolId, tuple[ProviderId, ...]]:
    """Return whom a run would trust for the list in force; saving a draft would trust whoever offers a tool now."""
    if head.approval_settings is not UNSET:
        return offers_of(tx, ListOwner.SESSION, head.id)
    if request.draft is not UNSET and pattern.approval_policy is not UNSET:
        catalog = tx.context.catalog
        return {
            tool: catalog[tool] for tool in pattern.approval_policy.auto_approved_tool_names or () if tool in catalog
        }
    return offers_of(tx, ListOwner.PATTERN, pattern.id)
