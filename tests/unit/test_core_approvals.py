"""Deciding approvals: once, by id, in any order; and what happens to those that nobody decides."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.replies import Resolved
from eryxd.core import approvals, runs
from eryxd.core.change import Expire, Release
from eryxd.core.settle import EXPIRED
from eryxd.core.views import session_view
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution, brief
from eryxd.domain.errors import ApprovalNotActive, Conflict, Invalid, NotFound
from eryxd.domain.ids import SessionId
from eryxd.domain.session import Message, Run, RunStatus, SessionHead, SessionStatus
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import Allow, DeniedBy, Deny
from tests.builders import after, decider, rule, session
from tests.core_builders import World, call, put, resolving, types, world
from tests.requirements import requirement

S1 = SessionId("s1")
ANNA = decider(pid=77, client_name="anna")


def waiting(count: int = 1, **changes: Any) -> tuple[World, Run, list[Approval]]:
    """Return a world in which so many different calls wait in session s1."""
    there = world(**changes)
    made = there.send()
    return there, made, [there.asks(made, call(call_id=f"c{n}")) for n in range(1, count + 1)]


def queue(there: World, session: str = "s1") -> tuple[Any, list[Any]]:
    """Return the head of a session's queue and the rest, by id, as its view has them."""
    view = session_view(there.head, SessionId(session))
    assert view is not None
    return view.pending_approval and view.pending_approval.id, [one.id for one in view.pending_approval_queue]


@requirement("APR-4", "APR-5", "TLN-2")
@pytest.mark.parametrize(
    ("decision", "status", "answer"),
    [
        ("approved", TimelineStatus.COMPLETED, Allow()),
        ("rejected", TimelineStatus.ERROR, Deny(by=DeniedBy.PERSON, note="Not now.")),
    ],
)
def test_a_decision_ends_the_waiting_with_its_event_and_its_answer(decision: str, status: Any, answer: Any) -> None:
    """Row, event, answer and reply in one change; the run goes on either way."""
    there, made, [asked] = waiting()
    event = there.row(TimelineEvent, "t" + asked.id[1:])
    there.now, there.caller = after(8), ANNA
    change = there.resolves(asked, decision, note="Not now.")
    resolved = replace(
        asked,
        status=ApprovalStatus(decision),
        resolution=Resolution.USER,
        resolved_at=after(8),
        resolved_by=ANNA,
        note="Not now.",
    )

    assert change.puts == (
        resolved,
        replace(
            event,
            status=status,
            decision=ApprovalStatus(decision),
            resolution=Resolution.USER,
            resolved_by=ANNA,
            note="Not now.",
            updated_at=after(8),
        ),
    )
    assert types(change) == ["approval-resolved", "timeline-event", "session-updated"]
    assert change.effects == (Release(made.id, asked.id, answer),)
    view = session_view(there.head, S1)
    assert change.reply == Resolved(approval=brief(resolved), released=(), session=view, seq=0)  # type: ignore[arg-type]
    assert there.row(Run, made.id) == made


@requirement("APR-2", "APR-3")
def test_any_of_the_queue_may_be_decided_and_the_next_is_its_head_at_once() -> None:
    """In request order, without the head; waiting is not a status."""
    there, made, [first, second, third] = waiting(3)
    assert queue(there) == (first.id, [second.id, third.id])

    there.resolves(second)
    assert queue(there) == (first.id, [third.id])
    there.resolves(first, "rejected")
    assert queue(there) == (third.id, [])
    assert there.row(SessionHead, "s1").status is SessionStatus.RUNNING
    there.resolves(third)
    assert queue(there) == (UNSET, [])
    assert there.row(SessionHead, "s1").status is SessionStatus.RUNNING
    assert there.row(Run, made.id).status is RunStatus.RUNNING


@requirement("APR-3")
def test_sessions_do_not_queue_behind_each_other() -> None:
    """Each has its own head."""
    there = world(session("s2"))
    asked = [there.asks(there.send(session_id=one), call()) for one in ("s1", "s2")]
    there.resolves(asked[1])

    assert queue(there) == (asked[0].id, [])
    assert queue(there, "s2") == (UNSET, [])


@requirement("APR-4")
@pytest.mark.parametrize(("session_id", "approval_id"), [("s1", "a99"), ("s2", None)])
def test_an_approval_that_is_not_in_that_session_is_not_found(session_id: str, approval_id: str | None) -> None:
    """Neither an unknown id nor another session's."""
    there, _, [asked] = waiting(1)
    request = resolving(asked, session_id=session_id, **({} if approval_id is None else {"approval_id": approval_id}))
    error = there.refuses(approvals.resolve, request, NotFound)

    assert error.data == {"id": approval_id or asked.id, "noun": "approval"}


@requirement("APR-4", "APR-9")
@pytest.mark.parametrize("first", ["approved", "rejected"])
@pytest.mark.parametrize("then", ["approved", "rejected"])
def test_a_decision_is_made_once_and_whoever_comes_later_is_told_of_it(first: str, then: str) -> None:
    """Who, when and how; also when it is the same decision again.  Nothing changes."""
    there, _, [asked] = waiting()
    there.now, there.caller = after(8), ANNA
    there.resolves(asked, first)
    error = there.refuses(approvals.resolve, resolving(asked, then), ApprovalNotActive)

    assert error.data == {
        "approval_id": asked.id,
        "status": first,
        "resolution": "user",
        "resolved_at": after(8),
        "resolved_by": {"uid": 1000, "pid": 77, "client_name": "anna"},
        "same_decision": first == then,
    }


@requirement("APR-4")
def test_of_two_clients_racing_exactly_one_wins() -> None:
    """Also while the winner's decision is still on its way to the disk."""
    there, _, [asked] = waiting()
    there.start(approvals.resolve, resolving(asked, "rejected"))

    assert there.refuses(approvals.resolve, resolving(asked), ApprovalNotActive).data["same_decision"] is False


@requirement("APR-4")
def test_the_digest_is_compared_when_it_is_given() -> None:
    """What was shown is what is decided."""
    there, _, [asked] = waiting()
    error = there.refuses(approvals.resolve, resolving(asked, digest="f" * 64), Conflict)
    assert error.data == {"approval_id": asked.id, "next": f"eryx approvals show {asked.id}"}

    assert there.resolves(asked, digest=asked.digest).reply.approval.status is ApprovalStatus.APPROVED


@requirement("APR-4")
def test_waiting_on_is_not_a_decision() -> None:
    """Only `approved` and `rejected` are."""
    there, _, [asked] = waiting()
    error = there.refuses(approvals.resolve, resolving(asked, "pending"), Invalid)

    assert error.data == {"problems": ["decision: is not a decision"]}


@requirement("APR-6")
def test_a_one_time_approval_releases_nothing_else() -> None:
    """Not even a call of the same tool with the same arguments."""
    there, _, [first, second] = waiting(2)
    change = there.resolves(first)

    assert (change.reply.released, len(change.effects)) == ((), 1)
    assert there.row(Approval, second.id) == second


@requirement("POL-1", "APR-1")
def test_an_approval_says_when_it_expires_and_is_then_rejected() -> None:
    """Counted from its request; whoever waits is told that nobody answered."""
    there = world(expires_after_s=60)
    made = there.send()
    there.now = after(5)
    request = there.do(approvals.ask_tool_call, there.asking(made, call()))
    asked = there.row(Approval, request.reply)
    assert asked.expires_at == after(60)
    assert request.effects == (Expire(asked.id, 60),)

    there.now = after(65)
    change = there.do(approvals.expire, asked.id)
    assert put(change, Approval) == replace(
        asked, status=ApprovalStatus.REJECTED, resolution=Resolution.EXPIRED, resolved_at=after(65)
    )
    assert change.effects == (Release(made.id, asked.id, Deny(by=DeniedBy.EXPIRED)),)
    assert there.row(Run, made.id) == made


@requirement("POL-1")
def test_without_a_limit_an_approval_waits_for_ever() -> None:
    """Nobody is asked to come back."""
    there = world()
    change = there.do(approvals.ask_tool_call, there.asking(there.send(), call()))

    assert (change.effects, put(change, Approval).expires_at) == ((), UNSET)


@requirement("POL-1")
@pytest.mark.parametrize("approval_id", [None, "a99"], ids=["decided", "unknown"])
def test_time_that_runs_out_after_the_decision_changes_nothing(approval_id: str | None) -> None:
    """It never approves, and never takes back."""
    there, _, [asked] = waiting(expires_after_s=60)
    there.resolves(asked)
    change = there.do(approvals.expire, approval_id or asked.id)

    assert change == ((), (), (), (), None)


@requirement("POL-1", "APR-7")
def test_a_final_response_that_nobody_reads_in_time_fails_its_run() -> None:
    """With what it withheld."""
    there = world(rules=[rule("final-response")], expires_after_s=60)
    made = there.send()
    there.says(made, "The secret.")
    asked = there.finishes(made)
    there.do(approvals.expire, asked.id)
    ended = there.row(Run, made.id)

    assert (ended.status, ended.error) == (EXPIRED.status, "Nobody answered the final response in time.")
    assert there.row(Approval, asked.id).resolution is Resolution.EXPIRED
    assert [one.content for one in there.every(Message)] == ["Mend the parser."]


@requirement("TLN-2")
def test_every_approval_has_one_event_that_follows_it() -> None:
    """Running while it waits, without a decision."""
    there, _, asked = waiting(3)
    there.resolves(asked[0])
    there.resolves(asked[1], "rejected")
    events = [row for row in there.every(TimelineEvent) if row.kind is TimelineKind.APPROVAL]

    assert [(row.approval_id, row.status.value, row.decision) for row in events] == [
        (asked[0].id, "completed", ApprovalStatus.APPROVED),
        (asked[1].id, "error", ApprovalStatus.REJECTED),
        (asked[2].id, "running", UNSET),
    ]


@requirement("RUN-3", "APR-4")
def test_what_a_cancel_rejected_cannot_be_approved() -> None:
    """The refusal says what happened; nobody's name is on it."""
    there, made, [asked] = waiting()
    there.do(runs.cancel, made.id)
    error = there.refuses(approvals.resolve, resolving(asked), ApprovalNotActive)

    assert (error.data["status"], error.data["resolution"]) == ("rejected", "cancelled")
    assert "resolved_by" not in error.data
