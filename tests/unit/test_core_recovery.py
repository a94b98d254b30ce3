"""What a start finds unfinished: interrupted in one transaction, never resumed; built-in records renewed."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.core import recovery, runs, saying as saying_rules
from eryxd.core.change import Change
from eryxd.core.recovery import INTERRUPTED_ERROR
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.ids import ProjectId
from eryxd.domain.pattern import Mode, Pattern, builtin_patterns
from eryxd.domain.policy import ASK_POLICY, NO_CHECKPOINTS
from eryxd.domain.session import SCRATCHPAD, Message, Project, Run, RunStatus, SessionHead, SessionStatus, Withheld
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from tests.builders import (
    NOON,
    after,
    agent,
    approval,
    message,
    pattern,
    policy,
    project,
    rule,
    session,
    timeline_event,
    withheld,
)
from tests.core_builders import World, call, kept, saying, world
from tests.requirements import requirement

SCRATCH = "/state/scratch"


def interrupted(rules: Any = None) -> tuple[World, Run]:
    """Return a world that stopped while a call waited, one ran, and a message was half said."""
    there = world(session("s2"), rules=rules, listed=["view"])
    made = there.send()
    there.asks(made, call("view", "c0"))
    there.asks(made, call())
    there.do(saying_rules.begin_message, saying(made, ""))
    return there, made


def started(there: World) -> Change:
    """Start a daemon on what is durable."""
    there.restarts()
    there.now = after(60)
    return there.do(recovery.recover, SCRATCH)


@requirement("APR-11")
def test_what_ran_and_waited_is_interrupted() -> None:
    """The session has an error, its approval a rejected event, the run has failed."""
    there, made = interrupted()
    change = started(there)
    (asked,) = there.every(Approval)
    ended = there.row(Run, made.id)

    assert change.reply == 1
    assert there.row(SessionHead, "s1") == session(
        status=SessionStatus.ERROR, last_error=INTERRUPTED_ERROR, updated_at=after(60)
    )
    assert there.row(SessionHead, "s2") == session("s2")
    assert (asked.status, asked.resolution, asked.resolved_by) == (
        ApprovalStatus.REJECTED,
        Resolution.INTERRUPTED,
        UNSET,
    )
    event = there.row(TimelineEvent, "t" + asked.id[1:])
    assert (event.kind, event.status, event.decision, event.resolution, event.occurred_at) == (
        TimelineKind.APPROVAL,
        TimelineStatus.ERROR,
        ApprovalStatus.REJECTED,
        Resolution.INTERRUPTED,
        NOON,
    )
    assert ended == replace(made, status=RunStatus.ERROR, error=INTERRUPTED_ERROR, completed_at=after(60))


@requirement("APR-11", "APR-7")
def test_afterwards_nothing_runs_waits_is_open_or_is_withheld() -> None:
    """And no run begins: nothing dangerous is resumed."""
    there = world(rules=[rule("final-response")])
    made = there.send()
    there.says(made, "The secret.")
    there.finishes(made)
    change = started(there)
    left = {kind.__name__ for kind, (rows, _) in kept(there.head).items() if rows}

    assert left == {"Pattern", "Project", "SessionHead"}
    assert "secret" not in repr([change.puts, change.events])
    assert {type(effect).__name__ for effect in change.effects} == {"Release", "ForgetRun"}


@requirement("APR-11", "RUN-3")
def test_a_run_that_was_being_cancelled_fails_too() -> None:
    """How far its processes had come nobody knows."""
    there, made = interrupted()
    there.do(runs.cancel, made.id)
    started(there)

    assert there.row(Run, made.id).status is RunStatus.ERROR


@requirement("APR-11")
def test_recovering_twice_is_recovering_once() -> None:
    """The second start finds everything in order."""
    there, _ = interrupted()
    started(there)
    again = started(there)

    assert again == Change((), (), (), (), 0)


@requirement("APR-11")
def test_a_recovery_that_is_interrupted_starts_over_to_the_same_result() -> None:
    """It is one transaction: before it is durable nothing has happened."""
    whole, _ = interrupted()
    broken, _ = interrupted()
    broken.start(recovery.recover, SCRATCH)

    assert _but_for_numbers(started(broken)) == _but_for_numbers(started(whole))


def _but_for_numbers(change: Change) -> Any:
    """Ids and numbers are never used twice, so the ending event of a second attempt has others."""
    rows = [replace(row, id="", number=0) if isinstance(row, TimelineEvent) else row for row in change.puts]
    return rows, change.effects, [event.type for event in change.events]


@requirement("APR-11")
def test_what_belongs_to_no_run_is_put_in_order_as_well() -> None:
    """Such rows are nobody's; none of them may wait, be open or be shown for ever."""
    there = World(
        approval("a1"),
        withheld("m1"),
        timeline_event("t9"),
        message("m2", streaming=True, content="Half"),
        session(status=SessionStatus.RUNNING),
    )
    started(there)

    assert there.row(Approval, "a1").resolution is Resolution.INTERRUPTED
    assert there.every(Withheld) == []
    assert there.row(TimelineEvent, "t9") == timeline_event("t9", status=TimelineStatus.ERROR, updated_at=after(60))
    assert there.row(Message, "m2") == message("m2", content="Half", incomplete=True)
    assert there.row(SessionHead, "s1").status is SessionStatus.ERROR


@requirement("PAT-2", "POL-4")
@pytest.mark.parametrize("default", [ASK_POLICY, NO_CHECKPOINTS], ids=["ask", "none"])
def test_a_first_start_places_a_pattern_for_each_mode_and_the_scratchpad(default: Any) -> None:
    """With the configured default written into each record."""
    there = World()
    there.default_policy = default
    started(there)

    assert there.every(Pattern) == list(builtin_patterns(default, after(60)))
    assert [one.mode for one in there.every(Pattern)] == list(Mode)
    assert {one.approval_policy for one in there.every(Pattern)} == {default}
    assert there.every(Project) == [
        Project(id=SCRATCHPAD, name="Scratchpad", path=SCRATCH, created_at=after(60)),
    ]


@requirement("PAT-2")
def test_what_is_the_codes_is_renewed_and_what_is_the_users_survives() -> None:
    """Policy, favourite and revision stay, in silence where nothing else is new."""
    there = World()
    started(there)
    mine = policy(auto_approved=["view"])
    there.head.put(
        replace(
            there.row(Pattern, "single"),
            name="Old name",
            agents=(agent("old"),),
            approval_policy=mine,
            is_favorite=True,
            revision=4,
        )
    )
    there.now = after(90)
    there.default_policy = NO_CHECKPOINTS
    change = there.do(recovery.recover, SCRATCH)

    fresh = builtin_patterns(ASK_POLICY, after(60))[0]
    assert change.puts == (replace(fresh, approval_policy=mine, is_favorite=True, revision=4),)


@requirement("POL-9", "PAT-2")
def test_a_built_in_pattern_whose_policy_is_missing_keeps_asking() -> None:
    """The configured default does not reach what is stored."""
    there = World(replace(builtin_patterns(ASK_POLICY, NOON)[0], approval_policy=UNSET))
    there.default_policy = NO_CHECKPOINTS
    started(there)

    assert there.row(Pattern, "single").approval_policy is UNSET


@requirement("PRJ-1")
def test_the_scratchpad_follows_its_folder() -> None:
    """`ERYX_HOME` may have moved; other projects and patterns are left alone."""
    there = World(project(SCRATCHPAD, path="/elsewhere"), project(), pattern())
    started(there)

    assert there.row(Project, SCRATCHPAD).path == SCRATCH
    assert there.row(Project, ProjectId("j1")) == project()
    assert there.row(Pattern, "p1") == pattern()
