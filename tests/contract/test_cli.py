"""What the command line promises as a whole: quick, uniform, documented."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from eryxd.api.errors import EXIT_STATUS
from eryxd.cli.reference import OUTCOMES, reference
from eryxd.cli.tree import ALIASES, WORDS, app, load
from tests import builders
from tests.fakes import ROOT, FakeDaemon, eryx, refuse, wire
from tests.requirements import requirement

SLOW: Final = ("asyncio", "importlib.metadata", "msgspec", "platformdirs", "pluggy", "pydantic", "rich", "watchfiles")
"""Modules whose import alone a person would notice."""

WATCHED: Final = """\
import sys
from eryxd.cli.app import main
try:
    main()
except SystemExit as leaving:
    print(leaving.code, *sys.modules, file=sys.stderr)
"""

STATUS: Final = {
    "version": "1",
    "pid": 7,
    "started_at": builders.NOON,
    "sessions": 1,
    "running": 1,
    "waiting": 2,
    "store": {"path": "/s", "writable": True},
    "backends": [],
    "warnings": [],
    "refusals": [],
}


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its words."""
    for name, word in WORDS.items():
        command = load(name)
        if not word.is_group:
            yield name, command
            continue
        for verb, each in command.commands.items():
            yield f"{name} {verb}", each


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    def not_found(_: dict[str, Any]) -> Any:
        raise refuse("not_found")

    replies = {
        "daemon.status": lambda _: STATUS,
        "approvals.list": lambda _: {"approvals": [wire(builders.approval())]},
        "approvals.get": not_found,
        "sessions.list": lambda _: {"sessions": [wire(builders.session_view())]},
        "projects.list": lambda _: {"projects": []},
        "patterns.list": lambda _: {"patterns": []},
        "timeline.get": lambda _: {
            "run": wire(builders.run(status="completed")),
            "events": [wire(builders.timeline_event())],
            "seq": 1,
        },
        "messages.send": lambda _: {"run_id": "r" * 17, "session": wire(builders.session_view()), "seq": 1},
    }
    with FakeDaemon(tmp_path, replies) as running:
        yield running


def imported(daemon: FakeDaemon, *words: str) -> tuple[int, list[str]]:
    """Run a command in a process of its own; return its exit status and the modules it had at its end."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words],
        env={**os.environ, **daemon.environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    status, *modules = done.stderr.splitlines()[-1].split(" ")
    return int(status), modules


@requirement("CLI-20")
@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--short"],
        ["approvals", "list"],
        ["approvals", "show", "a" * 17],
        ["sessions", "list"],
        ["timeline", "r" * 17],
        ["timeline", "r" * 17, "--follow"],
        ["run", "hello", "--session", "s" * 17, "--detach"],
        ["daemon", "socket"],
        ["call", "daemon.status"],
        ["--help"],
        ["runs", "--help"],
    ],
)
def test_no_client_command_imports_what_is_slow(daemon: FakeDaemon, words: list[str]) -> None:
    _, modules = imported(daemon, *words)

    assert [name for name in SLOW if name in modules] == []


@requirement("CLI-20")
def test_only_the_module_of_the_wanted_word_is_imported(daemon: FakeDaemon) -> None:
    _, modules = imported(daemon, "approvals", "list")

    assert {name for name in WORDS if f"eryxd.cli.{name}" in modules} == {"approvals"}
    assert "json" not in modules


@requirement("CLI-20")
def test_the_short_status_needs_no_typer_and_says_what_the_long_way_says(daemon: FakeDaemon) -> None:
    status, modules = imported(daemon, "status", "--short")
    long_way = CliRunner().invoke(app, ["status", "--short"], env=daemon.environ)
    short_way = subprocess.run(
        eryx("status", "--short"), env={**os.environ, **daemon.environ}, capture_output=True, text=True, check=True
    )

    assert status == 0
    assert "typer" not in modules
    assert short_way.stdout == long_way.stdout == "2 waiting, 1 running\n"


@requirement("CLI-7")
def test_every_command_takes_json_and_explains_itself() -> None:
    silent = [
        name
        for name, command in commands()
        if not command.help or not any("--json" in option.opts for option in command.params)
    ]

    assert silent == []


@requirement("CLI-14")
def test_every_option_and_argument_is_explained() -> None:
    unexplained = [
        f"{name} {option.name}"
        for name, command in commands()
        for option in command.params
        if not getattr(option, "help", None)
    ]

    assert unexplained == []


@requirement("CLI-14")
def test_the_command_reference_is_current() -> None:
    """Write it anew with: python -m eryxd.cli.reference > docs/commands.md"""
    assert (ROOT / "docs" / "commands.md").read_text() == reference()


@requirement("CLI-8")
def test_every_exit_status_is_documented() -> None:
    page = reference()

    assert all(f"| {status} | `{code}` |" in page for code, status in EXIT_STATUS.items())
    assert all(f"| {status} |  | {meaning} |" in page for status, _, meaning in OUTCOMES)


def test_the_list_of_words_says_what_the_groups_say() -> None:
    assert {name: load(name).help for name, word in WORDS.items() if word.is_group} == {
        name: word.summary for name, word in WORDS.items() if word.is_group
    }


def test_each_noun_answers_to_its_singular_which_help_does_not_list() -> None:
    told = {alias: CliRunner().invoke(app, [alias, "--help"]) for alias in ALIASES}
    page = CliRunner().invoke(app, ["--help"]).stdout

    assert {alias: result.exit_code for alias, result in told.items()} == dict.fromkeys(ALIASES, 0)
    assert not any(f"\n  {alias} " in page for alias in ALIASES)
    assert all(f"\n  {name} " in page for name in WORDS)


def test_a_word_that_is_none_is_a_wrong_command_line() -> None:
    result = CliRunner().invoke(app, ["sesions", "list"])

    assert result.exit_code == 2
    assert "sessions" in result.stderr


@pytest.mark.parametrize("name", [name for name, word in WORDS.items() if word.is_group])
def test_no_sentence_of_help_is_cut(name: str) -> None:
    """Of each command the list shows the first sentence, whole."""
    page = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).stdout
    _, _, listed = page.partition("Commands:")

    assert "..." not in listed


def test_the_version_is_told_where_people_look_for_it() -> None:
    as_option, as_word = (CliRunner().invoke(app, [word]) for word in ("--version", "version"))

    assert as_option.exit_code == 0
    assert as_option.stdout == as_word.stdout
