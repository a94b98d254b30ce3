"""The arguments of each method.  Optional is absent, never nil; unknown fields are refused.

Free text is bounded here, once: `Text` for what people write, `Name` for one line.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, UnsetType

from eryxd.domain.approval import ApprovalStatus
from eryxd.domain.ids import (
    ApprovalId,
    BackendName,
    PatternId,
    ProjectId,
    Record,
    RunId,
    SessionId,
    Timestamp,
    ToolId,
)
from eryxd.domain.pattern import Agent, Availability, Mode
from eryxd.domain.policy import MAX_AGENTS, MAX_TOOL_NAMES, ApprovalPolicy
from eryxd.domain.providers import EntryId

ID: Final = Meta(max_length=256)
"""Of every identifier: ours have 17 characters, a tool's id can be longer.  Errors repeat what they did not find."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=256 * 1024)]
Note = Annotated[str, Meta(max_length=8 * 1024)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]

PAGE: Final = 100
"""How many rows a listing returns when the caller does not say."""


class Nothing(Record, frozen=True, kw_only=True):
    """No arguments."""


class Hello(Record, frozen=True, kw_only=True):
    """Who is calling.  `errors: "text"` makes errors plain strings."""

    client: Name | UnsetType = UNSET
    version: Name | UnsetType = UNSET
    protocol: int | UnsetType = UNSET
    errors: str | UnsetType = UNSET


class DaemonShutdown(Record, frozen=True, kw_only=True):
    """Stop the daemon.  `when_idle` refuses while a session runs."""

    when_idle: bool = False


class CapabilitiesOf(Record, frozen=True, kw_only=True):
    """One backend, or all of them."""

    backend: Annotated[BackendName, ID] | UnsetType = UNSET


class ProjectsAdd(Record, frozen=True, kw_only=True):
    """A folder to work in: an absolute path."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    name: Name | UnsetType = UNSET


class ProjectsRemove(Record, frozen=True, kw_only=True):
    """`confirm` is the number of its sessions, when it has any."""

    project_id: Annotated[ProjectId, ID]
    confirm: Count | UnsetType = UNSET


class PatternDraft(Record, frozen=True, kw_only=True):
    """A pattern as a client writes it.

    `created_at updated_at is_builtin` are the daemon's: accepted when they equal what is stored.  `revision` is
    what the client last saw; required to change a stored pattern.
    """

    name: Annotated[str, Meta(max_length=200)]
    mode: Mode
    agents: Annotated[tuple[Agent, ...], Meta(max_length=MAX_AGENTS)]
    id: Annotated[PatternId, ID] | UnsetType = UNSET
    description: Text = ""
    approval_policy: ApprovalPolicy | UnsetType = UNSET
    max_iterations: int = 5
    availability: Availability = Availability.AVAILABLE
    unavailability_reason: Text | UnsetType = UNSET
    is_favorite: bool = False
    revision: int | UnsetType = UNSET
    created_at: Timestamp | UnsetType = UNSET
    updated_at: Timestamp | UnsetType = UNSET
    is_builtin: bool | UnsetType = UNSET


class ToolsExplain(Record, frozen=True, kw_only=True):
    """Tell what every tool would meet for every agent: of a pattern, of a session, or of a draft of a pattern.

    A draft with a session: as if the session's pattern were that.
    """

    pattern_id: Annotated[PatternId, ID] | UnsetType = UNSET
    session_id: Annotated[SessionId, ID] | UnsetType = UNSET
    draft: PatternDraft | UnsetType = UNSET


class PatternsSave(Record, frozen=True, kw_only=True):
    """Create, or update with the revision that was read."""

    pattern: PatternDraft


class PatternsGet(Record, frozen=True, kw_only=True):
    """One pattern."""

    pattern_id: Annotated[PatternId, ID]


class PatternsCopy(Record, frozen=True, kw_only=True):
    """A new pattern like an old one."""

    pattern_id: Annotated[PatternId, ID]
    name: Name | UnsetType = UNSET


class PatternsFavorite(Record, frozen=True, kw_only=True):
    """Mark or unmark."""

    pattern_id: Annotated[PatternId, ID]
    is_favorite: bool


class ToolsList(Record, frozen=True, kw_only=True):
    """The whole catalog, or what one session is offered."""

    session_id: Annotated[SessionId, ID] | UnsetType = UNSET


class ToolsPrune(Record, frozen=True, kw_only=True):
    """Take ids that nobody offers off every list: these, or all of them."""

    tools: Annotated[tuple[Annotated[ToolId, ID], ...], Meta(max_length=MAX_TOOL_NAMES)] | UnsetType = UNSET


class ProvidersList(Record, frozen=True, kw_only=True):
    """All entries, or those of one provider, or those that a project sees."""

    provider: Annotated[str, ID] | UnsetType = UNSET
    project_id: Annotated[ProjectId, ID] | UnsetType = UNSET


class EntryOf(Record, frozen=True, kw_only=True):
    """One entry, by its provider's name and its id; a provider without entries is named alone."""

    provider: Annotated[str, ID]
    id: Annotated[EntryId, ID] | UnsetType = UNSET


class ProvidersSave(Record, frozen=True, kw_only=True):
    """Create an entry, or change the one whose revision the client has read.

    `record` is of the provider's own type.  A masked secret means: as it is.
    """

    provider: Annotated[str, ID]
    id: Annotated[EntryId, ID]
    record: Raw
    name: Name | UnsetType = UNSET
    project_id: Annotated[ProjectId, ID] | UnsetType = UNSET
    revision: int | UnsetType = UNSET


class PluginsOf(Record, frozen=True, kw_only=True):
    """One plugin, by its name."""

    name: Annotated[str, ID]


class SessionsList(Record, frozen=True, kw_only=True):
    """Newest change first; pinned ones before all.  `cursor` comes from the page before."""

    project_id: Annotated[ProjectId, ID] | UnsetType = UNSET
    archived: bool = False
    limit: Limit = PAGE
    cursor: str | UnsetType = UNSET


class SessionsGet(Record, frozen=True, kw_only=True):
    """One session."""

    session_id: Annotated[SessionId, ID]


class SessionsCreate(Record, frozen=True, kw_only=True):
    """A session of a project (default: the scratchpad) with a pattern."""

    pattern_id: Annotated[PatternId, ID]
    project_id: Annotated[ProjectId, ID] | UnsetType = UNSET
    title: Name | UnsetType = UNSET


class SessionsRename(Record, frozen=True, kw_only=True):
    """Give it a title of your own."""

    session_id: Annotated[SessionId, ID]
    title: Name


class SessionsPin(Record, frozen=True, kw_only=True):
    """Pin or unpin."""

    session_id: Annotated[SessionId, ID]
    is_pinned: bool


class SessionsArchive(Record, frozen=True, kw_only=True):
    """Archive or bring back."""

    session_id: Annotated[SessionId, ID]
    is_archived: bool


class SessionsDelete(Record, frozen=True, kw_only=True):
    """Delete it with its runs and messages.  `remove_folder` also removes a scratchpad session's folder."""

    session_id: Annotated[SessionId, ID]
    remove_folder: bool = False


class SessionsSearch(Record, frozen=True, kw_only=True):
    """All words must match: in the title, the project, the pattern or a message."""

    query: Annotated[str, Meta(min_length=1, max_length=500)]
    archived: bool = False
    limit: Limit = PAGE


class SessionsUpdateTooling(Record, frozen=True, kw_only=True):
    """Which provider entries the session is offered."""

    session_id: Annotated[SessionId, ID]
    tooling: dict[str, tuple[str, ...]]


class SessionsUpdateApprovalSettings(Record, frozen=True, kw_only=True):
    """An absent list clears the override; an empty one approves nothing by itself."""

    session_id: Annotated[SessionId, ID]
    auto_approved_tool_names: (
        Annotated[tuple[Annotated[ToolId, ID], ...], Meta(max_length=MAX_TOOL_NAMES)] | UnsetType
    ) = UNSET


class MessagesSend(Record, frozen=True, kw_only=True):
    """Start a run.  `plan` is the absolute path of a plan for agents of the replay backend (BKD-4)."""

    session_id: Annotated[SessionId, ID]
    content: Text
    plan: Annotated[str, Meta(max_length=4096)] | UnsetType = UNSET


class MessagesList(Record, frozen=True, kw_only=True):
    """The transcript, oldest first.  `cursor` leads to older messages."""

    session_id: Annotated[SessionId, ID]
    limit: Limit = PAGE
    cursor: str | UnsetType = UNSET


class RunsGet(Record, frozen=True, kw_only=True):
    """One run."""

    run_id: Annotated[RunId, ID]


class RunsList(Record, frozen=True, kw_only=True):
    """Newest first, of one session or of all."""

    session_id: Annotated[SessionId, ID] | UnsetType = UNSET
    limit: Limit = PAGE
    cursor: str | UnsetType = UNSET


class RunsWait(Record, frozen=True, kw_only=True):
    """Answer when the run has ended, or after `timeout_s` with the run as it is."""

    run_id: Annotated[RunId, ID]
    timeout_s: Annotated[float, Meta(ge=0, le=86400)] = 3600.0


class ApprovalsList(Record, frozen=True, kw_only=True):
    """What waits, oldest first; or with `resolved`, what was decided, newest first."""

    session_id: Annotated[SessionId, ID] | UnsetType = UNSET
    resolved: bool = False
    limit: Limit = PAGE
    cursor: str | UnsetType = UNSET


class ApprovalsGet(Record, frozen=True, kw_only=True):
    """One approval, with what it would show and store."""

    approval_id: Annotated[ApprovalId, ID]


class ApprovalsContent(Record, frozen=True, kw_only=True):
    """The whole content behind an approval, from a byte offset."""

    approval_id: Annotated[ApprovalId, ID]
    offset: Count = 0


class ApprovalsResolve(Record, frozen=True, kw_only=True):
    """Decide.  `digest` is compared when given; `remember` adds the tool to the session's list."""

    session_id: Annotated[SessionId, ID]
    approval_id: Annotated[ApprovalId, ID]
    decision: ApprovalStatus
    note: Note | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    remember: str | UnsetType = UNSET


class TimelineGet(Record, frozen=True, kw_only=True):
    """A run's events in order."""

    run_id: Annotated[RunId, ID]
    limit: Limit = 1000
    cursor: str | UnsetType = UNSET


class EventsSubscribe(Record, frozen=True, kw_only=True):
    """`since` replays the journal after that seq, then goes on live; `epoch` guards against another store."""

    topics: tuple[str, ...] | UnsetType = UNSET
    session_id: Annotated[SessionId, ID] | UnsetType = UNSET
    since: Count | UnsetType = UNSET
    epoch: str | UnsetType = UNSET


class StoreBackup(Record, frozen=True, kw_only=True):
    """Write a copy of the store to a new file: an absolute path, or a dated one in the state folder."""

    path: Annotated[str, Meta(max_length=4096)] | UnsetType = UNSET
