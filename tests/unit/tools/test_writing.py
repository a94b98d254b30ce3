"""create, edit and shell on real files, with real programs."""

from pathlib import Path

import pytest

from eryxd.plugin.types import TOOL_OUTPUT_BYTES
from tests.requirements import requirement
from tests.unit.tools.outcomes import Run, failed, ok

# --- create ---


def test_create_makes_file_and_folders(run: Run, project: Path) -> None:
    assert run("create", path="new/deep/file.txt", content="häh\r\n") == ok("Created new/deep/file.txt, 6 bytes.")
    assert (project / "new" / "deep" / "file.txt").read_bytes() == "häh\r\n".encode()


def test_create_replaces_nothing(run: Run, project: Path) -> None:
    assert run("create", path="README.md", content="x") == failed("README.md exists already; the tool edit changes it.")
    assert (project / "README.md").read_text() == "one\ntwo\nthree\n"


def test_create_through_a_dangling_symlink_stays_inside(run: Run, project: Path) -> None:
    (project / "in").symlink_to("src/new.py")
    (project / "away").symlink_to("../outside/new.py")

    assert run("create", path="in", content="x").ok
    assert (project / "src" / "new.py").read_text() == "x"
    assert run("create", path="away", content="x") == failed(f"away is outside the project {project}.")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("dir/", "dir/ names a folder, not a file."),
        (".", "The project's folder is not a file; the tool glob lists its files."),
        ("README.md/x", "create failed: Not a directory (README.md)."),
    ],
)
def test_create_needs_a_file_name(run: Run, path: str, problem: str) -> None:
    assert run("create", path=path, content="") == failed(problem)


# --- edit ---


def test_edit_replaces_the_one_place(run: Run, project: Path) -> None:
    (project / "README.md").chmod(0o640)

    assert run("edit", path="README.md", old="two\n", new="zwei\n2\n") == ok(
        "Edited README.md, 14 bytes before and 17 now."
    )
    assert (project / "README.md").read_text() == "one\nzwei\n2\nthree\n"
    assert (project / "README.md").stat().st_mode & 0o7777 == 0o640
    assert sorted(path.name for path in project.iterdir()) == ["README.md", "out", "src"]


def test_edit_keeps_line_ends_and_other_encodings(run: Run, project: Path) -> None:
    (project / "latin").write_bytes(b"\xe4\r\nold\r\n")

    assert run("edit", path="latin", old="old\r\n", new="new\n").ok
    assert (project / "latin").read_bytes() == b"\xe4\r\nnew\n"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("four", "x", "The old text is not in README.md."),
        ("e", "x", "The old text is in README.md more than once; give more of what surrounds it."),
        ("two", "two", "The old text is empty, or the new text is the same."),
    ],
)
def test_edit_changes_nothing_when_the_place_is_not_clear(
    run: Run, project: Path, old: str, new: str, problem: str
) -> None:
    assert run("edit", path="README.md", old=old, new=new) == failed(problem)
    assert (project / "README.md").read_text() == "one\ntwo\nthree\n"


def test_places_that_overlap_are_two(run: Run, project: Path) -> None:
    (project / "file").write_text("aaa")

    assert not run("edit", path="file", old="aa", new="b").ok


def test_edit_changes_the_file_behind_a_symlink(run: Run, project: Path) -> None:
    (project / "link").symlink_to("README.md")

    assert run("edit", path="link", old="two", new="2").ok
    assert (project / "link").is_symlink()
    assert (project / "README.md").read_text() == "one\n2\nthree\n"


# --- shell ---


def test_shell_runs_in_the_project_with_both_outputs_in_order(run: Run, project: Path) -> None:
    assert run("shell", command="pwd; echo problem >&2; echo end") == ok(f"{project}\nproblem\nend")


def test_shell_takes_the_command_as_it_is(run: Run) -> None:
    assert run("shell", command="""echo "$0 $#" '"$1"' # 'a""") == ok('/bin/sh 0 "$1"')


def test_shell_says_how_a_command_failed(run: Run) -> None:
    assert run("shell", command="echo no; exit 3") == failed("no\nExit status 3.")
    assert run("shell", command="kill -KILL $$") == failed("Ended by SIGKILL.")
    assert run("shell", command="echo a\0b") == failed("Could not start /bin/sh: embedded null byte.")


def test_shell_says_that_time_ran_out(run: Run) -> None:
    outcome = run("shell", command="echo begun; sleep 1000", timeout_s=0.3)

    assert outcome == failed("begun\nNot done after 0.3 s; it and everything it started were killed.")


@requirement("RTL-2")
@pytest.mark.parametrize("character", ["a", "\\377"])
def test_shell_output_is_bounded_at_both_ends(run: Run, character: str) -> None:
    """Bytes that are no UTF-8 grow threefold when they are shown."""
    flood = f"head -c 5000000 /dev/zero | tr '\\0' '{character}'"

    outcome = run("shell", command=f"echo begin; {flood}; echo; echo end; exit 1")

    assert len(outcome.text.encode()) <= TOOL_OUTPUT_BYTES
    assert outcome.text.startswith("begin\n")
    assert outcome.text.endswith("\nend\nExit status 1.")
    assert outcome.truncated_bytes > 4_900_000
