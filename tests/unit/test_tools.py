"""The runtime tools on real files, with real programs."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from eryxd.backends import diffs
from eryxd.backends.confine import MAX_FILE_BYTES
from eryxd.backends.files import MAX_MATCHES
from eryxd.backends.tools import RUNTIME_TOOLS, available_tools, permission_for, run_tool
from eryxd.daemon.children import Children
from eryxd.domain.approval import Permission, PermissionKind
from eryxd.plugin.types import TOOL_OUTPUT_BYTES, ToolOutcome
from tests.requirements import requirement

Run = Callable[..., ToolOutcome]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a few files, beside one that is out of bounds."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret\n")
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("one\ntwo\nthree\n")
    (folder / "src" / "main.py").write_text("print('hello')\n")
    (folder / "out").symlink_to(tmp_path / "outside")
    return folder


@pytest.fixture
def run(project: Path, tmp_path: Path) -> Iterator[Run]:
    """Runs a tool in the project with the arguments given by name."""
    children = Children(tmp_path / "records")

    def run_in_project(tool: str, **arguments: Any) -> ToolOutcome:
        return asyncio.run(run_tool(tool, arguments, str(project), children))

    yield run_in_project
    children.close()


def ok(text: str) -> ToolOutcome:
    return ToolOutcome(ok=True, text=text)


def failed(text: str) -> ToolOutcome:
    return ToolOutcome(ok=False, text=text)


# --- what is offered ---


def test_ripgrep_is_there() -> None:
    """`make` puts it on PATH; every test of rg below rests on it."""
    assert shutil.which("rg") is not None


@requirement("CAT-3")
def test_the_tools_are_offered_with_description_and_schema() -> None:
    assert [tool.id for tool in available_tools()] == ["view", "glob", "rg", "create", "edit", "shell"]
    assert RUNTIME_TOOLS[0].description == "Show a text file of the project, or some of its lines."
    assert RUNTIME_TOOLS[4].input_schema == {
        "title": "EditArguments",
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "Path in the project, from its folder or absolute.",
            },
            "old": {"type": "string", "minLength": 1, "description": "What is there now, exactly."},
            "new": {"type": "string", "description": "What replaces it."},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    }


WITHOUT_RIPGREP = """
import asyncio, sys
from eryxd.backends.tools import available_tools, run_tool
print(*(tool.id for tool in available_tools()))
print(asyncio.run(run_tool("rg", {"pattern": "x"}, ".", None)).text)
"""


@requirement("RTL-3")
def test_without_ripgrep_rg_is_neither_offered_nor_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_RIPGREP]
    environ = {"PATH": str(tmp_path)}

    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)

    assert done.stdout == "view glob create edit shell\nThere is no such tool here: rg.\n"


def test_an_unknown_tool_is_a_failure(run: Run) -> None:
    assert run("fetch", url="x") == failed("There is no such tool here: fetch.")


@requirement("RTL-4")
@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("view", {}, "Object missing required field `path`"),
        ("view", {"path": 3}, "Expected `str`, got `int` - at `$.path`"),
        ("view", {"path": "README.md", "lines": 3}, "Object contains unknown field `lines`"),
        ("view", {"path": "README.md", "start_line": 0}, "Expected `int` >= 1 - at `$.start_line`"),
        ("glob", {"pattern": ""}, "Expected `str` of length >= 1 - at `$.pattern`"),
        ("shell", {"command": "true", "timeout_s": 601}, "Expected `float` <= 600.0 - at `$.timeout_s`"),
        ("shell", {"command": "true", "timeout_s": True}, "Expected `float`, got `bool` - at `$.timeout_s`"),
        ("edit", {"path": "README.md", "old": "", "new": ""}, "Expected `str` of length >= 1 - at `$.old`"),
    ],
)
def test_arguments_that_do_not_fit_are_named(run: Run, tool: str, arguments: dict[str, Any], problem: str) -> None:
    assert run(tool, **arguments) == failed(f"The arguments of {tool} do not fit: {problem}.")


@requirement("RTL-1")
@pytest.mark.parametrize("path", ["out/secret.txt", "../outside/secret.txt", "src/../../outside/secret.txt"])
@pytest.mark.parametrize(
    ("tool", "rest"),
    [
        ("view", {}),
        ("rg", {"pattern": "secret"}),
        ("create", {"content": "x"}),
        ("edit", {"old": "secret", "new": "x"}),
    ],
)
def test_no_tool_leaves_the_project(run: Run, project: Path, tool: str, rest: dict[str, str], path: str) -> None:
    assert run(tool, path=path, **rest) == failed(f"{path} is outside the project {project}.")
    assert (project / "out" / "secret.txt").read_text() == "secret\n"


@pytest.mark.parametrize("tool", ["view", "edit"])
def test_what_is_no_regular_file_is_refused(run: Run, project: Path, tool: str) -> None:
    os.mkfifo(project / "fifo")
    change = {"old": "a", "new": "b"} if tool == "edit" else {}

    assert run(tool, path="fifo", **change) == failed("fifo is not a regular file.")
    assert run(tool, path="src", **change) == failed("src is a folder; the tool glob lists its files.")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("view", {"path": "README.md"}),
        ("glob", {"pattern": "*"}),
        ("rg", {"pattern": "x"}),
        ("create", {"path": "a", "content": ""}),
        ("edit", {"path": "README.md", "old": "a", "new": "b"}),
        ("shell", {"command": "pwd"}),
    ],
)
def test_a_project_that_vanished_is_named(run: Run, project: Path, tool: str, arguments: dict[str, Any]) -> None:
    shutil.rmtree(project)

    assert run(tool, **arguments) == failed(f"The project folder {project} is not there any more.")


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


# --- what a person is shown ---


@requirement("APR-8")
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("view", {"path": "src/../README.md"}, {"kind": PermissionKind.READ, "path": "README.md"}),
        ("view", {"path": "out/secret.txt"}, {"kind": PermissionKind.READ, "path": "out/secret.txt"}),
        ("glob", {"pattern": "*"}, {"kind": PermissionKind.READ, "path": "."}),
        ("rg", {"pattern": "x", "path": "src"}, {"kind": PermissionKind.READ, "path": "src"}),
        ("shell", {"command": "ls", "timeout_s": 5}, {"kind": PermissionKind.SHELL, "command": "ls"}),
        ("fetch", {"url": "x"}, {}),
    ],
)
def test_the_permission_names_what_would_be_touched(
    project: Path, tool: str, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert permission_for(tool, arguments, str(project)) == Permission(arguments=arguments, **expected)


def test_the_permission_names_where_a_symlink_leads(project: Path) -> None:
    (project / "link").symlink_to("src/main.py")

    assert permission_for("view", {"path": "link"}, str(project)).path == "src/main.py"


def test_the_permission_to_create_shows_the_whole_file(project: Path) -> None:
    shown = permission_for("create", {"path": "new.txt", "content": "a\nb"}, str(project))

    assert shown == Permission(
        kind=PermissionKind.WRITE,
        path="new.txt",
        diff="--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n",
        arguments={"path": "new.txt", "content": "a\nb"},
    )


def test_the_permission_to_edit_shows_the_change(project: Path) -> None:
    shown = permission_for("edit", {"path": "README.md", "old": "two", "new": "2"}, str(project))

    assert shown.diff == "--- a/README.md\n+++ b/README.md\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


@pytest.mark.parametrize("tool", [tool.id for tool in RUNTIME_TOOLS])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 3, "command": 4},
        {"path": "a\0", "content": "", "old": "a", "new": "b"},
        {"path": "\ud800", "content": "\ud800"},
        {"path": "src", "old": "a", "new": "b"},
        {"path": "README.md", "old": "\ud800", "new": "b"},
        {"path": "README.md", "content": "", "old": "missing", "new": "b"},
    ],
)
def test_bad_arguments_still_make_a_permission(project: Path, tool: str, arguments: dict[str, Any]) -> None:
    shown = permission_for(tool, arguments, str(project))

    assert (shown.arguments, shown.diff) == (arguments, UNSET)


def test_a_permission_in_a_project_that_vanished(tmp_path: Path) -> None:
    arguments = {"path": "a", "content": "b"}

    assert permission_for("create", arguments, str(tmp_path / "gone")) == Permission(
        kind=PermissionKind.WRITE, path="a", arguments=arguments
    )


some_text = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c", "\f\n"]), max_size=12).map("".join)


@given(some_text, some_text)
def test_the_diff_turns_the_old_file_into_the_new_one(before: str, after: str) -> None:
    """Read back as any patch tool would."""
    diff = diffs.unified("f", before, after)

    assert patched(before, diff) == after


def patched(before: str, diff: str) -> str:
    """Apply a diff of one hunk, holding its context and counts against the old file."""
    if not diff:
        return before
    old = diffs.split_lines(before)
    header, *body = diffs.split_lines(diff)[2:]
    (old_start, old_count), (new_start, new_count) = (
        [int(number) for number in part[1:].split(",")] for part in header.split(" ")[1:3]
    )
    start = old_start - (old_count > 0)
    assert new_start - (new_count > 0) == start
    removed, added = (_side(body, sign) for sign in "-+")
    assert (len(removed), len(added)) == (old_count, new_count)
    assert old[start : start + old_count] == removed
    return "".join(old[:start] + added + old[start + old_count :])


def _side(body: list[str], sign: str) -> list[str]:
    """Return the lines of one side, the last without its newline where the diff says so."""
    lines: list[str] = []
    for index, line in enumerate(body):
        if line[0] in (" ", sign):
            ends_file = index + 1 < len(body) and body[index + 1].startswith("\\")
            lines.append(line[1:-1] if ends_file else line[1:])
    return lines


def test_git_takes_the_diff(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    arguments = {"path": "README.md", "old": "three\n", "new": "3\nand no newline"}
    diff = permission_for("edit", arguments, str(project)).diff

    subprocess.run(["git", "apply"], cwd=project, input=str(diff).encode(), check=True)

    assert (project / "README.md").read_text() == "one\ntwo\n3\nand no newline"


def test_the_schemas_are_plain_values() -> None:
    assert msgspec.json.decode(msgspec.json.encode(RUNTIME_TOOLS), type=tuple[Any, ...])
