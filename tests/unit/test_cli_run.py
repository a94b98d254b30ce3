"""`eryx run` as a script meets it, and which session it makes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eryxd.cli.report import Problem
from eryxd.cli.run import home_of
from eryxd.cli.text import clock
from tests import builders
from tests.requirements import requirement
from tests.unit.cli_story import SESSION, Story


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path) as told:
        yield told


@requirement("CLI-12")
def test_without_a_terminal_the_command_to_type_is_printed(story: Story) -> None:
    with story.script() as script:
        script.sees("eryx approvals approve a7k2\n")
        waiting = script.output.splitlines()
        story.decides_elsewhere("approved")
        status, errors = script.leaves_with(), script.errors()

    assert [line.strip() for line in waiting] == [
        "session sxxxxxxx  run ryyyyyyy",
        f"{clock(builders.NOON)}  ✓ view a.py  auto (pattern-list)  · Coder",
        f"{clock(builders.NOON)}  ? waiting: Approve shell  · Coder",
        "eryx approvals show a7k2",
        "eryx approvals approve a7k2",
    ]
    assert script.output.endswith("\n✓ completed\n")
    assert (status, errors) == (0, "")
    assert "\x1b" not in script.output


@requirement("CLI-7")
def test_json_prints_one_event_a_line(story: Story) -> None:
    with story.script("--json") as script:
        script.sees('"tool_name":"shell"')
        script.sees("\n")
        story.decides_elsewhere("rejected")
        status = script.leaves_with()

    events = [json.loads(line) for line in script.output.splitlines()]
    assert [event["type"] for event in events] == ["run-updated", *["timeline-event"] * 4, "run-updated"]
    assert [event["timeline_event"] for event in events[1:4]] == story.events()
    assert status == 1


@requirement("CLI-12")
def test_detached_it_says_how_to_follow_and_to_end(story: Story) -> None:
    with story.script("--detach") as script:
        status = script.leaves_with()

    assert script.output.splitlines() == [
        "session sxxxxxxx  run ryyyyyyy",
        "follow it: eryx timeline ryyyyyyy --follow",
        "end it: eryx runs cancel ryyyyyyy",
    ]
    assert status == 0


def test_a_new_session_works_in_the_folder_that_was_named_with_the_plan(story: Story) -> None:
    plan = story.daemon.home / "plan.toml"
    plan.touch()
    with story.script("--detach", "--plan", str(plan)) as script:
        script.leaves_with()

    assert story.daemon.arguments("projects.add") == [{"path": str(story.daemon.home.resolve())}]
    assert story.daemon.arguments("sessions.create") == [{"pattern_id": "single", "project_id": "j1"}]
    assert story.daemon.arguments("messages.send") == [{"session_id": SESSION, "content": "hello", "plan": str(plan)}]


@pytest.mark.parametrize(
    "words", [["--session", SESSION], ["--scratch"], ["--plan", "/nowhere.toml"], ["--project", "no/such/folder"]]
)
def test_contradictions_and_missing_files_start_nothing(story: Story, words: list[str]) -> None:
    with story.script(*words) as script:
        status = script.leaves_with()

    assert status in (64, 66)
    assert story.daemon.arguments("messages.send") == []


def test_a_project_that_nobody_named_is_the_git_checkout_or_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert home_of(str(inner)) == str(inner.resolve())

    (tmp_path / "a" / ".git").mkdir()
    assert home_of(str(inner)) == str((tmp_path / "a").resolve())


@pytest.mark.parametrize("folder", ["/", "~"])
def test_everything_a_person_has_is_no_project_unless_named(folder: str) -> None:
    with pytest.raises(Problem):
        home_of(os.path.expanduser(folder))
