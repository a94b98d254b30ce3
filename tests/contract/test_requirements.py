"""Tests and rules name each other: no rule without a test, no test for a rule that does not exist."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.requirements import LATER, RULES

ROOT: Final = Path(__file__).parents[2]
DOMAIN: Final = ("POL", "CAT", "VAL", "PRN", "APR", "RUN", "TLN", "SES", "PAT", "PRJ", "FIL", "BKD")
"""The families of rules whose ids are fixed by the contract of behaviour; other families are ours to extend."""


class Use(NamedTuple):
    """One id that a mark names.  `on` is the function or class that is marked, empty where it is none."""

    id: str
    path: str
    line: int
    on: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.on or '(nothing)'}: {self.id}"


def sources() -> list[Path]:
    """Return every file that may hold tests, ours and the plugins'."""
    return sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/**/*.py")])


def is_mark(node: ast.AST) -> bool:
    """Say whether this is a call of `requirement(...)`, by whichever road it came."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name == "requirement"


def uses(path: Path) -> Iterator[Use]:
    """Yield each id that the marks of a file name."""
    shown = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text(), shown)
    owners = {
        id(mark): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for mark in node.decorator_list
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_mark(node):
            for argument in node.args:
                named = argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
                yield Use(str(named), shown, node.lineno, owners.get(id(node), ""))


# The module that defines the mark calls pytest's own with what it was given.
USES: Final = [use for path in sources() if path.name != "requirements.py" for use in uses(path)]


def test_every_id_that_a_test_names_is_a_rule() -> None:
    """A misspelt id proves nothing."""
    assert [str(use) for use in USES if use.id not in RULES and use.id not in LATER] == []


def test_no_test_claims_a_rule_that_is_for_later() -> None:
    """The test that proves it moves its id to RULES."""
    assert [str(use) for use in USES if use.id in LATER] == []


def test_every_mark_stands_on_a_test() -> None:
    """On a fixture or a bare function it would count, and never run."""
    assert [str(use) for use in USES if not use.on.startswith(("test", "Test"))] == []


def test_every_marked_test_is_in_a_file_that_is_collected() -> None:
    """pytest looks into files whose names begin with `test_` only."""
    assert [str(use) for use in USES if not Path(use.path).name.startswith("test_")] == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_test(rule: str) -> None:
    """Each is proved somewhere."""
    assert any(use.id == rule for use in USES), f"No test proves {rule}: {RULES[rule]}"


def test_a_rule_is_for_now_or_for_later() -> None:
    """Never both."""
    assert sorted(LATER & RULES.keys()) == []


def test_what_is_for_later_belongs_to_the_contract_of_behaviour() -> None:
    """Our own families grow with their tests, so nothing of them waits."""
    assert sorted(rule for rule in LATER if rule.split("-")[0] not in DOMAIN) == []


@pytest.mark.parametrize("rule", [*RULES, *sorted(LATER)])
def test_ids_are_a_family_and_a_number(rule: str) -> None:
    """So that a person can find them in the text."""
    family, _, number = rule.partition("-")

    assert len(family) == 3
    assert family.isupper()
    assert number.isdigit()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_makes_a_claim(rule: str) -> None:
    """In one line."""
    assert RULES[rule].strip() == RULES[rule] != ""
    assert "\n" not in RULES[rule]
