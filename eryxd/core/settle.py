"""The one end of every run: completed, failed, cancelled, interrupted, expired, deleted.

Laws: after settling nothing of the run waits, is open or is withheld; settling an ended run changes nothing;
withheld text is never published by it.

Source: APR-10, RUN-3, RUN-4.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.core.change import ForgetRun, Release, Tx, touch
from eryxd.core.views import pending
from eryxd.domain.approval import (
    Approval,
    ApprovalStatus,
    Decider,
    Resolution,
    resolve,
)
from eryxd.domain.ids import AgentId, ApprovalId, CallId, MessageId, RunId, TimelineId
from eryxd.domain.session import Message, Run, RunStatus, SessionHead, SessionStatus, Withheld
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus, approval_event
from eryxd.plugin.types import Answer, DeniedBy, Deny


class End(NamedTuple):
    """How a run ends: its status, the closing event, and what its open approvals become."""

    status: RunStatus
    event: TimelineKind
    resolution: Resolution
    denied_by: DeniedBy


COMPLETED: Final = End(RunStatus.COMPLETED, TimelineKind.RUN_COMPLETED, Resolution.CANCELLED, DeniedBy.CANCELLED)
FAILED: Final = End(RunStatus.ERROR, TimelineKind.RUN_FAILED, Resolution.RUN_FAILED, DeniedBy.CANCELLED)
EXPIRED: Final = End(RunStatus.ERROR, TimelineKind.RUN_FAILED, Resolution.EXPIRED, DeniedBy.EXPIRED)
CANCELLED: Final = End(RunStatus.CANCELLED, TimelineKind.RUN_CANCELLED, Resolution.CANCELLED, DeniedBy.CANCELLED)
INTERRUPTED: Final = End(RunStatus.ERROR, TimelineKind.RUN_FAILED, Resolution.INTERRUPTED, DeniedBy.INTERRUPTED)


def settle(
    tx: Tx, run_id: RunId, end: End, error: str | UnsetType = UNSET, partial: Mapping[MessageId, str] = {}
) -> None:
    """End a run with everything that hangs on it; one that has ended stays as it is.

    `partial` holds the text of messages whose streaming was cut off; they stay, marked incomplete.
    """
    run = tx.get(Run, run_id)
    if run is None or run.status is not RunStatus.RUNNING:
        return
    for approval in pending(tx, run.session_id):
        if approval.run_id == run.id:
            close_approval(tx, approval, end.resolution, Deny(by=end.denied_by))
    _cut_messages(tx, run, partial)
    for event in tx.of(TimelineEvent, run.id):
        done = end.status is RunStatus.COMPLETED or event.kind is TimelineKind.RUN_STARTED
        status = TimelineStatus.COMPLETED if done else TimelineStatus.ERROR
        tx.put(replace(event, status=status, updated_at=tx.now))
    for row in tx.of(Withheld, run.id):
        tx.delete(Withheld, row.id)
    _close_run(tx, run, end, error)


def _cut_messages(tx: Tx, run: Run, partial: Mapping[MessageId, str]) -> None:
    for message in tx.of(Message, run.id):
        text = partial.get(message.id, message.content)
        event = tx.get(TimelineEvent, message_event_id(message.id))
        tx.put(replace(message, content=text, streaming=UNSET, incomplete=True))
        if event is not None:
            tx.put(replace(event, content=text, updated_at=tx.now))


def _close_run(tx: Tx, run: Run, end: End, error: str | UnsetType) -> None:
    run = replace(run, status=end.status, completed_at=tx.now, error=error)
    tx.put(run)
    failed = end.status is RunStatus.ERROR
    tx.put(
        TimelineEvent(
            id=TimelineId(tx.new_id("timeline")),
            session_id=run.session_id,
            run_id=run.id,
            number=tx.number(),
            kind=end.event,
            occurred_at=tx.now,
            status=TimelineStatus.ERROR if failed else TimelineStatus.COMPLETED,
            error=error,
        )
    )
    head = tx.get(SessionHead, run.session_id)
    if head is not None:
        status = SessionStatus.ERROR if failed else SessionStatus.IDLE
        touch(tx, head, status=status, last_error=error if failed else UNSET)
    tx.then(ForgetRun(run))


def close_approval(
    tx: Tx,
    approval: Approval,
    resolution: Resolution,
    answer: Answer,
    by: Decider | UnsetType = UNSET,
    note: str | UnsetType = UNSET,
) -> Approval:
    """Resolve an approval, bring its timeline event up to date, and answer the gate that waits.

    Raises: ApprovalNotActive -- it was resolved before.
    """
    status = ApprovalStatus.REJECTED if isinstance(answer, Deny) else ApprovalStatus.APPROVED
    resolved = resolve(approval, status, resolution, tx.now, by, note)
    tx.put(resolved)
    event_id = approval_event_id(approval.id)
    event = tx.get(TimelineEvent, event_id)
    tx.put(approval_event(resolved, event, event_id, event.number if event else tx.number()))
    tx.then(Release(approval.run_id, approval.id, answer))
    return resolved


def approval_event_id(approval: ApprovalId) -> TimelineId:
    """Return the id of an approval's one timeline event: its own random letters (TLN-2)."""
    return TimelineId("t" + approval[1:])


def message_event_id(message: MessageId) -> TimelineId:
    """Return the id of a message's one timeline event (TLN-4)."""
    return TimelineId("t" + message[1:])


def call_key(run: RunId, agent: AgentId | UnsetType, call: CallId) -> str:
    """Return what makes a tool call one (TLN-3)."""
    return f"{run}\0{agent or ''}\0{call}"
