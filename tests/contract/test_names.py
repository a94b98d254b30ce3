"""Names, documentation and size: what a reader of the code may count on everywhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FORBIDDEN: Final = frozenset({"manager", "managers", "helper", "helpers", "util", "utils", "data", "info"})
"""Words that say nothing of what a thing is."""

LONGEST_FUNCTION: Final = 60
LONGEST_FILE: Final = 450

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef

PACKAGES: Final = sorted([*ROOT.glob("eryxd/**/*.py"), *ROOT.glob("plugins/*/eryxd_*/**/*.py")])
EVERYTHING: Final = sorted([*PACKAGES, *ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/**/*.py")])


def shown(path: Path) -> str:
    """Return a file's place in the checkout."""
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(), shown(path))


EACH_MODULE: Final = pytest.mark.parametrize("path", PACKAGES, ids=shown)


def words(name: str) -> list[str]:
    """Split snake_case, kebab-case and CamelCase into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def public(node: Definition) -> bool:
    """Say whether a name is for others."""
    return not node.name.startswith("_")


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield the public classes, functions and methods of a module; what is inside a function is its own affair.

    The methods of a class with bases are left out: many do what the base says, in the base's words.
    """
    for node in body:
        if isinstance(node, Definition) and public(node):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef) and not node.bases:
                yield from definitions(node.body, f"{prefix}{node.name}.")


def needs_words(node: Definition) -> bool:
    """Say whether a definition has to explain itself: a setter or an overload repeats what stands elsewhere."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    return not any(mark.endswith((".setter", ".deleter", "overload", "override")) for mark in marks)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ToolDefinition", ["tool", "definition"]),
        ("test_names", ["test", "names"]),
        ("HTTPInfo", ["http", "info"]),
        ("metadata", ["metadata"]),
    ],
)
def test_names_are_read_word_by_word(name: str, expected: list[str]) -> None:
    """`metadata` is a word of its own."""
    assert words(name) == expected


@EACH_MODULE
def test_modules_and_classes_have_telling_names(path: Path) -> None:
    """A noun for a value, never a word that fits everything."""
    classes = [node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    names = [*path.relative_to(ROOT).with_suffix("").parts, *classes]

    assert [name for name in names if FORBIDDEN.intersection(words(name))] == []


@EACH_MODULE
def test_every_public_name_is_documented(path: Path) -> None:
    """Module, class, function and method."""
    tree = parsed(path)
    silent = [name for name, node in definitions(tree.body) if needs_words(node) and not ast.get_docstring(node)]

    assert ast.get_docstring(tree), f"{shown(path)} does not say what it owns"
    assert silent == []


@EACH_MODULE
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    """Thirty lines are long; sixty are a defect."""
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, Function)]
    lengths = {f"{node.name}:{node.lineno}": (node.end_lineno or 0) - node.lineno + 1 for node in functions}

    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_no_file_is_too_long_to_read() -> None:
    """Tests included."""
    lengths = {shown(path): len(path.read_text().splitlines()) for path in EVERYTHING}

    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


@pytest.mark.parametrize("path", EVERYTHING, ids=shown)
def test_nothing_is_put_off(path: Path) -> None:
    """What is not done is an issue, not a remark in the code."""
    found = re.findall(r"#\s*(?:TODO|FIXME|XXX|HACK)\b", path.read_text())

    assert found == []
