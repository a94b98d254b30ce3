"""Starting a daemon from the command line, waiting for it, and reading its log."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from eryxd.cli.tree import app
from tests.fakes import ROOT, WAIT_S, Script, eryx
from tests.requirements import requirement

START: Final = """
import sys
from eryxd.cli import process
from eryxd.cli.report import Problem, fail
try:
    process.start('cli', sys.argv[1:])
except Problem as problem:
    sys.exit(fail(problem, False))
"""


def start(home: str, *command: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Start a daemon by a command, in a process with its own environment."""
    return subprocess.run(
        [sys.executable, "-c", START, *command],
        env={**os.environ, "ERYX_HOME": home, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"ERYX_HOME": str(home)})


@requirement("CLI-15")
def test_a_daemon_is_started_apart_answers_and_is_stopped(tmp_path: Path) -> None:
    started = start(str(tmp_path), sys.executable, "-m", "tests.unit.cli_served", str(tmp_path))
    log = tmp_path / "state" / "eryxd.log"

    assert (started.returncode, started.stderr) == (0, "")
    assert log.read_text() == "ready\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert run(tmp_path, "daemon", "start").stdout.startswith("✓ the daemon was running already: pid ")
    assert run(tmp_path, "call", "daemon.shutdown").exit_code == 0


@requirement("CLI-15")
def test_a_relative_home_is_the_same_for_the_daemon_which_starts_elsewhere(tmp_path: Path) -> None:
    said = "import os, sys; print(os.environ['ERYX_HOME'], os.getcwd(), os.getsid(0) == os.getpid()); sys.exit(3)"

    started = start("home", sys.executable, "-c", said, cwd=tmp_path)

    assert f"{tmp_path.resolve()}/home / True" in started.stderr


@requirement("CLI-15")
def test_a_daemon_that_ends_at_once_is_reported_with_its_status_and_last_lines(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "eryxd.log").write_text("of yesterday\n")

    started = start(str(tmp_path), sys.executable, "-c", "import sys; print('The store is broken.'); sys.exit(78)")

    assert (started.returncode, started.stderr.splitlines()) == (
        78,
        ["eryx: The daemon could not start.", "  - The store is broken."],
    )


@pytest.mark.parametrize(("count", "shown"), [(2, "b\n\\x1b[31mc\n"), (0, ""), (9, "a\nb\n\\x1b[31mc\n")])
def test_the_last_lines_of_the_log_are_shown_without_escapes(tmp_path: Path, count: int, shown: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "eryxd.log").write_text("a\nb\n\x1b[31mc\n")

    assert run(tmp_path, "daemon", "logs", "-n", str(count)).stdout == shown


def test_lines_that_are_added_to_the_log_are_followed_also_into_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "state" / "eryxd.log"
    log.parent.mkdir()
    log.write_text("a\n")
    with Script(eryx("daemon", "logs", "--follow"), {"ERYX_HOME": str(tmp_path)}) as following:
        following.sees("a\n")
        with log.open("a") as more:
            more.write("b\n")
        following.sees("b\n")
        log.rename(tmp_path / "old")
        log.write_text("c\n")
        following.sees("c\n")

    assert following.output == "a\nb\nc\n"


def test_without_a_log_the_line_says_where_else_to_look(tmp_path: Path) -> None:
    result = run(tmp_path, "daemon", "logs")

    assert result.exit_code == 66
    assert result.stderr.splitlines()[1] == "try: journalctl --user -u eryxd"
