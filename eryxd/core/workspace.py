"""What files of the workspace say, taken over as a whole: patterns and entries that are owned by their file.

Laws: one problem in any file leaves everything as it was (FIL-4); a record that a file shadows comes back when the
file's goes; a file that goes and comes back loses nobody's approval and vouches for no newcomer.

Source: FIL-1 to FIL-4, PRN-3.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.events import EventType, Widening
from eryxd.api.tool_replies import Reloaded
from eryxd.core.change import Ask, Tx, record_offers
from eryxd.core.lists import offers_of, pattern_list
from eryxd.core.patterns import from_draft, problems_of
from eryxd.core.sessions import unknown_tools
from eryxd.domain.catalog import SourceAnswer, SourceId
from eryxd.domain.errors import Invalid
from eryxd.domain.ids import PatternId, ProviderId, ToolId
from eryxd.domain.origin import FileOrigin
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import normalise
from eryxd.domain.providers import ProviderEntry, Shadowed
from eryxd.domain.session import ListOwner, Offers


class FilePattern(NamedTuple):
    """A pattern as a file has it; its revision is a digest of its text."""

    draft: ask.PatternDraft
    origin: FileOrigin
    revision: int


class Workspace(NamedTuple):
    """Everything that the files say.  Entries are checked by their providers, and hold no secret.

    `kept` names entries that could not be checked because their provider is not loaded: what is stored of them stays.
    """

    patterns: tuple[FilePattern, ...] = ()
    entries: tuple[ProviderEntry, ...] = ()
    kept: frozenset[tuple[str, str]] = frozenset()


def take_over(tx: Tx, files: Workspace) -> Reloaded:
    """Make the file-owned records what the files say.

    Raises: Invalid -- naming every problem with its file and line; nothing has changed.
    """
    found = [problem for one in files.patterns for problem in _problems(tx, one)]
    if found:
        raise Invalid("The workspace's files were not taken over: " + "; ".join(found), problems=found)
    named = {str(one.draft.id) for one in files.patterns}
    for pattern in list(tx.all(Pattern)):
        if pattern.origin is not UNSET and pattern.id not in named:
            _drop_pattern(tx, pattern)
    defined = {(one.provider, str(one.id)) for one in files.entries} | files.kept
    for entry in list(tx.all(ProviderEntry)):
        if entry.origin is not UNSET and (entry.provider, str(entry.id)) not in defined:
            _drop_entry(tx, entry)
    warnings = [warning for one in files.patterns for warning in _put_pattern(tx, one)]
    for entry in files.entries:
        _put_entry(tx, entry)
    return Reloaded(seq=0, warnings=tuple(warnings), patterns=len(files.patterns), entries=len(files.entries))


def _where(origin: FileOrigin) -> str:
    return f"{origin.file}, line {origin.line}"


def _problems(tx: Tx, one: FilePattern) -> Iterator[str]:
    pattern = from_draft(tx, one.draft, None)
    yield from (f"{_where(one.origin)}: {problem}" for problem in problems_of(tx, pattern))


def _put_pattern(tx: Tx, one: FilePattern) -> Iterator[str]:
    id = PatternId(str(one.draft.id))
    old = tx.get(Pattern, id)
    fresh = from_draft(tx, one.draft, None)
    pattern = replace(
        fresh,
        id=id,
        approval_policy=normalise(fresh.approval_policy or tx.context.default_policy),
        is_favorite=old.is_favorite if old else one.draft.is_favorite,
        created_at=old.created_at if old else tx.now,
        updated_at=tx.now,
        revision=one.revision,
        origin=one.origin,
    )
    if old is not None and old.origin is UNSET:
        shadow(tx, "pattern", id, pattern=old, offers=tx.get(Offers, (ListOwner.PATTERN, id)) or UNSET)
    before = pattern_list(tx, old).names if old is not None and old.origin is not UNSET else ()
    if old is None or old.origin is UNSET:
        _recall_offers(tx, id)
    if old is None or replace(pattern, updated_at=old.updated_at) != old:
        tx.put(pattern)
        yield from _list_tools(tx, pattern, before)
    else:
        yield from _unknown(tx, pattern)
    if (shadowed := tx.get(Shadowed, ("pattern", id))) is not None:
        what = "the built-in one" if shadowed.pattern and shadowed.pattern.is_builtin else "the stored one"
        yield f"{_where(one.origin)}: the pattern {id!r} stands in place of {what}"


def _list_tools(tx: Tx, pattern: Pattern, before: tuple[ToolId, ...]) -> Iterator[str]:
    """Write down who offers what is new on the list; what was known stays as it was (POL-11)."""
    names = pattern.approval_policy.auto_approved_tool_names or () if pattern.approval_policy else ()
    known = offers_of(tx, ListOwner.PATTERN, pattern.id)
    catalog = tx.context.catalog
    newly: dict[ToolId, tuple[ProviderId, ...]] = {
        tool: catalog[tool] for tool in names if tool in catalog and tool not in known
    }
    record_offers(tx, ListOwner.PATTERN, pattern.id, names, newly)
    for tool in newly:
        if tool not in before:
            tx.emit(EventType.POLICY_WIDENED, widening=Widening(tool_id=tool, why=f"pattern {pattern.id}"))
    yield from _unknown(tx, pattern)


def _unknown(tx: Tx, pattern: Pattern) -> Iterator[str]:
    """Warn of ids that nobody offers: in a file they have no effect and are no error (PRN-2)."""
    names = pattern.approval_policy.auto_approved_tool_names or () if pattern.approval_policy else ()
    where = _where(pattern.origin) if pattern.origin is not UNSET else pattern.id
    yield from unknown_tools(tx, names, f"{where}: auto_approved_tool_names").refused


def _drop_pattern(tx: Tx, pattern: Pattern) -> None:
    """Take away what its file no longer defines.  Who was trusted with its list is kept for its return."""
    offers = tx.get(Offers, (ListOwner.PATTERN, pattern.id))
    if offers is not None:
        tx.put(replace(offers, owner_id=_stash(pattern.id)))
        tx.delete(Offers, (ListOwner.PATTERN, pattern.id))
    shadowed = tx.get(Shadowed, ("pattern", pattern.id))
    if shadowed is None or shadowed.pattern is UNSET:
        tx.delete(Pattern, pattern.id)
        tx.emit(EventType.PATTERN_DELETED, pattern_id=pattern.id)
        return
    tx.put(replace(shadowed.pattern, updated_at=tx.now))
    if shadowed.offers is not UNSET:
        tx.put(shadowed.offers)
    tx.delete(Shadowed, ("pattern", pattern.id))


def _recall_offers(tx: Tx, id: PatternId) -> None:
    stash = tx.get(Offers, (ListOwner.PATTERN, _stash(id)))
    if tx.get(Offers, (ListOwner.PATTERN, id)) is not None:
        tx.delete(Offers, (ListOwner.PATTERN, id))
    if stash is not None:
        tx.put(replace(stash, owner_id=id))
        tx.delete(Offers, (ListOwner.PATTERN, _stash(id)))


def _stash(id: PatternId) -> str:
    return f"file:{id}"


def shadow(tx: Tx, kind: str, id: str, **records: object) -> None:
    """Keep what a file's record stands in place of."""
    tx.put(Shadowed(kind=kind, id=id, **records))  # type: ignore[arg-type]


def _put_entry(tx: Tx, entry: ProviderEntry) -> None:
    key = (entry.provider, entry.id)
    old = tx.get(ProviderEntry, key)
    answer = tx.get(SourceAnswer, str(entry.provider_id))
    if old is not None and old.origin is UNSET:
        shadow(tx, "entry", entry.provider_id, entry=old)
    created = old.created_at if old else (answer.since if answer else tx.now) or tx.now
    entry = replace(entry, created_at=created, updated_at=tx.now)
    if old is None or replace(entry, updated_at=old.updated_at) != old:
        tx.put(entry)
        tx.then(Ask(SourceId(entry.provider_id)))


def _drop_entry(tx: Tx, entry: ProviderEntry) -> None:
    """Take away what its file no longer defines: its tools and selections stay, its source has failed (PRN-3)."""
    shadowed = tx.get(Shadowed, ("entry", entry.provider_id))
    if shadowed is not None and shadowed.entry is not UNSET:
        tx.put(replace(shadowed.entry, updated_at=tx.now))
        tx.delete(Shadowed, ("entry", entry.provider_id))
    else:
        tx.delete(ProviderEntry, (entry.provider, entry.id))
        tx.emit(EventType.PROVIDER_DELETED, entry=entry)
    tx.then(Ask(SourceId(entry.provider_id)))
