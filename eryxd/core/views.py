"""What is joined from the rows of a view: a session with its queue and the list in force."""

from msgspec import UNSET, UnsetType

from eryxd.api.replies import Effective, SessionView
from eryxd.core.lists import shown_pattern, shown_session
from eryxd.core.state import View
from eryxd.domain.approval import Approval, brief
from eryxd.domain.ids import SessionId
from eryxd.domain.pattern import Pattern
from eryxd.domain.policy import ASK_POLICY, UNAVAILABLE, EffectivePolicy, effective, problems as policy_problems
from eryxd.domain.session import (
    Run,
    SessionHead,
)


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
    head = shown_session(view, head)
    waiting = [brief(approval) for approval in pending(view, session)]
    pattern = view.get(Pattern, head.pattern_id)
    in_force: Effective | UnsetType = UNSET
    if pattern is not None or head.approval_settings is not UNSET:
        policy = effective_policy(view, pattern, head)
        in_force = Effective(auto_approved_tool_names=policy.auto_approved_tool_names, list_from=policy.list_from)
    return SessionView(
        **{name: getattr(head, name) for name in head.__struct_fields__},
        pending_approval=waiting[0] if waiting else UNSET,
        pending_approval_queue=tuple(waiting[1:]),
        effective=in_force,
    )


def effective_policy(view: View, pattern: Pattern | None, head: SessionHead) -> EffectivePolicy:
    """Return what a run of this session would obey; without a pattern or a policy everything asks (POL-9)."""
    head = shown_session(view, head)
    settings = None if head.approval_settings is UNSET else head.approval_settings
    if pattern is None:
        return effective(ASK_POLICY, settings)
    if pattern.approval_policy is UNSET:
        # Nobody knows what the session's own list was meant to go with, so it allows nothing either.
        return UNAVAILABLE
    if policy_problems(pattern.approval_policy, [agent.id for agent in pattern.agents]):
        # It was never saved like this: somebody else's hand, or a defect.  A rule for nobody must not let all pass.
        return UNAVAILABLE
    return effective(shown_pattern(view, pattern).approval_policy or ASK_POLICY, settings)
