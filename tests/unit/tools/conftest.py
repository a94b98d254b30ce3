"""A project folder, and a way to run tools in it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eryxd.backends.tools import permission_for, run_tool
from eryxd.daemon.children import Children
from eryxd.plugin.types import ToolOutcome
from tests.unit.tools.outcomes import Run


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
        shown = permission_for(tool, arguments, str(project))
        return asyncio.run(run_tool(tool, arguments, str(project), children, shown))

    yield run_in_project
    children.close()
