"""Runs: from a user message to an outcome, and what agents say on the way.

Source: RUN-1 to RUN-4, APR-7, BKD-3, SES-2.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.core.change import StartRun, StopRun, Tx, touch
from eryxd.core.lists import offers_of
from eryxd.core.live import expiry, final_response, open_run, request, run_event
from eryxd.core.sessions import need, refuse_running
from eryxd.core.settle import COMPLETED, End, close_approval, settle
from eryxd.core.state import State
from eryxd.core.views import effective_policy, pending
from eryxd.domain import approval as approvals
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.capabilities import Connection
from eryxd.domain.errors import BackendUnavailable, Invalid, NotFound
from eryxd.domain.ids import AgentId, ApprovalId, BackendName, MessageId, RunId
from eryxd.domain.pattern import MODE_UNAVAILABLE, Agent, Availability, Pattern
from eryxd.domain.policy import CheckpointKind, Grants
from eryxd.domain.session import (
    SCRATCHPAD,
    UNTITLED,
    ListOwner,
    Message,
    Project,
    Role,
    Run,
    RunAgent,
    RunInput,
    RunStatus,
    SessionHead,
    SessionStatus,
    TitleSource,
    Withheld,
    WithheldKind,
    WorkspaceKind,
    automatic_title,
)
from eryxd.domain.timeline import TimelineKind, TimelineStatus
from eryxd.plugin.types import DeniedBy, Deny


class Send(NamedTuple):
    """A message with everything that had to be found out before: the agents with their backends, and the folder."""

    request: ask.MessagesSend
    pattern: Pattern
    agents: tuple[RunAgent, ...]
    inputs: Mapping[AgentId, str]
    project_path: str


def refuse_send(view: State | Tx, request: ask.MessagesSend) -> tuple[SessionHead, Pattern]:
    """Refuse a message that cannot start a run, before anything is looked up outside.

    Raises: NotFound, Invalid -- blank content, a pattern that is gone or unavailable.
    """
    head = view.get(SessionHead, request.session_id)
    if head is None:
        raise NotFound(f"There is no session {request.session_id!r}.", id=request.session_id, noun="session")
    if not request.content.strip():
        raise Invalid("A message cannot be blank.", problems=["content: is blank"])
    pattern = view.get(Pattern, head.pattern_id)
    if pattern is None:
        raise NotFound(
            f"The pattern {head.pattern_id!r} of session {head.id} was deleted.",
            id=head.pattern_id,
            noun="pattern",
            next="eryx patterns list",
        )
    reason = MODE_UNAVAILABLE.get(pattern.mode, pattern.unavailability_reason or "it is marked unavailable")
    if pattern.mode in MODE_UNAVAILABLE or pattern.availability is Availability.UNAVAILABLE:
        raise Invalid(f"Pattern {pattern.name!r} cannot run: {reason}.", problems=[f"pattern: {reason}"])
    return head, pattern


def choose_backend(
    agent: Agent, default: BackendName | UnsetType, backends: Mapping[BackendName, out.BackendState]
) -> BackendName:
    """Return the backend that an agent runs on (BKD-3).

    Raises: BackendUnavailable -- none or several would do; names them and the setting that chooses.
    """
    named = agent.backend or default
    if named:
        if named not in backends:
            raise BackendUnavailable(
                f"Agent {agent.name!r} needs the backend {named!r}, which is not there.",
                backend=named,
                known=sorted(backends),
            )
        _refuse_unready(agent, backends[named])
        return named
    ready = [name for name, state in backends.items() if state.by_default and _ready(state)]
    if len(ready) == 1:
        return ready[0]
    which = f"several are ready ({', '.join(sorted(ready))})" if ready else "none is ready"
    raise BackendUnavailable(
        f"No backend can be chosen for agent {agent.name!r}: {which}. Set defaults.backend in config.toml,"
        " or the agent's backend.",
        ready=sorted(ready),
        known=sorted(backends),
        setting="defaults.backend",
    )


def _refuse_unready(agent: Agent, state: out.BackendState) -> None:
    if state.capabilities is not UNSET and not _ready(state):
        connection = state.capabilities.connection
        raise BackendUnavailable(
            f"The backend {state.name!r} of agent {agent.name!r} is not ready: {connection.summary}.",
            backend=state.name,
            status=connection.status.value,
            next=f'eryx call capabilities.refresh \'{{"backend": "{state.name}"}}\'',
        )


def _ready(state: out.BackendState) -> bool:
    return state.capabilities is not UNSET and state.capabilities.connection.status is Connection.READY


def send(tx: Tx, send: Send) -> out.RunStarted:
    """Append the user's message and create the run that answers it; the policy is frozen here (POL-6)."""
    refuse_send(tx, send.request)
    head = need(tx, send.request.session_id)
    refuse_running(tx, head, "sent a message")
    pattern = tx.need(Pattern, head.pattern_id, "pattern")
    project = tx.need(Project, head.project_id, "project")
    message = _user_message(tx, head, send.request.content)
    run = Run(
        id=message.run_id,
        session_id=head.id,
        project_id=project.id,
        project_path=send.project_path,
        workspace_kind=WorkspaceKind.SCRATCHPAD if project.id == SCRATCHPAD else WorkspaceKind.PROJECT,
        pattern_id=pattern.id,
        pattern_name=pattern.name,
        pattern_mode=send.pattern.mode,
        trigger_message_id=message.id,
        started_at=tx.now,
        status=RunStatus.RUNNING,
        agents=send.agents,
        approval_policy=effective_policy(tx, pattern, head),
        grants=_grants(tx, pattern, head),
        number=tx.number(),
    )
    tx.put(message)
    tx.put(run)
    tx.put(run_event(tx, run, TimelineKind.RUN_STARTED, TimelineStatus.RUNNING, content=message.content))
    for agent, text in send.inputs.items():
        tx.put(RunInput(run_id=run.id, session_id=head.id, agent_id=agent, text=text))
    untitled = head.title_source is TitleSource.AUTO and head.title == UNTITLED
    title = automatic_title(message.content) if untitled else head.title
    touch(tx, head, status=SessionStatus.RUNNING, last_error=UNSET, title=title)
    tx.then(StartRun(run.id))
    return out.RunStarted(run_id=run.id, session=tx.session_view(head.id), seq=0)


def _user_message(tx: Tx, head: SessionHead, content: str) -> Message:
    return Message(
        id=MessageId(tx.new_id("message")),
        session_id=head.id,
        run_id=RunId(tx.new_id("run")),
        role=Role.USER,
        author_name="You",
        content=content,
        created_at=tx.now,
        number=tx.number(),
    )


def _grants(tx: Tx, pattern: Pattern, head: SessionHead) -> Grants:
    inherits = head.approval_settings is UNSET
    owner = (ListOwner.PATTERN, str(pattern.id)) if inherits else (ListOwner.SESSION, str(head.id))
    return Grants(providers=offers_of(tx, *owner))


def finish(tx: Tx, run_id: RunId) -> ApprovalId | None:
    """Complete a run whose agents have all finished, or ask a person about what is held back (APR-7)."""
    run = open_run(tx, run_id)
    if run is None:
        return None
    asked = final_response(tx, run)
    if asked is not None:
        return asked.id
    withheld = sorted(tx.of(Withheld, run.id), key=lambda row: row.number)
    if not any(row.kind is WithheldKind.MESSAGE for row in withheld):
        settle(tx, run.id, COMPLETED)
        return None
    messages, _ = approvals.shown_messages(withheld)
    author = next(row for row in reversed(withheld) if row.kind is WithheldKind.MESSAGE)
    content = approvals.message_content(approvals.whole_messages(withheld))
    approval = Approval(
        id=ApprovalId(tx.new_id("approval")),
        kind=CheckpointKind.FINAL_RESPONSE,
        status=ApprovalStatus.PENDING,
        requested_at=tx.now,
        session_id=run.session_id,
        run_id=run.id,
        agent_id=author.agent_id,
        agent_name=author.author_name,
        title=approvals.title(CheckpointKind.FINAL_RESPONSE, UNSET, UNSET, author.author_name),
        message_count=len(messages),
        digest=approvals.digest(author.agent_id, UNSET, UNSET, content),
        number=tx.number(),
        expires_at=expiry(tx, run),
    )
    request(tx, approval)
    return approval.id


def cancel(tx: Tx, run_id: RunId) -> out.RunChanged:
    """Close the gate and reject what waits; the run ends when its processes have (RUN-3).  Idempotent."""
    run = tx.need(Run, run_id, "run")
    if open_run(tx, run_id) is None:
        return out.RunChanged(run=run, seq=0)
    run = replace(run, cancel_requested_at=tx.now)
    tx.put(run)
    for approval in pending(tx, run.session_id):
        close_approval(tx, approval, Resolution.CANCELLED, Deny(by=DeniedBy.CANCELLED))
    tx.then(StopRun(run.id))
    return out.RunChanged(run=run, seq=0)


class EndRun(NamedTuple):
    """How a run that was stopped or broke down ends."""

    run_id: RunId
    end: End
    error: str | UnsetType = UNSET
    partial: Mapping[MessageId, str] = {}


def end(tx: Tx, request: EndRun) -> None:
    """Settle a run from outside."""
    settle(tx, request.run_id, request.end, request.error, request.partial)
