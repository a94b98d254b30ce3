"""Sessions: creating, copying, naming and removing them; the three states of their own list."""

from typing import Any

import pytest

from eryxd.api import requests as ask
from eryxd.api.events import Event, EventType, Widening
from eryxd.api.replies import Effective, SessionChanged
from eryxd.core import sessions
from eryxd.core.change import Change
from eryxd.core.views import session_view
from eryxd.domain.errors import Invalid, NotFound, SessionRunning
from eryxd.domain.ids import SessionId, ToolId
from eryxd.domain.policy import ListFrom
from eryxd.domain.session import SCRATCHPAD, Offers, SessionHead, TitleSource
from tests.builders import NOON, after, offers, project, session, settings, tool
from tests.core_builders import World, listed, put, types, wanted, world
from tests.requirements import requirement

S1 = {"session_id": "s1"}


def scratchpad(**changes: Any) -> World:
    """Return a world whose session s1 works in the scratchpad, with a pattern that lists `view`."""
    return world(project(SCRATCHPAD, name="Scratchpad"), listed=["view"], project_id=SCRATCHPAD, **changes)


def setting(*names: str) -> ask.SessionsUpdateApprovalSettings:
    """Return the request that sets a session's own list."""
    return wanted(ask.SessionsUpdateApprovalSettings, **S1, auto_approved_tool_names=names)


CLEARING = wanted(ask.SessionsUpdateApprovalSettings, **S1)


def widenings(change: Change) -> list[Event]:
    """Return what a change announces as newly allowed."""
    return [event for event in change.events if event.type is EventType.POLICY_WIDENED]


@requirement("SES-1")
def test_a_new_session_inherits_and_has_nothing_selected() -> None:
    """Every field, and one event."""
    there = world()
    change = there.do(sessions.create, wanted(ask.SessionsCreate, pattern_id="p1", project_id="j1"))
    head = put(change, SessionHead)

    assert head == session(head.id, title="New session")
    assert types(change) == ["session-updated"]
    assert change.reply == SessionChanged(session=session_view(there.head, head.id), seq=0)  # type: ignore[arg-type]


@requirement("SES-1")
def test_a_session_without_a_project_works_in_the_scratchpad() -> None:
    """It always exists."""
    change = scratchpad().do(sessions.create, wanted(ask.SessionsCreate, pattern_id="p1"))

    assert put(change, SessionHead).project_id == SCRATCHPAD


@requirement("SES-1")
@pytest.mark.parametrize(("field", "noun"), [("pattern_id", "pattern"), ("project_id", "project")])
def test_a_session_of_something_unknown_is_not_created(field: str, noun: str) -> None:
    """The error names it."""
    fields = {"pattern_id": "p1", "project_id": "j1", field: "nowhere"}
    error = world().refuses(sessions.create, wanted(ask.SessionsCreate, **fields), NotFound)

    assert error.data == {"id": "nowhere", "noun": noun}


@requirement("SES-1", "SES-2")
def test_a_title_given_at_the_start_is_a_persons() -> None:
    """So the first message does not change it."""
    change = world().do(
        sessions.create, wanted(ask.SessionsCreate, pattern_id="p1", project_id="j1", title=" Mend the parser ")
    )
    head = put(change, SessionHead)

    assert (head.title, head.title_source) == ("Mend the parser", TitleSource.MANUAL)


@requirement("SES-1")
def test_a_blank_title_is_refused_at_the_start_and_later() -> None:
    """A session that has no name cannot be found again."""
    there = world()
    for use_case, request in (
        (sessions.create, wanted(ask.SessionsCreate, pattern_id="p1", project_id="j1", title=" \t")),
        (sessions.rename, wanted(ask.SessionsRename, **S1, title="  ")),
    ):
        error = there.refuses(use_case, request, Invalid)

        assert error.data == {"problems": ["title: is blank"]}


@requirement("SES-1", "SES-2")
def test_renaming_makes_the_title_a_persons() -> None:
    """And nothing else changes."""
    there = world()
    there.now = after(5)
    change = there.do(sessions.rename, wanted(ask.SessionsRename, **S1, title=" Parser "))

    assert change.puts == (session(title="Parser", title_source=TitleSource.MANUAL, updated_at=after(5)),)
    assert types(change) == ["session-updated"]


@requirement("SES-2")
def test_the_first_message_names_a_session_and_the_second_does_not() -> None:
    """Nor does any message once a person has named it."""
    there = world(title="New session")
    first = there.send("Mend the parser.\nThen rest.")
    there.finishes(first)
    there.send("Now the printer.")

    assert there.row(SessionHead, "s1").title == "Mend the parser."


@requirement("SES-2")
def test_a_message_does_not_rename_what_a_person_named() -> None:
    """Even where the name is the one that an unnamed session has."""
    there = world(title="New session", title_source=TitleSource.MANUAL)
    there.send("Mend the parser.")

    assert there.row(SessionHead, "s1").title == "New session"


@requirement("SES-1")
def test_pinning_and_archiving_can_be_undone() -> None:
    """Each touches its own field."""
    there = world()
    there.do(sessions.pin, wanted(ask.SessionsPin, **S1, is_pinned=True))
    there.do(sessions.archive, wanted(ask.SessionsArchive, **S1, is_archived=True))
    assert there.row(SessionHead, "s1") == session(is_pinned=True, is_archived=True)

    there.do(sessions.pin, wanted(ask.SessionsPin, **S1, is_pinned=False))
    there.do(sessions.archive, wanted(ask.SessionsArchive, **S1, is_archived=False))
    assert there.row(SessionHead, "s1") == session()


@requirement("SES-1", "POL-5")
@pytest.mark.parametrize("own", [None, (), ("view",)], ids=["inherit", "empty", "list"])
def test_a_copy_has_the_settings_and_none_of_the_work(own: Any) -> None:
    """Pendings and runs stay where they are; the three states of the list come along as they are."""
    there = world(own=own, is_pinned=True, is_archived=True, tooling={"mcp": ("git",)})
    run = there.send()
    change = there.do(sessions.duplicate, wanted(ask.SessionsGet, **S1))
    copy = put(change, SessionHead)

    assert copy == session(
        copy.id,
        title="Mend the parser (copy)",
        title_source=TitleSource.MANUAL,
        tooling={"mcp": ("git",)},
        approval_settings=None if own is None else settings(own),
    )
    assert {type(row) for row in change.puts} <= {SessionHead, Offers}
    assert run.session_id == "s1"


@requirement("SES-1", "POL-11")
def test_a_copy_trusts_the_providers_that_its_original_did() -> None:
    """One that came since must not slip in by copying."""
    there = world(own=["view"])
    there.offers(tool("view", providers=["builtin:view", "newcomer"]))
    change = there.do(sessions.duplicate, wanted(ask.SessionsGet, **S1))

    assert listed(change) == offers("view", owner="session", owner_id=put(change, SessionHead).id)


@requirement("SES-1")
def test_deleting_a_session_takes_its_list_with_it() -> None:
    """The store removes the rest with the head."""
    there = world(own=["view"])
    change = there.do(sessions.delete, wanted(ask.SessionsDelete, **S1))

    assert change.puts == ()
    assert change.deletes == ((SessionHead, "s1"), (Offers, ("session", "s1")))
    assert change.events == (Event(at=NOON, type=EventType.SESSION_DELETED, session_id=SessionId("s1")),)


@requirement("SES-1", "RUN-3")
def test_a_running_session_is_not_deleted_before_it_was_settled() -> None:
    """The daemon settles it first."""
    there = world()
    run = there.send()
    error = there.refuses(sessions.delete, wanted(ask.SessionsDelete, **S1), SessionRunning)

    assert error.data == {"session_id": "s1", "run_id": run.id, "waiting": 0}


@requirement("SES-1")
def test_tooling_that_does_not_exist_is_refused_all_at_once() -> None:
    """Each provider is named."""
    request = wanted(ask.SessionsUpdateTooling, **S1, tooling={"mcp": ("git",), "lsp": ("ts",)})
    error = world().refuses(sessions.update_tooling, request, Invalid)

    assert error.data == {
        "problems": [
            "tooling.mcp: there is no tool provider of that name, or it has no entries",
            "tooling.lsp: there is no tool provider of that name, or it has no entries",
        ],
        "next": "eryx providers list",
    }


@requirement("POL-5", "POL-11")
def test_a_list_replaces_what_was_inherited_and_keeps_who_offers_its_tools() -> None:
    """Never merged; announced where it allows what was not allowed."""
    there = world(listed=["view"])
    change = there.do(sessions.update_approval_settings, setting("edit", " edit", "shell"))
    head = session(approval_settings=settings(["edit", "shell"]))

    assert [row for row in change.puts if isinstance(row, SessionHead)] == [head]
    assert listed(change) == offers("edit", "shell", owner="session", owner_id="s1")
    assert [event.widening for event in widenings(change)] == [
        Widening(tool_id=ToolId("edit"), why="listed"),
        Widening(tool_id=ToolId("shell"), why="listed"),
    ]
    assert change.reply.session.effective == Effective(
        auto_approved_tool_names=(ToolId("edit"), ToolId("shell")), list_from=ListFrom.SESSION
    )


@requirement("POL-5")
def test_an_empty_list_is_an_override_and_no_list_clears_it() -> None:
    """The three states stay apart, in the row and in the reply."""
    there = world(listed=["view"], own=["edit"])
    emptied = there.do(sessions.update_approval_settings, setting())
    assert there.row(SessionHead, "s1") == session(approval_settings=settings())
    assert emptied.reply.session.effective == Effective(auto_approved_tool_names=(), list_from=ListFrom.SESSION)
    assert widenings(emptied) == []

    cleared = there.do(sessions.update_approval_settings, CLEARING)
    assert there.row(SessionHead, "s1") == session()
    assert cleared.reply.session.effective == Effective(
        auto_approved_tool_names=(ToolId("view"),), list_from=ListFrom.PATTERN
    )
    assert [event.widening for event in widenings(cleared)] == [Widening(tool_id=ToolId("view"), why="listed")]
    assert there.head.get(Offers, ("session", "s1")) is None


@requirement("VAL-1")
def test_unknown_tools_are_refused_all_at_once_with_what_may_be_meant() -> None:
    """Ids are exact: another case is another tool."""
    error = world().refuses(sessions.update_approval_settings, setting("View", "view", "rm"), Invalid)

    assert error.data == {
        "problems": [
            "auto_approved_tool_names: there is no tool 'View'; did you mean 'view'?",
            "auto_approved_tool_names: there is no tool 'rm'",
        ]
    }


@requirement("VAL-3")
@pytest.mark.parametrize("request_", [setting(), CLEARING], ids=["empty", "clear"])
def test_a_scratchpad_session_may_empty_its_list_and_clear_it(request_: Any) -> None:
    """Neither allows anything of its own."""
    change = scratchpad().do(sessions.update_approval_settings, request_)

    assert put(change, SessionHead).project_id == SCRATCHPAD


@requirement("VAL-3", "VAL-1")
def test_a_scratchpad_session_takes_no_list_of_its_own() -> None:
    """It is told whose list it uses, and of every other problem too."""
    error = scratchpad().refuses(sessions.update_approval_settings, setting("view", "rm"), Invalid)

    assert error.data == {
        "problems": [
            "auto_approved_tool_names: must be empty or absent",
            "auto_approved_tool_names: there is no tool 'rm'",
        ]
    }
    assert "pattern's" in error.message


@requirement("SES-3")
@pytest.mark.parametrize(
    ("use_case", "request_"),
    [
        (sessions.update_approval_settings, setting()),
        (sessions.update_approval_settings, CLEARING),
        (sessions.update_tooling, wanted(ask.SessionsUpdateTooling, **S1, tooling={})),
    ],
)
def test_settings_are_fixed_while_the_session_runs(use_case: Any, request_: Any) -> None:
    """Even those that would only tighten: `revoke` is there for that."""
    there = world()
    run = there.send()
    error = there.refuses(use_case, request_, SessionRunning)

    assert error.data == {"session_id": "s1", "run_id": run.id, "waiting": 0}
