"""Projects, sessions, messages and runs.

Source: domain rules, section 1; SES-*, RUN-2, PRJ-1.
"""

from enum import StrEnum
from typing import Final

from msgspec import UNSET, UnsetType

from eryxd.domain.ids import (
    AgentId,
    BackendName,
    MessageId,
    PatternId,
    ProjectId,
    ProviderId,
    Record,
    RunId,
    SessionId,
    Timestamp,
    ToolId,
)
from eryxd.domain.pattern import Effort, Mode
from eryxd.domain.policy import ApprovalSettings, EffectivePolicy, Grants

SCRATCHPAD: Final = ProjectId("scratchpad")
"""The built-in project: always there, first, each session in a folder of its own."""

TITLE_LENGTH: Final = 60
"""Longest automatic title, in characters: what fits beside an id on one terminal line."""

UNTITLED: Final = "New session"


class Project(Record, frozen=True, kw_only=True):
    """A folder that sessions work in.  `path` is the real path; for the scratchpad the folder of its folders."""

    id: ProjectId
    name: str
    path: str
    created_at: Timestamp


class TitleSource(StrEnum):
    """Whether a person chose the title."""

    AUTO = "auto"
    MANUAL = "manual"


class SessionStatus(StrEnum):
    """Waiting for a person is not a status: the session stays `running` (APR-2)."""

    IDLE = "idle"
    RUNNING = "running"
    ERROR = "error"


class SessionHead(Record, frozen=True, kw_only=True):
    """A session without its messages and without what is joined from approvals (those are never stored here)."""

    id: SessionId
    project_id: ProjectId
    pattern_id: PatternId
    title: str
    title_source: TitleSource
    status: SessionStatus
    created_at: Timestamp
    updated_at: Timestamp
    is_pinned: bool = False
    is_archived: bool = False
    last_error: str | UnsetType = UNSET
    tooling: dict[str, tuple[str, ...]] = {}
    approval_settings: ApprovalSettings | UnsetType = UNSET


class Role(StrEnum):
    """Who said it."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class Message(Record, frozen=True, kw_only=True):
    """One published message.  `streaming` while it is being generated; `incomplete` when its end never came."""

    id: MessageId
    session_id: SessionId
    run_id: RunId
    role: Role
    author_name: str
    content: str
    created_at: Timestamp
    number: int
    agent_id: AgentId | UnsetType = UNSET
    streaming: bool | UnsetType = UNSET
    incomplete: bool | UnsetType = UNSET


class WithheldKind(StrEnum):
    """What kind of saying was held back; reasoning counts as well (APR-7)."""

    MESSAGE = "message"
    THINKING = "thinking"


class Withheld(Record, frozen=True, kw_only=True):
    """Something an agent said that nobody may see yet.  Kept in rows of their own, shown by `approvals.get` only."""

    id: MessageId
    session_id: SessionId
    run_id: RunId
    kind: WithheldKind
    author_name: str
    content: str
    created_at: Timestamp
    number: int
    agent_id: AgentId | UnsetType = UNSET


class RunStatus(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"


class WorkspaceKind(StrEnum):
    """Where a run works."""

    PROJECT = "project"
    SCRATCHPAD = "scratchpad"


class RunAgent(Record, frozen=True, kw_only=True):
    """An agent as it was when the run started, with the backend that was chosen for it (BKD-3)."""

    id: AgentId
    name: str
    backend: BackendName
    description: str = ""
    instructions: str = ""
    model: str | UnsetType = UNSET
    reasoning_effort: Effort | UnsetType = UNSET


class Run(Record, frozen=True, kw_only=True):
    """One turn of a session.

    `approval_policy` is frozen at the start and never rewritten; what changes it during the run is in `grants`.
    `withholding` is set once a covered agent has spoken where later agents could read it (APR-7).
    """

    id: RunId
    session_id: SessionId
    project_id: ProjectId
    project_path: str
    workspace_kind: WorkspaceKind
    pattern_id: PatternId
    pattern_name: str
    pattern_mode: Mode
    trigger_message_id: MessageId
    started_at: Timestamp
    status: RunStatus
    agents: tuple[RunAgent, ...]
    approval_policy: EffectivePolicy
    number: int
    grants: Grants = Grants()
    withholding: bool = False
    completed_at: Timestamp | UnsetType = UNSET
    cancel_requested_at: Timestamp | UnsetType = UNSET
    error: str | UnsetType = UNSET


class RunInput(Record, frozen=True, kw_only=True):
    """What a backend needs to tell later exactly what it ran: for `replay` the plan's text (BKD-4)."""

    run_id: RunId
    session_id: SessionId
    agent_id: AgentId
    text: str


class ListOwner(StrEnum):
    """Whose auto-approve list it is."""

    PATTERN = "pattern"
    SESSION = "session"


class Offers(Record, frozen=True, kw_only=True):
    """Which providers offered each id of one list when it was put there (POL-11).  Clients never send it.

    `number` is that of the change that wrote it: a prune that is older does not concern the list.  `drifted` holds the
    ids of which a newcomer's first call was reported.
    """

    owner: ListOwner
    owner_id: str
    providers: dict[ToolId, tuple[ProviderId, ...]]
    number: int
    drifted: tuple[ToolId, ...] = ()


def automatic_title(content: str) -> str:
    """Make a title from a first message: its first line, cut at a word (SES-2)."""
    line = " ".join(content.strip().split("\n", 1)[0].split())
    if len(line) <= TITLE_LENGTH:
        return line or UNTITLED
    cut = line[: TITLE_LENGTH - 1]
    return (cut.rsplit(" ", 1)[0] or cut) + "…"
