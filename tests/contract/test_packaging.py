"""What a fresh clone, a wheel and the CI rely on: metadata, entry points, layout, and a clean tree."""

import os
import re
import subprocess
import tomllib
from importlib.metadata import EntryPoint, entry_points, requires, version
from pathlib import Path
from typing import Any, Final

import pytest

import eryxd
from tests.requirements import requirement

ROOT: Final = Path(__file__).parents[2]
PLUGINS: Final = ("copilot", "lsp", "mcp")
PROJECTS: Final = ("pyproject.toml", *(f"plugins/{name}/pyproject.toml" for name in PLUGINS))
LAYOUT: Final = (
    ".ci/run",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "bench/__main__.py",
    "contrib/systemd/eryxd.service",
    "docs/adr",
    "eryxd/py.typed",
    "package.json",
)
MADE_HERE: Final = (".venv/", ".cache/", "node_modules/", "__pycache__/", "build/", "dist/", ".hypothesis/")
"""Folders that tools make inside the checkout; none of them belongs in a commit."""

CHANGELOG_ORDER: Final = ("Security", "Removed", "Deprecated", "Added", "Changed", "Fixed")


def project(path: str) -> dict[str, Any]:
    """Return the table `[project]` of one of our pyproject.toml files."""
    table: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return table


def dependency_lists(path: str) -> list[list[str]]:
    """Return the dependencies of a project and those of each of its extras."""
    table = project(path)
    return [table["dependencies"], *table.get("optional-dependencies", {}).values()]


def distribution(dependency: str) -> str:
    """Return the name in a dependency, without the versions it allows."""
    return re.split("[<>=]", dependency, maxsplit=1)[0]


def ours(group: str) -> list[EntryPoint]:
    """Return the installed entry points of a group whose distribution is ours."""
    return [point for point in entry_points(group=group) if point.dist and point.dist.name.startswith("eryxd")]


def tracked_files() -> list[str]:
    """Return what git holds or would add, relative to the root; fails where this is no clone."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if listing.returncode != 0:
        pytest.fail(f"not a git clone: {listing.stderr.strip()}")
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


@requirement("PKG-1")
@pytest.mark.parametrize("path", PROJECTS)
def test_each_dependency_has_a_line_of_its_own(path: str) -> None:
    """A change of one dependency is then a change of one line."""
    lines = [line.strip() for line in (ROOT / path).read_text().splitlines()]

    wanted = [f'"{dependency}",' for listed in dependency_lists(path) for dependency in listed]

    assert [line for line in wanted if line not in lines] == []


@requirement("PKG-1")
@pytest.mark.parametrize("path", PROJECTS)
def test_dependencies_are_sorted_and_named_once(path: str) -> None:
    for listed in dependency_lists(path):
        names = [distribution(dependency) for dependency in listed]

        assert names == sorted(set(names))


@requirement("PKG-1")
def test_each_runtime_dependency_is_explained() -> None:
    """The first decision record has a row for each library that an installation brings."""
    rows = (ROOT / "docs/adr/0001-few-dependencies.md").read_text()

    names = [distribution(dependency) for dependency in project("pyproject.toml")["dependencies"]]

    assert [name for name in names if f"| {name} " not in rows] == []


@requirement("PKG-1")
def test_typer_stays_below_the_version_that_imports_pydantic() -> None:
    assert "typer<0.29,>=0.20" in (requires("eryxd") or [])


@requirement("PKG-2")
def test_console_scripts_resolve() -> None:
    scripts = {point.name: point for point in ours("console_scripts")}

    assert sorted(scripts) == ["eryx", "eryxd"]
    assert [name for name, point in scripts.items() if not callable(point.load())] == []


@requirement("PKG-2")
def test_plugins_are_distributions_with_an_entry_point() -> None:
    found = {point.name: point.load().__name__ for point in ours("eryxd")}

    assert found == {name: f"eryxd_{name}" for name in PLUGINS}


@requirement("PKG-2")
def test_installed_version_is_the_one_of_the_package() -> None:
    assert version("eryxd") == eryxd.__version__


@requirement("PKG-2")
@pytest.mark.parametrize("path", PROJECTS)
def test_projects_agree_on_python_and_licence(path: str) -> None:
    table = project(path)

    assert (table["requires-python"], table["license"]) == (">=3.11", "MIT")


@requirement("PKG-3")
@pytest.mark.parametrize("path", LAYOUT)
def test_the_top_level_is_as_documented(path: str) -> None:
    assert (ROOT / path).exists()


@requirement("PKG-3")
def test_plugins_have_the_layout_that_others_copy() -> None:
    wanted = {
        f"plugins/{name}/{part}"
        for name in PLUGINS
        for part in (
            "pyproject.toml",
            "README.md",
            f"eryxd_{name}/__init__.py",
            f"eryxd_{name}/py.typed",
            "tests",
        )
    }

    assert {path for path in wanted if not (ROOT / path).exists()} == set()


@requirement("PKG-3")
def test_the_ci_script_can_be_run() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)


@requirement("PKG-3")
def test_no_file_lies_where_tools_put_theirs() -> None:
    names = [f"/{name}" for name in tracked_files()]

    assert [name for name in names for folder in MADE_HERE if f"/{folder}" in name] == []


@requirement("PKG-3")
def test_no_file_names_the_checkout_it_lies_in() -> None:
    """A path of one machine in a document or a test works there and nowhere else."""
    if len(ROOT.parts) < 3:
        return  # Too short to be told from other text; a checkout elsewhere shows it.
    here = os.fsencode(ROOT) + b"/"

    assert [name for name in tracked_files() if here in (ROOT / name).read_bytes()] == []


@requirement("PKG-3")
def test_changelog_sections_keep_their_order() -> None:
    releases = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]

    for release in releases:
        sections = [line.removeprefix("### ") for line in release.splitlines() if line.startswith("### ")]
        assert sections == [name for name in CHANGELOG_ORDER if name in sections]


@requirement("PKG-3")
def test_adrs_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs/adr").glob("[0-9]*.md"))

    assert numbers == list(range(1, len(numbers) + 1))
