"""What the pages show is what happens: every command of them is run on a real terminal against a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.e2e.console import Console


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    opened = Console(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_shows_what_its_commands_print(console: Console, page: str) -> None:
    """Ids, times and the like may differ; everything else may not."""
    assert console.play(ROOT / page) > 5
