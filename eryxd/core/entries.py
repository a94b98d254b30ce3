"""Entries of tool providers: stored, changed, deleted; what they offered goes with them.

Source: PRN-3, FIL-1, SES-1; architecture 5.
"""

from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import requests as ask, tool_replies as told
from eryxd.api.events import EventType
from eryxd.core import reconcile
from eryxd.core.change import Ask, Tx
from eryxd.core.state import encode
from eryxd.domain.catalog import Prune, SourceAnswer, SourceId
from eryxd.domain.errors import Conflict, Invalid, NotFound, ReadOnly
from eryxd.domain.ids import ToolId
from eryxd.domain.providers import EntryId, ProviderEntry
from eryxd.domain.session import Project, SessionHead

MAX_ENTRY_BYTES = 64 * 1024
MAX_ENTRIES_BYTES = 1024 * 1024
"""Of one entry and of all, encoded: they are listed all at once."""


class Save(NamedTuple):
    """An entry as it will be stored, and its answer where its tools need no asking."""

    entry: ProviderEntry
    given_revision: int | None
    answer: SourceAnswer | None = None
    secrets_changed: bool = False


def save(tx: Tx, wanted: Save) -> told.EntryChanged:
    """Store an entry.  What it offered and offers no longer is pruned, at once or when its server has answered.

    Raises: Conflict, Invalid, NotFound, ReadOnly.
    """
    old = tx.get(ProviderEntry, (wanted.entry.provider, wanted.entry.id))
    refuse_owned_by_file(old)
    _refuse_stale(wanted, old)
    _refuse_size(tx, wanted.entry)
    if wanted.entry.project_id is not UNSET:
        tx.need(Project, wanted.entry.project_id, "project")
    entry = replace(
        wanted.entry,
        created_at=tx.now if old is None else old.created_at,
        updated_at=tx.now,
        revision=1 if old is None else old.revision + 1,
    )
    tx.put(entry)
    pruned = _answered(tx, wanted, entry)
    return told.EntryChanged(entry=entry, seq=0, pruned=pruned, warnings=_warnings(tx, entry))


def _answered(tx: Tx, wanted: Save, entry: ProviderEntry) -> tuple[ToolId, ...]:
    if wanted.answer is None:
        tx.then(Ask(SourceId(entry.provider_id)))
        return ()
    before = {prune.number for prune in tx.all(Prune)}
    answer = replace(wanted.answer, since=entry.created_at, name=entry.name, answered_at=tx.now)
    reconcile.take(tx, reconcile.Taken(answer))
    return reconcile.pruned_since(tx, before)


def _warnings(tx: Tx, entry: ProviderEntry) -> tuple[str, ...]:
    """Name the tools that others offer as well: an approval names the one that runs (CAT-8)."""
    answers = {answer.source: answer for answer in tx.all(SourceAnswer)}
    mine = answers.pop(SourceId(entry.provider_id), None)
    found = []
    for tool in mine.tools if mine else ():
        others = [str(source) for source, answer in answers.items() if any(one.id == tool.id for one in answer.tools)]
        if others:
            found.append(f"{tool.id} is offered by {', '.join(sorted(others))} too; its calls name who runs them")
    return tuple(found)


def refuse_owned_by_file(old: ProviderEntry | None) -> None:
    """Refuse to change what a file defines.

    Raises: ReadOnly -- naming file and line.
    """
    if old is not None and old.origin is not UNSET:
        raise ReadOnly(
            f"{old.provider_id} is defined in {old.origin.file}, line {old.origin.line}; change it there.",
            file=old.origin.file,
            line=old.origin.line,
        )


def _refuse_stale(wanted: Save, old: ProviderEntry | None) -> None:
    have = 0 if old is None else old.revision
    if (wanted.given_revision or 0) != have:
        raise Conflict(
            f"{wanted.entry.provider_id} is at revision {have or 'none'}, the draft was made from"
            f" {wanted.given_revision or 'none'}.",
            provider=wanted.entry.provider,
            id=wanted.entry.id,
            revision=have,
        )


def _refuse_size(tx: Tx, entry: ProviderEntry) -> None:
    size = len(encode(entry))
    key = (entry.provider, entry.id)
    others = sum(len(encode(one)) for one in tx.all(ProviderEntry) if (one.provider, one.id) != key)
    if size > MAX_ENTRY_BYTES or size + others > MAX_ENTRIES_BYTES:
        limit = MAX_ENTRY_BYTES if size > MAX_ENTRY_BYTES else MAX_ENTRIES_BYTES
        problem = f"record: the entry has {size} bytes, with it there would be more than {limit}"
        raise Invalid(f"{entry.provider_id} cannot be saved: it is too large.", problems=[problem])


def delete(tx: Tx, request: ask.EntryOf) -> told.EntryDeleted:
    """Delete an entry, or forget one of which only the answer is left; every session's selection forgets it.

    Raises: NotFound, ReadOnly.
    """
    id = request.id or EntryId("")
    source = SourceId(f"{request.provider}:{id}" if id else request.provider)
    entry = tx.get(ProviderEntry, (request.provider, id))
    refuse_owned_by_file(entry)
    if entry is None and tx.get(SourceAnswer, source) is None:
        raise NotFound(f"There is no entry {source!r}.", id=source, noun="entry", next="eryx providers list")
    before = {prune.number for prune in tx.all(Prune)}
    if entry is not None:
        tx.delete(ProviderEntry, (entry.provider, entry.id))
        tx.emit(EventType.PROVIDER_DELETED, entry=entry)
    reconcile.withdraw(tx, source)
    _deselect(tx, request.provider, id)
    return told.EntryDeleted(seq=0, pruned=reconcile.pruned_since(tx, before))


def _deselect(tx: Tx, provider: str, id: EntryId) -> None:
    for head in list(tx.all(SessionHead)):
        chosen = head.tooling.get(provider, ())
        if id in chosen:
            left = tuple(one for one in chosen if one != id)
            tx.put(replace(head, tooling={**head.tooling, provider: left}))


def visible(entry: ProviderEntry, head: SessionHead) -> bool:
    """Say whether a session can select an entry: of the workspace, or of its project."""
    return entry.project_id is UNSET or entry.project_id == head.project_id
