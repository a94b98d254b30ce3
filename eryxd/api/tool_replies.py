"""What methods return about tools, their providers and plugins.  Nothing here is stored."""

from typing import Any

from msgspec import UNSET, UnsetType

from eryxd.api.replies import Effective, SourceState
from eryxd.domain.ids import AgentId, ProviderId, Record, ToolId
from eryxd.domain.pattern import Agent
from eryxd.domain.plugins import PluginStatus
from eryxd.domain.policy import Decision
from eryxd.domain.providers import ProviderEntry
from eryxd.domain.session import ListOwner
from eryxd.domain.tools import ToolDefinition, ToolKind


class StaleTool(Record, frozen=True, kw_only=True):
    """An id on a list that nobody offers now, so that its calls ask.  `providers` offered it when it was listed."""

    tool_id: ToolId
    owner: ListOwner
    owner_id: str
    owner_name: str
    providers: tuple[ProviderId, ...]
    why: str


class StaleTools(Record, frozen=True, kw_only=True):
    """Every inactive id, by list."""

    stale: tuple[StaleTool, ...]


class ToolsPruned(Record, frozen=True, kw_only=True):
    """Which ids were taken off every list."""

    tools: tuple[ToolId, ...]
    seq: int


class Explained(Record, frozen=True, kw_only=True):
    """What a call of one tool by one agent would meet, on one provider, and why."""

    agent_id: AgentId
    tool_id: ToolId
    provider: ProviderId
    decision: Decision


class Explanation(Record, frozen=True, kw_only=True):
    """Every tool for every agent, before anything runs.

    `inactive` are ids of the list in force that nobody offers.  `notes` say what else a person should know.
    """

    agents: tuple[Agent, ...]
    rows: tuple[Explained, ...]
    effective: Effective
    inactive: tuple[ToolId, ...] = ()
    notes: tuple[str, ...] = ()


class ProviderView(Record, frozen=True, kw_only=True):
    """A tool provider.  `record_schema` describes its entries' records; absent where it has no entries."""

    name: str
    label: str
    kind: ToolKind
    plugin: str
    record_schema: dict[str, Any] | UnsetType = UNSET


class EntryView(ProviderEntry, frozen=True, kw_only=True):
    """An entry with its source."""

    source: SourceState | UnsetType = UNSET


class ProvidersReply(Record, frozen=True, kw_only=True):
    """Providers and entries."""

    providers: tuple[ProviderView, ...]
    entries: tuple[EntryView, ...]


class EntryReply(Record, frozen=True, kw_only=True):
    """One entry with what it offers."""

    entry: EntryView
    tools: tuple[ToolDefinition, ...]


class EntryChanged(Record, frozen=True, kw_only=True):
    """An entry as it is now.  `pruned` ids were taken off lists with this change."""

    entry: ProviderEntry
    seq: int
    warnings: tuple[str, ...] = ()
    pruned: tuple[ToolId, ...] = ()


class EntryDeleted(Record, frozen=True, kw_only=True):
    """An entry is gone; `pruned` ids were taken off lists with it."""

    seq: int
    pruned: tuple[ToolId, ...] = ()


class SourceChecked(Record, frozen=True, kw_only=True):
    """A source after it was asked anew, with what it offers."""

    source: SourceState
    tools: tuple[ToolDefinition, ...]


class PluginState(Record, frozen=True, kw_only=True):
    """A plugin: how it stands, what it contributes, and what to do about a problem."""

    name: str
    distribution: str
    version: str
    status: PluginStatus
    problem: str | UnsetType = UNSET
    next: str | UnsetType = UNSET
    provides: tuple[str, ...] = ()


class PluginsReply(Record, frozen=True, kw_only=True):
    """Every plugin that is installed or was enabled."""

    plugins: tuple[PluginState, ...]


class PluginChanged(Record, frozen=True, kw_only=True):
    """A plugin as it stands now; absent when nothing is left of it.  `pruned` ids were taken off lists with it."""

    seq: int
    plugin: PluginState | UnsetType = UNSET
    pruned: tuple[ToolId, ...] = ()


class Reloaded(Record, frozen=True, kw_only=True):
    """Files of the configuration were taken over.  `warnings` name what has no effect, with its file."""

    seq: int
    warnings: tuple[str, ...] = ()
    patterns: int = 0
    entries: int = 0


class Rejected(Record, frozen=True, kw_only=True):
    """Files of the configuration were not taken over; the last good ones stand."""

    problems: tuple[str, ...]
