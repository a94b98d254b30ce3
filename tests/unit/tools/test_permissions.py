"""What a person is shown before a tool runs."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from eryxd.backends import diffs
from eryxd.backends.tools import RUNTIME_TOOLS, permission_for
from eryxd.domain.approval import Permission, PermissionKind
from tests.requirements import requirement

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
