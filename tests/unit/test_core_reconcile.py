"""Sources answer and are withdrawn; lists keep what a person put there, and lose what is known to be gone."""

from typing import Any

import pytest
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.events import EventType, PrunedTools
from eryxd.core import patterns, reconcile, sessions
from eryxd.core.change import Change, Sweep
from eryxd.core.lists import pattern_list, session_list, shown_session
from eryxd.core.reconcile import Sweeping, Taken
from eryxd.core.views import session_view
from eryxd.domain.catalog import Prune, SourceAnswer, SourceId, build
from eryxd.domain.ids import SessionId, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.session import ListOwner, Offers, SessionHead
from tests.builders import offers, pattern, policy, session, settings, source_answer
from tests.core_builders import World, wanted
from tests.requirements import requirement

GIT = source_answer("mcp:git", "status", "log")
LISTED: dict[str, Any] = {"providers": {"status": ("mcp:git",), "log": ("mcp:git",)}}


def told(change: Change) -> list[Any]:
    """Return what a change says was pruned."""
    return [event.pruned for event in change.events if event.type is EventType.TOOLS_PRUNED]


def place(*more: Any, own: Any = ("status", "log")) -> World:
    """Return a world in which a pattern lists both tools of a server, and a session has a list of its own."""
    return World(
        GIT,
        pattern(approval_policy=policy(auto_approved=["status", "log"])),
        offers(**LISTED),
        session(approval_settings=settings(own)),
        offers(owner="session", owner_id="s1", **LISTED),
        *more,
    )


def names(there: World) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pattern's and the session's list as they are in force."""
    team, head = there.head.get(Pattern, "p1"), there.head.get(SessionHead, "s1")
    assert team is not None
    assert head is not None
    return pattern_list(there.head, team).names, session_list(there.head, head).names


def swept(there: World) -> Change:
    """Write every prune into every list."""
    numbers = tuple(prune.number for prune in there.head.all(Prune))
    return there.do(reconcile.sweep, Sweeping(patterns=("p1",), sessions=("s1",), done=numbers))


@requirement("CAT-7")
def test_an_answer_makes_another_catalog_and_says_so() -> None:
    there = World()
    first = there.do(reconcile.take, Taken(GIT))
    again = there.do(reconcile.take, Taken(replace(GIT, answered_at="2026-12-01T00:00:00.000Z")))

    assert [event.generation for event in first.events] == [1]
    assert (again.puts, again.events) == ((), ())


@requirement("PRN-2")
def test_a_server_that_lists_fewer_tools_for_a_minute_loses_nothing() -> None:
    """Out of the catalog meanwhile, so its calls ask; and back with its approval."""
    there = place()
    less = there.do(reconcile.take, Taken(source_answer("mcp:git", "log")))

    assert [event.type for event in less.events] == [EventType.CATALOG_CHANGED]
    assert "status" not in build(there.head.all(SourceAnswer))
    assert names(there) == (("status", "log"), ("status", "log"))
    there.do(reconcile.take, Taken(GIT))
    assert names(there) == (("status", "log"), ("status", "log"))


@requirement("PRN-2", "PRN-5")
@pytest.mark.parametrize("how", ["edited", "asked anew"])
def test_under_a_new_fingerprint_what_is_gone_is_pruned_at_once_with_a_trace(how: str) -> None:
    there = place()
    less = source_answer("mcp:git", "log", fingerprint="f2" if how == "edited" else "f1")
    change = there.do(reconcile.take, Taken(less, is_new=how == "asked anew"))

    assert change.effects == (Sweep(),)
    assert names(there) == (("log",), ("log",))
    view = session_view(there.head, SessionId("s1"))
    assert view is not None
    assert view.approval_settings == settings(["log"])
    assert view.effective
    assert view.effective.auto_approved_tool_names == ("log",)
    written = swept(there)
    why = "mcp:git does not offer it any more"
    assert told(written) == [
        PrunedTools(owner=owner, owner_id=id, tools=(ToolId("status"),), source=SourceId("mcp:git"), why=why)
        for owner, id in ((ListOwner.PATTERN, "p1"), (ListOwner.SESSION, "s1"))
    ]
    team = there.row(Pattern, "p1")
    assert (team.approval_policy, team.revision) == (policy(auto_approved=["log"]), 2)
    assert there.row(SessionHead, "s1").approval_settings == settings(["log"])
    assert list(there.head.all(Prune)) == []
    assert told(swept(there)) == []


@requirement("PRN-3")
def test_deleting_a_definition_prunes_what_nobody_else_offers() -> None:
    """An id of another source stays on the list, for nobody that was trusted with it."""
    there = place(source_answer("mcp:hub", "log"))
    there.do(reconcile.withdraw, SourceId("mcp:git"))

    assert names(there) == (("log",), ("log",))
    swept(there)
    row = there.head.get(Offers, ("session", "s1"))
    assert row is not None
    assert row.providers == {"log": ()}


@requirement("PRN-2")
def test_a_source_that_never_answered_anew_protects_its_ids() -> None:
    """The other provider on record may come back with it."""
    both = {"status": ("mcp:git", "mcp:hub"), "log": ("mcp:git",)}
    there = World(
        GIT,
        source_answer("mcp:hub", missing=("status",)),
        session(approval_settings=settings(["status", "log"])),
        offers(owner="session", owner_id="s1", providers=both),
    )
    there.do(reconcile.withdraw, SourceId("mcp:git"))

    assert session_list(there.head, there.row(SessionHead, "s1")).names == ("status",)


@requirement("PRN-2", "PRN-3")
def test_what_is_listed_again_after_a_prune_stays() -> None:
    """The prune is older than the list, although it has not been written into all of them."""
    there = place()
    there.do(reconcile.withdraw, SourceId("mcp:git"))
    there.do(reconcile.take, Taken(GIT))
    assert names(there) == ((), ())

    there.catalog = build(there.head.all(SourceAnswer))
    again = wanted(ask.SessionsUpdateApprovalSettings, session_id="s1", auto_approved_tool_names=("log",))
    there.do(sessions.update_approval_settings, again)

    assert names(there) == ((), ("log",))
    swept(there)
    assert names(there) == ((), ("log",))


@requirement("PRN-4")
def test_a_session_list_that_becomes_empty_stays_its_own() -> None:
    there = place()
    there.do(reconcile.withdraw, SourceId("mcp:git"))

    assert shown_session(there.head, there.row(SessionHead, "s1")).approval_settings == settings([])
    swept(there)
    assert there.row(SessionHead, "s1").approval_settings == settings([])


@requirement("PRN-2")
def test_an_id_that_nobody_is_recorded_for_goes_only_when_a_person_says_so() -> None:
    there = World(
        GIT, session(approval_settings=settings(["old", "log"])), offers(owner="session", owner_id="s1", **LISTED)
    )
    there.do(reconcile.withdraw, SourceId("mcp:git"))
    assert session_list(there.head, there.row(SessionHead, "s1")).names == ("old",)

    change = there.do(reconcile.prune_inactive, ["old"])
    assert change.reply == ("old",)
    assert session_list(there.head, there.row(SessionHead, "s1")).names == ()


@requirement("PRN-2")
def test_a_person_cannot_prune_what_is_offered() -> None:
    there = place()

    assert there.do(reconcile.prune_inactive, ["log", "status"]).reply == ()
    assert names(there) == (("status", "log"), ("status", "log"))


@requirement("CAT-3", "PRN-2")
def test_a_backend_adds_to_what_it_said_and_its_first_answer_replaces_the_fallback() -> None:
    there = World()
    there.do(reconcile.fall_back, [source_answer("backend:x", "glob", "view", is_fallback=True, fingerprint="")])
    there.do(reconcile.take, Taken(source_answer("backend:x", "view", "edit")))
    assert set(build(there.head.all(SourceAnswer))) == {"view", "edit"}

    there.do(reconcile.take, Taken(source_answer("backend:x", "view", "shell")))
    assert set(build(there.head.all(SourceAnswer))) == {"view", "edit", "shell"}
    there.do(reconcile.take, Taken(source_answer("backend:x", "shell"), is_new=True))
    assert set(build(there.head.all(SourceAnswer))) == {"shell"}


@requirement("CAT-3")
def test_a_fallback_never_takes_the_place_of_an_answer() -> None:
    there = World(source_answer("backend:x", "edit"))
    there.do(reconcile.fall_back, [source_answer("backend:x", "glob", is_fallback=True)])

    assert set(build(there.head.all(SourceAnswer))) == {"edit"}


@requirement("PRN-2", "PAT-3")
def test_a_copy_of_a_pattern_is_made_of_the_list_in_force() -> None:
    there = place()
    there.do(reconcile.take, Taken(source_answer("mcp:git", "log"), is_new=True))
    copied = there.do(patterns.copy, wanted(ask.PatternsCopy, pattern_id="p1")).reply.pattern

    assert copied.approval_policy == policy(auto_approved=["log"])
