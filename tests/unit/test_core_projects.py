"""Projects: folders by their real path, never eryx's own, and removing one with its sessions."""

from typing import Any

import pytest

from eryxd.api import requests as ask
from eryxd.api.events import Event, EventType
from eryxd.api.replies import Ended, ProjectChanged
from eryxd.core import projects
from eryxd.core.projects import FoundFolder
from eryxd.domain.errors import Conflict, Invalid, NotFound, ReadOnly, SessionRunning
from eryxd.domain.ids import ProjectId, SessionId
from eryxd.domain.session import SCRATCHPAD, Offers, Project, SessionHead
from tests.builders import NOON, project, session
from tests.core_builders import World, put, wanted, world
from tests.requirements import requirement


def removing(**changes: Any) -> ask.ProjectsRemove:
    """Return the request that removes j1."""
    return wanted(ask.ProjectsRemove, **{"project_id": "j1", **changes})


@requirement("PRJ-1")
def test_a_folder_becomes_a_project() -> None:
    """Row, event and reply are one record."""
    change = World().do(projects.add, FoundFolder("/home/ada/parser", "parser"))
    added = put(change, Project)

    assert added == project(added.id, name="parser", path="/home/ada/parser")
    assert change.events == (Event(at=NOON, type=EventType.PROJECT_UPDATED, project=added),)
    assert change.reply == ProjectChanged(project=added, seq=0)


@requirement("PRJ-1")
def test_one_folder_is_one_project() -> None:
    """Adding it again, under whatever name, returns the project that there is."""
    change = World(project()).do(projects.add, FoundFolder("/home/ada/eryx", "Another name"))

    assert (change.puts, change.events) == ((), ())
    assert change.reply == ProjectChanged(project=project(), seq=0)


@requirement("PRJ-1")
@pytest.mark.parametrize(
    "path",
    [
        "/home/ada/.config/eryx",
        "/home/ada/.config/eryx/plans",
        "/home/ada/.local/state/eryx/scratch",
        "/home/ada/.config",
        "/home/ada",
        "/",
    ],
)
def test_eryxs_own_folders_are_no_project_and_in_none(path: str) -> None:
    """An agent that works there could change its own rules."""
    error = World().refuses(projects.add, FoundFolder(path, "mine"), Invalid)

    assert [problem.split(" ")[0] for problem in error.data["problems"]] == ["path:"]  # type: ignore[attr-defined]


@requirement("PRJ-1")
@pytest.mark.parametrize("path", ["/home/ada/.config/eryx-themes", "/home/ada/.config/eryxd"])
def test_a_folder_whose_name_only_begins_alike_is_nobodys(path: str) -> None:
    """Paths are compared by their parts."""
    assert put(World().do(projects.add, FoundFolder(path, "mine")), Project).path == path


@requirement("PRJ-1")
def test_a_project_without_sessions_is_simply_removed() -> None:
    """Nothing would be lost."""
    change = World(project()).do(projects.remove_project, removing())

    assert change.deletes == ((Project, "j1"),)
    assert change.events == (Event(at=NOON, type=EventType.PROJECT_REMOVED, project_id=ProjectId("j1")),)
    assert change.reply == Ended(seq=0)


@requirement("PRJ-1")
@pytest.mark.parametrize("confirm", [{}, {"confirm": 1}, {"confirm": 3}])
def test_sessions_are_deleted_only_by_somebody_who_has_counted_them(confirm: dict[str, int]) -> None:
    """The refusal says how many there are and what to type."""
    there = world(session("s2", is_archived=True))
    error = there.refuses(projects.remove_project, removing(**confirm), Conflict)

    assert error.data == {"project_id": "j1", "sessions": 2, "next": "eryx projects remove j1 --confirm 2"}


@requirement("PRJ-1")
def test_removing_a_project_deletes_its_sessions_and_no_others() -> None:
    """Each deletion is told, the project's last."""
    there = world(session("s2"), session("s3", project_id=SCRATCHPAD), own=["view"])
    change = there.do(projects.remove_project, removing(confirm=2))

    assert change.puts == ()
    assert change.deletes == (
        (SessionHead, "s1"),
        (Offers, ("session", "s1")),
        (SessionHead, "s2"),
        (Project, "j1"),
    )
    assert change.events == (
        Event(at=NOON, type=EventType.SESSION_DELETED, session_id=SessionId("s1")),
        Event(at=NOON, type=EventType.SESSION_DELETED, session_id=SessionId("s2")),
        Event(at=NOON, type=EventType.PROJECT_REMOVED, project_id=ProjectId("j1")),
    )
    assert there.row(SessionHead, "s3") == session("s3", project_id=SCRATCHPAD)


@requirement("PRJ-1", "RUN-3")
def test_a_project_is_not_removed_while_one_of_its_sessions_runs() -> None:
    """Not even in part: the idle ones stay as well."""
    there = world(session("s2"))
    run = there.send(session_id="s2")
    error = there.refuses(projects.remove_project, removing(confirm=2), SessionRunning)

    assert error.data == {"session_id": "s2", "run_id": run.id, "waiting": 0}


@requirement("PRJ-1")
def test_the_scratchpad_cannot_be_removed() -> None:
    """It always exists."""
    there = World(project(SCRATCHPAD))
    error = there.refuses(projects.remove_project, removing(project_id=SCRATCHPAD), ReadOnly)

    assert error.data == {"project_id": SCRATCHPAD}


@requirement("PRJ-1")
def test_a_project_that_is_gone_is_not_found() -> None:
    """By its id."""
    assert World().refuses(projects.remove_project, removing(), NotFound).data == {"id": "j1", "noun": "project"}
