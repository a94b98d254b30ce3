"""What agents say: published as it comes, or held back until a person has read it."""

from typing import Any, Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.core import runs, saying as saying_rules
from eryxd.core.change import Change
from eryxd.core.settle import CANCELLED, EXPIRED, FAILED, INTERRUPTED, End
from eryxd.domain import approval as rules_of
from eryxd.domain.approval import Approval
from eryxd.domain.pattern import Mode
from eryxd.domain.policy import CheckpointKind
from eryxd.domain.session import Message, Run, RunStatus, SessionHead, SessionStatus, Withheld, WithheldKind
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import DeniedBy, Deny
from tests.builders import after, approval, message, rule, session, timeline_event, withheld
from tests.core_builders import World, call, put, saying, types, world
from tests.requirements import requirement

FINAL: Final = (rule("final-response"),)
CODER_ONLY: Final = (rule("final-response", ["coder"]),)


def held(rules: Any = FINAL, **changes: Any) -> tuple[World, Run]:
    """Return a world whose run is held back, before anybody has spoken."""
    there = world(rules=rules, **changes)
    return there, there.send()


def shows(change: Change, text: str) -> bool:
    """Say whether a text is in anything that a change publishes."""
    published = [row for row in change.puts if not isinstance(row, Withheld)]
    return text in repr(published) or text in repr(change.events) or text in repr(change.reply)


@requirement("TLN-1", "TLN-4")
def test_a_finished_message_is_published_with_its_one_event() -> None:
    """Transcript and timeline have the same text and the same id."""
    there = world()
    made = there.send()
    there.now = after(2)
    change = there.says(made, "Done.")
    said, event = put(change, Message), put(change, TimelineEvent)

    assert said == message(said.id, run_id=made.id, content="Done.", created_at=after(2), number=said.number)
    assert event == timeline_event(
        "t" + said.id[1:],
        run_id=made.id,
        number=event.number,
        kind=TimelineKind.MESSAGE,
        occurred_at=after(2),
        status=TimelineStatus.COMPLETED,
        agent_id="coder",
        agent_name="Coder",
        message_id=said.id,
        content="Done.",
    )
    assert types(change) == ["message-published", "timeline-event"]


@requirement("TLN-4")
def test_a_streamed_message_updates_its_event_in_place() -> None:
    """Begun, then finished: one message, one event, its time that of the beginning."""
    there = world()
    made = there.send()
    begun = there.do(saying_rules.begin_message, saying(made, ""))
    assert put(begun, Message).streaming is True
    assert put(begun, TimelineEvent).status is TimelineStatus.RUNNING

    there.now = after(4)
    done = there.do(saying_rules.say, saying(made, "Done.", message_id=begun.reply))
    assert put(done, Message) == replace(put(begun, Message), content="Done.", streaming=UNSET)
    assert put(done, TimelineEvent) == replace(
        put(begun, TimelineEvent), status=TimelineStatus.COMPLETED, content="Done.", updated_at=after(4)
    )


@requirement("TLN-1")
def test_reasoning_is_an_event_and_no_message() -> None:
    """The transcript has what was said, not what was thought."""
    there = world()
    change = there.says(there.send(), "Where is the bug?", kind="thinking")
    event = put(change, TimelineEvent)

    assert (event.kind, event.status, event.content) == (
        TimelineKind.THINKING,
        TimelineStatus.COMPLETED,
        "Where is the bug?",
    )
    assert change.puts == (event,)


@requirement("APR-7")
@pytest.mark.parametrize("kind", ["message", "thinking"])
def test_what_a_covered_agent_says_is_kept_in_a_row_of_its_own(kind: str) -> None:
    """Reasoning counts as what it says; neither text nor size shows anywhere."""
    there, made = held()
    change = there.says(made, "The secret.", kind=kind)
    row = put(change, Withheld)

    assert row == withheld(row.id, run_id=made.id, kind=WithheldKind(kind), content="The secret.", number=row.number)
    assert not shows(change, "secret")
    assert types(change) == ["run-updated"]


@requirement("APR-7")
def test_nothing_is_streamed_from_generation_on() -> None:
    """A message that is held back is not even begun."""
    there, made = held()
    change = there.do(saying_rules.begin_message, saying(made, ""))

    assert (change.reply, change.puts, change.events) == (None, (), ())


@requirement("APR-7")
def test_whoever_speaks_after_a_covered_agent_is_held_with_it() -> None:
    """It could have read what is withheld; whoever spoke before is published."""
    there, made = held(CODER_ONLY, agents=["planner", "coder", "tester"])
    first = there.says(made, "The plan.", agent="planner")
    there.says(made, "The secret.", agent="coder")
    last = there.says(made, "It says: the secret.", agent="tester")

    assert put(first, Message).content == "The plan."
    assert put(last, Withheld).agent_id == "tester"
    assert there.do(saying_rules.begin_message, saying(made, "", "planner")).reply is None


@requirement("APR-7")
def test_agents_that_do_not_read_each_other_publish_as_they_come() -> None:
    """In `concurrent` only the covered ones are held."""
    there, made = held(CODER_ONLY, agents=["coder", "tester"])
    there.head.put(replace(made, pattern_mode=Mode.CONCURRENT))
    there.says(made, "The secret.", agent="coder")

    assert put(there.says(made, "My own answer.", agent="tester"), Message).content == "My own answer."


@requirement("POL-8")
def test_an_agent_that_nobody_knows_is_held_under_a_scoped_rule() -> None:
    """It might be the one named."""
    there, made = held(CODER_ONLY, agents=["planner", "coder"])
    row = put(there.says(made, "Who am I?", agent=""), Withheld)

    assert (row.author_name, row.agent_id) == ("Agent", UNSET)


@requirement("APR-7", "APR-1", "APR-2")
def test_one_approval_carries_everything_that_was_withheld() -> None:
    """Its agent is the author of the last message; it is requested without its messages."""
    there, made = held(agents=["planner", "coder"])
    there.says(made, "First.", agent="planner")
    there.says(made, "Second.", agent="coder")
    there.says(made, "Was that right?", agent="planner", kind="thinking")
    change = there.do(runs.finish, made.id)
    asked = there.row(Approval, change.reply)
    rows = sorted(there.head.of(Withheld, made.id), key=lambda row: row.number)
    content = rules_of.message_content(rules_of.whole_messages(rows))

    assert asked == approval(
        asked.id,
        kind=CheckpointKind.FINAL_RESPONSE,
        run_id=made.id,
        title="Approve final response from Coder",
        tool_name=None,
        permission=None,
        message_count=3,
        digest=rules_of.digest(rows[1].agent_id, UNSET, UNSET, content),
        number=asked.number,
    )
    assert types(change) == ["approval-requested", "timeline-event", "session-updated"]
    assert not shows(change, "First")
    assert not shows(change, "Second")
    view = there.tx().session_view(made.session_id)
    assert (view.status, view.pending_approval, view.pending_approval_queue) == (SessionStatus.RUNNING, asked, ())
    assert [row.content for row in rules_of.shown_messages(rows)[0]] == ["First.", "Second.", "Was that right?"]


@requirement("APR-7")
def test_finishing_twice_asks_once() -> None:
    """One approval for the run."""
    there, made = held()
    there.says(made, "The secret.")
    first = there.finishes(made)
    again = there.do(runs.finish, made.id)

    assert (again.reply, again.puts, again.effects) == (first.id, (), ())


@requirement("APR-7")
def test_what_is_said_while_a_person_reads_is_not_published_with_it() -> None:
    """The decision covers what was shown; the agents had all finished."""
    there, made = held()
    there.says(made, "The secret.")
    asked = there.finishes(made)
    late = there.says(made, "And another thing.")
    assert (late.puts, late.events) == ((), ())
    assert there.do(saying_rules.begin_message, saying(made, "")).reply is None
    assert there.asks(made, call()) == Deny(by=DeniedBy.CANCELLED)

    there.resolves(asked)
    assert [one.content for one in there.every(Message)] == ["Mend the parser.", "The secret."]


@requirement("APR-7")
def test_an_approved_response_is_published_in_the_decisions_transaction() -> None:
    """In the order in which it was generated, reasoning as events; then the run is complete."""
    there, made = held(agents=["planner", "coder"])
    there.says(made, "Hm.", agent="planner", kind="thinking")
    there.says(made, "First.", agent="planner")
    there.says(made, "Second.", agent="coder")
    change = there.resolves(there.finishes(made))
    rows = sorted((row for row in change.puts if isinstance(row, TimelineEvent)), key=lambda row: row.number)

    assert [(row.author_name, row.content) for row in change.puts if isinstance(row, Message)] == [
        ("Planner", "First."),
        ("Coder", "Second."),
    ]
    assert [row.content for row in rows if row.kind in (TimelineKind.THINKING, TimelineKind.MESSAGE)] == [
        "Hm.",
        "First.",
        "Second.",
    ]
    assert rows[-1].kind is TimelineKind.RUN_COMPLETED
    assert there.head.of(Withheld, made.id) == []
    assert there.row(Run, made.id).status is RunStatus.COMPLETED
    assert there.row(SessionHead, "s1").status is SessionStatus.IDLE


@requirement("APR-7")
@pytest.mark.parametrize(("note", "end"), [(UNSET, "."), ("Too long", ": Too long")])
def test_a_rejected_response_fails_the_run_and_is_never_published(note: Any, end: str) -> None:
    """With an explicit error; the session is in `error`."""
    error = f"The final response was rejected{end}"
    there, made = held()
    there.says(made, "The secret.")
    change = there.resolves(there.finishes(made), "rejected", note=note)

    assert not shows(change, "secret")
    assert [kind for kind, _ in change.deletes] == [Withheld]
    assert there.head.of(Withheld, made.id) == []
    ended = there.row(Run, made.id)
    assert (ended.status, ended.error) == (RunStatus.ERROR, error)
    assert there.row(SessionHead, "s1") == session(status=SessionStatus.ERROR, last_error=error)


@requirement("APR-7")
@pytest.mark.parametrize("end", [CANCELLED, FAILED, EXPIRED, INTERRUPTED])
def test_any_other_end_publishes_nothing_of_what_was_withheld(end: End) -> None:
    """Whether or not a person had been asked about it."""
    for is_asked in (False, True):
        there, made = held()
        there.says(made, "The secret.")
        if is_asked:
            there.finishes(made)
        change = there.do(runs.end, runs.EndRun(made.id, end, "It ended."))

        assert not shows(change, "secret")
        assert there.every(Withheld) == []


@requirement("APR-7")
def test_reasoning_alone_needs_no_approval_and_is_dropped() -> None:
    """There is no response to read."""
    there, made = held()
    there.says(made, "Hm.", kind="thinking")
    change = there.do(runs.finish, made.id)

    assert change.reply is None
    assert not shows(change, "Hm.")
    assert there.row(Run, made.id).status is RunStatus.COMPLETED


@requirement("RUN-4")
@pytest.mark.parametrize("use_case", [runs.cancel, runs.finish])
def test_what_is_said_after_the_end_changes_nothing(use_case: Any) -> None:
    """Nor while the run is being cancelled."""
    there = world()
    made = there.send()
    there.do(use_case, made.id)

    for late in (saying(made, "Late."), saying(made, "Late.", kind="thinking")):
        assert there.do(saying_rules.say, late)[:4] == ((), (), (), ())
        assert there.do(saying_rules.begin_message, late)[:4] == ((), (), (), ())
