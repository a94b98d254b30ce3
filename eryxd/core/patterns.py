"""Patterns: drafts in, records out.

Source: PAT-1 to PAT-3, POL-4, VAL-1, FIL-1.
"""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.api.events import EventType, Widening
from eryxd.core.change import Tx, record_offers
from eryxd.core.lists import offers_of, pattern_list, shown_pattern
from eryxd.core.sessions import shared_tools, unknown_tools
from eryxd.core.state import encode
from eryxd.domain.errors import Conflict, Invalid, ReadOnly
from eryxd.domain.ids import PatternId
from eryxd.domain.pattern import MODE_UNAVAILABLE, Availability, Pattern, pattern_problems, pattern_warnings
from eryxd.domain.policy import ASK_POLICY, normalise, normalise_names
from eryxd.domain.session import ListOwner

LIST: Final = "approval_policy.auto_approved_tool_names"
"""Where a pattern's list stands, in problems and warnings."""

MAX_PATTERN_BYTES: Final = 256 * 1024
MAX_PATTERNS_BYTES: Final = 4 * 1024 * 1024
"""Of one pattern and of all, encoded: they are listed, and stand in a snapshot, all at once."""


def save(tx: Tx, request: ask.PatternsSave) -> out.PatternChanged:
    """Create a pattern, or change one whose revision the client has read."""
    draft = request.pattern
    old = None if draft.id is UNSET else tx.get(Pattern, draft.id)
    if old is not None:
        # First: what is wrong with a stale draft may only be that it is stale.
        refuse_owned_by_file(old)
        _refuse_stale(draft, old)
    pattern = from_draft(tx, draft, old)
    found = _all_problems(tx, pattern, draft, old)
    if found:
        raise Invalid("The pattern cannot be saved: " + "; ".join(found), problems=found)
    if old is not None and old.is_builtin:
        _refuse_builtin_changes(pattern, old)
    return _store(tx, pattern, old)


def validate(tx: Tx, request: ask.PatternsSave) -> out.Validation:
    """Name what saving would refuse, without saving."""
    draft = request.pattern
    old = None if draft.id is UNSET else tx.get(Pattern, draft.id)
    pattern = from_draft(tx, draft, old)
    return out.Validation(problems=tuple(_all_problems(tx, pattern, draft, old)), warnings=_warnings(tx, pattern, old))


def copy(tx: Tx, request: ask.PatternsCopy) -> out.PatternChanged:
    """Make a new pattern like an old one; the copy is the user's."""
    old = shown_pattern(tx, tx.need(Pattern, request.pattern_id, "pattern"))
    name = f"{old.name} (copy)" if request.name is UNSET else request.name.strip()
    if not name:
        raise Invalid("A pattern needs a name.", problems=["name: is blank"])
    pattern = replace(
        old,
        id=PatternId(tx.new_id("pattern")),
        name=name,
        # A policy that is missing asks, whatever the configured default allows (POL-9).
        approval_policy=old.approval_policy or ASK_POLICY,
        created_at=tx.now,
        updated_at=tx.now,
        revision=1,
        is_builtin=False,
        is_favorite=False,
        origin=UNSET,
    )
    if sum(len(encode(other)) for other in (*tx.all(Pattern), pattern)) > MAX_PATTERNS_BYTES:
        problem = f"all patterns together would be over {MAX_PATTERNS_BYTES} bytes; delete some"
        raise Invalid(f"The pattern cannot be copied: {problem}.", problems=[problem])
    tx.put(pattern)
    known = offers_of(tx, ListOwner.PATTERN, old.id)
    record_offers(tx, ListOwner.PATTERN, pattern.id, known, known)
    return _changed(pattern)


def delete(tx: Tx, request: ask.PatternsGet) -> out.Ended:
    """Delete a pattern; its sessions stay, and running runs go on with their snapshot (PAT-2)."""
    pattern = tx.need(Pattern, request.pattern_id, "pattern")
    if pattern.is_builtin:
        raise ReadOnly(f"Pattern {pattern.id!r} is built in and cannot be deleted.", pattern_id=pattern.id)
    refuse_owned_by_file(pattern)
    tx.delete(Pattern, pattern.id)
    record_offers(tx, ListOwner.PATTERN, pattern.id, (), {})
    tx.emit(EventType.PATTERN_DELETED, pattern_id=pattern.id)
    return out.Ended(seq=0)


def favorite(tx: Tx, request: ask.PatternsFavorite) -> out.PatternChanged:
    """Mark or unmark; built-in ones too."""
    old = tx.need(Pattern, request.pattern_id, "pattern")
    pattern = replace(old, is_favorite=request.is_favorite, updated_at=tx.now)
    # The revision of what a file defines is that of its text.
    if old.origin is UNSET:
        pattern = replace(pattern, revision=old.revision + 1)
    tx.put(pattern)
    return _changed(pattern)


def refuse_owned_by_file(pattern: Pattern) -> None:
    """Refuse to change what a file defines (FIL-1).

    Raises: ReadOnly -- naming file and line.
    """
    if pattern.origin is not UNSET:
        raise ReadOnly(
            f"Pattern {pattern.id!r} is defined in {pattern.origin.file}, line {pattern.origin.line}; change it there.",
            pattern_id=pattern.id,
            file=pattern.origin.file,
            line=pattern.origin.line,
            next=f"eryx patterns copy {pattern.id}",
        )


def from_draft(tx: Tx, draft: ask.PatternDraft, old: Pattern | None) -> Pattern:
    """Return the pattern that a draft would become, unchecked."""
    policy = tx.context.default_policy if draft.approval_policy is UNSET else draft.approval_policy
    return Pattern(
        id=old.id if old else draft.id or PatternId(tx.new_id("pattern")),
        name=draft.name.strip(),
        mode=draft.mode,
        agents=draft.agents,
        description=draft.description,
        # Problems are looked for in the policy as it was written: normalising would hide a blank agent id.
        approval_policy=policy,
        max_iterations=draft.max_iterations,
        availability=draft.availability,
        unavailability_reason=draft.unavailability_reason,
        is_favorite=draft.is_favorite,
        is_builtin=old.is_builtin if old else False,
        created_at=old.created_at if old else tx.now,
        updated_at=tx.now,
        revision=old.revision + 1 if old else 1,
    )


def _all_problems(tx: Tx, pattern: Pattern, draft: ask.PatternDraft, old: Pattern | None) -> list[str]:
    found = problems_of(tx, pattern)
    if old is None and draft.id is not UNSET:
        found.append(f"id: there is no pattern {draft.id!r}; leave the id out to create one")
    for field in ("created_at", "updated_at", "is_builtin"):
        given = getattr(draft, field)
        if given is not UNSET and (old is None or given != getattr(old, field)):
            found.append(f"{field}: is set by the daemon")
    names = normalise_names((pattern.approval_policy or tx.context.default_policy).auto_approved_tool_names or ())
    held = pattern_list(tx, old).names if old else ()
    return found + unknown_tools(tx, names, LIST, held).refused


def problems_of(tx: Tx, pattern: Pattern) -> list[str]:
    """Name everything that makes a pattern unfit, wherever it comes from; unknown tools are not looked at."""
    found = pattern_problems(pattern)
    for index, agent in enumerate(pattern.agents):
        backend = tx.context.backends.get(agent.backend) if agent.backend else None
        if agent.backend and backend is None:
            found.append(f"agents[{index}].backend: there is no backend {agent.backend!r}")
        elif backend is not None and backend.needs_model and not agent.model:
            found.append(f"agents[{index}].model: the backend {backend.name!r} needs one")
    size = len(encode(pattern))
    others = sum(len(encode(other)) for other in tx.all(Pattern) if other.id != pattern.id)
    if size > MAX_PATTERN_BYTES:
        found.append(f"the pattern is {size} bytes long, more than {MAX_PATTERN_BYTES}")
    elif size + others > MAX_PATTERNS_BYTES:
        found.append(f"all patterns together would be over {MAX_PATTERNS_BYTES} bytes; delete some")
    if pattern.availability is Availability.AVAILABLE and pattern.mode in MODE_UNAVAILABLE and not pattern.is_builtin:
        found.append(f"mode: {MODE_UNAVAILABLE[pattern.mode]}; set availability to 'unavailable' to keep it")
    return found


def _warnings(tx: Tx, pattern: Pattern, old: Pattern | None) -> tuple[str, ...]:
    names = normalise_names((pattern.approval_policy or tx.context.default_policy).auto_approved_tool_names or ())
    held = pattern_list(tx, old).names if old else ()
    kept = unknown_tools(tx, names, LIST, held).kept
    return (*pattern_warnings(pattern), *kept, *shared_tools(tx, names, LIST))


def _refuse_stale(draft: ask.PatternDraft, old: Pattern) -> None:
    if draft.revision != old.revision:
        raise Conflict(
            f"Pattern {old.id!r} is at revision {old.revision}, the draft was made from {draft.revision or 'none'}.",
            pattern_id=old.id,
            revision=old.revision,
        )


def _refuse_builtin_changes(pattern: Pattern, old: Pattern) -> None:
    free = {"approval_policy", "is_favorite", "updated_at", "revision"}
    touched = [
        name for name in old.__struct_fields__ if name not in free and getattr(pattern, name) != getattr(old, name)
    ]
    if touched:
        raise ReadOnly(
            f"Pattern {old.id!r} is built in; only its approval policy and favourite mark can be changed,"
            f" not {', '.join(touched)}.",
            pattern_id=old.id,
            fields=touched,
            next=f"eryx patterns copy {old.id}",
        )


def _store(tx: Tx, pattern: Pattern, old: Pattern | None) -> out.PatternChanged:
    policy = normalise(pattern.approval_policy or tx.context.default_policy)
    pattern = replace(pattern, approval_policy=policy)
    tx.put(pattern)
    names = policy.auto_approved_tool_names or ()
    before = pattern_list(tx, old).names if old else ()
    warnings = _warnings(tx, pattern, old)
    for tool in names:
        if tool not in before:
            tx.emit(EventType.POLICY_WIDENED, widening=Widening(tool_id=tool, why=f"pattern {pattern.id}"))
    record_offers(tx, ListOwner.PATTERN, pattern.id, names, tx.context.catalog)
    return replace(_changed(pattern), warnings=warnings)


def _changed(pattern: Pattern) -> out.PatternChanged:
    return out.PatternChanged(pattern=pattern, seq=0, warnings=tuple(pattern_warnings(pattern)))
