"""What is offered, and what every tool refuses."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eryxd.backends.tools import RUNTIME_TOOLS, available_tools
from tests.requirements import requirement
from tests.unit.tools.outcomes import Run, failed

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
from eryxd.domain.approval import Permission
print(*(tool.id for tool in available_tools()))
print(asyncio.run(run_tool("rg", {"pattern": "x"}, ".", None, Permission())).text)
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
