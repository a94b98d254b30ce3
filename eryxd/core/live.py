"""What every use case of a running run starts from: whether it still takes events, who acts, and its queue.

Source: RUN-4, APR-7, TLN-1.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from eryxd.core.change import Expire, Tx
from eryxd.core.settle import approval_event_id
from eryxd.core.state import View
from eryxd.domain.approval import Approval
from eryxd.domain.ids import AgentId, RunId, TimelineId, Timestamp, ToolId
from eryxd.domain.policy import CheckpointKind, ListFrom
from eryxd.domain.session import (
    ListOwner,
    Run,
    RunAgent,
    RunStatus,
)
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus, approval_event


def list_owner(run: Run, tool: ToolId | UnsetType) -> tuple[ListOwner, str]:
    """Return on whose list a tool stands for this run: where its policy came from, or where it was remembered."""
    if tool not in run.grants.remembered and run.approval_policy.list_from is ListFrom.PATTERN:
        return ListOwner.PATTERN, run.pattern_id
    return ListOwner.SESSION, run.session_id


def run_event(
    tx: Tx,
    run: Run,
    kind: TimelineKind,
    status: TimelineStatus,
    agent: RunAgent | None = None,
    id: TimelineId | None = None,
    **fields: Any,
) -> TimelineEvent:
    """Return a new event of a run, by one of its agents or by nobody."""
    return TimelineEvent(
        id=id or TimelineId(tx.new_id("timeline")),
        session_id=run.session_id,
        run_id=run.id,
        number=tx.number(),
        kind=kind,
        occurred_at=tx.now,
        status=status,
        agent_id=agent.id if agent else UNSET,
        agent_name=agent.name if agent else UNSET,
        **fields,
    )


def open_run(view: View, run_id: RunId) -> Run | None:
    """Return a run that still takes events: running, and not being cancelled (RUN-4)."""
    run = view.get(Run, run_id)
    if run is None or run.status is not RunStatus.RUNNING or run.cancel_requested_at is not UNSET:
        return None
    return run


def acting_run(tx: Tx, run_id: RunId) -> Run | None:
    """Return a run whose agents may still say and ask: open, and its final response not yet before a person.

    What came later would be published by a decision that never saw it (APR-7).
    """
    run = open_run(tx, run_id)
    return None if run is None or final_response(tx, run) is not None else run


def final_response(tx: Tx, run: Run) -> Approval | None:
    """Return the approval of the final response, where it waits."""
    final = CheckpointKind.FINAL_RESPONSE
    return next((one for one in tx.of(Approval, run.session_id) if one.kind is final and one.run_id == run.id), None)


def agent_of(run: Run, agent: AgentId | UnsetType) -> RunAgent | None:
    """Return the run's agent of that id; None is an agent that cannot be identified."""
    return next((one for one in run.agents if one.id == agent), None)


def expiry(tx: Tx, run: Run) -> Timestamp | UnsetType:
    """Return when an approval of this run expires, where its policy says so."""
    after = run.approval_policy.expires_after_s
    return UNSET if after is UNSET else tx.context.later(after)


def request(tx: Tx, approval: Approval) -> None:
    """Put a new approval into the queue, with its timeline event and its time limit."""
    tx.put(approval)
    tx.put(approval_event(approval, None, approval_event_id(approval.id), tx.number()))
    run = tx.get(Run, approval.run_id)
    if run is not None and run.approval_policy.expires_after_s is not UNSET:
        tx.then(Expire(approval.id, run.approval_policy.expires_after_s))
