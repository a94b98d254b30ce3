"""What lies in a store that a bench works with: every kind of record, small but real."""

import base64
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from msgspec.structs import replace

from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.ids import (
    AgentId,
    ApprovalId,
    BackendName,
    MessageId,
    PatternId,
    ProjectId,
    ProviderId,
    RunId,
    SessionId,
    TimelineId,
    Timestamp,
    ToolId,
)
from eryxd.domain.pattern import Agent, Mode, Pattern
from eryxd.domain.policy import (
    ApprovalPolicy,
    CheckpointKind,
    CheckpointRule,
    EffectivePolicy,
    ListFrom,
)
from eryxd.domain.session import (
    ListOwner,
    Message,
    Offers,
    Project,
    Role,
    Run,
    RunAgent,
    RunStatus,
    SessionHead,
    SessionStatus,
    TitleSource,
    WorkspaceKind,
)
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus

NOON: Final = Timestamp("2026-11-30T12:00:00.000Z")
AUTOMATIC: Final = ToolId("view")
"""The tool on the list of the pattern that every session follows; any other asks."""
SESSION: Final = SessionId("s" + "a" * 16)
"""The first session of every store: where benches work."""
PROJECT: Final = ProjectId("j" + "a" * 16)
PATTERN: Final = PatternId("p" + "a" * 16)
AGENT: Final = AgentId("coder")


class Letters:
    """Random letters of ids, from many bytes at once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """Return 16 characters of base32."""
        if self._at == len(self._text):
            self._text = base64.b32encode(self._random.randbytes(10 * 4096)).decode().lower()
            self._at = 0
        self._at += 16
        return self._text[self._at - 16 : self._at]


TEXT: Final = "The parser now accepts a trailing comma; its tests pass, and the changelog has a line about it."


def project() -> Project:
    """Return the project of every session: a folder that is there on every machine, since the daemon looks."""
    return Project(id=PROJECT, name="usr", path="/usr", created_at=NOON)


def pattern() -> Pattern:
    """Return the pattern of every session: one tool is on its list, any other asks."""
    return Pattern(
        id=PATTERN,
        name="Bench",
        mode=Mode.SINGLE,
        agents=(Agent(id=AGENT, name="Coder", instructions="Do the task."),),
        created_at=NOON,
        updated_at=NOON,
        revision=1,
        approval_policy=ApprovalPolicy(
            rules=(CheckpointRule(kind=CheckpointKind.TOOL_CALL),), auto_approved_tool_names=(AUTOMATIC,)
        ),
    )


def offers() -> Offers:
    """Return who offered the listed tool when it was listed; without it the tool would ask."""
    provider = ProviderId(f"builtin:{AUTOMATIC}")
    return Offers(owner=ListOwner.PATTERN, owner_id=PATTERN, providers={AUTOMATIC: (provider,)}, number=0)


def session(id: SessionId) -> SessionHead:
    """Return an idle session."""
    return SessionHead(
        id=id,
        project_id=PROJECT,
        pattern_id=PATTERN,
        title="Accept a trailing comma",
        title_source=TitleSource.AUTO,
        status=SessionStatus.IDLE,
        created_at=NOON,
        updated_at=NOON,
    )


FINISHED: Final = Run(
    id=RunId(""),
    session_id=SESSION,
    project_id=PROJECT,
    project_path="/usr",
    workspace_kind=WorkspaceKind.PROJECT,
    pattern_id=PATTERN,
    pattern_name="Bench",
    pattern_mode=Mode.SINGLE,
    trigger_message_id=MessageId(""),
    started_at=NOON,
    completed_at=NOON,
    status=RunStatus.COMPLETED,
    agents=(RunAgent(id=AGENT, name="Coder", backend=BackendName("bench"), instructions="Do the task."),),
    approval_policy=EffectivePolicy(
        rules=(CheckpointRule(kind=CheckpointKind.TOOL_CALL),),
        auto_approved_tool_names=(AUTOMATIC,),
        list_from=ListFrom.PATTERN,
    ),
    number=0,
)


def run(session: SessionId, number: int, letters: Letters) -> Run:
    """Return a run that has ended well."""
    id, message = RunId("r" + letters.next()), MessageId("m" + letters.next())
    return replace(FINISHED, id=id, session_id=session, trigger_message_id=message, number=number)


def messages(runs: Iterable[Run], number: int, letters: Letters) -> Iterator[Message]:
    """Yield a question and an answer for each run, numbered from `number` on."""
    for run in runs:
        for role, author in ((Role.USER, "You"), (Role.ASSISTANT, "Coder")):
            number += 1
            yield Message(
                id=MessageId("m" + letters.next()),
                session_id=run.session_id,
                run_id=run.id,
                role=role,
                author_name=author,
                content=TEXT,
                created_at=NOON,
                number=number,
            )


def timeline(runs: Iterable[Run], number: int, letters: Letters) -> Iterator[TimelineEvent]:
    """Yield four ended events for each run, numbered from `number` on."""
    kinds = (TimelineKind.RUN_STARTED, TimelineKind.MESSAGE, TimelineKind.TOOL_CALL, TimelineKind.RUN_COMPLETED)
    for run in runs:
        for kind in kinds:
            number += 1
            yield event(run, kind, number, letters.next())


def event(run: Run, kind: TimelineKind, number: int, letters: str) -> TimelineEvent:
    """Return an ended event of a run."""
    return TimelineEvent(
        id=TimelineId("t" + letters),
        session_id=run.session_id,
        run_id=run.id,
        number=number,
        kind=kind,
        occurred_at=NOON,
        updated_at=NOON,
        status=TimelineStatus.COMPLETED,
        agent_id=AGENT,
        agent_name="Coder",
        content=TEXT,
    )


def approval(run: Run, number: int, letters: Letters) -> Approval:
    """Return an approval that was given."""
    return Approval(
        id=ApprovalId("a" + letters.next()),
        kind=CheckpointKind.TOOL_CALL,
        status=ApprovalStatus.APPROVED,
        requested_at=NOON,
        resolved_at=NOON,
        resolution=Resolution.USER,
        session_id=run.session_id,
        run_id=run.id,
        title="Approve shell",
        digest="0" * 64,
        number=number,
    )
