"""Patterns: saving drafts, what is refused and what is only odd, copies, and the built-in ones."""

from typing import Any, Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.events import Event, EventType, Widening
from eryxd.api.replies import PatternChanged, Validation
from eryxd.core import patterns, runs, sessions
from eryxd.core.change import Change
from eryxd.domain.errors import Conflict, Invalid, NotFound, ReadOnly
from eryxd.domain.ids import BackendName, PatternId, ToolId
from eryxd.domain.pattern import Availability, Mode, Pattern, builtin_patterns
from eryxd.domain.policy import ASK_POLICY, NO_CHECKPOINTS, CheckpointKind, CheckpointRule
from eryxd.domain.session import Offers, Run, SessionHead
from tests.builders import NOON, after, agent, backend_state, offers, pattern, policy, rule, session, tool
from tests.core_builders import World, listed, put, team_of, types, wanted, world
from tests.requirements import requirement

P1: Final = {"pattern_id": "p1"}


def draft(old: Pattern, **changes: Any) -> ask.PatternsSave:
    """Return the request that a client makes of a pattern that it read, with its changes."""
    fields = {name: getattr(old, name) for name in ask.PatternDraft.__struct_fields__}
    fields.update({name: UNSET if value is None else value for name, value in changes.items()})
    return ask.PatternsSave(pattern=ask.PatternDraft(**fields))


def fresh(**changes: Any) -> ask.PatternsSave:
    """Return the request that creates a pattern."""
    owned = {"id": None, "revision": None, "created_at": None, "updated_at": None, "is_builtin": None}
    return draft(pattern(), **{**owned, **changes})


def widened(change: Change) -> list[Any]:
    """Return what a change announces as newly allowed."""
    return [event.widening for event in change.events if event.type is EventType.POLICY_WIDENED]


@requirement("PAT-3", "POL-11")
def test_a_new_pattern_is_stored_normalised_with_who_offers_its_tools() -> None:
    """The reply, the row and the event are one record."""
    there = World()
    policy_ = policy(rules=[rule("final-response"), rule(agents=["coder"]), rule()], auto_approved=[" view ", "view"])
    change = there.do(patterns.save, fresh(approval_policy=policy_))
    saved = put(change, Pattern)

    assert saved == pattern(
        saved.id, approval_policy=policy(rules=[rule(), rule("final-response")], auto_approved=["view"])
    )
    assert listed(change) == offers(owner_id=saved.id)
    assert change.reply == PatternChanged(pattern=saved, seq=0)
    assert change.events == (
        Event(at=NOON, type=EventType.PATTERN_SAVED, pattern=saved),
        Event(
            at=NOON,
            type=EventType.POLICY_WIDENED,
            widening=Widening(tool_id=ToolId("view"), why=f"pattern {saved.id}"),
        ),
    )


@requirement("POL-4")
@pytest.mark.parametrize("default", [ASK_POLICY, NO_CHECKPOINTS], ids=["ask", "none"])
def test_a_pattern_saved_without_a_policy_gets_the_configured_one(default: Any) -> None:
    """It is written into the record, so a later change of the setting does not reach it."""
    there = World()
    there.default_policy = default
    change = there.do(patterns.save, fresh(approval_policy=None))

    assert put(change, Pattern).approval_policy == default


@requirement("POL-4")
def test_no_checkpoints_are_a_choice_that_survives() -> None:
    """`rules: []` is not an absent policy."""
    change = World().do(patterns.save, fresh(approval_policy=NO_CHECKPOINTS))

    assert put(change, Pattern).approval_policy == NO_CHECKPOINTS


@requirement("POL-4", "POL-9")
def test_a_copy_of_a_pattern_whose_policy_is_missing_asks() -> None:
    """Whatever the setting: a copy must not allow more than its original."""
    there = World(pattern(approval_policy=None))
    there.default_policy = NO_CHECKPOINTS
    change = there.do(patterns.copy, wanted(ask.PatternsCopy, **P1))

    assert put(change, Pattern).approval_policy == ASK_POLICY


@requirement("POL-5")
def test_an_empty_list_of_a_pattern_is_an_absent_one() -> None:
    """On a pattern both mean the same."""
    change = World().do(patterns.save, fresh(approval_policy=policy(auto_approved=[" ", ""])))

    assert put(change, Pattern).approval_policy == policy()


@requirement("PAT-1", "VAL-1", "POL-1")
def test_all_problems_are_told_at_once() -> None:
    """Each names its path and its id, with what may have been meant; `validate` says the same without saving."""
    there = World()
    there.backends = {BackendName("copilot"): backend_state("copilot", needs_model=True)}
    request = fresh(
        name=" ",
        agents=(agent(name=" ", backend="copilot"), agent("reader", backend="gone")),
        approval_policy=policy(
            rules=[
                CheckpointRule(kind=CheckpointKind.TOOL_CALL, agent_ids=(" ", "codr")),  # type: ignore[arg-type]
            ],
            auto_approved=["View", "rm"],
        ),
    )
    problems = [
        "name: is blank",
        "agents: mode 'single' takes exactly 1, there are 2",
        "agents[0].name: is blank",
        "approval_policy.rules[0].agent_ids: an agent id is blank",
        "approval_policy.rules[0].agent_ids: there is no agent 'codr' in this pattern; did you mean 'coder'?",
        "agents[0].model: the backend 'copilot' needs one",
        "agents[1].backend: there is no backend 'gone'",
        "approval_policy.auto_approved_tool_names: there is no tool 'View'; did you mean 'view'?",
        "approval_policy.auto_approved_tool_names: there is no tool 'rm'",
    ]

    assert there.refuses(patterns.save, request, Invalid).data == {"problems": problems}
    assert patterns.validate(there.tx(), request) == Validation(problems=tuple(problems), warnings=())


@requirement("PAT-1")
def test_what_is_only_odd_is_returned_and_saved() -> None:
    """Blank instructions are somebody's choice."""
    there = World()
    request = fresh(agents=(agent(instructions=" "),))
    warnings = ("agents[0].instructions: 'Coder' has none",)

    assert patterns.validate(there.tx(), request) == Validation(problems=(), warnings=warnings)
    assert there.do(patterns.save, request).reply.warnings == warnings


@requirement("PAT-1")
def test_a_pattern_is_not_changed_into_one_that_only_looks_available() -> None:
    """A mode that cannot run is said in the pattern's availability."""
    request = draft(pattern(), mode=Mode.MAGENTIC)
    error = world().refuses(patterns.save, request, Invalid)

    assert [problem.split(":")[0] for problem in error.data["problems"]] == ["mode"]  # type: ignore[attr-defined]


@requirement("PAT-3")
def test_saving_what_was_read_last_raises_the_revision() -> None:
    """The daemon's own fields stay the daemon's."""
    there = world()
    there.now = after(9)
    change = there.do(patterns.save, draft(pattern(), name=" Reviewing "))

    assert change.puts == (pattern(name="Reviewing", revision=2, updated_at=after(9)),)
    assert types(change) == ["pattern-saved"]


@requirement("PAT-3")
@pytest.mark.parametrize("revision", [None, 1, 3])
def test_a_stale_draft_is_a_conflict(revision: Any) -> None:
    """It was made from something else than what is stored, or from nothing."""
    there = World(pattern(revision=2))

    error = there.refuses(patterns.save, draft(pattern(), revision=revision), Conflict)

    assert error.data == {"pattern_id": "p1", "revision": 2}


@requirement("PAT-3")
def test_a_draft_of_a_pattern_that_is_gone_is_refused() -> None:
    """An id is never taken from a client."""
    error = World().refuses(patterns.save, fresh(id=PatternId("p9")), Invalid)

    assert error.data == {"problems": ["id: there is no pattern 'p9'; leave the id out to create one"]}


@requirement("PAT-3")
def test_the_daemons_fields_are_accepted_only_as_they_are() -> None:
    """A client that writes them has misread something."""
    error = world().refuses(
        patterns.save, draft(pattern(), created_at=after(1), updated_at=after(1), is_builtin=True), Invalid
    )

    assert error.data == {
        "problems": [f"{name}: is set by the daemon" for name in ("created_at", "updated_at", "is_builtin")]
    }


@requirement("POL-11")
def test_saving_a_list_again_trusts_who_offers_its_tools_now() -> None:
    """That is the person's answer to a provider that came later; ids that left are forgotten."""
    there = world(listed=["view", "edit"])
    there.offers(tool("view", providers=["builtin:view", "newcomer"]), tool("edit"))
    old = there.row(Pattern, "p1")
    change = there.do(patterns.save, draft(old, approval_policy=policy(auto_approved=["view"])))

    assert listed(change) == offers(providers={"view": ("builtin:view", "newcomer")})
    assert widened(change) == []


@requirement("POL-9")
def test_a_list_that_comes_to_a_pattern_without_a_policy_is_announced() -> None:
    """Everything asked before."""
    there = World(pattern(approval_policy=None))
    change = there.do(patterns.save, draft(pattern(), approval_policy=policy(auto_approved=["view"])))

    assert widened(change) == [Widening(tool_id=ToolId("view"), why="pattern p1")]


@requirement("PAT-2", "POL-11")
def test_a_copy_is_the_users_and_trusts_whom_the_original_did() -> None:
    """Of a built-in pattern too."""
    original = replace(team_of("coder", listed=["view"]), is_builtin=True, is_favorite=True, revision=7)
    there = World(original, offers())
    there.offers(tool("view", providers=["builtin:view", "newcomer"]))
    change = there.do(patterns.copy, wanted(ask.PatternsCopy, **P1))
    copy = put(change, Pattern)

    assert copy == replace(original, id=copy.id, name="Coding (copy)", is_builtin=False, is_favorite=False, revision=1)
    assert listed(change) == offers(owner_id=copy.id)


@requirement("PAT-1")
def test_a_copy_needs_a_name_like_any_pattern() -> None:
    """Blank is none."""
    error = world().refuses(patterns.copy, wanted(ask.PatternsCopy, **P1, name=" "), Invalid)

    assert error.data == {"problems": ["name: is blank"]}


@requirement("PAT-2")
@pytest.mark.parametrize("mode", Mode)
def test_every_mode_has_a_built_in_pattern_whose_policy_and_mark_are_the_users(mode: Mode) -> None:
    """They are saved like any pattern's."""
    (builtin,) = [one for one in builtin_patterns(ASK_POLICY, NOON) if one.mode is mode]
    there = World(builtin)
    change = there.do(patterns.save, draft(builtin, approval_policy=NO_CHECKPOINTS, is_favorite=True))

    assert change.puts == (replace(builtin, approval_policy=NO_CHECKPOINTS, is_favorite=True, revision=2),)


@requirement("PAT-2", "FIL-1")
def test_nothing_else_of_a_built_in_pattern_can_be_saved() -> None:
    """The error names what was touched, and how to get a pattern of one's own."""
    (builtin,) = [one for one in builtin_patterns(ASK_POLICY, NOON) if one.mode is Mode.SINGLE]
    request = draft(builtin, name="Mine", max_iterations=9, availability=Availability.PREVIEW)
    error = World(builtin).refuses(patterns.save, request, ReadOnly)

    assert error.data == {
        "pattern_id": "single",
        "fields": ["name", "max_iterations", "availability"],
        "next": "eryx patterns copy single",
    }


@requirement("PAT-2", "FIL-1")
def test_a_built_in_pattern_cannot_be_deleted() -> None:
    """It would be back at the next start."""
    error = World(pattern(is_builtin=True)).refuses(patterns.delete, wanted(ask.PatternsGet, **P1), ReadOnly)

    assert error.data == {"pattern_id": "p1"}


@requirement("PAT-2")
def test_marking_a_favourite_is_a_change_like_any_other() -> None:
    """So another client's draft is stale afterwards."""
    change = World(pattern(is_builtin=True)).do(patterns.favorite, wanted(ask.PatternsFavorite, **P1, is_favorite=True))

    assert change.puts == (pattern(is_builtin=True, is_favorite=True, revision=2),)


@requirement("PAT-2", "POL-6")
def test_deleting_a_pattern_leaves_its_sessions_and_its_runs() -> None:
    """Sending is refused from then on; what runs goes on with its snapshot."""
    there = world(listed=["view"])
    run = there.send()
    change = there.do(patterns.delete, wanted(ask.PatternsGet, **P1))

    assert change.deletes == ((Pattern, "p1"), (Offers, ("pattern", "p1")))
    assert change.events == (Event(at=NOON, type=EventType.PATTERN_DELETED, pattern_id=PatternId("p1")),)
    assert there.row(Run, run.id) == run
    there.finishes(run)
    assert there.row(SessionHead, "s1") == session()
    error = there.refuses(runs.refuse_send, wanted(ask.MessagesSend, session_id="s1", content="More."), NotFound)
    assert (error.data["noun"], error.data["id"]) == ("pattern", "p1")
    error = there.refuses(sessions.create, wanted(ask.SessionsCreate, **P1, project_id="j1"), NotFound)
    assert error.data == {"id": "p1", "noun": "pattern"}
