"""What a start finds unfinished, and puts in order in one transaction.

Laws: afterwards nothing runs or waits; recovering twice is recovering once; no approval becomes approved.

Source: APR-11.
"""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.core.change import Tx, touch
from eryxd.core.settle import INTERRUPTED, close_approval, settle
from eryxd.domain.approval import Approval, Resolution
from eryxd.domain.pattern import Pattern, builtin_patterns
from eryxd.domain.session import (
    SCRATCHPAD,
    Message,
    Project,
    Run,
    SessionHead,
    SessionStatus,
    Withheld,
)
from eryxd.domain.timeline import TimelineEvent, TimelineStatus
from eryxd.plugin.types import DeniedBy, Deny

INTERRUPTED_ERROR: Final = "The daemon stopped while this session was running; nothing was resumed."


def recover(tx: Tx, scratch: str) -> int:
    """Interrupt what was running, and put the built-in records in place.  Returns how many runs were interrupted."""
    runs = list(tx.all(Run))
    for run in runs:
        settle(tx, run.id, INTERRUPTED, INTERRUPTED_ERROR)
    for approval in list(tx.all(Approval)):
        close_approval(tx, approval, Resolution.INTERRUPTED, Deny(by=DeniedBy.INTERRUPTED))
    for row in list(tx.all(Withheld)):
        tx.delete(Withheld, row.id)
    for event in list(tx.all(TimelineEvent)):
        tx.put(replace(event, status=TimelineStatus.ERROR, updated_at=tx.now))
    for message in list(tx.all(Message)):
        tx.put(replace(message, streaming=UNSET, incomplete=True))
    for head in list(tx.all(SessionHead)):
        if head.status is SessionStatus.RUNNING:
            touch(tx, head, status=SessionStatus.ERROR, last_error=INTERRUPTED_ERROR)
    _place_builtins(tx, scratch)
    return len(runs)


def _place_builtins(tx: Tx, scratch: str) -> None:
    """Renew what is the code's in built-in records; policy and favourite stay the user's (PAT-2)."""
    for fresh in builtin_patterns(tx.context.default_policy, tx.now):
        old = tx.get(Pattern, fresh.id)
        if old is not None and old.origin is not UNSET:
            # A file stands in its place (FIL-2).
            continue
        if old is not None:
            kept = replace(
                fresh,
                approval_policy=old.approval_policy,
                is_favorite=old.is_favorite,
                revision=old.revision,
                created_at=old.created_at,
                updated_at=old.updated_at,
            )
            fresh = kept
        if fresh != old:
            tx.put(fresh)
    project = tx.get(Project, SCRATCHPAD)
    if project is None or project.path != scratch:
        tx.put(Project(id=SCRATCHPAD, name="Scratchpad", path=scratch, created_at=tx.now))
