"""The timeline's view of approvals: one event each, brought up to date in place."""

import pytest
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.domain.approval import Approval, ApprovalStatus, PermissionKind, Resolution, resolve
from eryxd.domain.ids import TimelineId
from eryxd.domain.policy import CheckpointKind
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus, approval_event
from tests.builders import NOON, after, approval, approval_message, decider, timeline_event
from tests.requirements import requirement
from tests.strategies import Ending, endings, pending_approvals


def opened(asked: Approval, number: int = 7) -> TimelineEvent:
    """Return the event of an approval that was just requested."""
    return approval_event(asked, None, TimelineId("t1"), number)


def updated(asked: Approval, event: TimelineEvent) -> TimelineEvent:
    """Return the event brought up to date; the id and number given along belong to another event."""
    return approval_event(asked, event, TimelineId("t2"), 99)


def ended(asked: Approval, ending: Ending) -> Approval:
    """Resolve an approval in a generated way."""
    return resolve(asked, ending.status, ending.resolution, after(5), ending.by, ending.note)


@requirement("TLN-1")
def test_kinds_and_statuses_are_stable_words() -> None:
    """Clients draw by them."""
    assert set(TimelineKind) == {
        "run-started",
        "thinking",
        "handoff",
        "tool-call",
        "approval",
        "message",
        "run-completed",
        "run-failed",
        "run-cancelled",
    }
    assert set(TimelineStatus) == {"running", "completed", "error"}


@requirement("TLN-1", "TLN-2")
def test_a_pending_approval_is_a_running_event_without_a_decision() -> None:
    """It carries what was asked, under the approval's own words."""
    asked = approval(
        detail="Coder requested shell permission.",
        permission_kind=PermissionKind.SHELL,
        call_id="call-1",
        provider="builtin:shell",
    )

    assert opened(asked) == timeline_event(
        "t1",
        number=7,
        kind=TimelineKind.APPROVAL,
        occurred_at=asked.requested_at,
        status=TimelineStatus.RUNNING,
        agent_id="coder",
        agent_name="Coder",
        approval_id="a1",
        approval_kind=CheckpointKind.TOOL_CALL,
        approval_title="Approve shell",
        approval_detail="Coder requested shell permission.",
        permission_kind=PermissionKind.SHELL,
        tool_name="shell",
        provider="builtin:shell",
        call_id="call-1",
    )


@requirement("TLN-2")
@pytest.mark.parametrize(
    ("decision", "status"),
    [(ApprovalStatus.APPROVED, TimelineStatus.COMPLETED), (ApprovalStatus.REJECTED, TimelineStatus.ERROR)],
)
def test_a_decision_updates_the_event_in_place(decision: ApprovalStatus, status: TimelineStatus) -> None:
    """Approved is completed, rejected is an error; the time of the request stays."""
    event = opened(approval())
    done = resolve(approval(), decision, Resolution.USER, after(5), decider(), "Looks right.")

    assert updated(done, event) == replace(
        event,
        status=status,
        decision=decision,
        updated_at=after(5),
        resolution=Resolution.USER,
        resolved_by=decider(),
        note="Looks right.",
    )


@requirement("APR-7", "TLN-2")
def test_the_event_of_a_final_response_shows_nothing_of_it() -> None:
    """Held-back text appears in no timeline."""
    secret = approval_message(content="the text that is held back")
    event = opened(approval(kind=CheckpointKind.FINAL_RESPONSE, messages=(secret,), tool_name=None))

    assert secret.content not in repr(event)
    assert event.approval_kind is CheckpointKind.FINAL_RESPONSE


@requirement("TLN-2")
@given(asked=pending_approvals, ending=endings)
def test_one_event_per_approval_however_often_it_changes(asked: Approval, ending: Ending) -> None:
    """Id, number, time and everything that was asked stay as they were."""
    event = opened(asked)

    once = updated(ended(asked, ending), updated(asked, event))

    assert updated(ended(asked, ending), once) == once
    restored = replace(
        once,
        status=TimelineStatus.RUNNING,
        decision=UNSET,
        updated_at=UNSET,
        resolution=UNSET,
        resolved_by=UNSET,
        note=UNSET,
    )
    assert restored == event


@requirement("TLN-2")
@given(asked=pending_approvals, ending=endings)
def test_occurred_at_and_number_never_change(asked: Approval, ending: Ending) -> None:
    """The order of a run's events is that of their beginnings."""
    event = opened(asked)

    for later in (updated(asked, event), updated(ended(asked, ending), event)):
        assert (later.id, later.occurred_at, later.number) == (event.id, NOON, 7)


@requirement("RUN-4", "TLN-2")
@given(asked=pending_approvals, ending=endings)
def test_an_event_that_has_ended_is_not_opened_again(asked: Approval, ending: Ending) -> None:
    """A late word about the request, as it was while pending, changes nothing."""
    done = updated(ended(asked, ending), opened(asked))

    assert updated(asked, done) == done
    assert done.status is not TimelineStatus.RUNNING


@requirement("TLN-2")
@given(asked=pending_approvals, ending=endings)
def test_an_approval_first_seen_at_its_end_gives_the_same_event(asked: Approval, ending: Ending) -> None:
    """Recovery writes it so when the request itself never reached the timeline."""
    done = ended(asked, ending)

    assert opened(done) == updated(done, opened(asked))
