"""Calls about tools and their providers: what has to be asked of a plugin, waited for, or looked for in every list."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask, tool_replies as told
from eryxd.core import audit, entries, explain, patterns, reconcile, sessions
from eryxd.core.lists import pattern_list, session_list
from eryxd.core.secrets import fill, hide
from eryxd.core.state import State
from eryxd.daemon.daemon import Caller, Daemon
from eryxd.daemon.offered import is_offered
from eryxd.daemon.provided import Registered
from eryxd.daemon.reads import need
from eryxd.domain.catalog import Pruned, SourceId
from eryxd.domain.errors import Invalid, NotFound
from eryxd.domain.ids import ProviderId, Timestamp, ToolId
from eryxd.domain.pattern import Agent, Pattern
from eryxd.domain.policy import CORE_INFRASTRUCTURE
from eryxd.domain.providers import ENTRY_ID, ProviderEntry
from eryxd.domain.session import ListOwner, Project, SessionHead
from eryxd.domain.tools import ToolDefinition, without_nil
from eryxd.plugin.types import Entry
from eryxd.wire.peer import check_free_form

LISTS_AT_ONCE = 200
"""Lists that are looked at before others may run again."""


async def save_pattern(daemon: Daemon, caller: Caller, request: ask.PatternsSave) -> out.PatternChanged:
    """Save a pattern; ids that a silent source may know are waited for (VAL-2)."""
    policy = request.pattern.approval_policy
    await _known(daemon, policy.auto_approved_tool_names if policy is not UNSET else UNSET)
    return await daemon.engine.run(patterns.save, request, caller=caller)


async def validate_pattern(daemon: Daemon, request: ask.PatternsSave) -> out.Validation:
    """Name what saving would refuse, after the same wait."""
    policy = request.pattern.approval_policy
    await _known(daemon, policy.auto_approved_tool_names if policy is not UNSET else UNSET)
    return daemon.engine.look(patterns.validate, request)


async def update_settings(
    daemon: Daemon, caller: Caller, request: ask.SessionsUpdateApprovalSettings
) -> out.SessionChanged:
    """Set a session's own list; ids that a silent source may know are waited for (VAL-2)."""
    await _known(daemon, request.auto_approved_tool_names)
    return await daemon.engine.run(sessions.update_approval_settings, request, caller=caller)


async def _known(daemon: Daemon, names: Iterable[ToolId] | UnsetType) -> None:
    wanted = [ToolId(name.strip()) for name in names or () if name.strip()]
    await daemon.sources.settled(lambda: all(name in daemon.sources.catalog for name in wanted))


def list_providers(daemon: Daemon, request: ask.ProvidersList) -> told.ProvidersReply:
    """List the providers that are loaded, and the entries that are defined."""
    if request.provider is not UNSET:
        daemon.providers.need(request.provider)
    shown = [one for one in _entries(daemon) if request.provider in (UNSET, one.provider)]
    if request.project_id is not UNSET:
        need(daemon, Project, request.project_id, "project")
        shown = [one for one in shown if one.project_id in (UNSET, request.project_id)]
    infos = [_info(name, one) for name, one in sorted(daemon.providers.by_name.items())]
    return told.ProvidersReply(
        providers=tuple(info for info in infos if request.provider in (UNSET, info.name)),
        entries=tuple(_view(daemon, entry) for entry in shown),
    )


def _entries(daemon: Daemon) -> list[ProviderEntry]:
    found = daemon.engine.committed.all(ProviderEntry)
    return sorted(found, key=lambda entry: (entry.provider, entry.name.casefold(), entry.id))


def _info(name: str, registered: Registered) -> told.ProviderView:
    descriptor = registered.provider.descriptor
    record = descriptor.record
    return told.ProviderView(
        name=name,
        label=descriptor.label,
        kind=descriptor.kind,
        plugin=registered.plugin,
        record_schema=UNSET if record is None else without_nil(msgspec.json.schema(record)),
    )


def _view(daemon: Daemon, entry: ProviderEntry) -> told.EntryView:
    source = daemon.sources.by_status().get(SourceId(entry.provider_id), UNSET)
    return told.EntryView(**msgspec.structs.asdict(entry), source=source)


def get_entry(daemon: Daemon, request: ask.EntryOf) -> told.EntryReply:
    """Show one entry with what it offers."""
    entry = daemon.engine.committed.get(ProviderEntry, (request.provider, request.id or ""))
    if entry is None:
        raise NotFound(
            f"There is no {request.provider} entry {request.id or ''!r}.",
            id=request.id or "",
            noun="entry",
            next="eryx providers list",
        )
    return told.EntryReply(entry=_view(daemon, entry), tools=tuple(_tools_of(daemon, entry.provider_id)))


def _tools_of(daemon: Daemon, provider: ProviderId) -> Iterator[ToolDefinition]:
    return (tool for tool in daemon.sources.catalog.tools if provider in tool.provider_ids)


async def save_entry(daemon: Daemon, caller: Caller, request: ask.ProvidersSave) -> told.EntryChanged:
    """Store an entry after its provider has looked at it; its secrets go to a file of their own first.

    Raises: NotFound, Invalid, Conflict, ReadOnly, ProviderFailed, StoreUnavailable.
    """
    check_free_form(request.record)
    registered = daemon.providers.need(request.provider)
    kind = registered.provider.descriptor.record
    if kind is None:
        raise Invalid(
            f"The provider {request.provider!r} has no entries: it offers its tools as it is.",
            problems=["provider: takes no entries"],
        )
    given = msgspec.msgpack.decode(request.record)
    if not isinstance(given, dict):
        raise Invalid("The record of an entry is a map.", problems=["record: is no map"])
    name = f"{request.provider}:{request.id}"
    before = await asyncio.to_thread(daemon.secrets.of, name)
    whole, unknown = fill(kind, given, before)
    stored = _stored(request, hide(kind, whole)[0])
    await _refuse_unfit(daemon, registered, stored, kind, whole, unknown)
    old = daemon.engine.committed.get(ProviderEntry, (stored.provider, stored.id))
    entries.refuse_owned_by_file(old)
    secrets = hide(kind, whole)[1]
    await asyncio.to_thread(daemon.secrets.keep, name, secrets)
    try:
        asked = await daemon.providers.asked_for(registered, stored)
        answer = None
        if asked.declared is not None:
            answer = await daemon.sources.answer_of(asked)
        wanted = entries.Save(stored, request.revision or None, answer)
        changed = await daemon.engine.run(entries.save, wanted, caller=caller)
    except BaseException:
        await asyncio.to_thread(daemon.secrets.keep, name, before)
        raise
    if answer is not None:
        daemon.sources.answered(SourceId(name))
    return changed


def _stored(request: ask.ProvidersSave, shown: Mapping[str, Any]) -> ProviderEntry:
    return ProviderEntry(
        provider=request.provider,
        id=request.id,
        name=(request.name or request.id).strip() or request.id,
        record=dict(shown),
        created_at=Timestamp(""),
        updated_at=Timestamp(""),
        revision=0,
        project_id=request.project_id,
    )


async def _refuse_unfit(
    daemon: Daemon,
    registered: Registered,
    stored: ProviderEntry,
    kind: Any,
    whole: Mapping[str, Any],
    unknown: list[str],
) -> None:
    found = [f"record.{place}: the mask stands for no secret; enter it" for place in unknown]
    if not ENTRY_ID.fullmatch(stored.id):
        found.append("id: is not made of lower-case letters, digits, - and _, beginning with a letter or digit")
    try:
        record = msgspec.convert(dict(whole), kind)
    except msgspec.ValidationError as error:
        found.append(f"record: {error}")
    else:
        provider = registered.provider
        entry = Entry(id=stored.id, name=stored.name, record=record, project_path=daemon.providers.path(stored))
        others = [one for one in daemon.engine.committed.of(ProviderEntry, stored.provider) if one.id != stored.id]
        fit = await asyncio.to_thread(daemon.providers.usable, provider, others)
        problems = await daemon.providers.in_thread(
            provider, "problems", lambda: [str(problem) for problem in provider.problems(entry, fit)]
        )
        found += problems
    if found:
        raise Invalid(f"{stored.provider_id} cannot be saved: " + "; ".join(found), problems=found)


async def delete_entry(daemon: Daemon, caller: Caller, request: ask.EntryOf) -> told.EntryDeleted:
    """Delete an entry with its secrets, or forget one of which only the answer is left."""
    if request.id is UNSET and request.provider in daemon.providers.by_name:
        raise Invalid(
            f"{request.provider!r} is a provider, not an entry; name the entry, or disable its plugin.",
            problems=["id: is missing"],
            next=f"eryx plugins disable {daemon.providers.by_name[request.provider].plugin}",
        )
    deleted = await daemon.engine.run(entries.delete, request, caller=caller)
    source = SourceId(f"{request.provider}:{request.id}" if request.id else request.provider)
    daemon.sources.forget(source)
    await asyncio.to_thread(daemon.secrets.keep, source, {})
    return deleted


async def check_entry(daemon: Daemon, caller: Caller, request: ask.EntryOf) -> told.SourceChecked:
    """Ask an entry, or a provider without entries, anew.

    Raises: NotFound.
    """
    registered = daemon.providers.need(request.provider)
    takes_entries = registered.provider.descriptor.record is not None
    if takes_entries != (request.id is not UNSET):
        problem = "id: name the entry" if takes_entries else "id: this provider has no entries"
        raise Invalid(f"{request.provider!r} cannot be checked like this.", problems=[problem])
    if takes_entries:
        get_entry(daemon, request)
    source = SourceId(f"{request.provider}:{request.id}" if request.id else request.provider)
    state = await daemon.sources.check(source)
    return told.SourceChecked(source=state, tools=tuple(_tools_of(daemon, ProviderId(source))))


async def stale(daemon: Daemon, request: ask.Nothing) -> told.StaleTools:
    """Look through every list for ids that nobody offers."""
    found: list[told.StaleTool] = []
    state = daemon.engine.committed
    rows: list[Pattern | SessionHead] = [*state.all(Pattern), *state.all(SessionHead)]
    for count, row in enumerate(rows, 1):
        found += _stale_of(daemon, state, row)
        if count % LISTS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return told.StaleTools(stale=tuple(found))


def _stale_of(daemon: Daemon, state: State, row: Pattern | SessionHead) -> Iterator[told.StaleTool]:
    is_pattern = isinstance(row, Pattern)
    now: Pruned = pattern_list(state, row) if isinstance(row, Pattern) else session_list(state, row)
    catalog = daemon.sources.catalog
    for tool in now.names:
        if tool not in catalog:
            providers = now.providers.get(tool, ())
            yield told.StaleTool(
                tool_id=tool,
                owner=ListOwner.PATTERN if is_pattern else ListOwner.SESSION,
                owner_id=row.id,
                owner_name=row.name if isinstance(row, Pattern) else row.title,
                providers=providers,
                why=_why(daemon, tool, providers),
            )


def _why(daemon: Daemon, tool: ToolId, providers: tuple[ProviderId, ...]) -> str:
    if not providers:
        return "nobody is on record for it"
    states = daemon.sources.by_status()
    reasons = []
    for provider in providers:
        holders = [state for state in states.values() if str(state.id) == provider or tool in state.missing]
        for state in holders:
            if tool in state.missing:
                reasons.append(f"{state.id} does not list it at the moment")
            else:
                reasons.append(f"{state.id} is {state.status.value}" + (f": {state.reason}" if state.reason else ""))
        if not holders:
            reasons.append(f"{provider} is not there any more")
    return "; ".join(dict.fromkeys(reasons))


async def prune(daemon: Daemon, caller: Caller, request: ask.ToolsPrune) -> told.ToolsPruned:
    """Take ids that nobody offers off every list.

    Raises: Invalid -- a named id is offered, or stands on no list.
    """
    found = {one.tool_id for one in (await stale(daemon, ask.Nothing())).stale}
    wanted = found if request.tools is UNSET else set(request.tools)
    unfit = sorted(wanted - found)
    if unfit:
        problems = [
            f"tools: {tool!r} is offered" if tool in daemon.sources.catalog else f"tools: {tool!r} stands on no list"
            for tool in unfit
        ]
        raise Invalid("Nothing was pruned: " + "; ".join(problems), problems=problems, next="eryx tools stale")
    return await daemon.engine.run(reconcile.prune_by_hand, tuple(sorted(wanted)), caller=caller)


def explain_tools(daemon: Daemon, request: ask.ToolsExplain) -> told.Explanation:
    """Tell what every tool would meet for every agent."""

    def infrastructure(agent: Agent) -> frozenset[str]:
        backend = daemon.backends.by_name.get(agent.backend or daemon.default_backend or "")  # type: ignore[arg-type]
        return frozenset() if backend is None else CORE_INFRASTRUCTURE & frozenset(backend.descriptor.infrastructure)

    return daemon.engine.look(explain.explain, explain.Question(request, infrastructure))


def offered(daemon: Daemon, request: ask.ToolsList) -> out.Tools:
    """List the catalog, or the part of it that a session is offered (CAT-2)."""
    catalog, state = daemon.sources.catalog, daemon.engine.committed
    tools = catalog.tools
    if request.session_id is not UNSET:
        head = state.get(SessionHead, request.session_id)
        if head is None:
            raise NotFound(f"There is no session {request.session_id!r}.", id=request.session_id, noun="session")
        tools = tuple(tool for tool in tools if any(is_offered(state, head, one) for one in tool.provider_ids))
    return out.Tools(tools=tools, generation=catalog.generation, sources=daemon.sources.shown())


def list_plugins(daemon: Daemon, request: ask.Nothing) -> told.PluginsReply:
    """List the plugins as they stood at the last start, or at the last change."""
    return told.PluginsReply(plugins=daemon.plugins.states)


async def enable_plugin(daemon: Daemon, caller: Caller, request: ask.PluginsOf) -> told.PluginChanged:
    """Import a plugin and use it; its sources are asked in the background."""
    state = await daemon.plugins.enable(request.name)
    for name, registered in list(daemon.providers.by_name.items()):
        if registered.plugin == request.name:
            daemon.sources.provider_came(name)
    daemon.sources.backend_came()
    return await daemon.engine.run(audit.plugin_status, state, caller=caller)


async def disable_plugin(daemon: Daemon, caller: Caller, request: ask.PluginsOf) -> told.PluginChanged:
    """Use a plugin no more; what it alone offered is taken off every list."""
    state = await daemon.plugins.disable(request.name)
    pruned = await daemon.sources.withdraw_plugin(request.name)
    changed = await daemon.engine.run(audit.plugin_status, state, caller=caller)
    return replace(changed, pruned=pruned)


async def forget_plugin(daemon: Daemon, caller: Caller, request: ask.PluginsOf) -> told.PluginChanged:
    """Remember nothing of a plugin; what it alone offered is taken off every list."""
    state = await daemon.plugins.forget(request.name)
    pruned = await daemon.sources.withdraw_plugin(request.name)
    if state is None:
        return told.PluginChanged(seq=daemon.engine.seq, pruned=pruned)
    return replace(await daemon.engine.run(audit.plugin_status, state, caller=caller), pruned=pruned)
