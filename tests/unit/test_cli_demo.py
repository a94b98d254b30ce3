"""The demo as a person meets it: a real daemon, real tools, real keys."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import Person, eryx

QUESTION = "[l]ater > "


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with Person(eryx("demo"), {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "TERM": "dumb"}) as started:
        yield started


def test_a_demo_that_is_left_says_that_nothing_of_it_stays(person: Person, tmp_path: Path) -> None:
    person.sees(QUESTION)
    person.interrupts()

    assert person.leaves_with() == 130
    assert person.output.endswith("The demo ends; its daemon and folder are removed.\r\n")
    assert "goes on" not in person.output
    assert list(tmp_path.glob("eryx-demo-*")) == []


def test_putting_an_answer_off_says_how_to_reach_the_daemon_of_the_demo(person: Person) -> None:
    person.sees(QUESTION)
    person.types("l")
    person.sees(" approvals approve a")
    person.interrupts()

    assert person.leaves_with() == 130
    assert re.search(r"later: ERYX_HOME=/\S+/home \S*eryx.* approvals approve a", person.output)


def test_saying_no_to_everything_is_an_answer_and_no_failure(person: Person) -> None:
    for _ in range(3):
        person.sees(QUESTION)
        person.types("r")
        person.sees("note for the agent")
        person.types("\n")

    assert person.leaves_with() == 0
    assert "final response  asked: rejected by you" in person.output
