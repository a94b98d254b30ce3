"""What methods return: records, and what is composed of them for a person.  Nothing here is stored."""

from typing import Any

from msgspec import UNSET, UnsetType, field

from eryxd.domain.approval import Approval
from eryxd.domain.capabilities import Capabilities
from eryxd.domain.catalog import Quarantined, SourceId, SourceStatus
from eryxd.domain.ids import ApprovalId, BackendName, Record, RunId, SessionId, Timestamp, ToolId
from eryxd.domain.pattern import Mode, Pattern
from eryxd.domain.policy import ListFrom
from eryxd.domain.session import Message, Project, Run, SessionHead
from eryxd.domain.timeline import TimelineEvent
from eryxd.domain.tools import ToolDefinition, ToolKind


class Effective(Record, frozen=True, kw_only=True):
    """The list that is in force for a session, and whose it is."""

    auto_approved_tool_names: tuple[ToolId, ...]
    list_from: ListFrom = field(name="from")


class SessionView(SessionHead, frozen=True, kw_only=True):
    """A session with what is joined from its approvals (briefs) and the list in force.

    `effective` is absent when the session's pattern is gone and it has no list of its own.
    """

    pending_approval: Approval | UnsetType = UNSET
    pending_approval_queue: tuple[Approval, ...] = ()
    effective: Effective | UnsetType = UNSET


class HelloReply(Record, frozen=True, kw_only=True):
    """Who answers."""

    protocol: int
    version: str
    epoch: str
    plugins: tuple[str, ...]
    catalog_generation: int


class Pong(Record, frozen=True, kw_only=True):
    """It lives."""

    at: Timestamp


class Description(Record, frozen=True, kw_only=True):
    """The whole interface: methods with their schemas, events, error codes."""

    protocol: int
    version: str
    methods: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    errors: tuple[dict[str, Any], ...]
    definitions: dict[str, Any]


class StoreState(Record, frozen=True, kw_only=True):
    """Whether the store takes writes.  `problem` says why not, and what to do."""

    path: str
    writable: bool
    problem: str | UnsetType = UNSET


class Refusal(Record, frozen=True, kw_only=True):
    """A call that was refused because of who made it.  `session_id` is the session whose agent it was, if known."""

    at: Timestamp
    pid: int
    command: str
    method: str
    check: str
    session_id: SessionId | UnsetType = UNSET


class BackendState(Record, frozen=True, kw_only=True):
    """A backend and what it last said of itself."""

    name: BackendName
    label: str
    by_default: bool
    needs_model: bool
    capabilities: Capabilities | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class SourceState(Record, frozen=True, kw_only=True):
    """A source of the catalog: how far it is, and what stands in for it.

    `reason` says why it is pending or failed, `at` since when.  `missing` ids were offered before and may come back.
    `is_fallback` marks a backend that has never answered.
    """

    id: SourceId
    name: str
    kind: ToolKind
    status: SourceStatus
    tools: int = 0
    reason: str | UnsetType = UNSET
    at: Timestamp | UnsetType = UNSET
    answered_at: Timestamp | UnsetType = UNSET
    missing: tuple[ToolId, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    is_fallback: bool = False
    plugin: str = ""


class Status(Record, frozen=True, kw_only=True):
    """The daemon in one record."""

    version: str
    pid: int
    started_at: Timestamp
    epoch: str
    seq: int
    sessions: int
    running: int
    waiting: int
    store: StoreState
    backends: tuple[BackendState, ...]
    warnings: tuple[str, ...]
    refusals: tuple[Refusal, ...]


class ModeState(Record, frozen=True, kw_only=True):
    """Whether a mode can run, and why not."""

    mode: Mode
    available: bool
    reason: str | UnsetType = UNSET


class CapabilitiesReply(Record, frozen=True, kw_only=True):
    """Backends, and the modes of orchestration that work with all of them."""

    backends: tuple[BackendState, ...]
    modes: tuple[ModeState, ...]


class Projects(Record, frozen=True, kw_only=True):
    """Every project; the scratchpad first."""

    projects: tuple[Project, ...]


class ProjectChanged(Record, frozen=True, kw_only=True):
    """A project as it is now."""

    project: Project
    seq: int


class Patterns(Record, frozen=True, kw_only=True):
    """Every pattern; favourites first, then by name."""

    patterns: tuple[Pattern, ...]


class PatternReply(Record, frozen=True, kw_only=True):
    """One pattern."""

    pattern: Pattern


class PatternChanged(Record, frozen=True, kw_only=True):
    """A pattern as it is now, with warnings that did not keep it from being saved."""

    pattern: Pattern
    seq: int
    warnings: tuple[str, ...] = ()


class Validation(Record, frozen=True, kw_only=True):
    """What would be refused, and what is only odd."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class Tools(Record, frozen=True, kw_only=True):
    """The catalog, or a session's part of it."""

    tools: tuple[ToolDefinition, ...]
    generation: int
    sources: tuple[SourceState, ...] = ()


class Sessions(Record, frozen=True, kw_only=True):
    """A page of sessions.  `cursor` is absent on the last page."""

    sessions: tuple[SessionView, ...]
    cursor: str | UnsetType = UNSET


class SessionReply(Record, frozen=True, kw_only=True):
    """One session."""

    session: SessionView


class SessionChanged(Record, frozen=True, kw_only=True):
    """A session as it is now."""

    session: SessionView
    seq: int
    warnings: tuple[str, ...] = ()


class RunStarted(Record, frozen=True, kw_only=True):
    """The run that a message started."""

    run_id: RunId
    session: SessionView
    seq: int


class Messages(Record, frozen=True, kw_only=True):
    """A page of the transcript, oldest first; `cursor` leads to what is older."""

    messages: tuple[Message, ...]
    cursor: str | UnsetType = UNSET


class RunReply(Record, frozen=True, kw_only=True):
    """One run."""

    run: Run


class RunChanged(Record, frozen=True, kw_only=True):
    """A run as it is now."""

    run: Run
    seq: int


class Runs(Record, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: tuple[Run, ...]
    cursor: str | UnsetType = UNSET


class Approvals(Record, frozen=True, kw_only=True):
    """A page of approvals, as briefs."""

    approvals: tuple[Approval, ...]
    cursor: str | UnsetType = UNSET


class RememberPreview(Record, frozen=True, kw_only=True):
    """What `remember` would do.  `refused` says why it cannot be used here."""

    stores: tuple[ToolId, ...]
    releases: tuple[ApprovalId, ...]
    refused: str | UnsetType = UNSET


class ApprovalReply(Record, frozen=True, kw_only=True):
    """One approval, whole as it may be shown; `position` counts from 1 among what waits in its session."""

    approval: Approval
    waiting: int
    position: int | UnsetType = UNSET
    remember: RememberPreview | UnsetType = UNSET


class ContentPage(Record, frozen=True, kw_only=True):
    """A piece of an approval's content.  `next_offset` is absent at the end; `total` counts bytes."""

    body: bytes
    total: int
    next_offset: int | UnsetType = UNSET


class Resolved(Record, frozen=True, kw_only=True):
    """The approval as decided, everything that was decided with it, and the session as it is now."""

    approval: Approval
    released: tuple[ApprovalId, ...]
    session: SessionView
    seq: int


class Timeline(Record, frozen=True, kw_only=True):
    """A page of a run's events in order, with the run itself and the `seq` to subscribe from."""

    run: Run
    events: tuple[TimelineEvent, ...]
    seq: int
    cursor: str | UnsetType = UNSET


class Subscribed(Record, frozen=True, kw_only=True):
    """Events follow from here."""

    epoch: str
    seq: int


class Ended(Record, frozen=True, kw_only=True):
    """What was asked to end has ended."""

    seq: int


class StoreChecked(Record, frozen=True, kw_only=True):
    """What the store's own check found; no problems means it is sound."""

    problems: tuple[str, ...]
    path: str
    bytes: int


class StoreBackedUp(Record, frozen=True, kw_only=True):
    """Where the verified copy lies."""

    path: str
    bytes: int


class Workspace(Record, frozen=True, kw_only=True):
    """One consistent snapshot, and the `seq` from which to subscribe."""

    epoch: str
    seq: int
    projects: tuple[Project, ...]
    patterns: tuple[Pattern, ...]
    sessions: tuple[SessionView, ...]
    settings: dict[str, str]
    cursor: str | UnsetType = UNSET
