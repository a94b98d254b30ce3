"""All other commands over a real socket, and what they have in common."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eryxd.api.errors import EXIT_STATUS
from eryxd.domain.errors import ErrorCode
from tests import builders
from tests.fakes import refuse, wire
from tests.requirements import requirement
from tests.unit.cli_stage import FIRST, RUN, SESSION, Start, daemons, eryx, session_reply, shown


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Start]:
    yield from daemons(tmp_path)


@requirement("CLI-7")
@pytest.mark.parametrize(
    ("words", "method", "reply"),
    [
        (["approvals", "list"], "approvals.list", {"approvals": [], "cursor": "c1"}),
        (["approvals", "show", FIRST], "approvals.get", shown({"approval_id": FIRST})),
        (["sessions", "list"], "sessions.list", {"sessions": [], "later": [1, {"x": "\x9b"}]}),
        (["patterns", "list"], "patterns.list", {"patterns": []}),
        (["tools", "list"], "tools.list", {"tools": [], "generation": 4}),
        (["runs", "show", RUN], "runs.get", {"run": wire(builders.run(RUN))}),
        (["call", "api.describe"], "api.describe", {"protocol": 1}),
    ],
)
def test_json_is_the_reply_as_it_came(daemon: Start, words: list[str], method: str, reply: Any) -> None:
    fake = daemon(**{method.replace(".", "__"): lambda _: reply})

    result = eryx(fake, *words, "--json")

    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == reply


@requirement("CLI-8")
@pytest.mark.parametrize("code", list(ErrorCode))
def test_each_error_code_has_its_exit_status(daemon: Start, code: ErrorCode) -> None:
    def refused(_: dict[str, Any]) -> Any:
        raise refuse(code, "Because \x1b[31m.", field=1)

    fake = daemon(projects__list=refused)
    plain, as_json = eryx(fake, "projects", "list"), eryx(fake, "projects", "list", "--json")

    assert plain.exit_code == as_json.exit_code == EXIT_STATUS[code]
    assert plain.stderr.splitlines()[0] == "eryx: Because \\x1b[31m."
    assert json.loads(as_json.stderr) == {"error": {"code": code, "message": "Because \x1b[31m.", "data": {"field": 1}}}
    assert plain.stdout == as_json.stdout == ""


@requirement("CLI-8")
def test_without_a_daemon_the_line_says_what_to_type(tmp_path: Path) -> None:
    result = eryx(tmp_path, "sessions", "list")

    assert result.exit_code == 69
    assert result.stderr.splitlines() == [
        f"eryx: The daemon is not running: nothing listens on {tmp_path}/run/eryxd.sock.",
        "try: eryx daemon start",
    ]


@requirement("CLI-8")
def test_all_problems_of_a_refusal_are_listed(daemon: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = ""\nmode = "single"\n')

    def refused(_: dict[str, Any]) -> Any:
        raise refuse("invalid", "The pattern cannot be saved.", problems=["name: is blank", "agents: needs at least 1"])

    result = eryx(daemon(patterns__save=refused), "patterns", "save", str(file))

    assert result.exit_code == 65
    assert result.stderr.splitlines()[1:] == ["  - name: is blank", "  - agents: needs at least 1"]


@requirement("CLI-9")
@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("error", 1), ("cancelled", 130), ("running", 75)])
def test_waiting_for_a_run_tells_how_it_ended(daemon: Start, status: str, code: int) -> None:
    fake = daemon(runs__wait=lambda _: {"run": wire(builders.run(RUN, status=status))})

    assert eryx(fake, "runs", "wait", RUN, "--timeout", "3").exit_code == code
    assert fake.arguments("runs.wait") == [{"run_id": RUN, "timeout_s": 3.0}]


def test_a_timeline_of_a_session_is_that_of_its_newest_run_with_all_pages(daemon: Start) -> None:
    events = [wire(builders.timeline_event(f"t{index}", number=index)) for index in range(2)]

    def page(params: dict[str, Any]) -> Any:
        at = int(params.get("cursor", 0))
        return {"run": wire(builders.run(RUN)), "events": [events[at]], "seq": 3, **({} if at else {"cursor": "1"})}

    fake = daemon(runs__list=lambda _: {"runs": [{"id": RUN}]}, timeline__get=page)

    result = eryx(fake, "timeline", SESSION, "--json")

    assert json.loads(result.stdout) == {"run": wire(builders.run(RUN)), "events": events, "seq": 3}
    assert fake.arguments("runs.list") == [{"session_id": SESSION, "limit": 1}]


@pytest.mark.parametrize("text", ["[1]", "{", '{"a":null}'])
def test_call_refuses_what_is_not_an_object_without_null(daemon: Start, text: str) -> None:
    fake = daemon(ping=lambda _: {})

    assert eryx(fake, "call", "ping", text).exit_code == 64
    assert fake.arguments("ping") == []


def test_call_reads_arguments_from_standard_input(daemon: Start) -> None:
    fake = daemon(approvals__list=lambda _: {"approvals": []})

    eryx(fake, "call", "approvals.list", "-", stdin='{"limit": 3}')

    assert fake.arguments("approvals.list") == [{"limit": 3}]


def test_lists_say_how_to_go_on(daemon: Start) -> None:
    reply = {"approvals": [wire(builders.approval(FIRST))], "cursor": "c9"}

    result = eryx(daemon(approvals__list=lambda _: reply), "approvals", "list", "--limit", "1")

    assert result.stdout.splitlines()[-1] == "more: --cursor c9"


def test_a_damaged_store_gives_a_status(daemon: Start) -> None:
    reply = {"problems": ["row 3 is missing"], "path": "/s", "bytes": 9}

    result = eryx(daemon(store__check=lambda _: reply), "store", "check")

    assert (result.exit_code, result.stdout) == (74, "✗ row 3 is missing\n")


def test_restoring_is_refused_while_the_daemon_runs(daemon: Start, tmp_path: Path) -> None:
    backup = tmp_path / "b.db"
    backup.touch()

    result = eryx(daemon(), "store", "restore", str(backup))

    assert result.exit_code == EXIT_STATUS[ErrorCode.CONFLICT]
    assert result.stderr.splitlines()[1] == "try: eryx daemon stop"


def test_the_socket_is_named_whether_or_not_anybody_listens(tmp_path: Path) -> None:
    assert eryx(tmp_path, "daemon", "socket").stdout == f"{tmp_path}/run/eryxd.sock\n"


def test_an_unknown_method_says_where_the_known_ones_are(daemon: Start) -> None:
    def refused(_: dict[str, Any]) -> Any:
        raise refuse("unknown_method", "There is no such method.")

    result = eryx(daemon(pingx=refused), "call", "pingx")

    assert (result.exit_code, result.stderr.splitlines()[1]) == (76, "try: eryx call api.describe")


@requirement("CLI-8")
def test_a_session_made_for_a_message_that_is_refused_is_not_left_behind(daemon: Start) -> None:
    def refused(_: dict[str, Any]) -> Any:
        raise refuse("backend_unavailable", "No backend can be chosen.")

    fake = daemon(
        patterns__list=lambda _: {"patterns": [wire(builders.pattern("single"))]},
        sessions__create=session_reply(),
        sessions__delete=lambda _: {"seq": 2},
        messages__send=refused,
    )

    result = eryx(fake, "run", "hello", "--scratch")

    assert result.exit_code == 69
    assert result.stderr.splitlines()[1].startswith("try: eryx run MESSAGE --plan FILE")
    assert fake.arguments("sessions.delete") == [{"session_id": SESSION}]


@requirement("CLI-8")
def test_problems_that_a_message_strings_together_are_told_one_per_line(daemon: Start) -> None:
    problems = ["title: a plan needs one, a text", "step 1: it does nothing"]

    def refused(_: dict[str, Any]) -> Any:
        message = f"The plan /p.toml cannot be played: {'; '.join(problems)}."
        raise refuse("backend_failed", message, place="/p.toml", problems=problems)

    result = eryx(daemon(projects__list=refused), "projects", "list")

    assert result.stderr.splitlines() == [
        "eryx: The plan /p.toml cannot be played:",
        "  - title: a plan needs one, a text",
        "  - step 1: it does nothing",
    ]


@requirement("CLI-8")
def test_what_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()

    result = eryx(home, "daemon", "start")

    assert result.exit_code == EXIT_STATUS[ErrorCode.STORE_UNAVAILABLE]
    assert result.stderr.splitlines() == [
        f"eryx: The daemon cannot keep its files in {home}/state: {home}/state: Not a directory.",
        "try: ERYX_HOME=FOLDER eryx daemon start",
    ]


@requirement("CLI-8")
def test_a_folder_that_is_gone_below_a_person_is_one_line(daemon: Start, tmp_path: Path) -> None:
    here, gone = os.getcwd(), tmp_path / "gone"
    gone.mkdir()
    fake = daemon(store__backup=lambda _: {})
    os.chdir(gone)
    gone.rmdir()
    try:
        result = eryx(fake, "store", "backup", "b.db")
    finally:
        os.chdir(here)

    assert result.exit_code == EXIT_STATUS[ErrorCode.INTERNAL]
    assert result.stderr == "eryx: The system refuses: No such file or directory.\n"


def test_stopping_what_does_not_run_is_no_failure(tmp_path: Path) -> None:
    result = eryx(tmp_path, "daemon", "stop")

    assert (result.exit_code, result.stdout) == (0, "✓ the daemon is not running\n")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("running", "running", "✓ cancelling run ryyyyyyy: nothing more is allowed, and its processes end within"),
        ("running", "cancelled", "✓ run ryyyyyyy has ended: cancelled"),
        ("completed", "completed", "run ryyyyyyy had ended already: completed"),
    ],
)
def test_cancelling_says_what_it_did(daemon: Start, before: str, after: str, said: str) -> None:
    fake = daemon(
        runs__get=lambda _: {"run": wire(builders.run(RUN, status=before))},
        runs__cancel=lambda _: {"run": wire(builders.run(RUN, status=after)), "seq": 1},
    )

    result = eryx(fake, "runs", "cancel", RUN)

    assert (result.exit_code, result.stdout.startswith(said)) == (0, True)


@pytest.mark.parametrize("given", ["qqqq", "sqqq"])
def test_a_timeline_of_nothing_says_that_neither_kind_begins_so(daemon: Start, given: str) -> None:
    fake = daemon(runs__list=lambda _: {"runs": []}, sessions__list=lambda _: {"sessions": []})

    result = eryx(fake, "timeline", given)

    assert (result.exit_code, result.stderr.splitlines()[0]) == (66, f"eryx: No run or session begins with '{given}'.")


def test_a_project_that_is_a_file_is_refused_as_one(daemon: Start, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()

    fake = daemon(patterns__list=lambda _: {"patterns": [wire(builders.pattern("single"))]})

    result = eryx(fake, "sessions", "create", "--project", str(file))

    assert result.stderr == f"eryx: {file} is a file, not a folder.\n"
