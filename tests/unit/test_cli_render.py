"""Records as text: what a person reads about sessions, approvals and timelines."""

from typing import Any, Final

import pytest

from eryxd.cli import narrate, render, render_approvals, render_status
from eryxd.cli.text import PLAIN, Look, clock
from tests import builders
from tests.builders import NOON
from tests.fakes import wire
from tests.requirements import requirement
from tests.unit.cli_records import ME, approval_event, ask, call, decided

EVIL: Final = "\x1b[2J\u202eevil\nsecond"
"""Clears the screen, turns the direction, starts a line of its own."""


def told(*events: dict[str, Any], look: Look = PLAIN) -> list[str]:
    """Return a timeline without times and without its head line."""
    lines = narrate.timeline({"run": wire(builders.run()), "events": list(events), "seq": 1}, look)
    return [line[10:] if line[2:3] == ":" else line.strip() for line in lines[1:]]


@requirement("APR-2")
@pytest.mark.parametrize(
    ("session", "state"),
    [
        (builders.session_view(), "idle"),
        (builders.session_view(status="running"), "running"),
        (builders.session_view(pending=[builders.approval()]), "awaiting approval (1)"),
        (builders.session_view(pending=[builders.approval(), builders.approval("a2")]), "awaiting approval (2)"),
        (builders.session_view(status="error"), "error"),
    ],
)
def test_a_session_awaits_approval_by_what_is_pending(session: Any, state: str) -> None:
    assert render.state(wire(session)) == state


@requirement("CLI-4")
def test_each_decision_is_told_with_its_reason() -> None:
    events = [
        call("t1", ask("auto", "pattern-list"), tool_name="view", arguments={"path": "README.md"}),
        call("t2", ask("pass", "checkpoint-off"), tool_name="rg", arguments={"pattern": "x"}),
        call("t3", ask("ask", "not-listed", "a1")),
        approval_event("t4"),
    ]

    assert told(*events) == [
        "✓ view README.md  auto (pattern-list)  · Coder",
        "✓ rg x  pass (checkpoint-off)  · Coder",
        "? shell make test  asked (not-listed): waiting, eryx approvals show a1  · Coder",
        "auto-approved: view (pattern-list)",
        "ran unasked: rg (checkpoint-off)",
    ]


@requirement("CLI-4")
@pytest.mark.parametrize(
    ("event", "words"),
    [
        (decided(note="just once"), "✓ … approved by you (cli pid 123) “just once”"),
        (decided("rejected"), "✗ … rejected by you (cli pid 123)"),
        (decided(resolved_by={**ME, "uid": 7}), "✓ … approved by uid 7 (cli pid 123)"),
        (
            decided(resolution="remembered", resolved_by=None),
            "✓ … approved because the tool was remembered for the session",
        ),
        (decided("rejected", resolution="expired", resolved_by=None), "✗ … rejected because nobody answered in time"),
        (decided("rejected", resolution="interrupted", resolved_by=None), "✗ … rejected because the daemon stopped"),
    ],
)
def test_a_call_that_asked_says_who_decided_and_why(event: dict[str, Any], words: str) -> None:
    mark, _, decision = words.partition(" … ")

    assert told(call("t2", ask("ask", "not-listed", "a1")), event) == [
        f"{mark} shell make test  asked (not-listed): {decision}  · Coder"
    ]


@pytest.mark.parametrize(
    ("after", "is_told"), [("2026-11-30T12:00:59.000Z", False), ("2026-11-30T12:44:00.000Z", True)]
)
def test_a_decision_that_took_long_is_told_with_its_time(after: str, is_told: bool) -> None:
    event = decided(updated_at=after)
    said = f" at {clock(after)[:5]}" if is_told else ""

    assert told(call("t2", ask("ask", "not-listed", "a1")), event) == [
        f"✓ shell make test  asked (not-listed): approved by you (cli pid 123){said}  · Coder"
    ]


def test_a_final_response_is_told_by_itself() -> None:
    event = decided("rejected", approval_kind="final-response", note="wrong file")

    assert told(event) == ["✗ final response  asked: rejected by you (cli pid 123) “wrong file”  · Coder"]


def test_what_a_call_returned_is_told_in_one_line() -> None:
    event = call("t1", ask("auto", "session-list"), status="completed", result="first\nsecond\nthird\n")

    assert told(event)[1] == "↳ first  (+2 lines)"


def test_automatic_decisions_are_counted_by_tool_and_reason() -> None:
    events = [call(f"t{index}", ask("auto", "pattern-list"), tool_name="view") for index in range(3)]

    assert told(*events)[-1] == "auto-approved: view ×3 (pattern-list)"


@requirement("CLI-1")
@pytest.mark.parametrize(
    "event",
    [
        call("t1", ask("auto", "pattern-list"), tool_name=EVIL, agent_name=EVIL),
        call("t1", ask("auto", "pattern-list"), arguments={"command": EVIL}, status="completed", result=EVIL),
        decided(note=EVIL, approval_title=EVIL, resolved_by={**ME, "client_name": EVIL}),
        dict(
            wire(builders.timeline_event(kind="message", status="completed", content=EVIL, agent_name=EVIL)),
        ),
        dict(wire(builders.timeline_event(kind="run-failed", status="error", error=EVIL))),
    ],
)
def test_no_escape_of_an_agent_reaches_the_terminal(event: dict[str, Any]) -> None:
    text = "\n".join(told(event))

    assert not {"\x1b", "\u202e"} & set(text)
    assert "\\x1b[2J\\u202eevil" in text


@requirement("CLI-1")
def test_no_escape_in_an_approval_reaches_the_terminal() -> None:
    record = builders.approval(
        title=EVIL,
        detail=EVIL,
        agent_name=EVIL,
        tool_name=EVIL,
        permission=builders.permission(command=EVIL, diff=f"+{EVIL}", arguments={EVIL: EVIL}),
        messages=(builders.approval_message(content=EVIL, author_name=EVIL),),
    )
    lines = render_approvals.approval({"approval": wire(record), "waiting": 1})

    assert not {"\x1b", "\u202e"} & set("".join(lines))
    assert not any(line.startswith("second") for line in lines)


@requirement("CLI-5", "APR-7")
def test_a_final_response_is_shown_under_the_line_not_yet_published() -> None:
    record = builders.approval(
        kind="final-response",
        title="Approve final response from Coder",
        tool_name=None,
        permission=None,
        messages=(builders.approval_message(content="All\ndone."),),
    )
    lines = render_approvals.approval({"approval": wire(record), "waiting": 1})

    assert lines[2:6] == ["── not yet published ──", "Coder", "  │ All", "  │ done."]


@requirement("CLI-5", "APR-4")
def test_an_approval_shows_its_place_and_what_remembering_would_do() -> None:
    reply = {
        "approval": wire(
            builders.approval(permission=builders.permission(arguments={"command": "make test", "cwd": "/x"}))
        ),
        "waiting": 2,
        "position": 1,
        "remember": {"stores": ["view", "shell"], "releases": ["a" * 17]},
    }
    lines = render_approvals.approval(reply)

    assert lines[:6] == [
        "a1  ? waiting  tool-call  (1 of 2 waiting)",
        "Approve shell",
        "command",
        "  │ make test",
        "cwd",
        "  │ /x",
    ]
    assert lines[-1].split(maxsplit=1) == [
        "remember",
        "the session would auto-approve view, shell; also releases aaaaaaaa",
    ]


def test_an_approval_says_why_remembering_is_refused() -> None:
    reply = {
        "approval": wire(builders.approval()),
        "waiting": 1,
        "remember": {"stores": [], "releases": [], "refused": "A scratchpad."},
    }

    assert render_approvals.remember(reply) == "not here: A scratchpad."
    assert not render_approvals.can_remember(reply)


@requirement("CLI-1")
def test_an_argument_is_left_out_only_where_the_diff_shows_each_of_its_lines() -> None:
    shown, hidden = "one\ntwo", "one\nthree"
    arguments = {"content": shown, "other": hidden}
    record = builders.approval(permission=builders.permission(command=None, diff="@@\n+one\n+two", arguments=arguments))

    assert render_approvals.content(wire(record), PLAIN)[:2] == ["other", "  │ one"]


def test_cut_content_says_how_to_see_the_rest() -> None:
    record = builders.approval(permission=builders.permission(truncated={"bytes": 12}))

    assert render_approvals.content(wire(record), PLAIN)[-1] == "12 bytes not shown: eryx approvals show a1 --full"


def test_a_diff_is_coloured_by_line() -> None:
    record = builders.approval(permission=builders.permission(command=None, diff="-a\n+b\n c"))

    assert render_approvals.content(wire(record), Look(colour=True))[1:] == [
        "\x1b[31m  │ -a\x1b[0m",
        "\x1b[32m  │ +b\x1b[0m",
        "  │  c",
    ]


@requirement("POL-5")
@pytest.mark.parametrize(
    ("own", "words"),
    [
        (None, ("Inheriting pattern defaults", "✓ auto", "? asks")),
        (builders.settings(), ("Custom for this session", "? asks", "? asks")),
        (builders.settings(["view"]), ("Custom for this session", "✓ auto", "? asks")),
    ],
)
def test_a_session_says_whether_its_list_is_its_own(own: Any, words: tuple[str, str, str]) -> None:
    names = ["view"] if own is None else list(own.auto_approved_tool_names)
    session = wire(builders.session_view(approval_settings=own))
    session["effective"] = {"auto_approved_tool_names": names, "from": "pattern"}
    tools = [wire(builders.tool("view")), wire(builders.tool("shell"))]

    lines = render.session_tools(session, tools)

    assert lines == [words[0], f"{words[1]}  view   view", f"{words[2]}  shell  shell"]


def test_a_listed_tool_that_nothing_offers_is_shown_as_inactive() -> None:
    session = {"effective": {"auto_approved_tool_names": ["gone"], "from": "session"}, "approval_settings": {}}

    assert render.session_tools(session, [])[1] == "- inactive  gone  no source offers it now"


@requirement("CLI-13")
def test_status_tells_what_waits_what_is_wrong_and_who_was_refused() -> None:
    reply = {
        "version": "1",
        "pid": 7,
        "started_at": NOON,
        "sessions": 3,
        "running": 2,
        "waiting": 1,
        "store": {"path": "/s", "writable": False, "problem": "disk full"},
        "backends": [wire(builders.backend_state()), wire(builders.backend_state("copilot", capabilities=None))],
        "warnings": ["odd"],
        "refusals": [{"at": NOON, "pid": 9, "command": "sh", "method": "approvals.resolve", "check": "marked"}],
    }
    lines = render_status.status(reply)

    assert lines[0] == "? 1 approval waiting"
    assert lines[3].split(maxsplit=1) == ["store", "✗ takes no writes, /s: disk full"]
    assert lines[4:7] == [
        "  ✓ backend replay: ready, It is ready.",
        "  ✗ backend copilot: not asked yet",
        "! odd",
    ]
    refused = "✗ refused: a process that is marked as an agent called approvals.resolve (pid 9 sh, check marked)"
    assert lines[7].startswith(refused)
    assert lines[8] == "try: eryx approvals list"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"status": "completed"}, ["✓ completed"]),
        ({"status": "error", "error": "It broke."}, ["✗ failed", "          │ It broke."]),
        ({"status": "cancelled"}, ["✗ cancelled"]),
    ],
)
def test_a_run_ends_with_a_mark_and_a_word(changes: dict[str, Any], lines: list[str]) -> None:
    assert narrate.ending(wire(builders.run(**changes)), PLAIN) == lines


@requirement("CLI-1")
def test_the_name_of_an_argument_is_not_obeyed_by_the_terminal() -> None:
    """A name is as much the agent's as a value."""
    hostile = {"id": "a1", "permission": {"arguments": {"\x1b[2Jname\nmore": "x"}}}

    shown = "\n".join(render_approvals.content(hostile, PLAIN))

    assert "\x1b" not in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "permission", "words"),
    [
        ({"pattern": "**/*.md"}, {}, "**/*.md"),
        ({"pattern": "TODO", "path": "src"}, {"path": "src"}, "TODO in src"),
        ({"path": "a.md", "content": "x"}, {"path": "a.md"}, "a.md"),
        ({"command": "make\ntest"}, {"command": "make\ntest"}, "make\\ntest"),
    ],
)
def test_a_call_is_told_by_what_tells_most(arguments: dict[str, Any], permission: dict[str, Any], words: str) -> None:
    assert render_approvals.call_summary(arguments, permission) == words


def test_status_says_how_a_backend_is_named_that_is_not_chosen_by_itself() -> None:
    reply = {
        **{"version": "1", "pid": 7, "started_at": NOON, "sessions": 0, "running": 0, "waiting": 0},
        **{"store": {"path": "/s", "writable": True}, "warnings": [], "refusals": []},
        "backends": [wire(builders.backend_state(by_default=False))],
    }

    assert render_status.status(reply)[-1].endswith("(only when named: by an agent, --plan or defaults.backend)")
