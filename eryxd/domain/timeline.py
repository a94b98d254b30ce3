"""The timeline of a run: events that are updated in place.

Laws: one `approval` event per approval id and one `tool-call` event per (run, agent, call id), however often they
change; `occurred_at` and `number` never change; an event that has ended is not opened again.

Source: TLN-1 to TLN-4.
"""

from enum import StrEnum
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.domain.approval import Approval, ApprovalStatus, Decider, PermissionKind, Resolution
from eryxd.domain.ids import (
    AgentId,
    ApprovalId,
    CallId,
    MessageId,
    ProviderId,
    Record,
    RunId,
    SessionId,
    TimelineId,
    Timestamp,
    ToolId,
)
from eryxd.domain.policy import CheckpointKind, Decision


class TimelineKind(StrEnum):
    """What happened."""

    RUN_STARTED = "run-started"
    THINKING = "thinking"
    HANDOFF = "handoff"
    TOOL_CALL = "tool-call"
    APPROVAL = "approval"
    MESSAGE = "message"
    RUN_COMPLETED = "run-completed"
    RUN_FAILED = "run-failed"
    RUN_CANCELLED = "run-cancelled"


class TimelineStatus(StrEnum):
    """How it stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


class Ask(Record, frozen=True, kw_only=True):
    """One time that a call asked to run, and what it was told.  A call may ask several times.

    `refused` says why a call that had to ask was denied without asking anybody.
    """

    at: Timestamp
    decision: Decision
    approval_id: ApprovalId | UnsetType = UNSET
    refused: str | UnsetType = UNSET


class TimelineEvent(Record, frozen=True, kw_only=True):
    """One event; fields beyond the common ones are present where the kind has them.  `number` orders a run's events."""

    id: TimelineId
    session_id: SessionId
    run_id: RunId
    number: int
    kind: TimelineKind
    occurred_at: Timestamp
    status: TimelineStatus
    updated_at: Timestamp | UnsetType = UNSET
    agent_id: AgentId | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    message_id: MessageId | UnsetType = UNSET
    tool_name: ToolId | UnsetType = UNSET
    provider: ProviderId | UnsetType = UNSET
    call_id: CallId | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    result: str | UnsetType = UNSET
    result_truncated: int | UnsetType = UNSET
    asks: tuple[Ask, ...] | UnsetType = UNSET
    approval_id: ApprovalId | UnsetType = UNSET
    approval_kind: CheckpointKind | UnsetType = UNSET
    approval_title: str | UnsetType = UNSET
    approval_detail: str | UnsetType = UNSET
    permission_kind: PermissionKind | UnsetType = UNSET
    decision: ApprovalStatus | UnsetType = UNSET
    resolution: Resolution | UnsetType = UNSET
    resolved_by: Decider | UnsetType = UNSET
    note: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


def approval_event(approval: Approval, event: TimelineEvent | None, id: TimelineId, number: int) -> TimelineEvent:
    """Return the timeline's view of an approval: a new event, or the old one brought up to date (TLN-2)."""
    if event is None:
        event = TimelineEvent(
            id=id,
            session_id=approval.session_id,
            run_id=approval.run_id,
            number=number,
            kind=TimelineKind.APPROVAL,
            occurred_at=approval.requested_at,
            status=TimelineStatus.RUNNING,
            agent_id=approval.agent_id,
            agent_name=approval.agent_name,
            approval_id=approval.id,
            approval_kind=approval.kind,
            approval_title=approval.title,
            approval_detail=approval.detail,
            permission_kind=approval.permission_kind,
            tool_name=approval.tool_name,
            provider=approval.provider,
            call_id=approval.call_id,
        )
    if approval.status is ApprovalStatus.PENDING:
        return event
    approved = approval.status is ApprovalStatus.APPROVED
    return replace(
        event,
        status=TimelineStatus.COMPLETED if approved else TimelineStatus.ERROR,
        decision=approval.status,
        updated_at=approval.resolved_at,
        resolution=approval.resolution,
        resolved_by=approval.resolved_by,
        note=approval.note,
    )
