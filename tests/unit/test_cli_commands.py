"""Commands against a daemon that answers from a table, over a real socket."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from eryxd.api.errors import EXIT_STATUS
from eryxd.cli.text import clock
from eryxd.cli.tree import app
from eryxd.domain.errors import ErrorCode
from tests import builders
from tests.fakes import FakeDaemon, Reply, refuse, wire
from tests.requirements import requirement

FIRST: Final = "a" + "7k2" + "a" * 13
SECOND: Final = "a" + "7k3" + "a" * 13
THIRD: Final = "a" + "7k2b" + "a" * 12
SESSION: Final = "s" + "x" * 16
RUN: Final = "r" + "y" * 16
ME: Final = {"uid": os.getuid(), "pid": 9, "client_name": "other"}

Start = Callable[..., FakeDaemon]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Start]:
    """Start a daemon that answers these methods; it ends with the test."""
    running: list[FakeDaemon] = []

    def start(**replies: Reply) -> FakeDaemon:
        table = {name.replace("__", "."): reply for name, reply in replies.items()}
        running.append(FakeDaemon(tmp_path, table).__enter__())
        return running[0]

    yield start
    for each in running:
        each.__exit__()


def eryx(home: FakeDaemon | Path, *words: str, stdin: str = "") -> Result:
    """Run one command in this process."""
    environ = home.environ if isinstance(home, FakeDaemon) else {"ERYX_HOME": str(home)}
    return CliRunner().invoke(app, list(words), env=environ, input=stdin)


def approvals_of(*ids: str) -> Callable[[dict[str, Any]], Any]:
    """Return what lists these as waiting and has resolved none."""
    rows = [wire(builders.approval(id, session_id=SESSION)) for id in ids]
    return lambda params: {"approvals": [] if params.get("resolved") else rows}


def shown(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "approval": wire(builders.approval(params["approval_id"], session_id=SESSION, digest="d" * 64)),
        "waiting": 1,
    }


def resolved(params: dict[str, Any]) -> dict[str, Any]:
    record = builders.approval(params["approval_id"], session_id=SESSION, status=params["decision"], permission=None)
    return {"approval": wire(record), "released": [], "session": wire(builders.session_view(SESSION)), "seq": 5}


def too_late(same: bool) -> Reply:
    def reply(params: dict[str, Any]) -> Any:
        raise refuse(
            "approval_not_active",
            "Too late.",
            status="approved",
            resolution="user",
            resolved_at=builders.NOON,
            resolved_by=ME,
            same_decision=same,
        )

    return reply


def session_reply(**changes: Any) -> Reply:
    view = wire(builders.session_view(SESSION, **changes))
    own = view.get("approval_settings")
    names = own["auto_approved_tool_names"] if own else ["view"]
    view["effective"] = {"auto_approved_tool_names": names, "from": "session" if own else "pattern"}
    return lambda _: {"session": view, "seq": 1}


@requirement("CLI-6", "APR-4")
def test_approving_sends_back_the_digest_that_was_shown(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST, SECOND), approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approvals", "approve", "a7k2", "--note", "once", "--remember")

    assert (result.exit_code, result.stdout) == (0, "✓ approved  a7k2aaaa  shell make test\n")
    assert fake.arguments("approvals.resolve") == [
        {
            "session_id": SESSION,
            "approval_id": FIRST,
            "decision": "approved",
            "digest": "d" * 64,
            "note": "once",
            "remember": "session",
        }
    ]


@requirement("CLI-6")
def test_several_are_decided_in_turn_and_a_whole_id_needs_no_list(daemon: Start) -> None:
    fake = daemon(approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approval", "reject", FIRST, SECOND, FIRST)

    assert result.exit_code == 0
    assert [asked["approval_id"] for asked in fake.arguments("approvals.resolve")] == [FIRST, SECOND]
    assert {asked["decision"] for asked in fake.arguments("approvals.resolve")} == {"rejected"}


@requirement("CLI-3")
def test_a_slip_in_one_id_decides_nothing(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST), approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approvals", "approve", "a7k2", "zzzz")

    assert result.exit_code == EXIT_STATUS[ErrorCode.NOT_FOUND]
    assert result.stderr == "eryx: No approval begins with 'zzzz'.\ntry: eryx approvals list\n"
    assert fake.arguments("approvals.resolve") == []


@requirement("CLI-3")
def test_a_prefix_of_several_ids_is_refused_naming_them(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST, THIRD), approvals__get=shown)

    result = eryx(fake, "approvals", "show", "a7k2")

    assert result.exit_code == 64
    assert "a7k2a, a7k2b" in result.stderr


@requirement("CLI-6", "APR-4")
@pytest.mark.parametrize(("same", "status"), [(True, 0), (False, EXIT_STATUS[ErrorCode.APPROVAL_NOT_ACTIVE])])
def test_a_late_answer_says_who_decided_and_how_the_session_stands(daemon: Start, same: bool, status: int) -> None:
    fake = daemon(
        approvals__get=shown, approvals__resolve=too_late(same), sessions__get=session_reply(status="running")
    )

    result = eryx(fake, "approvals", "approve", FIRST)

    assert result.exit_code == status
    assert (result.stderr if status else result.stdout).splitlines() == [
        f"a7k2aaaa was already approved by you (other pid 9) at {clock(builders.NOON)}",
        "session sxxxxxxx: running",
    ]


@requirement("CLI-6")
def test_the_first_failure_of_several_gives_the_status_and_the_others_are_decided(daemon: Start) -> None:
    def second_fails(params: dict[str, Any]) -> Any:
        if params["approval_id"] == FIRST:
            raise refuse("conflict", "It changed.", next=f"eryx approvals show {FIRST}")
        return resolved(params)

    fake = daemon(approvals__get=shown, approvals__resolve=second_fails)

    result = eryx(fake, "approvals", "approve", FIRST, SECOND)

    assert result.exit_code == EXIT_STATUS[ErrorCode.CONFLICT]
    assert result.stderr == f"eryx: It changed.\ntry: eryx approvals show {FIRST}\n"
    assert "a7k3aaaa" in result.stdout


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


@requirement("POL-5")
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (["--only", "view,rg"], {"auto_approved_tool_names": ["view", "rg"]}),
        (["--only", "view", "--only", "rg"], {"auto_approved_tool_names": ["view", "rg"]}),
        (["--none"], {"auto_approved_tool_names": []}),
        (["--inherit"], {}),
        (["--add", "rg"], {"auto_approved_tool_names": ["view", "rg"]}),
        (["--add", "rg,view", "--remove", "view"], {"auto_approved_tool_names": ["rg"]}),
        (["--remove", "view"], {"auto_approved_tool_names": []}),
    ],
)
def test_the_three_states_of_a_sessions_list_stay_apart(
    daemon: Start, options: list[str], sent: dict[str, Any]
) -> None:
    fake = daemon(sessions__get=session_reply(), sessions__update_approval_settings=session_reply())

    result = eryx(fake, "sessions", "approvals", SESSION, *options)

    assert result.exit_code == 0
    assert fake.arguments("sessions.update_approval_settings") == [{"session_id": SESSION, **sent}]


@requirement("POL-5")
@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "Inheriting pattern defaults"),
        ({"approval_settings": builders.settings()}, "Custom for this session"),
    ],
)
def test_a_session_shows_whose_list_is_in_force(daemon: Start, changes: dict[str, Any], state: str) -> None:
    tools = {"tools": [wire(builders.tool("view"))], "generation": 1}
    fake = daemon(sessions__get=session_reply(**changes), tools__list=lambda _: tools)

    result = eryx(fake, "session", "approvals", SESSION)

    assert result.stdout.splitlines()[0] == state
    assert fake.arguments("tools.list") == [{"session_id": SESSION}]


def test_adding_to_an_inherited_list_says_what_it_starts_from(daemon: Start) -> None:
    fake = daemon(sessions__get=session_reply(), sessions__update_approval_settings=session_reply())

    result = eryx(fake, "sessions", "approvals", SESSION, "--add", "rg")

    assert result.stdout.splitlines()[0] == "Starting from the pattern's list: view."


@pytest.mark.parametrize(
    "options", [["--none", "--inherit"], ["--only", "view", "--add", "rg"], ["--only", ","], ["--remove", "rg"]]
)
def test_options_that_contradict_or_name_nothing_change_nothing(daemon: Start, options: list[str]) -> None:
    fake = daemon(sessions__get=session_reply(), sessions__update_approval_settings=session_reply())

    result = eryx(fake, "sessions", "approvals", SESSION, *options)

    assert result.exit_code == 64
    assert fake.arguments("sessions.update_approval_settings") == []


@requirement("PAT-3")
@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('name = "N"', {"name": "N"}),
        ('id = "p1"\nname = "N"', {"id": "p1", "name": "N", "revision": 7}),
        ('id = "p1"\nrevision = 3', {"id": "p1", "revision": 3}),
        ('id = "new"', {"id": "new"}),
    ],
)
def test_a_file_replaces_what_is_stored_unless_it_says_which_revision(
    daemon: Start, tmp_path: Path, text: str, sent: dict[str, Any]
) -> None:
    def stored(params: dict[str, Any]) -> Any:
        if params["pattern_id"] == "new":
            raise refuse("not_found")
        return {"pattern": wire(builders.pattern(revision=7))}

    file = tmp_path / "p.toml"
    file.write_text(text)
    saved = {"pattern": wire(builders.pattern()), "seq": 1, "warnings": ["odd"]}
    fake = daemon(patterns__get=stored, patterns__save=lambda _: saved)

    result = eryx(fake, "patterns", "save", str(file))

    assert (result.exit_code, result.stderr) == (0, "warning: odd\n")
    assert fake.arguments("patterns.save") == [{"pattern": sent}]


@pytest.mark.parametrize(
    ("text", "line"),
    [("name =", "is not TOML"), ("created_at = 2026-01-01", "write the date as text"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_sent_is_named(tmp_path: Path, text: str | None, line: str) -> None:
    file = tmp_path / "p.toml"
    if text is not None:
        file.write_text(text)

    result = eryx(tmp_path, "patterns", "validate", str(file))

    assert result.exit_code in (65, 66)
    assert str(file) in result.stderr
    assert line in result.stderr


def test_problems_of_a_draft_give_a_status(daemon: Start, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = ""')
    fake = daemon(patterns__validate=lambda _: {"problems": ["name: is blank"], "warnings": []})

    result = eryx(fake, "patterns", "validate", str(file))

    assert (result.exit_code, result.stdout) == (65, "name: is blank\n")


@requirement("APR-1")
def test_the_whole_content_is_read_page_by_page(daemon: Start) -> None:
    body = json.dumps({"command": "x" * 30}).encode()

    def page(params: dict[str, Any]) -> Any:
        offset = params["offset"]
        more = {"next_offset": offset + 20} if offset + 20 < len(body) else {}
        return {"body": body[offset : offset + 20], "total": len(body), **more}

    result = eryx(daemon(approvals__content=page), "approvals", "show", FIRST, "--full")

    assert result.stdout == f"command\n  │ {'x' * 30}\n"


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


@pytest.mark.parametrize(
    ("given", "id"), [("p1", "p1"), ("CODING", "p1"), ("pabc", "pabcdefg"), ("Twin", None), ("none", None)]
)
def test_patterns_are_found_by_id_name_or_beginning(daemon: Start, given: str, id: str | None) -> None:
    twins = [wire(builders.pattern(each, name="Twin")) for each in ("pabcdefg", "pxyz")]
    rows = [wire(builders.pattern()), *twins]
    fake = daemon(
        patterns__list=lambda _: {"patterns": rows},
        patterns__get=lambda _: {"pattern": wire(builders.pattern())},
    )

    result = eryx(fake, "patterns", "show", given)

    assert [asked["pattern_id"] for asked in fake.arguments("patterns.get")] == ([id] if id else [])
    assert (result.exit_code == 0) == (id is not None)


def test_projects_are_found_by_their_folder(daemon: Start, tmp_path: Path) -> None:
    rows = [wire(builders.project(path=str(tmp_path.resolve())))]
    fake = daemon(projects__list=lambda _: {"projects": rows}, projects__remove=lambda _: {"seq": 1})

    result = eryx(fake, "projects", "remove", str(tmp_path), "--confirm", "2")

    assert result.exit_code == 0
    assert fake.arguments("projects.remove") == [{"project_id": "j1", "confirm": 2}]


def test_prefixes_of_sessions_are_looked_up_on_all_pages(daemon: Start) -> None:
    pages = {None: {"sessions": [{"id": "sa" + "b" * 15}], "cursor": "2"}, "2": {"sessions": [{"id": SESSION}]}}

    def page(params: dict[str, Any]) -> Any:
        return {"sessions": []} if params.get("archived") else pages[params.get("cursor")]

    fake = daemon(sessions__list=page, sessions__revoke=session_reply())

    assert eryx(fake, "sessions", "revoke", "sxxx").exit_code == 0
    assert fake.arguments("sessions.revoke") == [{"session_id": SESSION}]


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

    assert (result.exit_code, result.stderr.splitlines()[1]) == (69, "try: eryx status")
    assert fake.arguments("sessions.delete") == [{"session_id": SESSION}]
