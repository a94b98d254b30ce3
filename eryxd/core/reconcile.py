"""What changes when a source answers or is withdrawn: the catalog, and what stands on lists.

Source: CAT-3, CAT-7, PRN-2, PRN-3, PRN-5; ADR 10.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.events import EventType, PrunedTools
from eryxd.api.tool_replies import ToolsPruned
from eryxd.core.change import Sweep, Tx
from eryxd.core.lists import by_prune, pattern_list, session_list
from eryxd.core.state import GENERATION
from eryxd.domain.catalog import (
    ANYBODY,
    Generation,
    Prune,
    Pruned,
    SourceAnswer,
    SourceId,
    build,
    lost,
    succeed,
)
from eryxd.domain.ids import ProviderId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import ASK_POLICY, prune_policy, prune_settings
from eryxd.domain.session import ListOwner, Offers, SessionHead
from eryxd.domain.tools import Catalog, ProvidedTool


class Taken(NamedTuple):
    """An answer as it came.  `is_new`: a person asked anew, so it counts as asked differently (PRN-2)."""

    answer: SourceAnswer
    is_new: bool = False


def take(tx: Tx, taken: Taken) -> None:
    """Keep a source's answer; under a new fingerprint, prune what it has given up."""
    old = tx.get(SourceAnswer, taken.answer.source)
    is_new = taken.is_new or old is None or old.is_fallback or old.fingerprint != taken.answer.fingerprint
    answer = taken.answer
    if old is not None and not is_new:
        # A backend adds to what it said (CAT-3); any other source may list less for a while.
        answer = succeed(old, answer) if answer.backend is UNSET else _added(old, answer)
        if replace(answer, answered_at=old.answered_at) == old:
            return
    before = _catalog(tx)
    tx.put(answer)
    after = _announce(tx, before)
    if is_new:
        _prune(tx, old, answer, after, f"{_label(answer)} does not offer it any more")


def fall_back(tx: Tx, answers: Iterable[SourceAnswer]) -> None:
    """Let something stand in for backends that have never answered (CAT-3)."""
    before = _catalog(tx)
    for answer in answers:
        old = tx.get(SourceAnswer, answer.source)
        if old is None or (old.is_fallback and old.tools != answer.tools):
            tx.put(answer)
    _announce(tx, before)


def withdraw(tx: Tx, source: SourceId) -> None:
    """Forget a source's answer, because a person said so, and prune what nobody else offers (PRN-3)."""
    old = tx.get(SourceAnswer, source)
    if old is None:
        return
    before = _catalog(tx)
    tx.delete(SourceAnswer, source)
    after = _announce(tx, before)
    _prune(tx, old, None, after, f"{_label(old)} was withdrawn")


def withdraw_one(tx: Tx, source: SourceId) -> tuple[ToolId, ...]:
    """Forget a source's answer; return the ids that nobody offers now."""
    before = {prune.number for prune in tx.all(Prune)}
    withdraw(tx, source)
    return pruned_since(tx, before)


def pruned_since(tx: Tx, before: Collection[int]) -> tuple[ToolId, ...]:
    """Return the ids that the prunes of this change concern."""
    new = [prune for prune in tx.all(Prune) if prune.number not in before]
    return tuple(tool for prune in new for tool in prune.lost if tool not in prune.offered)


def prune_inactive(tx: Tx, tools: Collection[ToolId]) -> tuple[ToolId, ...]:
    """Take ids off every list, unless somebody offers them; return those that went."""
    catalog = _catalog(tx)
    gone = tuple(tool for tool in tools if tool not in catalog)
    if gone:
        lost_by_hand = dict.fromkeys(gone, ANYBODY)
        _put_prune(tx, SourceId(""), lost_by_hand, (), "a person pruned what nobody offers")
    return gone


def prune_by_hand(tx: Tx, tools: tuple[ToolId, ...]) -> ToolsPruned:
    """Take ids off every list because a person said so."""
    return ToolsPruned(tools=prune_inactive(tx, tools), seq=0)


def _added(old: SourceAnswer, new: SourceAnswer) -> SourceAnswer:
    known = {tool.id: tool for tool in old.tools}
    known.update((tool.id, tool) for tool in new.tools)
    return replace(new, tools=tuple(known.values()))


def report_tools(tx: Tx, more: tuple[SourceId, tuple[ProvidedTool, ...]]) -> None:
    """Add what a running session of a backend reports to the backend's answer (CAT-3)."""
    source, tools = more
    old = tx.get(SourceAnswer, source)
    if old is not None:
        take(tx, Taken(replace(old, tools=tools, answered_at=tx.now)))


def _catalog(tx: Tx) -> Catalog:
    return build(tx.all(SourceAnswer))


def _announce(tx: Tx, before: Catalog) -> Catalog:
    after = _catalog(tx)
    if after.tools != before.tools:
        old = tx.get(Generation, GENERATION)
        now = Generation(number=1 if old is None else old.number + 1)
        tx.put(now)
        tx.emit(EventType.CATALOG_CHANGED, generation=now.number)
    return after


def _prune(tx: Tx, old: SourceAnswer | None, new: SourceAnswer | None, after: Catalog, why: str) -> None:
    if old is None:
        return
    others = [answer for answer in tx.all(SourceAnswer) if answer.source != old.source]
    gone = lost(old, new, others)
    if gone:
        _put_prune(tx, old.source, gone, tuple(tool for tool in gone if tool in after), why)


def _put_prune(tx: Tx, source: SourceId, gone: dict[ToolId, ProviderId], offered: tuple[ToolId, ...], why: str) -> None:
    tx.put(Prune(number=tx.number(), source=source, at=tx.now, lost=gone, offered=offered, why=why))
    tx.then(Sweep())


def _label(answer: SourceAnswer) -> str:
    return f"the backend {answer.backend}" if answer.backend else answer.source


class Sweeping(NamedTuple):
    """Lists into which every prune is to be written; `done`: the prunes, by number, that are then in all of them."""

    patterns: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    done: tuple[int, ...] = ()


def sweep(tx: Tx, lists: Sweeping) -> None:
    """Write prunes into stored lists, each with its trace (PRN-5)."""
    for id in lists.patterns:
        _sweep_pattern(tx, id)
    for id in lists.sessions:
        _sweep_session(tx, id)
    for number in lists.done:
        tx.delete(Prune, str(number))


def _sweep_pattern(tx: Tx, id: str) -> None:
    pattern = tx.get(Pattern, id)
    if pattern is None:
        return
    now = pattern_list(tx, pattern)
    policy = pattern.approval_policy
    names = policy.auto_approved_tool_names or () if policy is not UNSET else ()
    _settle(tx, ListOwner.PATTERN, id, names if pattern.origin is UNSET else (), now)
    if now.gone:
        pruned = replace(pattern, approval_policy=prune_policy(policy or ASK_POLICY, set(now.gone)))
        tx.put(replace(pruned, revision=pattern.revision + 1, updated_at=tx.now))


def _sweep_session(tx: Tx, id: str) -> None:
    head = tx.get(SessionHead, id)
    if head is None or head.approval_settings is UNSET:
        return
    now = session_list(tx, head)
    _settle(tx, ListOwner.SESSION, id, head.approval_settings.auto_approved_tool_names, now)
    if now.gone:
        tx.put(replace(head, approval_settings=prune_settings(head.approval_settings, set(now.gone))))


def _settle(tx: Tx, owner: ListOwner, id: str, names: tuple[ToolId, ...], now: Pruned) -> None:
    """Tell of each prune what it takes off a list (PRN-5), and write down who is left."""
    for prune, after in by_prune(tx, owner, id, names):
        if after.gone:
            pruned = PrunedTools(owner=owner, owner_id=id, tools=after.gone, source=prune.source, why=prune.why)
            tx.emit(EventType.TOOLS_PRUNED, pruned=pruned)
    row = tx.get(Offers, (owner, id))
    if row is not None and now.providers != row.providers:
        tx.put(replace(row, providers=now.providers, number=tx.number()))
