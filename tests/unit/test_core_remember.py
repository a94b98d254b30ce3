"""`remember`: one more tool for the session, and what already waits for it goes too."""

from typing import Any

import pytest
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.events import EventType, Widening
from eryxd.api.replies import RememberPreview
from eryxd.core import approvals, patterns, sessions
from eryxd.core.change import Change, Release
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.errors import Invalid
from eryxd.domain.ids import ToolId
from eryxd.domain.session import SCRATCHPAD, Offers, Run, SessionHead, SessionStatus
from eryxd.domain.timeline import TimelineEvent, TimelineStatus
from eryxd.plugin.types import Allow
from tests.builders import decider, effective_policy, grants, offers, permission, project, rule, session, settings, tool
from tests.core_builders import World, call, listed, put, resolving, types, wanted, world
from tests.requirements import requirement

REMEMBER = {"remember": "session"}
S1 = {"session_id": "s1"}


def trusted(there: World) -> dict[str, tuple[str, ...]]:
    """Return who is trusted for each tool on the session's own list."""
    row = there.head.get(Offers, ("session", "s1"))
    return {} if row is None else {tool: tuple(providers) for tool, providers in row.providers.items()}


def widened(change: Change) -> list[Any]:
    """Return what a change announces as newly allowed."""
    return [event.widening for event in change.events if event.type is EventType.POLICY_WIDENED]


@requirement("APR-4", "POL-6", "POL-11")
def test_remembering_adds_one_tool_to_the_effective_list() -> None:
    """For the session and, as a grant, for its run; the frozen policy stays what it was."""
    there = world(listed=["view"])
    made = there.send()
    change = there.resolves(there.asks(made, call()), **REMEMBER)

    assert put(change, SessionHead) == session(
        status=SessionStatus.RUNNING, approval_settings=settings(["view", "shell"])
    )
    assert put(change, Run) == replace(
        made,
        grants=grants(remembered=["shell"], providers={"view": ["builtin:view"], "shell": ["builtin:shell"]}),
    )
    assert put(change, Run).approval_policy == effective_policy(auto_approved=["view"])
    assert listed(change) == offers("view", "shell", owner="session", owner_id="s1")
    assert widened(change) == [Widening(tool_id=ToolId("shell"), why="remembered")]
    assert types(change) == [
        "approval-resolved",
        "timeline-event",
        "run-updated",
        "policy-widened",
        "session-updated",
    ]
    assert there.asks(made, call(call_id="c2")) == Allow()


@requirement("APR-4", "POL-5")
@pytest.mark.parametrize(("own", "names"), [((), ["shell"]), (("edit",), ["edit", "shell"])])
def test_an_override_grows_by_the_tool_and_stays_an_override(own: Any, names: list[str]) -> None:
    """The pattern's list does not come in by the way."""
    there = world(listed=["view"], own=own)
    there.resolves(there.asks(there.send(), call()), **REMEMBER)

    assert there.row(SessionHead, "s1").approval_settings == settings(names)
    assert trusted(there) == {name: (f"builtin:{name}",) for name in names}


@requirement("APR-6", "TLN-2")
def test_what_waits_for_the_same_tool_in_the_session_is_released_too() -> None:
    """Each with its own event; other tools and other sessions wait on."""
    there = world(session("s2"))
    made, other = there.send(), there.send(session_id="s2")
    asked = [there.asks(made, call(call_id=f"c{n}", permission=permission(command=f"make {n}"))) for n in (1, 2)]
    edit, elsewhere = there.asks(made, call("edit", "c3")), there.asks(other, call())
    there.caller = decider(client_name="anna")
    change = there.resolves(asked[0], **REMEMBER)
    second = there.row(Approval, asked[1].id)

    assert change.reply.released == (second.id,)
    assert (second.status, second.resolution) == (ApprovalStatus.APPROVED, Resolution.REMEMBERED)
    assert second.resolved_by == decider(client_name="anna")
    event = there.row(TimelineEvent, "t" + second.id[1:])
    assert (event.status, event.resolution) == (TimelineStatus.COMPLETED, Resolution.REMEMBERED)
    assert change.effects == (Release(made.id, asked[0].id, Allow()), Release(made.id, second.id, Allow()))
    assert [there.row(Approval, one.id) for one in (edit, elsewhere)] == [edit, elsewhere]


@requirement("APR-6", "POL-11")
def test_a_waiting_call_whose_provider_is_in_doubt_is_not_released() -> None:
    """It would ask again if it came now."""
    there = world()
    there.offers(tool("shell", providers=["builtin:shell", "newcomer"]))
    made = there.send()
    known, unknown = there.asks(made, call()), there.asks(made, call(call_id="c2", provider=None))
    change = there.resolves(known, **REMEMBER)

    assert change.reply.released == ()
    assert there.row(Approval, unknown.id) == unknown


@requirement("POL-6")
def test_what_widens_counts_only_when_it_cannot_be_lost() -> None:
    """A call that comes while the decision is on its way to the disk asks."""
    there = world()
    made = there.send()
    change = there.start(approvals.resolve, resolving(there.asks(made, call()), **REMEMBER))
    early = there.start(approvals.ask_tool_call, there.asking(made, call(call_id="c2")))
    assert isinstance(there.row(Approval, early.reply), Approval)

    there.land(change)
    there.land(early)
    assert there.asks(made, call(call_id="c3")) == Allow()


@requirement("APR-4")
@pytest.mark.parametrize(
    ("tool_id", "more", "says"),
    [
        ("shell", {"decision": "rejected"}, "rejection"),
        ("shell", {"remember": "for ever"}, '"session"'),
        ("gone", {}, "catalog"),
        (None, {}, "catalog"),
    ],
)
def test_what_cannot_be_remembered_resolves_nothing(tool_id: Any, more: Any, says: str) -> None:
    """The whole request is refused."""
    there = world()
    asked = there.asks(there.send(), call(tool_id))
    error = there.refuses(approvals.resolve, resolving(asked, **{**REMEMBER, **more}), Invalid)

    assert error.data == {"problems": [f"remember: {error.message}"]}
    assert says in error.message


@requirement("APR-4")
def test_a_final_response_is_not_remembered() -> None:
    """It is decided once."""
    there = world(rules=[rule("final-response")])
    made = there.send()
    there.says(made, "Done.")
    there.refuses(approvals.resolve, resolving(there.finishes(made), **REMEMBER), Invalid)


@requirement("VAL-3", "APR-4")
def test_a_scratchpad_session_remembers_nothing() -> None:
    """It has no list of its own; the preview says so beforehand."""
    there = world(project(SCRATCHPAD), project_id=SCRATCHPAD)
    asked = there.asks(there.send(), call())
    error = there.refuses(approvals.resolve, resolving(asked, **REMEMBER), Invalid)

    assert error.data == {"problems": [f"remember: {sessions.SCRATCHPAD_OVERRIDE}"]}
    assert approvals.preview(there.tx(), asked) == RememberPreview(
        stores=(), releases=(), refused=sessions.SCRATCHPAD_OVERRIDE
    )


@requirement("APR-4")
@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_the_preview_is_what_remembering_does(revoked: bool, several: bool) -> None:
    """Whatever would be released, and what would be stored."""
    there = world(listed=["view"])
    if several:
        there.offers(tool("shell", providers=["builtin:shell", "newcomer"]))
    made = there.send()
    asked = [there.asks(made, call(call_id=f"c{n}", provider=who)) for n, who in enumerate(["builtin:shell", None])]
    if revoked:
        there.do(sessions.revoke, wanted(ask.SessionsGet, **S1))
    before = there.tx()
    shown = approvals.preview(before, asked[0])
    assert before.finish(None).puts == ()

    change = there.resolves(asked[0], **REMEMBER)
    stored = there.row(SessionHead, "s1").approval_settings
    assert shown == RememberPreview(
        stores=stored.auto_approved_tool_names,  # type: ignore[union-attr]
        releases=change.reply.released,
    )


@requirement("SES-3", "POL-6")
def test_remembering_in_a_revoked_run_is_for_the_next_one() -> None:
    """All calls of this run ask."""
    there = world()
    made = there.send()
    asked = there.asks(made, call())
    there.do(sessions.revoke, wanted(ask.SessionsGet, **S1))
    there.resolves(asked, **REMEMBER)

    assert isinstance(there.asks(made, call(call_id="c2")), Approval)
    there.finishes(made)
    assert there.asks(there.send(), call()) == Allow()


@requirement("POL-11", "PAT-2")
def test_remembering_trusts_nobody_new_for_what_was_on_the_list_before() -> None:
    """Not even when the pattern, and with it the record of its list, is gone."""
    there = world(listed=["view"])
    made = there.send()
    there.offers(tool("view", providers=["builtin:view", "newcomer"]), tool("shell"))
    there.do(patterns.delete, wanted(ask.PatternsGet, pattern_id="p1"))
    there.resolves(there.asks(made, call()), **REMEMBER)

    assert trusted(there) == {"view": ("builtin:view",), "shell": ("builtin:shell",)}


@requirement("POL-11")
def test_remembering_does_not_vouch_for_an_id_of_which_nobody_knows_who_offered_it() -> None:
    """It was kept on the list while its source was down; saving the list would vouch for it."""
    there = world(listed=["view"])
    there.head.delete(Offers, ("pattern", "p1"))
    made = there.send()
    there.resolves(there.asks(made, call()), **REMEMBER)

    assert trusted(there) == {"shell": ("builtin:shell",)}
    assert isinstance(there.asks(made, call("view", "c2")), Approval)


@requirement("POL-11")
def test_a_newcomer_for_a_remembered_tool_is_reported_once() -> None:
    """Remembering another tool in between does not report it again."""
    there = world()
    made = there.send()
    there.resolves(there.asks(made, call()), **REMEMBER)
    there.offers(tool("shell", providers=["builtin:shell", "newcomer"]), tool("edit"))
    told = []
    for n in range(3):
        wants = call(call_id=f"d{n}", provider="newcomer")
        told.append(widened(there.do(approvals.ask_tool_call, there.asking(made, wants))))
        if n == 1:
            there.resolves(there.asks(made, call("edit", "e1")), **REMEMBER)

    assert told == [[Widening(tool_id=ToolId("shell"), why="new-provider")], [], []]
