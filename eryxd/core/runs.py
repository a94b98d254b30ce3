"""Runs: from a user message to an outcome, and what agents say on the way.

Source: RUN-1 to RUN-4, APR-7, BKD-3, SES-2.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.core.change import (
    Expire,
    StartRun,
    State,
    StopRun,
    Tx,
    effective_policy,
    offers_of,
    pending,
    touch,
)
from eryxd.core.sessions import need, refuse_running
from eryxd.core.settle import COMPLETED, End, approval_event_id, close_approval, message_event_id, settle
from eryxd.domain import approval as approvals
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.capabilities import Connection
from eryxd.domain.errors import BackendUnavailable, Invalid, NotFound
from eryxd.domain.ids import AgentId, ApprovalId, BackendName, MessageId, RunId, TimelineId, Timestamp, ToolId
from eryxd.domain.pattern import MODE_UNAVAILABLE, Agent, Availability, Mode, Pattern
from eryxd.domain.policy import CheckpointKind, Grants, ListFrom, covering_rule
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
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus, approval_event
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
        approval_policy=effective_policy(pattern, head),
        grants=_grants(tx, pattern, head),
        number=tx.number(),
    )
    tx.put(message)
    tx.put(run)
    tx.put(_event(tx, run, TimelineKind.RUN_STARTED, TimelineStatus.RUNNING, content=message.content))
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


def list_owner(run: Run, tool: ToolId | UnsetType) -> tuple[ListOwner, str]:
    """Return on whose list a tool stands for this run: where its policy came from, or where it was remembered."""
    if tool not in run.grants.remembered and run.approval_policy.list_from is ListFrom.PATTERN:
        return ListOwner.PATTERN, run.pattern_id
    return ListOwner.SESSION, run.session_id


def _event(
    tx: Tx,
    run: Run,
    kind: TimelineKind,
    status: TimelineStatus,
    agent: RunAgent | None = None,
    id: TimelineId | None = None,
    **fields: Any,
) -> TimelineEvent:
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


def open_run(tx: Tx, run_id: RunId) -> Run | None:
    """Return a run that still takes events: running, and not being cancelled (RUN-4)."""
    run = tx.get(Run, run_id)
    if run is None or run.status is not RunStatus.RUNNING or run.cancel_requested_at is not UNSET:
        return None
    return run


def acting_run(tx: Tx, run_id: RunId) -> Run | None:
    """Return a run whose agents may still say and ask: open, and its final response not yet before a person.

    What came later would be published by a decision that never saw it (APR-7).
    """
    run = open_run(tx, run_id)
    return None if run is None or _final_response(tx, run) is not None else run


def _final_response(tx: Tx, run: Run) -> Approval | None:
    final = CheckpointKind.FINAL_RESPONSE
    return next((one for one in tx.of(Approval, run.session_id) if one.kind is final and one.run_id == run.id), None)


def agent_of(run: Run, agent: AgentId | UnsetType) -> RunAgent | None:
    """Return the run's agent of that id; None is an agent that cannot be identified."""
    return next((one for one in run.agents if one.id == agent), None)


def is_withheld(run: Run, agent: AgentId | UnsetType) -> bool:
    """Say whether what this agent says is held back: it is covered, or may have read what is (APR-7, POL-8)."""
    rules = run.approval_policy.rules
    return run.withholding or covering_rule(rules, CheckpointKind.FINAL_RESPONSE, agent) is not None


class Saying(NamedTuple):
    """Something an agent says: a finished text, or (without `message_id`, empty) the beginning of a message."""

    run_id: RunId
    agent_id: AgentId
    kind: WithheldKind
    content: str
    message_id: MessageId | UnsetType = UNSET


def begin_message(tx: Tx, saying: Saying) -> MessageId | None:
    """Open a message that is going to be streamed.  None: it is held back, or the run has ended."""
    run = acting_run(tx, saying.run_id)
    if run is None or is_withheld(run, saying.agent_id):
        return None
    agent = agent_of(run, saying.agent_id)
    message = _assistant_message(tx, run, agent, MessageId(tx.new_id("message")), "")
    _publish(tx, run, replace(message, streaming=True), agent)
    return message.id


def say(tx: Tx, saying: Saying) -> None:
    """Publish a finished message or finished reasoning, or keep it where nobody sees it."""
    run = acting_run(tx, saying.run_id)
    if run is None:
        return
    agent = agent_of(run, saying.agent_id)
    message_id = saying.message_id or MessageId(tx.new_id("message"))
    if saying.message_id is UNSET and is_withheld(run, saying.agent_id):
        _withhold(tx, run, agent, message_id, saying)
    elif saying.kind is WithheldKind.THINKING:
        tx.put(_event(tx, run, TimelineKind.THINKING, TimelineStatus.COMPLETED, agent, content=saying.content))
    else:
        begun = tx.get(Message, message_id) if saying.message_id else None
        message = begun or _assistant_message(tx, run, agent, message_id, "")
        _publish(tx, run, replace(message, content=saying.content, streaming=UNSET), agent)


def _withhold(tx: Tx, run: Run, agent: RunAgent | None, message_id: MessageId, saying: Saying) -> None:
    tx.put(
        Withheld(
            id=message_id,
            session_id=run.session_id,
            run_id=run.id,
            kind=saying.kind,
            author_name=agent.name if agent else "Agent",
            agent_id=agent.id if agent else UNSET,
            content=saying.content,
            created_at=tx.now,
            number=tx.number(),
        )
    )
    if not run.withholding and run.pattern_mode is not Mode.CONCURRENT:
        # Later agents read what was said before, so they are held with it; concurrent ones do not.
        tx.put(replace(run, withholding=True))


def _assistant_message(tx: Tx, run: Run, agent: RunAgent | None, message_id: MessageId, content: str) -> Message:
    return Message(
        id=message_id,
        session_id=run.session_id,
        run_id=run.id,
        role=Role.ASSISTANT,
        author_name=agent.name if agent else "Agent",
        agent_id=agent.id if agent else UNSET,
        content=content,
        created_at=tx.now,
        number=tx.number(),
    )


def _publish(tx: Tx, run: Run, message: Message, agent: RunAgent | None) -> None:
    tx.put(message)
    done = message.streaming is UNSET
    status = TimelineStatus.COMPLETED if done else TimelineStatus.RUNNING
    event_id = message_event_id(message.id)
    # Only a message that was begun has an event already; looking for others would go to the store for nothing.
    event = next((one for one in tx.of(TimelineEvent, run.id) if one.id == event_id), None)
    if event is None:
        event = _event(
            tx,
            run,
            TimelineKind.MESSAGE,
            status,
            agent,
            id=event_id,
            message_id=message.id,
            content=message.content,
        )
    else:
        event = replace(event, status=status, content=message.content, updated_at=tx.now)
    tx.put(event)


def finish(tx: Tx, run_id: RunId) -> ApprovalId | None:
    """Complete a run whose agents have all finished, or ask a person about what is held back (APR-7)."""
    run = open_run(tx, run_id)
    if run is None:
        return None
    asked = _final_response(tx, run)
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


def publish_withheld(tx: Tx, run: Run) -> None:
    """Append what was held back to the transcript, in the order in which it was generated."""
    for row in sorted(tx.of(Withheld, run.id), key=lambda row: row.number):
        agent = agent_of(run, row.agent_id)
        tx.delete(Withheld, row.id)
        if row.kind is WithheldKind.THINKING:
            tx.put(_event(tx, run, TimelineKind.THINKING, TimelineStatus.COMPLETED, agent, content=row.content))
        else:
            _publish(tx, run, _assistant_message(tx, run, agent, row.id, row.content), agent)


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
