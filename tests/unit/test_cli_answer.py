"""`eryx run` as a person at a terminal meets it: a real process, a real socket, real keys."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from eryxd.domain.approval import Truncated
from tests.fakes import Person, eryx
from tests.requirements import requirement
from tests.unit.cli_story import ASKED, RUN, SESSION, Story

EVIL: Final = "echo \x1b]0;owned\x07 \x1b[8mhidden"
QUESTION: Final = "[l]ater > "
LONG: Final = "\n".join(f"echo {index}" for index in range(50))


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path) as told:
        yield told


@requirement("CLI-10")
def test_approving_in_place_sends_the_digest_and_follows_to_the_end(story: Story) -> None:
    with story.person() as person:
        person.sees("view a.py  auto (pattern-list)")
        person.sees("? Approve shell")
        person.sees("make test")
        person.sees(QUESTION)
        person.types("a")

        assert person.leaves_with() == 0

    assert "asked (not-listed): approved by you (cli pid 123)" in person.output
    assert "auto-approved: view (pattern-list)\r\n" in person.output
    assert "✓ completed" in person.output
    assert story.daemon.arguments("approvals.resolve") == [
        {"session_id": SESSION, "approval_id": ASKED, "decision": "approved", "digest": "d" * 64}
    ]


@requirement("CLI-10")
def test_rejecting_in_place_asks_for_a_note_and_the_failed_run_is_the_status(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types("r")
        person.sees("note for the agent")
        person.types("use pytest\n")

        assert person.leaves_with() == 1

    assert "“use pytest”" in person.output
    assert "✗ failed" in person.output
    assert story.daemon.arguments("approvals.resolve")[0]["note"] == "use pytest"


@requirement("CLI-10")
def test_remembering_is_offered_with_what_it_would_do(story: Story) -> None:
    with story.person() as person:
        person.sees("with A, the session would auto-approve shell")
        person.sees("[A]pprove and remember")
        person.types("A")

        assert person.leaves_with() == 0

    assert story.daemon.arguments("approvals.resolve")[0]["remember"] == "session"


@requirement("CLI-10")
def test_remembering_is_not_offered_where_it_is_refused(story: Story) -> None:
    story.remember = {"stores": [], "releases": [], "refused": "A scratchpad session."}
    with story.person() as person:
        person.sees(QUESTION)
        person.types("A")
        person.sees(QUESTION)

        assert story.daemon.arguments("approvals.resolve") == []
        assert "[A]pprove" not in person.output


@requirement("CLI-10")
@pytest.mark.parametrize("keys", ["\x1b[A", "aa", "\x1bOa", "x", "\n"])
def test_arrow_keys_pasted_text_and_other_keys_decide_nothing(story: Story, keys: str) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types(keys)
        person.sees(QUESTION)

        assert story.daemon.arguments("approvals.resolve") == []


@requirement("CLI-10")
def test_a_decision_by_another_client_ends_the_question(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        story.decides_elsewhere("approved", resolved_by={"uid": os.getuid(), "pid": 5, "client_name": "editor"})

        assert person.leaves_with() == 0

    assert "approved by you (editor pid 5)" in person.output


@requirement("CLI-10")
def test_later_prints_the_command_and_goes_on(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types("l")
        person.sees("later: eryx approvals approve a7k2")
        story.decides_elsewhere("rejected")

        assert person.leaves_with() == 1


@requirement("CLI-10")
def test_show_all_shows_the_digest_and_asks_again(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types("s")
        person.sees("d" * 64)
        person.sees(QUESTION)


@requirement("CLI-10")
def test_a_refused_answer_is_told_and_asked_again(story: Story) -> None:
    story.error = "conflict"
    with story.person() as person:
        person.sees(QUESTION)
        person.types("a")
        person.sees("eryx: Not now.")
        person.sees(QUESTION)
        person.types("a")

        assert person.leaves_with() == 0


@requirement("CLI-10")
def test_long_content_is_cut_in_the_question_and_says_so(tmp_path: Path) -> None:
    """The middle is left out: what matters may stand at the end."""
    with Story(tmp_path, command=LONG) as story, story.person() as person:
        person.sees("echo 5\r\n")
        person.sees("31 lines not shown: press s")
        person.sees("echo 49")
        person.sees(QUESTION)
        assert "echo 25" not in person.output


@requirement("CLI-10")
def test_what_the_daemon_cut_is_approved_only_on_saying_so(tmp_path: Path) -> None:
    with Story(tmp_path, truncated=Truncated(bytes=4096)) as story, story.person() as person:
        person.sees("4096 bytes not shown: eryx approvals show")
        person.sees(QUESTION)
        person.types("a")
        person.sees("4096 bytes were not shown.  Approve anyway? [y/N]")
        person.types("\n")
        person.sees(QUESTION)
        person.types("l")

    assert story.daemon.arguments("approvals.resolve") == []


@requirement("CLI-10")
@pytest.mark.parametrize("key", ["a", "A"])
def test_what_was_shown_in_part_is_approved_only_on_saying_so(tmp_path: Path, key: str) -> None:
    with Story(tmp_path, command=LONG) as story, story.person() as person:
        person.sees(QUESTION)
        person.types(key)
        person.sees("31 lines were not shown.  Approve anyway? [y/N]")
        person.types("\n")
        person.sees(QUESTION)
        assert story.daemon.arguments("approvals.resolve") == []

        person.types(key)
        person.sees("[y/N] > ")
        person.types("y\n")
        assert person.leaves_with() == 0

    assert len(story.daemon.arguments("approvals.resolve")) == 1


@requirement("CLI-10")
def test_what_was_shown_whole_is_approved_with_one_key(tmp_path: Path) -> None:
    with Story(tmp_path, command=LONG) as story, story.person() as person:
        person.sees(QUESTION)
        person.types("s")
        person.sees("echo 25")
        person.sees(QUESTION)
        person.types("a")
        assert person.leaves_with() == 0

    assert "[y/N]" not in person.output


@requirement("CLI-10")
@pytest.mark.parametrize("typed", ["", "use pyt"])
def test_ctrl_d_goes_back_from_the_note_on_a_line_of_its_own(story: Story, typed: str) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types("r")
        person.sees("back) > ")
        person.types(f"{typed}\x04")
        person.sees("\r\n  [a]pprove")

        assert story.daemon.arguments("approvals.resolve") == []


@requirement("CLI-10")
def test_arrow_keys_and_control_characters_do_not_get_into_a_note(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.types("r")
        person.sees("back) > ")
        person.types("use\x1b[D\x1bOA\x1b[1;5C py\x07test — ünï\n")

        person.leaves_with()

    assert story.daemon.arguments("approvals.resolve")[0]["note"] == "use pytest — ünï"


@requirement("CLI-8")
def test_a_daemon_that_goes_at_the_question_is_told_on_a_line_of_its_own(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.__enter__()
    with story.person() as person:
        person.sees(QUESTION)
        story.__exit__()

        assert person.leaves_with() == 69

    assert "[l]ater > \r\neryx: " in person.output
    assert person.output.endswith("try: eryx daemon start\r\n")


@requirement("CLI-1")
def test_escapes_in_a_command_do_not_reach_the_terminal(tmp_path: Path) -> None:
    with Story(tmp_path, command=EVIL) as story, story.person() as person:
        person.sees("echo \\x1b]0;owned\\x07 \\x1b[8mhidden")
        person.sees(QUESTION)
        assert "\x1b]" not in person.output
        assert "\x1b[8m" not in person.output


@requirement("CLI-2")
def test_no_color_holds_on_a_terminal(story: Story) -> None:
    with (
        story.person() as plain,
        Person(eryx("run", "hi", "--scratch"), {**story.daemon.environ, "NO_COLOR": "1"}) as without,
    ):
        plain.sees(QUESTION)
        without.sees(QUESTION)

        assert "\x1b[33m? Approve shell" in plain.output
        assert "\x1b[" not in without.output


@requirement("CLI-11")
def test_one_interrupt_leaves_the_run_and_says_how_to_come_back(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.interrupts()
        person.sees("Ctrl-C again within 2 s cancels it")
        person.sees("Come back with: eryx timeline ryyyyyyy --follow")
        person.sees("Or end it with: eryx runs cancel ryyyyyyy")

        assert person.leaves_with() == 130

    assert story.daemon.arguments("runs.cancel") == []


@requirement("CLI-11")
def test_a_second_interrupt_cancels_the_run(story: Story) -> None:
    with story.person() as person:
        person.sees(QUESTION)
        person.interrupts()
        person.sees("cancels it")
        person.interrupts()

        assert person.leaves_with() == 130

    assert story.daemon.arguments("runs.cancel") == [{"run_id": RUN}]
    assert "✗ cancelled" in person.output


@requirement("CLI-11")
def test_following_a_timeline_is_left_with_one_interrupt(story: Story) -> None:
    with Person(eryx("timeline", RUN, "--follow"), story.daemon.environ) as person:
        person.sees(QUESTION)
        person.interrupts()

        assert person.leaves_with() == 130

    assert story.daemon.arguments("runs.cancel") == []
    assert "cancels it" not in person.output
