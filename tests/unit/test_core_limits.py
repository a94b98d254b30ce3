"""A queue has an end, and a long one is not told over and over."""

from eryxd.api.events import EventType
from eryxd.core.approvals import MAX_WAITING, TOO_MANY, ask_tool_call
from eryxd.domain.approval import Approval
from eryxd.domain.timeline import TimelineEvent
from eryxd.plugin.types import DeniedBy, Deny
from tests.core_builders import call, event_of, types, world
from tests.requirements import requirement


@requirement("APR-3", "TLN-3")
def test_a_call_beyond_the_limit_is_denied_and_recorded() -> None:
    """Nobody reads a queue without end; what cannot wait is refused, never allowed."""
    there = world(listed=[])
    made = there.send()
    for n in range(MAX_WAITING):
        there.asks(made, call("edit", call_id=f"c{n}"))
    one_more = call("edit", call_id="more")

    answer = there.asks(made, one_more)

    assert answer == Deny(by=DeniedBy.RULE, note=TOO_MANY)
    assert len(there.every(Approval)) == MAX_WAITING
    (asked,) = there.row(TimelineEvent, event_of(made, one_more)).asks or ()
    assert asked.refused == TOO_MANY


@requirement("TLN-5")
def test_one_that_joins_a_queue_does_not_tell_the_whole_queue() -> None:
    """Else a long queue would cost its square."""
    there = world(listed=[])
    made = there.send()

    first, second = (
        there.do(ask_tool_call, there.asking(made, call("edit", call_id=call_id))) for call_id in ("c1", "c2")
    )

    assert EventType.SESSION_UPDATED in types(first)
    assert EventType.SESSION_UPDATED not in types(second)
    assert EventType.APPROVAL_REQUESTED in types(second)
