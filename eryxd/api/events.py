"""Events: what a subscriber hears, and the topic of each type.

Journalled events have a `seq`; transient ones have none and may be dropped.
"""

from enum import StrEnum
from typing import Final

from msgspec import UNSET, UnsetType

from eryxd.api.replies import Refusal, SessionView
from eryxd.api.tool_replies import PluginState, Rejected, Reloaded
from eryxd.domain.approval import Approval
from eryxd.domain.catalog import SourceId
from eryxd.domain.ids import MessageId, PatternId, ProjectId, Record, RunId, SessionId, Timestamp, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.providers import ProviderEntry
from eryxd.domain.session import ListOwner, Message, Project, Run
from eryxd.domain.timeline import TimelineEvent


class Topic(StrEnum):
    """What a subscriber can choose."""

    SESSIONS = "sessions"
    RUNS = "runs"
    TIMELINE = "timeline"
    MESSAGES = "messages"
    APPROVALS = "approvals"
    PATTERNS = "patterns"
    PROJECTS = "projects"
    PROVIDERS = "providers"
    CATALOG = "catalog"
    CONFIG = "config"
    DAEMON = "daemon"


class EventType(StrEnum):
    """What happened."""

    SESSION_UPDATED = "session-updated"
    SESSION_DELETED = "session-deleted"
    RUN_UPDATED = "run-updated"
    TIMELINE_EVENT = "timeline-event"
    MESSAGE_PUBLISHED = "message-published"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESOLVED = "approval-resolved"
    PATTERN_SAVED = "pattern-saved"
    PATTERN_DELETED = "pattern-deleted"
    PROJECT_UPDATED = "project-updated"
    PROJECT_REMOVED = "project-removed"
    CATALOG_CHANGED = "catalog-changed"
    TOOLS_PRUNED = "tools-pruned"
    CONFIG_RELOADED = "config-reloaded"
    CONFIG_REJECTED = "config-rejected"
    PLUGIN_STATUS = "plugin-status"
    PROVIDER_SAVED = "provider-saved"
    PROVIDER_DELETED = "provider-deleted"
    POLICY_WIDENED = "policy-widened"
    PEER_REFUSED = "peer-refused"
    DAEMON_STOPPING = "daemon-stopping"
    MESSAGE_DELTA = "message-delta"
    LAGGED = "lagged"


TOPIC: Final[dict[EventType, Topic]] = {
    EventType.SESSION_UPDATED: Topic.SESSIONS,
    EventType.SESSION_DELETED: Topic.SESSIONS,
    EventType.RUN_UPDATED: Topic.RUNS,
    EventType.TIMELINE_EVENT: Topic.TIMELINE,
    EventType.MESSAGE_PUBLISHED: Topic.MESSAGES,
    EventType.MESSAGE_DELTA: Topic.MESSAGES,
    EventType.APPROVAL_REQUESTED: Topic.APPROVALS,
    EventType.APPROVAL_RESOLVED: Topic.APPROVALS,
    EventType.PATTERN_SAVED: Topic.PATTERNS,
    EventType.PATTERN_DELETED: Topic.PATTERNS,
    EventType.PROJECT_UPDATED: Topic.PROJECTS,
    EventType.PROJECT_REMOVED: Topic.PROJECTS,
    EventType.CATALOG_CHANGED: Topic.CATALOG,
    EventType.TOOLS_PRUNED: Topic.CATALOG,
    EventType.CONFIG_RELOADED: Topic.CONFIG,
    EventType.CONFIG_REJECTED: Topic.CONFIG,
    EventType.PLUGIN_STATUS: Topic.DAEMON,
    EventType.PROVIDER_SAVED: Topic.PROVIDERS,
    EventType.PROVIDER_DELETED: Topic.PROVIDERS,
    EventType.POLICY_WIDENED: Topic.APPROVALS,
    # Whoever answers approvals must hear who else tried to.
    EventType.PEER_REFUSED: Topic.APPROVALS,
    EventType.DAEMON_STOPPING: Topic.DAEMON,
    EventType.LAGGED: Topic.DAEMON,
}

TRANSIENT: Final = frozenset({EventType.MESSAGE_DELTA, EventType.LAGGED})
"""Types without a place in the journal."""


class Widening(Record, frozen=True, kw_only=True):
    """Something may now run that had to ask, or would have to if it were listed as new."""

    tool_id: ToolId
    why: str


class PrunedTools(Record, frozen=True, kw_only=True):
    """Ids that were taken off one list, because of which source, and why (PRN-5)."""

    owner: ListOwner
    owner_id: str
    tools: tuple[ToolId, ...]
    source: SourceId
    why: str


class Delta(Record, frozen=True, kw_only=True):
    """A piece of a message that is being generated; `offset` counts the code points before it."""

    message_id: MessageId
    run_id: RunId
    offset: int
    text: str


class Event(Record, frozen=True, kw_only=True):
    """One event.  The record it speaks of stands under that record's name; `session_id` where it belongs to one."""

    at: Timestamp
    type: EventType
    seq: int | UnsetType = UNSET
    session_id: SessionId | UnsetType = UNSET
    session: SessionView | UnsetType = UNSET
    run: Run | UnsetType = UNSET
    timeline_event: TimelineEvent | UnsetType = UNSET
    message: Message | UnsetType = UNSET
    approval: Approval | UnsetType = UNSET
    pattern: Pattern | UnsetType = UNSET
    pattern_id: PatternId | UnsetType = UNSET
    project: Project | UnsetType = UNSET
    project_id: ProjectId | UnsetType = UNSET
    refusal: Refusal | UnsetType = UNSET
    widening: Widening | UnsetType = UNSET
    pruned: PrunedTools | UnsetType = UNSET
    entry: ProviderEntry | UnsetType = UNSET
    plugin: PluginState | UnsetType = UNSET
    reloaded: Reloaded | UnsetType = UNSET
    rejected: Rejected | UnsetType = UNSET
    generation: int | UnsetType = UNSET
    delta: Delta | UnsetType = UNSET
