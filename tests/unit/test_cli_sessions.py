"""`eryx sessions`, `patterns` and `projects` over a real socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import builders
from tests.fakes import refuse, wire
from tests.requirements import requirement
from tests.unit.cli_stage import SESSION, Start, daemons, eryx, session_reply


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Start]:
    yield from daemons(tmp_path)


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


@pytest.mark.parametrize(
    ("given", "id"),
    [("p1", "p1"), ("CODING", "p1"), ("pabc", "pabcdefg"), ("codi", "p1"), ("Twin", None), ("none", None)],
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


LETTERS: Final = builders.policy(rules=[builders.rule("final-response")])
TWO: Final = (builders.agent("scout"), builders.agent("fixer"))


@requirement("POL-1")
@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, ["✓ auto  view   view", "? asks  shell  shell"]),
        ({"approval_policy": None}, ["✓ auto  view   view", "? asks  shell  shell"]),
        (
            {"approval_policy": LETTERS},
            [
                "tool calls: every call runs unasked (no tool-call checkpoint)",
                "✓ passes  view   view",
                "✓ passes  shell  shell",
            ],
        ),
        (
            {"agents": TWO, "approval_policy": builders.policy(rules=[builders.rule(agents=["fixer"])])},
            [
                "tool calls: those of Scout run unasked (no tool-call checkpoint covers them)",
                "✓ auto  view   view",
                "? asks  shell  shell",
            ],
        ),
        (
            {"agents": TWO, "approval_policy": builders.policy(rules=[builders.rule(agents=["fixer", "scout"])])},
            ["✓ auto  view   view", "? asks  shell  shell"],
        ),
    ],
)
def test_a_session_says_which_calls_pass_because_no_checkpoint_covers_them(
    daemon: Start, changes: dict[str, Any], lines: list[str]
) -> None:
    tools = {"tools": [wire(builders.tool("view")), wire(builders.tool("shell"))], "generation": 1}
    pattern = {"pattern": wire(builders.pattern(**changes))}
    fake = daemon(sessions__get=session_reply(), tools__list=lambda _: tools, patterns__get=lambda _: pattern)

    result = eryx(fake, "sessions", "approvals", SESSION)

    assert result.stdout.splitlines() == ["Inheriting pattern defaults", *lines]


@requirement("POL-1")
@pytest.mark.parametrize(
    ("policy", "said"),
    [(LETTERS, ["tool calls     every call runs unasked (no tool-call checkpoint)"]), (builders.policy(), [])],
)
def test_a_pattern_without_a_tool_call_checkpoint_says_that_every_call_runs(
    daemon: Start, policy: Any, said: list[str]
) -> None:
    pattern = {"pattern": wire(builders.pattern(approval_policy=policy))}

    fake = daemon(patterns__list=lambda _: {"patterns": [pattern["pattern"]]}, patterns__get=lambda _: pattern)

    result = eryx(fake, "patterns", "show", "Coding")

    assert [line.strip() for line in result.stdout.splitlines() if "tool calls" in line] == said


@requirement("SES-3")
@pytest.mark.parametrize(
    ("policy", "status", "said"),
    [
        (builders.policy(), "idle", "✓ every further call asks"),
        (LETTERS, "running", "✓ every further call of this run asks; in later runs: every call runs unasked"),
        (LETTERS, "idle", "✓ nothing is auto-approved; yet of tool calls every call runs unasked"),
    ],
)
def test_revoking_says_what_asks_from_now_on(daemon: Start, policy: Any, status: str, said: str) -> None:
    pattern = {"pattern": wire(builders.pattern(approval_policy=policy))}
    fake = daemon(sessions__revoke=session_reply(status=status), patterns__get=lambda _: pattern)

    assert eryx(fake, "sessions", "revoke", SESSION).stdout.startswith(said)


@requirement("PAT-3")
@pytest.mark.parametrize(
    ("named", "options", "sent"),
    [
        ([], [], {"name": "Twin"}),
        (["p1"], [], {"id": "p1", "name": "Twin", "revision": 4, "is_favorite": True}),
        (["p1"], ["--new"], {"name": "Twin"}),
        (["p1", "p2"], ["--new"], {"name": "Twin"}),
        (["p1", "p2"], [], None),
    ],
)
def test_a_file_without_an_id_changes_the_one_pattern_of_its_name(
    daemon: Start, tmp_path: Path, named: list[str], options: list[str], sent: dict[str, Any] | None
) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "Twin"')
    builtin = builders.pattern("single", name="twin", is_builtin=True)
    stored = [builtin, *(builders.pattern(id, name="twin", revision=4, is_favorite=True) for id in named)]
    saved = {"pattern": wire(builders.pattern(revision=5)), "seq": 1}
    fake = daemon(
        patterns__list=lambda _: {"patterns": wire(stored)},
        patterns__get=lambda _: {"pattern": wire(stored[-1])},
        patterns__save=lambda _: saved,
    )

    result = eryx(fake, "patterns", "save", str(file), *options)

    assert fake.arguments("patterns.save") == ([] if sent is None else [{"pattern": sent}])
    if sent is None:
        assert "2 patterns are called 'Twin': p1, p2;" in result.stderr
    else:
        assert result.stdout.splitlines()[0] == "updated Coding, now at revision 5"


def test_a_plan_is_not_taken_for_a_pattern(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('title = "T"\n[[step]]\nsay = "x"\n')

    result = eryx(tmp_path, "patterns", "save", str(file))

    assert result.exit_code == 65
    assert result.stderr.splitlines() == [
        f"eryx: {file} looks like a plan, not like a pattern: it has steps and no agents.",
        f"try: eryx run MESSAGE --plan {file}",
    ]


@requirement("CLI-3")
@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("twin", "eryx: 2 patterns are called 'twin': pabc, pxyz."),
        ("care", "eryx: Several patterns begin with 'care': p111 Careful one, p222 Careful two."),
        ("car", "eryx: 'car' is too short: give at least 4 characters of the pattern's id or name."),
        ("none", "eryx: No pattern begins with 'none'."),
    ],
)
def test_a_name_that_does_not_tell_which_is_refused(daemon: Start, given: str, line: str) -> None:
    named = {"pabcdefg": "Twin", "pxyz": "Twin", "p1111111": "Careful one", "p2222222": "Careful two"}
    rows = [wire(builders.pattern(id, name=name)) for id, name in named.items()]

    result = eryx(daemon(patterns__list=lambda _: {"patterns": rows}), "patterns", "show", given)

    assert result.stderr.splitlines()[0] == line


def test_sessions_show_what_pattern_and_project_are_called(daemon: Start) -> None:
    fake = daemon(
        sessions__get=session_reply(),
        sessions__list=lambda _: {"sessions": [wire(builders.session_view(SESSION))]},
        patterns__list=lambda _: {"patterns": [wire(builders.pattern(name="Careful"))]},
        projects__list=lambda _: {"projects": [wire(builders.project(name="parser"))]},
    )

    assert "  Careful  parser  " in eryx(fake, "sessions", "list").stdout
    assert eryx(fake, "sessions", "show", SESSION).stdout.splitlines()[1:3] == [
        "  project        parser",
        "  pattern        Careful",
    ]


def test_a_search_without_a_match_says_so(daemon: Start) -> None:
    fake = daemon(sessions__search=lambda _: {"sessions": []})

    assert eryx(fake, "sessions", "search", "x").stdout == "Nothing matches.\n"
