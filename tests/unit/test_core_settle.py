"""The one end of every run: nothing of it waits, is open, is withheld, and nothing can be settled twice."""

from typing import Any, Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.core import runs, saying as saying_rules
from eryxd.core.change import Change, ForgetRun, Release, StopRun
from eryxd.core.settle import CANCELLED, COMPLETED, EXPIRED, FAILED, INTERRUPTED, End
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.errors import NotFound
from eryxd.domain.ids import MessageId
from eryxd.domain.session import Message, Run, RunStatus, SessionHead, SessionStatus, Withheld
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import Allow, DeniedBy, Deny
from tests.builders import after, rule, session, timeline_event
from tests.core_builders import World, call, kept, put, saying, types, world
from tests.requirements import requirement

ENDS: Final = pytest.mark.parametrize("end", [COMPLETED, FAILED, EXPIRED, CANCELLED, INTERRUPTED])
HALF: Final = rule("final-response", ["coder"])


def busy() -> tuple[World, Run, list[Approval], MessageId]:
    """Return a world whose run has two calls waiting, one running, one message half said and one withheld."""
    there = world(rules=[rule("tool-call"), HALF], listed=["view"], agents=["planner", "coder"])
    made = there.send()
    assert there.asks(made, call("view", "c0"), "planner") == Allow()
    half: MessageId = there.do(saying_rules.begin_message, saying(made, "", "planner")).reply
    there.says(made, "The secret.", "coder")
    return there, made, [there.asks(made, call(call_id=one)) for one in ("c1", "c2")], half


def ending(run: Run, end: End, error: Any = UNSET, partial: Any = None) -> runs.EndRun:
    """Return the request that settles a run from outside."""
    return runs.EndRun(run.id, end, error, partial or {})


@requirement("APR-10")
@ENDS
def test_after_every_end_nothing_waits_is_open_or_is_withheld(end: End) -> None:
    """Approvals, handles, events and withheld messages, together."""
    there, made, asked, _ = busy()
    change = there.do(runs.end, ending(made, end))
    left = {kind: rows for kind, (rows, _) in kept(there.head).items() if rows}

    assert {kind.__name__ for kind in left} == {"Pattern", "Project", "SessionHead", "Offers"}
    assert kept(there.committed) == kept(there.head)
    assert there.every(Withheld) == []
    assert [there.row(Approval, one.id).status for one in asked] == [ApprovalStatus.REJECTED] * 2
    assert change.effects == (
        *(Release(made.id, one.id, Deny(by=end.denied_by)) for one in asked),
        ForgetRun(there.row(Run, made.id)),
    )
    assert [event.status for event in there.every(TimelineEvent) if event.status is TimelineStatus.RUNNING] == []


@requirement("APR-10", "RUN-4")
@ENDS
@pytest.mark.parametrize("again", [COMPLETED, FAILED, CANCELLED])
def test_what_has_ended_does_not_end_again(end: End, again: End) -> None:
    """Whoever comes second changes nothing, not even to another end."""
    there, made, _, half = busy()
    there.do(runs.end, ending(made, end))

    for late in (ending(made, again, "Late."), ending(made, again, partial={half: "Late."})):
        assert there.do(runs.end, late) == Change((), (), (), (), None)
    assert there.do(runs.finish, made.id) == Change((), (), (), (), None)


@requirement("APR-10", "TLN-1")
@pytest.mark.parametrize(
    ("end", "run_status", "kind", "status", "resolution", "session_status"),
    [
        (COMPLETED, "completed", "run-completed", "completed", "cancelled", "idle"),
        (FAILED, "error", "run-failed", "error", "run-failed", "error"),
        (EXPIRED, "error", "run-failed", "error", "expired", "error"),
        (CANCELLED, "cancelled", "run-cancelled", "completed", "cancelled", "idle"),
        (INTERRUPTED, "error", "run-failed", "error", "interrupted", "error"),
    ],
)
def test_every_end_says_what_it_is(
    end: End, run_status: str, kind: str, status: str, resolution: str, session_status: str
) -> None:
    """In the run, its last event, its approvals and its session."""
    there, made, asked, _ = busy()
    there.now = after(9)
    error: Any = "It broke." if run_status == "error" else UNSET
    change = there.do(runs.end, ending(made, end, error))
    last = max(there.every(TimelineEvent), key=lambda event: event.number)

    assert put(change, Run) == replace(
        made, withholding=True, status=RunStatus(run_status), completed_at=after(9), error=error
    )
    assert last == timeline_event(
        last.id,
        run_id=made.id,
        number=last.number,
        kind=TimelineKind(kind),
        occurred_at=after(9),
        status=TimelineStatus(status),
        error=error,
    )
    assert {there.row(Approval, one.id).resolution for one in asked} == {Resolution(resolution)}
    assert there.row(SessionHead, "s1") == session(
        status=SessionStatus(session_status), last_error=error, updated_at=after(9)
    )


@requirement("APR-10", "TLN-1")
@ENDS
def test_open_events_end_with_their_run(end: End) -> None:
    """The run did start; everything else ends as the run did."""
    there, made, _, _ = busy()
    before = {event.id: event for event in there.head.of(TimelineEvent, made.id)}
    there.do(runs.end, ending(made, end))
    after_all = TimelineStatus.COMPLETED if end is COMPLETED else TimelineStatus.ERROR
    expected = {
        TimelineKind.RUN_STARTED: TimelineStatus.COMPLETED,
        TimelineKind.TOOL_CALL: after_all,
        TimelineKind.MESSAGE: after_all,
        TimelineKind.APPROVAL: TimelineStatus.ERROR,
    }

    ended = [there.row(TimelineEvent, event) for event in before]
    assert {event.kind: event.status for event in ended} == expected
    assert [(event.occurred_at, event.number) for event in ended] == [
        (event.occurred_at, event.number) for event in before.values()
    ]


@requirement("RUN-3")
def test_published_text_stays_and_a_half_said_message_is_marked() -> None:
    """With what was streamed of it; what was withheld is in none of it."""
    there, made, _, half = busy()
    begun = there.row(Message, half)
    change = there.do(runs.end, ending(made, CANCELLED, partial={half: "Half a senten"}))

    assert put(change, Message) == replace(begun, content="Half a senten", streaming=UNSET, incomplete=True)
    assert there.row(TimelineEvent, "t" + half[1:]).content == "Half a senten"
    assert "secret" not in repr([change.puts, change.events])


@requirement("RUN-3")
def test_cancelling_first_closes_the_gate_and_rejects_what_waits() -> None:
    """The run and the session go on until its processes have ended."""
    there, made, asked, half = busy()
    there.now = after(4)
    change = there.do(runs.cancel, made.id)
    closing = there.row(Run, made.id)

    assert closing == replace(made, withholding=True, cancel_requested_at=after(4))
    assert change.reply.run == closing
    assert [(there.row(Approval, one.id).status, there.row(Approval, one.id).resolution) for one in asked] == [
        (ApprovalStatus.REJECTED, Resolution.CANCELLED)
    ] * 2
    assert change.effects == (
        *(Release(made.id, one.id, Deny(by=DeniedBy.CANCELLED)) for one in asked),
        StopRun(made.id),
    )
    assert there.row(SessionHead, "s1").status is SessionStatus.RUNNING
    assert there.row(Message, half).streaming is True
    assert types(change)[-2:] == ["run-updated", "session-updated"]
    assert there.asks(made, call("view", "c9")) == Deny(by=DeniedBy.CANCELLED)


@requirement("RUN-3")
def test_cancelling_ends_when_everything_it_started_has() -> None:
    """In a second commit; then the session is idle and takes messages."""
    there, made, _, _ = busy()
    there.do(runs.cancel, made.id)
    there.do(runs.end, ending(made, CANCELLED))

    assert there.row(Run, made.id).status is RunStatus.CANCELLED
    assert there.row(SessionHead, "s1") == session()
    assert there.send().status is RunStatus.RUNNING


@requirement("RUN-3")
def test_cancelling_twice_is_cancelling_once() -> None:
    """Also after the end; the run is returned as it is."""
    there, made, _, _ = busy()
    there.do(runs.cancel, made.id)
    there.now = after(9)
    for _ in range(2):
        again = there.do(runs.cancel, made.id)
        assert again[:4] == ((), (), (), ())
        assert again.reply.run == there.row(Run, made.id)
        there.do(runs.end, ending(made, CANCELLED))


@requirement("RUN-3")
def test_cancelling_a_run_that_never_was_is_not_found() -> None:
    """By its id."""
    assert world().refuses(runs.cancel, "r99", NotFound).data == {"id": "r99", "noun": "run"}


@requirement("RUN-4", "APR-10")
def test_a_decision_on_the_last_response_wins_over_a_later_end() -> None:
    """It settled the run; the end that was on its way changes nothing."""
    there = world(rules=[HALF])
    made = there.send()
    there.says(made, "Done.")
    there.resolves(there.finishes(made))

    assert there.do(runs.end, ending(made, INTERRUPTED, "Too late.")) == Change((), (), (), (), None)
    assert there.row(Run, made.id).status is RunStatus.COMPLETED


@requirement("APR-10")
def test_settling_touches_no_other_run() -> None:
    """What waits and runs in another session does so afterwards."""
    there = world(session("s2"))
    made, other = there.send(), there.send(session_id="s2")
    waits = there.asks(other, call())
    there.do(runs.end, ending(made, FAILED, "It broke."))

    assert there.row(Run, other.id) == other
    assert there.row(Approval, waits.id) == waits
    assert there.row(SessionHead, "s2") == session("s2", status=SessionStatus.RUNNING)


@requirement("APR-10")
def test_a_run_whose_session_is_gone_is_settled_all_the_same() -> None:
    """There is no session to write its status into."""
    there, made, _, _ = busy()
    there.head.delete(SessionHead, "s1")
    change = there.do(runs.end, ending(made, INTERRUPTED))

    assert put(change, Run).status is RunStatus.ERROR
    assert "session-updated" not in types(change)
