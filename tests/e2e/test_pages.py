"""What the pages show is what happens: every command of them is run on a real terminal against a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.e2e.console import Console, Names


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A person's terminal in an empty folder, with an eryx of its own."""
    opened = Console(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_shows_what_its_commands_print(console: Console, page: str) -> None:
    """Ids, times and the like may differ; everything else may not."""
    assert console.play(ROOT / page) > 5


@pytest.mark.parametrize("page", ["docs/errors.md", "docs/protocol.md"])
def test_examples_of_the_reference_are_real(console: Console, page: str) -> None:
    """Those that need nothing but a daemon."""
    console.start()

    assert console.play(ROOT / page) > 0


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("✓ approved  a5zsq2mk  edit README.md", "✓ approved  akvj44ph  edit README.md"),
        ("19:33:41  » Scout", "07:00:00  » Scout"),
        ("ax5s  ? waiting  2026-11-30 19:42", "axkks   ? waiting  2027-01-01 00:00"),
        ("  store  /home/you/eryx/state/store.db", "  store     /tmp/x/eryx/state/store.db"),
    ],
)
def test_what_differs_from_run_to_run_is_the_same_line(page: str, printed: str) -> None:
    """Ids, times and folders."""
    assert Names().same(page, printed)


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("✓ approved  a5zsq2mk  edit README.md", "✗ rejected  a5zsq2mk  edit README.md"),
        ("19:33:41  » Scout", "19:33:41  » Fixer"),
        ("session s4kcwnci", "session r4kcwnci"),
        ("a store.db lies in /home/you/store.db", "a store.db lies in /home/you/lost.db"),
    ],
)
def test_another_line_is_noticed(page: str, printed: str) -> None:
    """The comparison itself works."""
    assert not Names().same(page, printed)


def test_an_id_stands_for_the_same_thing_throughout() -> None:
    """Cut to any length."""
    names = Names()

    assert names.same("session s4kcwnci", "session sabcdefg")
    assert names.real("eryx sessions show s4kc") == "eryx sessions show sabcdefg"
    assert names.same("s4kc  idle", "sabc  idle")
    assert not names.same("s4kc  idle", "sxyz  idle")
