"""Tool calls that ask: decided or left waiting, and recorded either way."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.events import EventType, Widening
from eryxd.core import approvals, runs
from eryxd.core.approvals import CallDone
from eryxd.core.change import Change
from eryxd.core.state import State
from eryxd.domain import approval as rules_of
from eryxd.domain.approval import Approval, ApprovalContent, PermissionKind
from eryxd.domain.ids import ToolId
from eryxd.domain.policy import Decision, ListFrom, Reason, Verdict
from eryxd.domain.session import Run
from eryxd.domain.timeline import Ask, TimelineEvent, TimelineKind, TimelineStatus
from eryxd.plugin.types import Allow, DeniedBy, Deny, ToolOutcome
from tests.builders import NOON, after, approval, offers, permission, rule, session, timeline_event, tool
from tests.core_builders import World, call, event_of, listed, put, types, world
from tests.requirements import requirement

NOT_LISTED = Decision(verdict=Verdict.ASK, reason=Reason.NOT_LISTED, rule_index=0)


def recorded(there: World, run: Run, call_: Any, agent: str | None = "coder") -> TimelineEvent:
    """Return the event of a call."""
    return there.row(TimelineEvent, event_of(run, call_, agent))


def reasons(there: World, run: Run, call_: Any, agent: str | None = "coder") -> list[str]:
    """Return why each ask of a call was decided as it was."""
    return [one.decision.reason.value for one in recorded(there, run, call_, agent).asks or ()]


@requirement("TLN-3", "POL-7", "APR-9")
@pytest.mark.parametrize(
    ("rules", "tool_id", "decision"),
    [
        ((), "edit", Decision(verdict=Verdict.PASS, reason=Reason.CHECKPOINT_OFF)),
        (
            None,
            "view",
            Decision(
                verdict=Verdict.AUTO,
                reason=Reason.PATTERN_LIST,
                rule_index=0,
                entry=ToolId("view"),
                list_from=ListFrom.PATTERN,
            ),
        ),
        (None, "task_complete", Decision(verdict=Verdict.PASS, reason=Reason.INFRASTRUCTURE, rule_index=0)),
    ],
)
def test_a_call_that_needs_nobody_is_allowed_and_recorded(rules: Any, tool_id: str, decision: Decision) -> None:
    """With the reason; nothing waits."""
    there = world(rules=rules, listed=["view"])
    made = there.send()
    wants = call(tool_id, permission=permission(kind=PermissionKind.READ))
    change = there.do(approvals.ask_tool_call, there.asking(made, wants, infra=["task_complete"]))
    event = put(change, TimelineEvent)

    assert change.reply == Allow()
    assert change.puts == (event,)
    assert event == timeline_event(
        event_of(made, wants),
        run_id=made.id,
        number=event.number,
        kind=TimelineKind.TOOL_CALL,
        agent_id="coder",
        agent_name="Coder",
        tool_name=tool_id,
        provider=f"builtin:{tool_id}",
        call_id="c1",
        permission_kind=PermissionKind.READ,
        arguments={"command": "make test"},
        asks=(Ask(at=NOON, decision=decision),),
    )
    assert types(change) == ["timeline-event"]


@requirement("APR-1", "APR-8", "TLN-2", "TLN-3")
def test_a_call_that_asks_leaves_an_approval_and_both_events() -> None:
    """The call before its approval; the request goes out as a brief."""
    there = world()
    made = there.send()
    wants = call(permission=permission(kind=PermissionKind.SHELL), backend_session="b7")
    change = there.do(approvals.ask_tool_call, there.asking(made, wants))
    asked = there.row(Approval, change.reply)
    shown = permission(kind=PermissionKind.SHELL, arguments={"command": "make test"})
    asked_for, of_call = (row for row in change.puts if isinstance(row, TimelineEvent))

    assert asked == approval(
        asked.id,
        run_id=made.id,
        permission_kind=PermissionKind.SHELL,
        call_id="c1",
        provider="builtin:shell",
        detail='Coder requested shell permission for tool "shell" in replay session b7.',
        permission=shown,
        digest=rules_of.digest(made.agents[0].id, ToolId("shell"), wants.provider, rules_of.tool_content(shown)),
        number=asked.number,
    )
    assert asked_for == timeline_event(
        "t" + asked.id[1:],
        run_id=made.id,
        number=asked_for.number,
        kind=TimelineKind.APPROVAL,
        agent_id="coder",
        agent_name="Coder",
        approval_id=asked.id,
        approval_kind=asked.kind,
        approval_title=asked.title,
        approval_detail=asked.detail,
        permission_kind=PermissionKind.SHELL,
        tool_name="shell",
        provider="builtin:shell",
        call_id="c1",
    )
    assert of_call.asks == (Ask(at=NOON, decision=NOT_LISTED, approval_id=asked.id),)
    assert of_call.number < asked_for.number
    assert types(change) == ["approval-requested", "timeline-event", "timeline-event", "session-updated"]
    assert change.events[0].approval == rules_of.brief(asked)


@requirement("APR-8")
def test_a_call_of_an_unknown_agent_and_tool_still_says_what_is_known() -> None:
    """Parts that are unknown are left out."""
    there = world(rules=[rule(agents=["coder"])])
    made = there.send()
    asked = there.asks(made, call(None, provider=None), agent=None)

    assert (asked.title, asked.detail) == ("Approve tool access", "An agent requested permission in replay.")
    assert (asked.agent_id, asked.agent_name, asked.tool_name) == (UNSET, UNSET, UNSET)
    assert reasons(there, made, call(None), agent=None) == ["unknown-agent"]


@requirement("APR-1")
def test_what_is_too_long_to_show_is_kept_whole_beside_the_approval() -> None:
    """The digest covers the whole."""
    there = world()
    made = there.send()
    long = permission(command="x" * (rules_of.SHOWN_BYTES + 1))
    change = there.do(approvals.ask_tool_call, there.asking(made, call(permission=long, arguments={})))
    asked = there.row(Approval, change.reply)
    content = rules_of.tool_content(replace(long, arguments={}))

    assert asked.permission == rules_of.shown_permission(replace(long, arguments={}))
    assert asked.permission.truncated
    assert asked.digest == rules_of.digest(asked.agent_id, asked.tool_name, asked.provider, content)
    assert put(change, ApprovalContent) == ApprovalContent(
        approval_id=asked.id, session_id=made.session_id, body=content
    )


@requirement("TLN-3")
def test_an_ask_that_repeats_an_open_one_exactly_joins_it() -> None:
    """One approval, two asks in the one event of the call."""
    there = world()
    made = there.send()
    first = there.asks(made, call())
    there.now = after(7)
    again = there.do(approvals.ask_tool_call, there.asking(made, call()))

    assert again.reply == first.id
    assert [type(row) for row in again.puts] == [TimelineEvent]
    assert recorded(there, made, call()).asks == (
        Ask(at=NOON, decision=NOT_LISTED, approval_id=first.id),
        Ask(at=after(7), decision=NOT_LISTED, approval_id=first.id),
    )


@requirement("TLN-3")
@pytest.mark.parametrize(
    "other",
    [call(permission=permission(command="rm -rf /")), call(arguments={"command": "rm -rf /"}), call("edit")],
    ids=["permission", "arguments", "tool"],
)
def test_an_ask_of_the_same_call_for_something_else_is_an_approval_of_its_own(other: Any) -> None:
    """With an id made here; the call keeps its one event."""
    there = world()
    made = there.send()
    first, second = there.asks(made, call()), there.asks(made, other)

    assert first.id != second.id
    assert [one.approval_id for one in recorded(there, made, call()).asks or ()] == [first.id, second.id]


@requirement("TLN-3")
def test_an_ask_after_the_decision_is_a_new_one() -> None:
    """A one-time approval is for one time."""
    there = world()
    made = there.send()
    first = there.asks(made, call())
    there.resolves(first)

    assert there.asks(made, call()).id != first.id


@requirement("TLN-3")
def test_the_same_call_id_of_another_agent_is_another_call() -> None:
    """Backends name calls within an agent's turn at the most."""
    there = world(agents=["planner", "coder"])
    made = there.send()
    first, second = there.asks(made, call(), "planner"), there.asks(made, call(), "coder")

    assert first.id != second.id
    assert recorded(there, made, call(), "planner").agent_name == "Planner"
    assert recorded(there, made, call(), "coder").agent_name == "Coder"


@requirement("TLN-3")
@pytest.mark.parametrize(("ok", "status"), [(True, TimelineStatus.COMPLETED), (False, TimelineStatus.ERROR)])
def test_the_result_closes_the_calls_event(ok: bool, status: TimelineStatus) -> None:
    """In place; what the tool said is kept, bounded; only the first result counts."""
    there = world(rules=())
    made = there.send()
    there.asks(made, call())
    before = recorded(there, made, call())
    there.now = after(3)
    outcome = ToolOutcome(ok=ok, text="42", truncated_bytes=7)
    change = there.do(approvals.tool_done, CallDone(made.id, before.id, outcome))

    assert change.puts == (replace(before, status=status, result="42", result_truncated=7, updated_at=after(3)),)
    assert there.do(approvals.tool_done, CallDone(made.id, before.id, ToolOutcome(ok=True, text="43"))).puts == ()


@requirement("RUN-4")
@pytest.mark.parametrize("use_case", [runs.cancel, runs.finish])
def test_after_the_end_every_call_is_denied_and_nothing_changes(use_case: Any) -> None:
    """Also while the run is being cancelled: the gate is closed."""
    there = world(rules=(), listed=["view"])
    made = there.send()
    there.asks(made, call())
    there.do(use_case, made.id)
    late = there.do(approvals.ask_tool_call, there.asking(made, call("view", "c2")))
    done = there.do(approvals.tool_done, CallDone(made.id, event_of(made, call()), ToolOutcome(ok=True, text="Late.")))

    assert late == Change((), (), (), (), Deny(by=DeniedBy.CANCELLED))
    assert done == Change((), (), (), (), None)


@requirement("POL-11")
def test_a_provider_that_came_later_asks_and_is_reported_once() -> None:
    """Its own calls ask; those of the provider that was listed go on."""
    there = world(listed=["view"])
    made = there.send()
    there.offers(tool("view", providers=["builtin:view", "newcomer"]))
    change = there.do(approvals.ask_tool_call, there.asking(made, call("view", provider="newcomer")))
    again = there.do(approvals.ask_tool_call, there.asking(made, call("view", "c2", provider="newcomer")))

    assert reasons(there, made, call("view")) == ["new-provider"]
    assert listed(change) == offers(drifted=("view",))
    (told,) = [event for event in change.events if event.type is EventType.POLICY_WIDENED]
    assert (told.session_id, told.widening) == ("s1", Widening(tool_id=ToolId("view"), why="new-provider"))
    assert "policy-widened" not in types(again)
    assert there.asks(made, call("view", "c3")) == Allow()


@requirement("POL-11")
def test_a_call_whose_provider_nobody_knows_asks_while_there_are_several() -> None:
    """With one there is no doubt."""
    there = world(listed=["view"])
    made = there.send()
    assert there.asks(made, call("view", provider=None)) == Allow()

    there.offers(tool("view", providers=["builtin:view", "newcomer"]))
    there.asks(made, call("view", "c2", provider=None))
    assert reasons(there, made, call("view", "c2")) == ["new-provider"]


@requirement("TLN-5")
def test_deciding_looks_at_nothing_but_its_own_run() -> None:
    """However many sessions there are, and however long this one is: no listing, no look at the disk."""

    class Narrow(State):
        def all(self, kind: Any) -> Iterable[Any]:
            raise AssertionError(f"looked at every {kind.__name__}")

    there = world(*(session(f"s{n}") for n in range(2, 50)), listed=["view"])
    made = there.send()
    narrow = Narrow()
    for row in there.rows.values():
        narrow.put(row)
    there.head = narrow
    there.store_reads = 0
    there.asks(made, call("view"))
    there.do(approvals.ask_tool_call, there.asking(made, call("shell", "c2")))
    there.says(made, "Done.")

    assert there.store_reads == 0
