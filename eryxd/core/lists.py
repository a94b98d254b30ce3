"""Auto-approve lists as they are in force, and who offered their ids.

Law: a prune counts from its commit on, wherever the stored row still is; every reading of a list comes through here.

Source: POL-5, POL-11, PRN-2 to PRN-4; ADR 10.
"""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.core.state import View
from eryxd.domain.catalog import Prune, Pruned, prune_list
from eryxd.domain.ids import ProviderId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import prune_policy, prune_settings
from eryxd.domain.session import ListOwner, Offers, SessionHead


def prunes_of(view: View) -> list[Prune]:
    """Return the prunes that have not been written into all lists yet, oldest first."""
    return sorted(view.of(Prune, None), key=lambda prune: prune.number)


def by_prune(view: View, owner: ListOwner, owner_id: str, names: tuple[ToolId, ...]) -> Iterator[tuple[Prune, Pruned]]:
    """Yield, for each prune that concerns a stored list, the list after it."""
    row = view.get(Offers, (owner, owner_id))
    state = Pruned(names, {} if row is None else row.providers, ())
    for prune in prunes_of(view):
        if row is None or prune.number > row.number:
            state = prune_list(state.names, state.providers, prune)
            yield prune, state


def in_force(view: View, owner: ListOwner, owner_id: str, names: tuple[ToolId, ...]) -> Pruned:
    """Return a stored list as it is now, with its ids' providers, and everything that prunes have taken off it."""
    row = view.get(Offers, (owner, owner_id))
    state = Pruned(names, {} if row is None else row.providers, ())
    gone: tuple[ToolId, ...] = ()
    for _, state in by_prune(view, owner, owner_id, names):
        gone += state.gone
    return state._replace(gone=gone)


def pattern_list(view: View, pattern: Pattern) -> Pruned:
    """Return a pattern's list."""
    policy = pattern.approval_policy
    names = policy.auto_approved_tool_names or () if policy is not UNSET else ()
    now = in_force(view, ListOwner.PATTERN, pattern.id, names)
    # Files are never rewritten: what is gone stays written there, and asks (PRN-2).
    return now if pattern.origin is UNSET else now._replace(names=names, gone=())


def session_list(view: View, head: SessionHead) -> Pruned:
    """Return a session's own list; empty where it has none."""
    names = head.approval_settings.auto_approved_tool_names if head.approval_settings is not UNSET else ()
    return in_force(view, ListOwner.SESSION, head.id, names)


def shown_pattern(view: View, pattern: Pattern) -> Pattern:
    """Return a pattern with its list as it is now."""
    if pattern.approval_policy is UNSET or not view.of(Prune, None):
        return pattern
    gone = pattern_list(view, pattern).gone
    return replace(pattern, approval_policy=prune_policy(pattern.approval_policy, set(gone))) if gone else pattern


def shown_session(view: View, head: SessionHead) -> SessionHead:
    """Return a session's head with its own list as it is now; one that became empty stays its own (PRN-4)."""
    if head.approval_settings is UNSET or not view.of(Prune, None):
        return head
    gone = session_list(view, head).gone
    return replace(head, approval_settings=prune_settings(head.approval_settings, set(gone))) if gone else head


def offers_of(view: View, owner: ListOwner, owner_id: str) -> dict[ToolId, tuple[ProviderId, ...]]:
    """Return the recorded providers of a list's ids."""
    row = view.get(Offers, (owner, owner_id))
    return in_force(view, owner, owner_id, () if row is None else tuple(row.providers)).providers
