"""`eryx run` as a person and as a script meet it: a real process, a real socket, a real terminal."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from eryxd.cli.report import Problem
from eryxd.cli.run import home_of
from eryxd.cli.text import clock
from tests import builders
from tests.fakes import FakeDaemon, Person, Script, eryx, refuse, wire
from tests.requirements import requirement
from tests.unit.test_cli_render import ask, call, decided

SESSION: Final = "s" + "x" * 16
RUN: Final = "r" + "y" * 16
ASKED: Final = "a7k2" + "a" * 13
EVIL: Final = "echo \x1b]0;owned\x07 \x1b[8mhidden"
QUESTION: Final = "[l]ater > "


class Story:
    """One run with one call that asks; whoever decides ends the run."""

    def __init__(self, home: Path, **permission: Any) -> None:
        self.approval = builders.approval(
            ASKED,
            session_id=SESSION,
            run_id=RUN,
            digest="d" * 64,
            detail='Coder requested shell permission for tool "shell" in replay.',
            permission=builders.permission(**{"command": "make test", **permission}),
        )
        self.status = "running"
        self.error: str | None = None
        self.remember: dict[str, Any] = {"stores": ["shell"], "releases": []}
        self.daemon = FakeDaemon(
            home,
            {
                "projects.add": lambda _: {"project": {"id": "j1"}, "seq": 1},
                "patterns.list": lambda _: {"patterns": [wire(builders.pattern("single"))]},
                "sessions.create": lambda _: self._session(),
                "messages.send": lambda _: {"run_id": RUN, **self._session()},
                "timeline.get": lambda _: {"run": self._run(), "events": self.events(), "seq": 100},
                "approvals.get": lambda _: {
                    "approval": wire(self.approval),
                    "waiting": 1,
                    "position": 1,
                    "remember": self.remember,
                },
                "approvals.resolve": self._resolve,
                "runs.cancel": lambda _: self._end("cancelled"),
            },
        )

    def __enter__(self) -> "Story":
        self.daemon.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.__exit__()

    def events(self) -> list[Any]:
        """Return the timeline so far: a call that ran by itself, and one that asks."""
        return [
            {**call("t1", ask("auto", "pattern-list"), tool_name="view", arguments={"path": "a.py"}), "number": 1},
            {
                **wire(
                    builders.timeline_event(
                        "t2",
                        kind="approval",
                        number=2,
                        approval_id=ASKED,
                        approval_kind="tool-call",
                        approval_title="Approve shell",
                        agent_name="Coder",
                    )
                )
            },
            {**call("t3", ask("ask", "not-listed", ASKED)), "number": 3},
        ]

    def person(self, *words: str) -> Person:
        """Start `eryx run` in a terminal."""
        return Person(eryx("run", "hello", "--project", str(self.daemon.home), *words), self.daemon.environ)

    def script(self, *words: str) -> Script:
        """Start `eryx run` with its output in a pipe."""
        return Script(eryx("run", "hello", "--project", str(self.daemon.home), *words), self.daemon.environ)

    def decides_elsewhere(self, decision: str, **changes: Any) -> None:
        """Be another client that decides."""
        event = decided(decision, **{"approval_id": ASKED, **changes})
        self.daemon.emit("timeline-event", timeline_event={**event, "id": "t2", "number": 2, "run_id": RUN})
        self._end("completed" if decision == "approved" else "error")

    def _resolve(self, params: dict[str, Any]) -> Any:
        if self.error is not None:
            error, self.error = self.error, None
            raise refuse(error, "Not now.")
        changes = {"note": params["note"]} if "note" in params else {}
        self.decides_elsewhere(params["decision"], **changes)
        return {"approval": wire(self.approval), "released": [], **self._session()}

    def _end(self, status: str) -> Any:
        self.status = status
        self.daemon.emit("run-updated", run=self._run())
        return {"run": self._run(), "seq": 102}

    def _run(self) -> Any:
        error = "It failed." if self.status == "error" else None
        return wire(builders.run(RUN, session_id=SESSION, status=self.status, error=error))

    def _session(self) -> dict[str, Any]:
        return {"session": wire(builders.session_view(SESSION)), "seq": 1}


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
    with Story(tmp_path, command="\n".join(f"echo {index}" for index in range(50))) as story, story.person() as person:
        person.sees("31 more lines: press s")
        person.sees(QUESTION)
        assert "echo 40" not in person.output


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
