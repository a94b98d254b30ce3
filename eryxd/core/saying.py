"""What agents say: published as it comes, or held back until a person has read it.

Source: APR-7, POL-8, TLN-4, RUN-4.
"""

from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.core.change import Tx
from eryxd.core.live import acting_run, agent_of, run_event
from eryxd.core.settle import message_event_id
from eryxd.domain.ids import AgentId, MessageId, RunId
from eryxd.domain.pattern import Mode
from eryxd.domain.policy import CheckpointKind, covering_rule
from eryxd.domain.session import (
    Message,
    Role,
    Run,
    RunAgent,
    Withheld,
    WithheldKind,
)
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus


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
        tx.put(run_event(tx, run, TimelineKind.THINKING, TimelineStatus.COMPLETED, agent, content=saying.content))
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
        event = run_event(
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


def publish_withheld(tx: Tx, run: Run) -> None:
    """Append what was held back to the transcript, in the order in which it was generated."""
    for row in sorted(tx.of(Withheld, run.id), key=lambda row: row.number):
        agent = agent_of(run, row.agent_id)
        tx.delete(Withheld, row.id)
        if row.kind is WithheldKind.THINKING:
            tx.put(run_event(tx, run, TimelineKind.THINKING, TimelineStatus.COMPLETED, agent, content=row.content))
        else:
            _publish(tx, run, _assistant_message(tx, run, agent, row.id, row.content), agent)
