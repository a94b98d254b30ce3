"""A tool writes to what was shown, and to nothing else."""

import asyncio
from pathlib import Path

import pytest

from eryxd.backends import files
from eryxd.backends.confine import Refused
from eryxd.backends.tools import CHANGED, permission_for, run_tool
from eryxd.daemon.children import Children
from tests.requirements import requirement


@requirement("RTL-5")
def test_the_file_that_is_written_is_the_one_that_was_shown_however_late_it_is_swapped(tmp_path: Path) -> None:
    """The last look is at what was opened, not at a name that can mean something else a moment later."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "README.md").write_text("one\ntwo\n")
    (repository / "other").write_text("one\n")
    arguments = {"path": "README.md", "old": "one", "new": "ONE"}
    shown = permission_for("edit", arguments, str(repository))
    (repository / "README.md").unlink()
    (repository / "README.md").symlink_to("other")

    def agreed(target: Path, before: bytes) -> None:
        assert (target.name, before) == ("other", b"one\n")
        raise Refused("seen")

    with pytest.raises(Refused, match="seen"):
        files.edit(str(repository), "README.md", "one", "ONE", agreed)
    children = Children(tmp_path / "records")
    outcome = asyncio.run(run_tool("edit", arguments, str(repository), children, shown))
    children.close()

    assert (outcome.ok, outcome.text) == (False, CHANGED)
    assert (repository / "other").read_text() == "one\n"
