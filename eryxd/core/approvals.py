"""Approvals: asking, deciding, remembering, expiring.

Source: POL-7, POL-11, APR-3 to APR-9, TLN-3.
"""

from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.api.events import EventType, Widening
from eryxd.core.change import Tx, record_offers, touch
from eryxd.core.lists import offers_of
from eryxd.core.live import acting_run, agent_of, expiry, list_owner, open_run, request
from eryxd.core.saying import publish_withheld
from eryxd.core.sessions import SCRATCHPAD_OVERRIDE, current_list, need
from eryxd.core.settle import COMPLETED, EXPIRED, FAILED, close_approval, settle
from eryxd.core.views import pending
from eryxd.domain import approval as approvals
from eryxd.domain.approval import Approval, ApprovalContent, ApprovalStatus, Resolution
from eryxd.domain.errors import Conflict, Invalid, NotFound
from eryxd.domain.ids import AgentId, ApprovalId, ProviderId, RunId, TimelineId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import (
    ApprovalSettings,
    CheckpointKind,
    Decision,
    Reason,
    ToolAsk,
    Verdict,
    decide_tool_call,
)
from eryxd.domain.session import SCRATCHPAD, ListOwner, Offers, Run, RunAgent, SessionHead
from eryxd.domain.timeline import Ask, TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import Allow, Answer, DeniedBy, Deny, ToolCall, ToolOutcome

MAX_WAITING: Final = 256
"""Approvals that may wait in one session.  Nobody reads more, and every reply that carries the session has them."""

TOO_MANY: Final = f"{MAX_WAITING} calls of this session wait for a person already"


class Asking(NamedTuple):
    """A backend's question.  `event_id` is the id of the call's one timeline event; `seen` says that it exists."""

    run_id: RunId
    agent_id: AgentId | UnsetType
    call: ToolCall
    infrastructure: frozenset[str]
    event_id: TimelineId
    seen: bool
    backend: str


def ask_tool_call(tx: Tx, asking: Asking) -> Answer | ApprovalId:
    """Decide a call, or leave an approval that waits.  Recorded either way (TLN-3)."""
    run = acting_run(tx, asking.run_id)
    if run is None:
        return Deny(by=DeniedBy.CANCELLED)
    agent = agent_of(run, asking.agent_id)
    decision = _decide(tx, run, agent, asking)
    # The call comes before its approval in the timeline.
    number = tx.number()
    if decision.verdict is not Verdict.ASK:
        _record(tx, run, agent, asking, Ask(at=tx.now, decision=decision), number)
        return Allow()
    approval_id = _wait(tx, run, agent, asking, decision)
    if approval_id is None:
        _record(tx, run, agent, asking, Ask(at=tx.now, decision=decision, refused=TOO_MANY), number)
        return Deny(by=DeniedBy.RULE, note=TOO_MANY)
    _record(tx, run, agent, asking, Ask(at=tx.now, decision=decision, approval_id=approval_id), number)
    return approval_id


def _decide(tx: Tx, run: Run, agent: RunAgent | None, asking: Asking) -> Decision:
    """Decide on head and on what is durable: what narrows counts at once, what widens when it cannot be lost."""
    wanted = ToolAsk(agent_id=agent.id if agent else UNSET, tool_id=asking.call.tool_id, provider=asking.call.provider)
    catalog, infrastructure = tx.context.catalog, asking.infrastructure
    decision = decide_tool_call(run.approval_policy, run.grants, catalog, infrastructure, wanted)
    durable = tx.committed.get(Run, run.id)
    if decision.verdict is Verdict.ASK or durable is None or durable.grants == run.grants:
        return decision
    certain = decide_tool_call(durable.approval_policy, durable.grants, catalog, infrastructure, wanted)
    return certain if certain.verdict is Verdict.ASK else decision


def _wait(tx: Tx, run: Run, agent: RunAgent | None, asking: Asking, decision: Decision) -> ApprovalId | None:
    """Return the approval that this ask waits for: a new one, or an open one that it repeats exactly.

    None: too many wait already.
    """
    call = asking.call
    whole = replace(call.permission, arguments=call.permission.arguments or call.arguments)
    content = approvals.tool_content(whole)
    digest = approvals.digest(agent.id if agent else UNSET, call.tool_id, call.provider, content)
    waiting = pending(tx, run.session_id)
    for open_one in waiting:
        if open_one.call_id == call.call_id and open_one.digest == digest and open_one.run_id == run.id:
            return open_one.id
    if len(waiting) >= MAX_WAITING:
        return None
    shown = approvals.shown_permission(whole)
    kind = call.permission.kind
    approval = Approval(
        id=ApprovalId(tx.new_id("approval")),
        kind=CheckpointKind.TOOL_CALL,
        status=ApprovalStatus.PENDING,
        requested_at=tx.now,
        session_id=run.session_id,
        run_id=run.id,
        agent_id=agent.id if agent else UNSET,
        agent_name=agent.name if agent else UNSET,
        tool_name=call.tool_id,
        permission_kind=kind,
        call_id=call.call_id,
        provider=call.provider,
        title=approvals.title(CheckpointKind.TOOL_CALL, call.tool_id, kind, ""),
        detail=approvals.detail(
            agent.name if agent else UNSET, kind, call.tool_id, asking.backend, call.backend_session
        ),
        permission=shown,
        digest=digest,
        number=tx.number(),
        expires_at=expiry(tx, run),
    )
    request(tx, approval)
    if shown.truncated is not UNSET:
        tx.put(ApprovalContent(approval_id=approval.id, session_id=run.session_id, body=content))
    if decision.reason is Reason.NEW_PROVIDER:
        _report_drift(tx, run, asking)
    return approval.id


def _report_drift(tx: Tx, run: Run, asking: Asking) -> None:
    """Say once that a listed id is now offered by somebody who was not there when it was listed (POL-11)."""
    owner, owner_id = list_owner(run, asking.call.tool_id)
    tool = asking.call.tool_id
    offers = tx.get(Offers, (owner, owner_id))
    if offers is not None and tool and tool in offers.providers and tool not in offers.drifted:
        tx.put(replace(offers, drifted=(*offers.drifted, tool)))
        widening = Widening(tool_id=tool, why="new-provider")
        tx.emit(EventType.POLICY_WIDENED, session_id=run.session_id, widening=widening)


def _record(tx: Tx, run: Run, agent: RunAgent | None, asking: Asking, one: Ask, number: int) -> None:
    event = tx.get(TimelineEvent, asking.event_id) if asking.seen else None
    if event is not None:
        tx.put(replace(event, asks=(*(event.asks or ()), one), updated_at=tx.now))
        return
    call = asking.call
    tx.put(
        TimelineEvent(
            id=asking.event_id,
            session_id=run.session_id,
            run_id=run.id,
            number=number,
            kind=TimelineKind.TOOL_CALL,
            occurred_at=tx.now,
            status=TimelineStatus.RUNNING,
            agent_id=agent.id if agent else UNSET,
            agent_name=agent.name if agent else UNSET,
            tool_name=call.tool_id,
            provider=call.provider,
            call_id=call.call_id,
            permission_kind=call.permission.kind,
            arguments=_shown_arguments(call),
            asks=(one,),
        )
    )


def _shown_arguments(call: ToolCall) -> dict[str, object]:
    shown = approvals.shown_permission(approvals.Permission(arguments=call.arguments))
    return shown.arguments or {}


class CallDone(NamedTuple):
    """How a call ended."""

    run_id: RunId
    event_id: TimelineId
    outcome: ToolOutcome


def tool_done(tx: Tx, done: CallDone) -> None:
    """Close a call's event with its result; of a run that has ended, nothing changes (RUN-4)."""
    run = open_run(tx, done.run_id)
    event = None if run is None else tx.get(TimelineEvent, done.event_id)
    if event is None or event.status is not TimelineStatus.RUNNING:
        return
    outcome = done.outcome
    tx.put(
        replace(
            event,
            status=TimelineStatus.COMPLETED if outcome.ok else TimelineStatus.ERROR,
            result=outcome.text,
            result_truncated=outcome.truncated_bytes or UNSET,
            updated_at=tx.now,
        )
    )


def resolve(tx: Tx, wanted: ask.ApprovalsResolve) -> out.Resolved:
    """Decide one approval, once.

    Raises: NotFound, ApprovalNotActive, Conflict -- the digest differs; Invalid -- `remember` does not fit.
    """
    if wanted.decision is ApprovalStatus.PENDING:
        raise Invalid("A decision is approved or rejected.", problems=["decision: is not a decision"])
    approval = tx.get(Approval, wanted.approval_id)
    if approval is None or approval.session_id != wanted.session_id:
        raise NotFound(
            f"Session {wanted.session_id!r} has no approval {wanted.approval_id!r}.",
            id=wanted.approval_id,
            noun="approval",
        )
    if approval.status is not ApprovalStatus.PENDING:
        raise approvals.not_active(approval, wanted.decision)
    if wanted.digest is not UNSET and wanted.digest != approval.digest:
        raise Conflict(
            f"Approval {approval.id} is not what was shown; look again before deciding.",
            approval_id=approval.id,
            next=f"eryx approvals show {approval.id}",
        )
    if wanted.remember is not UNSET:
        _refuse_remember(tx, approval, wanted)
    return _decided(tx, approval, wanted)


def _decided(tx: Tx, approval: Approval, wanted: ask.ApprovalsResolve) -> out.Resolved:
    approved = wanted.decision is ApprovalStatus.APPROVED
    answer: Answer = Allow() if approved else Deny(by=DeniedBy.PERSON, note=wanted.note)
    resolved = close_approval(tx, approval, Resolution.USER, answer, tx.context.caller, wanted.note)
    released: tuple[ApprovalId, ...] = ()
    if approval.kind is CheckpointKind.FINAL_RESPONSE:
        _end_with_response(tx, resolved, approved)
    elif wanted.remember is not UNSET:
        released = _remember(tx, resolved)
    view = tx.session_view(approval.session_id)
    return out.Resolved(approval=approvals.brief(resolved), released=released, session=view, seq=0)


def _end_with_response(tx: Tx, resolved: Approval, approved: bool) -> None:
    """Publish and complete, or fail, in the transaction of the decision (APR-7)."""
    run = tx.get(Run, resolved.run_id)
    if run is None:
        return
    if approved:
        publish_withheld(tx, run)
        settle(tx, run.id, COMPLETED)
        return
    note = f": {resolved.note}" if resolved.note else "."
    settle(tx, run.id, FAILED, f"The final response was rejected{note}")


def remember_refusal(tx: Tx, approval: Approval) -> str | None:
    """Return why an approval's tool cannot be remembered, None when it can (APR-4)."""
    if approval.kind is CheckpointKind.FINAL_RESPONSE:
        return "A final response is decided once; there is nothing to remember."
    if not approval.tool_name or approval.tool_name not in tx.context.catalog:
        return "The tool is not in the catalog, so it cannot be put on a list."
    if need(tx, approval.session_id).project_id == SCRATCHPAD:
        return SCRATCHPAD_OVERRIDE
    return None


def _refuse_remember(tx: Tx, approval: Approval, wanted: ask.ApprovalsResolve) -> None:
    problem = remember_refusal(tx, approval)
    if wanted.remember != "session":
        problem = 'The only thing to remember for is "session".'
    elif wanted.decision is ApprovalStatus.REJECTED:
        problem = "A rejection cannot be remembered; leave the tool off the list."
    if problem is not None:
        raise Invalid(problem, problems=[f"remember: {problem}"])


def _remember(tx: Tx, approval: Approval) -> tuple[ApprovalId, ...]:
    """Put the tool on the session's list and release what waits for the same tool (APR-6)."""
    head = need(tx, approval.session_id)
    tool = ToolId(approval.tool_name or "")
    run = _granting(tx, tx.need(Run, approval.run_id, "run"), tool)
    names = _list_with(tx, head, tool)
    record_offers(tx, ListOwner.SESSION, head.id, names, {**_inherited_offers(tx, head, run), tool: _offered(tx, tool)})
    touch(tx, head, approval_settings=ApprovalSettings(auto_approved_tool_names=names))
    tx.put(run)
    widening = Widening(tool_id=tool, why="remembered")
    tx.emit(EventType.POLICY_WIDENED, session_id=head.id, widening=widening)
    same = _released_with(tx, run, approval, tool)
    for other in same:
        close_approval(tx, other, Resolution.REMEMBERED, Allow(), tx.context.caller)
    return tuple(other.id for other in same)


def _granting(tx: Tx, run: Run, tool: ToolId) -> Run:
    """Return the run with one more tool remembered, for the providers that offer it now."""
    grants = replace(
        run.grants,
        remembered=tuple(dict.fromkeys((*run.grants.remembered, tool))),
        providers={**run.grants.providers, tool: _offered(tx, tool)},
    )
    return replace(run, grants=grants)


def _offered(tx: Tx, tool: ToolId) -> tuple[ProviderId, ...]:
    return tuple(tx.context.catalog[tool])


def _list_with(tx: Tx, head: SessionHead, tool: ToolId) -> tuple[ToolId, ...]:
    return tuple(dict.fromkeys((*current_list(tx, head), tool)))


def _inherited_offers(tx: Tx, head: SessionHead, run: Run) -> dict[ToolId, tuple[ProviderId, ...]]:
    """Return who is trusted for the list that the session inherits; with a list of its own it has its own records."""
    if head.approval_settings is not UNSET:
        return {}
    if tx.get(Pattern, head.pattern_id) is None:
        return run.grants.providers
    return offers_of(tx, ListOwner.PATTERN, head.pattern_id)


def _released_with(tx: Tx, run: Run, approval: Approval, tool: ToolId) -> list[Approval]:
    """Return what else waits in the session and need not, now that the run has its grant."""
    waiting = pending(tx, approval.session_id)
    return [other for other in waiting if other.id != approval.id and _now_automatic(tx, run, other, tool)]


def _now_automatic(tx: Tx, run: Run, approval: Approval, tool: ToolId) -> bool:
    if approval.tool_name != tool or approval.run_id != run.id:
        return False
    wanted = ToolAsk(agent_id=approval.agent_id, tool_id=tool, provider=approval.provider)
    decision = decide_tool_call(run.approval_policy, run.grants, tx.context.catalog, frozenset(), wanted)
    return decision.verdict is Verdict.AUTO


def preview(tx: Tx, approval: Approval) -> out.RememberPreview:
    """Tell what `remember` would store and release, without doing it."""
    problem = remember_refusal(tx, approval)
    if problem is not None:
        return out.RememberPreview(stores=(), releases=(), refused=problem)
    tool = ToolId(approval.tool_name or "")
    run = _granting(tx, tx.need(Run, approval.run_id, "run"), tool)
    releases = tuple(other.id for other in _released_with(tx, run, approval, tool))
    return out.RememberPreview(stores=_list_with(tx, need(tx, approval.session_id), tool), releases=releases)


def expire(tx: Tx, approval_id: ApprovalId) -> None:
    """Reject what nobody answered in time; a final response fails its run (POL-1)."""
    approval = tx.get(Approval, approval_id)
    if approval is None or approval.status is not ApprovalStatus.PENDING:
        return
    if approval.kind is CheckpointKind.FINAL_RESPONSE:
        settle(tx, approval.run_id, EXPIRED, "Nobody answered the final response in time.")
    else:
        close_approval(tx, approval, Resolution.EXPIRED, Deny(by=DeniedBy.EXPIRED))
