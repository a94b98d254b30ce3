"""The method table: every call with its class, arguments and result.  A method without a class does not load.

Classes: `open` for anybody of this user; `agent` for an agent with the token of its session; `read` looks;
`steer` narrows or tidies; `widen` lets more happen than before; `admin` concerns the daemon itself.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from eryxd.api import replies as out, requests as ask, tool_replies as told
from eryxd.api.access import Access
from eryxd.domain.ids import Record

PROTOCOL: Final = 1
"""Grows when a client of the old one could misunderstand the new one."""


class Method(NamedTuple):
    """One row of the table."""

    name: str
    access: Access
    params: type[Record]
    result: type[Record]
    summary: str


_OPEN, _READ, _STEER, _WIDEN, _ADMIN = (
    Access.OPEN,
    Access.READ,
    Access.STEER,
    Access.WIDEN,
    Access.ADMIN,
)

_TABLE: Final = (
    Method("hello", _OPEN, ask.Hello, out.HelloReply, "Say who is calling; optional and idempotent."),
    Method("ping", _OPEN, ask.Nothing, out.Pong, "Ask whether the daemon lives."),
    Method("api.describe", _OPEN, ask.Nothing, out.Description, "Describe every method, event and error."),
    Method("daemon.status", _READ, ask.Nothing, out.Status, "Show the daemon, its store and its backends."),
    Method("daemon.shutdown", _ADMIN, ask.DaemonShutdown, out.Ended, "Stop the daemon; running sessions end."),
    Method("daemon.reload", _ADMIN, ask.Nothing, told.Reloaded, "Read config.toml and workspace.d again."),
    Method(
        "capabilities.describe",
        _READ,
        ask.CapabilitiesOf,
        out.CapabilitiesReply,
        "Show what backends can do.",
    ),
    Method("capabilities.refresh", _STEER, ask.CapabilitiesOf, out.CapabilitiesReply, "Ask the backends again."),
    Method("projects.list", _READ, ask.Nothing, out.Projects, "List the folders that sessions work in."),
    Method("projects.add", _WIDEN, ask.ProjectsAdd, out.ProjectChanged, "Add a folder."),
    Method("projects.remove", _STEER, ask.ProjectsRemove, out.Ended, "Forget a folder and delete its sessions."),
    Method("patterns.list", _READ, ask.Nothing, out.Patterns, "List patterns."),
    Method("patterns.get", _READ, ask.PatternsGet, out.PatternReply, "Show one pattern."),
    Method("patterns.validate", _READ, ask.PatternsSave, out.Validation, "Name what saving would refuse."),
    Method("patterns.save", _WIDEN, ask.PatternsSave, out.PatternChanged, "Create or change a pattern."),
    Method("patterns.copy", _WIDEN, ask.PatternsCopy, out.PatternChanged, "Copy a pattern to a new one."),
    Method("patterns.delete", _STEER, ask.PatternsGet, out.Ended, "Delete a pattern; its sessions stay."),
    Method("patterns.favorite", _STEER, ask.PatternsFavorite, out.PatternChanged, "Mark or unmark."),
    Method("tools.list", _READ, ask.ToolsList, out.Tools, "List the catalog."),
    Method("tools.stale", _READ, ask.Nothing, told.StaleTools, "List ids on lists that nobody offers now."),
    Method("tools.prune", _STEER, ask.ToolsPrune, told.ToolsPruned, "Take ids that nobody offers off every list."),
    Method("tools.explain", _READ, ask.ToolsExplain, told.Explanation, "Tell what every tool would meet, and why."),
    Method("providers.list", _READ, ask.ProvidersList, told.ProvidersReply, "List tool providers and entries."),
    Method("providers.get", _READ, ask.EntryOf, told.EntryReply, "Show one entry with its tools."),
    Method("providers.save", _WIDEN, ask.ProvidersSave, told.EntryChanged, "Create or change an entry."),
    Method("providers.delete", _STEER, ask.EntryOf, told.EntryDeleted, "Delete an entry and what it alone offers."),
    Method("providers.check", _STEER, ask.EntryOf, told.SourceChecked, "Ask an entry anew which tools it has."),
    Method("plugins.list", _READ, ask.Nothing, told.PluginsReply, "List plugins and how each stands."),
    Method("plugins.enable", _ADMIN, ask.PluginsOf, told.PluginChanged, "Let a plugin be imported and used."),
    Method("plugins.disable", _STEER, ask.PluginsOf, told.PluginChanged, "Use a plugin no more."),
    Method("plugins.forget", _STEER, ask.PluginsOf, told.PluginChanged, "Remember nothing of a plugin."),
    Method("sessions.list", _READ, ask.SessionsList, out.Sessions, "List sessions, newest change first."),
    Method("sessions.get", _READ, ask.SessionsGet, out.SessionReply, "Show one session."),
    Method("sessions.create", _WIDEN, ask.SessionsCreate, out.SessionChanged, "Create a session."),
    Method("sessions.duplicate", _WIDEN, ask.SessionsGet, out.SessionChanged, "Copy its settings to a new one."),
    Method("sessions.rename", _STEER, ask.SessionsRename, out.SessionChanged, "Give it a title."),
    Method("sessions.pin", _STEER, ask.SessionsPin, out.SessionChanged, "Pin or unpin."),
    Method("sessions.archive", _STEER, ask.SessionsArchive, out.SessionChanged, "Archive or bring back."),
    Method("sessions.delete", _STEER, ask.SessionsDelete, out.Ended, "Delete it; a running one is ended first."),
    Method("sessions.search", _READ, ask.SessionsSearch, out.Sessions, "Find sessions by words."),
    Method(
        "sessions.update_tooling",
        _WIDEN,
        ask.SessionsUpdateTooling,
        out.SessionChanged,
        "Choose the provider entries it is offered.",
    ),
    Method(
        "sessions.update_approval_settings",
        _WIDEN,
        ask.SessionsUpdateApprovalSettings,
        out.SessionChanged,
        "Set or clear its own auto-approve list.",
    ),
    Method(
        "sessions.revoke",
        _STEER,
        ask.SessionsGet,
        out.SessionChanged,
        "Make every further tool call ask, now.",
    ),
    Method("messages.send", _WIDEN, ask.MessagesSend, out.RunStarted, "Send a message and start a run."),
    Method("messages.list", _READ, ask.MessagesList, out.Messages, "Read the transcript."),
    Method("runs.get", _READ, ask.RunsGet, out.RunReply, "Show one run."),
    Method("runs.list", _READ, ask.RunsList, out.Runs, "List runs, newest first."),
    Method("runs.cancel", _STEER, ask.RunsGet, out.RunChanged, "Cancel a run; its gate closes at once."),
    Method("runs.wait", _READ, ask.RunsWait, out.RunReply, "Answer when the run has ended."),
    Method("approvals.list", _READ, ask.ApprovalsList, out.Approvals, "List what waits for a person."),
    Method("approvals.get", _READ, ask.ApprovalsGet, out.ApprovalReply, "Show one approval with its content."),
    Method("approvals.content", _READ, ask.ApprovalsContent, out.ContentPage, "Read the whole content in pages."),
    Method("approvals.resolve", _WIDEN, ask.ApprovalsResolve, out.Resolved, "Approve or reject."),
    Method("timeline.get", _READ, ask.TimelineGet, out.Timeline, "Show what a run did."),
    Method("events.subscribe", _READ, ask.EventsSubscribe, out.Subscribed, "Hear what happens."),
    Method("events.unsubscribe", _READ, ask.Nothing, out.Ended, "Stop hearing it."),
    Method("store.check", _ADMIN, ask.Nothing, out.StoreChecked, "Check the store."),
    Method("store.backup", _ADMIN, ask.StoreBackup, out.StoreBackedUp, "Write a verified copy of the store."),
    Method("workspace.get", _READ, ask.Nothing, out.Workspace, "Take one consistent snapshot."),
)

METHODS: Final[Mapping[str, Method]] = {method.name: method for method in _TABLE}
