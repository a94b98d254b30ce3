"""view, glob and rg on real files, with the real ripgrep."""

import os
from pathlib import Path

import pytest

from eryxd.backends.confine import MAX_FILE_BYTES
from eryxd.backends.files import MAX_MATCHES
from eryxd.plugin.types import TOOL_OUTPUT_BYTES
from tests.requirements import requirement
from tests.unit.tools.outcomes import Run, failed, ok

# --- view ---


def test_view_shows_a_file_or_some_lines(run: Run) -> None:
    assert run("view", path="README.md") == ok("one\ntwo\nthree\n")
    assert run("view", path="README.md", start_line=2, end_line=2) == ok("two\n")
    assert run("view", path="README.md", start_line=2, end_line=99) == ok("two\nthree\n")


def test_view_counts_lines_as_editors_do(run: Run, project: Path) -> None:
    (project / "odd").write_text("one\f\u2028\nlast", newline="")

    assert run("view", path="odd", start_line=2) == ok("last")


def test_view_says_what_is_wrong_with_the_lines(run: Run) -> None:
    assert run("view", path="README.md", start_line=4) == failed("README.md has 3 lines; there is no line 4.")
    assert run("view", path="README.md", start_line=3, end_line=2) == failed("end_line 2 comes before start_line 3.")


def test_view_of_an_empty_file_is_empty(run: Run, project: Path) -> None:
    (project / "empty").touch()

    assert run("view", path="empty") == ok("")


def test_view_says_that_a_file_is_missing(run: Run) -> None:
    assert run("view", path="src/none") == failed("view failed: No such file or directory (none).")


def test_view_shows_no_binary(run: Run, project: Path) -> None:
    (project / "picture").write_bytes(b"\x89PNG\0")

    assert run("view", path="picture") == failed("picture is binary, 5 bytes.")


def test_view_reads_no_giant(run: Run, project: Path) -> None:
    with open(project / "giant", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)

    assert run("view", path="giant") == failed("giant has 10,485,761 bytes; at most 10,485,760 are read.")


@requirement("RTL-2")
def test_a_long_file_is_cut_in_the_middle_and_says_so(run: Run, project: Path) -> None:
    (project / "long").write_text("begin\n" + "x" * 2 * TOOL_OUTPUT_BYTES + "\nend\n")

    outcome = run("view", path="long")

    assert len(outcome.text.encode()) <= TOOL_OUTPUT_BYTES
    assert (outcome.text[:6], outcome.text[-5:]) == ("begin\n", "\nend\n")
    shown = len(outcome.text.encode()) - len("…".encode())
    assert outcome.truncated_bytes == 2 * TOOL_OUTPUT_BYTES + 11 - shown


# --- glob ---


@pytest.fixture
def tree(project: Path) -> Path:
    for name in ("src/a/b/deep.py", "src/a/deep.md", ".git/config", ".github/ci.yml", "src/.hidden.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    return project


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ["README.md", "out"]),
        ("**", ["README.md", "out", "src/a/b/deep.py", "src/a/deep.md", "src/main.py"]),
        ("**/*.py", ["src/a/b/deep.py", "src/main.py"]),
        ("src/*.py", ["src/main.py"]),
        ("src/**/deep.*", ["src/a/b/deep.py", "src/a/deep.md"]),
        ("**/a/**/*.py", ["src/a/b/deep.py"]),
        (".github/*", [".github/ci.yml"]),
        ("src/.*", ["src/.hidden.py"]),
        ("src/[l-n]ain.p?", ["src/main.py"]),
    ],
)
def test_glob_lists_files_sorted(run: Run, tree: Path, pattern: str, names: list[str]) -> None:
    """Names with a leading dot only where the pattern has one; symlinks are not followed."""
    assert run("glob", pattern=pattern) == ok("\n".join(names))


def test_glob_says_when_nothing_matches(run: Run) -> None:
    assert run("glob", pattern="*.rs") == ok("No file matches.")
    assert run("glob", pattern="out/*") == ok("No file matches.")


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "src/../../*", "a//b", "a\0"])
def test_glob_refuses_patterns_that_lead_elsewhere(run: Run, pattern: str) -> None:
    assert run("glob", pattern=pattern) == failed(
        "A pattern counts from the project's folder: no leading /, no empty part, no `..`."
    )


def test_glob_says_how_many_more(run: Run, project: Path) -> None:
    for number in range(MAX_MATCHES + 3):
        (project / "src" / f"{number:05}.txt").touch()

    lines = run("glob", pattern="**/*.txt").text.split("\n")

    assert (len(lines), lines[0], lines[-2:]) == (1001, "src/00000.txt", ["src/00999.txt", "… and 3 more"])


def test_glob_shows_names_that_are_no_text(run: Run, project: Path) -> None:
    (project / os.fsdecode(b"\xff.bin")).touch()

    assert run("glob", pattern="*.bin") == ok("?.bin")


# --- rg ---


def test_rg_finds_with_file_and_line(run: Run) -> None:
    assert run("rg", pattern="t(wo|hree)|hello") == ok(
        "./README.md:2:two\n./README.md:3:three\n./src/main.py:1:print('hello')"
    )
    assert run("rg", pattern="o", glob="*.py", path="src") == ok("src/main.py:1:print('hello')")


def test_rg_finding_nothing_is_an_answer(run: Run) -> None:
    assert run("rg", pattern="zebra") == ok("Nothing matches.")


@requirement("RTL-3")
def test_rg_takes_nothing_for_an_option(run: Run, project: Path) -> None:
    (project / "notes").write_text("--files\n")

    assert run("rg", pattern="--files", path="notes") == ok("notes:1:--files")
    assert run("rg", pattern="one", glob="--files") == ok("Nothing matches.")


def test_rg_says_what_is_wrong_with_a_pattern(run: Run) -> None:
    outcome = run("rg", pattern="(")

    assert (outcome.ok, "unclosed group" in outcome.text) == (False, True)


def test_rg_does_not_wait_for_a_fifo(run: Run, project: Path) -> None:
    os.mkfifo(project / "fifo")

    assert run("rg", pattern="x", path="fifo") == failed(
        "fifo is not there, or is neither a folder nor a regular file."
    )
    assert run("rg", pattern="hello") == ok("./src/main.py:1:print('hello')")
