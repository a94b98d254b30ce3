"""What is joined from the rows of a view: a session with its queue, the list in force, who offers a list's ids."""

from collections.abc import Hashable
from typing import Protocol

from msgspec import UNSET, UnsetType

from eryxd.api.replies import Effective, SessionView
from eryxd.core.state import Key, R
from eryxd.domain.approval import Approval, brief
from eryxd.domain.ids import ProviderId, SessionId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import ASK_POLICY, UNAVAILABLE, EffectivePolicy, effective, problems as policy_problems
from eryxd.domain.session import (
    ListOwner,
    Offer,
    Run,
    SessionHead,
)


class View(Protocol):
    """What both a state and a transaction can tell."""

    def get(self, kind: type[R], key: Key) -> R | None:
        """Return a row."""

    def of(self, kind: type[R], group: Hashable) -> list[R]:
        """Return the kept rows of one group."""


def pending(view: View, session: SessionId) -> list[Approval]:
    """Return what waits in a session, in request order."""
    return sorted(view.of(Approval, session), key=lambda approval: approval.number)


def live_run(view: View, session: SessionId) -> Run | None:
    """Return the session's run that has not ended."""
    return next(iter(view.of(Run, session)), None)


def session_view(view: View, session: SessionId) -> SessionView | None:
    """Join a session's head with its approvals, as briefs, and the list in force.  None: no such session."""
    head = view.get(SessionHead, session)
    if head is None:
        return None
    waiting = [brief(approval) for approval in pending(view, session)]
    pattern = view.get(Pattern, head.pattern_id)
    in_force: Effective | UnsetType = UNSET
    if pattern is not None or head.approval_settings is not UNSET:
        policy = effective_policy(pattern, head)
        in_force = Effective(auto_approved_tool_names=policy.auto_approved_tool_names, list_from=policy.list_from)
    return SessionView(
        **{name: getattr(head, name) for name in head.__struct_fields__},
        pending_approval=waiting[0] if waiting else UNSET,
        pending_approval_queue=tuple(waiting[1:]),
        effective=in_force,
    )


def effective_policy(pattern: Pattern | None, head: SessionHead) -> EffectivePolicy:
    """Return what a run of this session would obey; without a pattern or a policy everything asks (POL-9)."""
    settings = None if head.approval_settings is UNSET else head.approval_settings
    if pattern is None:
        return effective(ASK_POLICY, settings)
    if pattern.approval_policy is UNSET:
        # Nobody knows what the session's own list was meant to go with, so it allows nothing either.
        return UNAVAILABLE
    if policy_problems(pattern.approval_policy, [agent.id for agent in pattern.agents]):
        # It was never saved like this: somebody else's hand, or a defect.  A rule for nobody must not let all pass.
        return UNAVAILABLE
    return effective(pattern.approval_policy, settings)


def offers_of(view: View, owner: ListOwner, owner_id: str) -> dict[ToolId, tuple[ProviderId, ...]]:
    """Return the recorded providers of a list's ids."""
    return {offer.tool_id: offer.providers for offer in view.of(Offer, (owner, owner_id))}
