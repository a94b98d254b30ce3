"""Laws of the state and of the transaction over it, for any rows in any order."""

from collections.abc import Hashable
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import UNSET

from eryxd.api.events import Event, EventType
from eryxd.core.change import Tx, record_offers
from eryxd.core.state import TABLES, Key, State
from eryxd.core.views import pending, session_view
from eryxd.domain.approval import Approval, ApprovalStatus, brief
from eryxd.domain.ids import Record, SessionId
from eryxd.domain.pattern import Pattern
from eryxd.domain.session import ListOwner, Message, Offers, Project, Run, RunStatus, SessionHead
from eryxd.domain.timeline import TimelineEvent, TimelineStatus
from tests.builders import (
    NOON,
    approval,
    approval_content,
    message,
    offers,
    pattern,
    project,
    run,
    run_input,
    session,
    timeline_event,
    withheld,
)
from tests.core_builders import World, kept
from tests.requirements import requirement

IDS: Final = st.sampled_from(("x1", "x2"))
SESSIONS: Final = st.sampled_from(("s1", "s2"))

records: Final[SearchStrategy[Record]] = st.one_of(
    st.builds(pattern, IDS, name=st.sampled_from(("One", "Two"))),
    st.builds(project, IDS),
    st.builds(session, SESSIONS, project_id=st.sampled_from(("j1", "j2")), is_pinned=st.booleans()),
    st.builds(offers, st.sampled_from(("view", "edit")), owner_id=IDS),
    st.builds(run, IDS, session_id=SESSIONS, status=st.sampled_from(RunStatus)),
    st.builds(approval, IDS, session_id=SESSIONS, status=st.sampled_from(ApprovalStatus), number=st.integers(0, 9)),
    st.builds(timeline_event, IDS, run_id=IDS, status=st.sampled_from(TimelineStatus)),
    st.builds(message, IDS, run_id=IDS, streaming=st.sampled_from((True, None))),
    st.builds(withheld, IDS, run_id=IDS),
    st.builds(run_input, run_id=IDS),
    st.builds(approval_content, IDS),
)


def row_of(record: Record) -> tuple[type[Record], Key]:
    """Return where a record is kept."""
    return type(record), TABLES[type(record)].key(record)


class Put:
    """A step: this row is stored."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def __repr__(self) -> str:
        return f"put {self.record}"


class Delete(Put):
    """A step: the row of this record's key is removed."""

    def __repr__(self) -> str:
        return f"delete {row_of(self.record)}"


steps: Final = st.lists(st.builds(Put, records) | st.builds(Delete, records), max_size=12)


def play(target: State | Tx, todo: list[Put]) -> None:
    """Carry out steps, in order."""
    for step in todo:
        if isinstance(step, Delete):
            target.delete(*row_of(step.record))
        else:
            target.put(step.record)


def outcome(todo: list[Put]) -> dict[tuple[type[Record], Key], Record | None]:
    """Return how each row that was touched ends up, in order of first touching; None is removed."""
    ended: dict[tuple[type[Record], Key], Record | None] = {}
    for step in todo:
        ended[row_of(step.record)] = None if isinstance(step, Delete) else step.record
    return ended


@given(steps)
def test_a_state_holds_exactly_the_kept_rows_of_what_was_put(todo: list[Put]) -> None:
    """By key, in groups and in number; what its kind does not keep is forgotten."""
    state = State()
    play(state, todo)
    expected = {where: row for where, row in outcome(todo).items() if row is not None and TABLES[where[0]].keep(row)}

    for kind, table in TABLES.items():
        rows = {key: row for (one, key), row in expected.items() if one is kind}
        groups: dict[Hashable, dict[Key, Record]] = {}
        for key, row in rows.items():
            groups.setdefault(table.group(row), {})[key] = row
        assert kept(state)[kind] == (rows, groups)
        assert state.count(kind) == len(rows)
        assert all(state.get(kind, key) == row for key, row in rows.items())
        assert state.of(kind, "nobody's") == []


@given(steps, steps)
def test_a_use_case_that_fails_leaves_head_as_it_was(before: list[Put], todo: list[Put]) -> None:
    """Whatever it had put and removed."""
    there = World()
    play(there.head, before)
    as_it_was = kept(there.head)

    def breaks_down(tx: Tx, _: None) -> None:
        play(tx, todo)
        raise LookupError

    with pytest.raises(LookupError):
        there.start(breaks_down, None)

    assert kept(there.head) == as_it_was


@given(steps, steps)
def test_a_transaction_sees_what_it_has_done(before: list[Put], todo: list[Put]) -> None:
    """Also of rows that nobody keeps; and what it did not touch it sees as it is stored."""
    there = World()
    stored = {where: row for where, row in outcome(before).items() if row is not None}
    there.rows.update(stored)
    for row in stored.values():
        there.head.put(row)
    tx = there.tx()
    play(tx, todo)

    for (kind, key), expected in (stored | outcome(todo)).items():
        assert tx.get(kind, key) == expected


@given(steps, steps)
def test_a_change_is_what_each_touched_row_ended_up_as(before: list[Put], todo: list[Put]) -> None:
    """Rows in order of first touching, each once."""
    there = World()
    play(there.head, before)
    tx = there.tx()
    play(tx, todo)
    change = tx.finish("reply")
    ended = outcome(todo)

    assert change.puts == tuple(row for row in ended.values() if row is not None)
    assert change.deletes == tuple(where for where, row in ended.items() if row is None)
    assert (change.effects, change.reply) == ((), "reply")


def announced(row: Record) -> list[Event]:
    """Return the event that tells of a row, none where its kind has none."""
    told: tuple[EventType, str]
    match row:
        case Run():
            told = (EventType.RUN_UPDATED, "run")
        case TimelineEvent():
            told = (EventType.TIMELINE_EVENT, "timeline_event")
        case Message():
            told = (EventType.MESSAGE_PUBLISHED, "message")
        case Approval():
            waits = row.status is ApprovalStatus.PENDING
            told = (EventType.APPROVAL_REQUESTED if waits else EventType.APPROVAL_RESOLVED, "approval")
        case Pattern():
            told = (EventType.PATTERN_SAVED, "pattern")
        case Project():
            told = (EventType.PROJECT_UPDATED, "project")
        case _:
            return []
    shown: Any = brief(row) if isinstance(row, Approval) else row
    return [Event(at=NOON, type=told[0], session_id=getattr(row, "session_id", UNSET), **{told[1]: shown})]


@requirement("APR-1", "APR-7")
@given(steps, steps)
def test_every_put_with_an_event_type_is_announced_once_as_it_ended_up(before: list[Put], todo: list[Put]) -> None:
    """In order of first putting, runs after the rest; approvals as briefs; what is withheld never."""
    there = World()
    play(there.head, before)
    tx = there.tx()
    play(tx, todo)
    change = tx.finish(None)
    in_order = sorted(change.puts, key=lambda row: isinstance(row, Run))

    assert [event for event in change.events if event.type is not EventType.SESSION_UPDATED] == [
        event for row in in_order for event in announced(row)
    ]


queues: Final = st.lists(
    st.builds(
        Put,
        st.builds(session, SESSIONS, is_pinned=st.booleans())
        | st.builds(
            approval,
            st.sampled_from(("x1", "x2", "x3")),
            session_id=SESSIONS,
            status=st.sampled_from((ApprovalStatus.PENDING, ApprovalStatus.PENDING, ApprovalStatus.APPROVED)),
            number=st.integers(0, 9),
        ),
    ),
    max_size=8,
)
"""Sessions, and approvals that come and go."""


@requirement("APR-2")
@given(queues, queues)
def test_a_session_is_told_last_when_it_or_what_waits_first_in_it_has_changed(
    before: list[Put], todo: list[Put]
) -> None:
    """Once, as a whole, in request order.  What joins a queue has its own event; a session that is gone has none."""
    there = World()
    play(there.head, before)
    tx = there.tx()
    touched: dict[SessionId, None] = {}
    for step in todo:
        tx.put(step.record)
        if isinstance(step.record, SessionHead):
            touched[step.record.id] = None
        elif isinstance(step.record, Approval):
            joins = step.record.status is ApprovalStatus.PENDING and len(pending(tx, step.record.session_id)) > 1
            touched |= {} if joins else {step.record.session_id: None}
    change = tx.finish(None)
    views = [view for one in touched if (view := session_view(there.head, one)) is not None]
    told = change.events[len(change.events) - len(views) :]

    assert [event.session for event in change.events if event.type is EventType.SESSION_UPDATED] == views
    assert [event.session for event in told] == views
    for view in views:
        queue = [brief(one) for one in sorted(there.head.of(Approval, view.id), key=lambda one: one.number)]
        assert [one for one in (view.pending_approval, *view.pending_approval_queue) if one] == queue


@requirement("POL-11")
@given(st.lists(st.sampled_from(("view", "edit", "shell")), unique=True), steps)
def test_forgetting_a_list_leaves_no_offer_of_it(names: list[str], before: list[Put]) -> None:
    """And none of anybody else's is touched."""
    there = World()
    play(there.head, before)
    others = [row for row in there.head.all(Offers) if row.owner_id != "x1"]
    tx = there.tx()
    record_offers(tx, ListOwner.PATTERN, "x1", tuple(names), tx.context.catalog)  # type: ignore[arg-type]
    row = tx.get(Offers, (ListOwner.PATTERN, "x1"))
    assert (set() if row is None else set(row.providers)) == set(names)

    record_offers(tx, ListOwner.PATTERN, "x1", (), {})
    assert list(tx.all(Offers)) == others
