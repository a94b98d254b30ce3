"""Lower never imports higher, the rules touch no world, and a client command loads nothing heavy.

Imports are read from the source, those inside functions and under `TYPE_CHECKING` included.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from eryxd.domain.pattern import RUNNABLE_MODES
from eryxd.orchestration.modes import PLAY

ROOT: Final = Path(__file__).parents[2]

LAYERS: Final = (
    ("domain",),
    ("api",),
    ("wire", "plugin", "core"),
    ("orchestration", "backends"),
    ("daemon",),
)
RANK: Final = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}

PURE: Final = ("domain", "api", "core")
WORLD: Final = (
    *("time", "datetime", "random", "secrets", "uuid"),
    *("os", "pathlib", "io", "shutil", "tempfile", "sqlite3", "logging"),
    *("socket", "asyncio", "select", "selectors", "signal"),
    *("threading", "concurrent", "multiprocessing", "subprocess"),
)
"""Clocks, ids, files, sockets, loops.  What a rule needs of them it is given as an argument."""

FOR_CLIENT: Final = ("eryxd", "eryxd.paths", "eryxd.api.errors", "eryxd.domain.errors", "eryxd.client")
FOR_PLUGIN_GROUPS: Final = ("eryxd.plugin.installed",)
"""What finds plugins, without importing any."""
FOR_CLI: Final = (*FOR_CLIENT, "eryxd.cli", "eryxd.toml", "eryxd.trust", "eryxd.domain.plugins", *FOR_PLUGIN_GROUPS)
HEAVY: Final = ("msgspec", "asyncio", "pluggy", "rich", "pydantic", "watchfiles", "uvloop", "importlib.metadata")
"""What no client command may load: each costs more than the command itself."""

FOR_PLUGINS: Final = ("eryxd.plugin", "eryxd.cli.kit")
FOR_PLUGIN_TESTS: Final = (*FOR_PLUGINS, "eryxd.testing")


class Import(NamedTuple):
    """One import of a module, by a line of a file.  `top` says that loading the file loads it."""

    module: str
    path: Path
    line: int
    top: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


def within(module: str, allowed: Iterable[str]) -> bool:
    """Say whether a module is one of those, or lies below one.  The root package alone stands for itself."""
    return any(module == one or (one != "eryxd" and module.startswith(f"{one}.")) for one in allowed)


def module_of(path: Path) -> str:
    """Return the dotted name of a file below the root."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files(package: str) -> list[Path]:
    """Return the files of a package or module of eryx."""
    base = ROOT / package.replace(".", "/")
    return sorted(base.rglob("*.py")) or [base.with_suffix(".py")]


MODULES: Final = frozenset(module_of(path) for path in files("eryxd"))


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """Return the module that a `from` import names, relative ones resolved."""
    if not node.level:
        return node.module or ""
    here = module_of(path).split(".")
    if path.name != "__init__.py":
        here = here[:-1]
    base = here[: len(here) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def named(node: ast.stmt, path: Path) -> list[str]:
    """Return the modules that an import statement names; `from package import module` names the module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = absolute(node, path)
    inner = [f"{base}.{alias.name}" for alias in node.names]
    modules = [module for module in inner if module in MODULES or module in HEAVY]
    return modules if len(modules) == len(inner) else [base, *modules]


def is_type_checking(node: ast.stmt) -> bool:
    """Say whether a block is for the type checker only."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements(body: Iterable[ast.AST], top: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield each statement, and whether it runs when the module is loaded."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node, top
        quiet = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(node, ast.stmt) and is_type_checking(node)
        )
        yield from statements(ast.iter_child_nodes(node), top and not quiet)


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return every import of a file."""
    tree = ast.parse(path.read_text(), str(path))
    return tuple(
        Import(module, path, node.lineno, top)
        for node, top in statements(tree.body, True)
        for module in named(node, path)
    )


def of_package(package: str) -> Iterator[Import]:
    """Yield every import of a package."""
    for path in files(package):
        yield from imports(path)


def package_of(module: str) -> str | None:
    """Return the layer's package that a module of eryx belongs to."""
    parts = module.split(".")
    return parts[1] if parts[0] == "eryxd" and len(parts) > 1 and parts[1] in RANK else None


@pytest.mark.parametrize("package", RANK)
def test_lower_never_imports_higher(package: str) -> None:
    """domain < api < wire, plugin, core < orchestration, backends < daemon."""
    wrong = [
        str(one)
        for one in of_package(f"eryxd.{package}")
        if (other := package_of(one.module)) is not None and RANK[other] > RANK[package]
    ]

    assert wrong == []


@pytest.mark.parametrize("package", RANK)
def test_no_layer_imports_the_client_or_the_command_line(package: str) -> None:
    """Nor the kit for tests of plugins."""
    outside = ("eryxd.client", "eryxd.cli", "eryxd.testing")

    assert [str(one) for one in of_package(f"eryxd.{package}") if within(one.module, outside)] == []


def test_packages_of_one_layer_import_each_other_one_way_only() -> None:
    """A circle would make them one package."""
    graph = {
        package: {other for one in of_package(f"eryxd.{package}") if (other := package_of(one.module)) != package}
        for package in RANK
    }

    order = TopologicalSorter({package: others - {None} for package, others in graph.items()})

    assert set(order.static_order()) == set(RANK)


@pytest.mark.parametrize("package", PURE)
def test_the_rules_touch_no_clock_file_socket_or_loop(package: str) -> None:
    """Time, ids and the state of the world are arguments."""
    wrong = [str(one) for one in of_package(f"eryxd.{package}") if within(one.module, WORLD)]
    own = [str(one) for one in of_package(f"eryxd.{package}") if within(one.module, ("eryxd.paths", "eryxd.settings"))]

    assert wrong + own == []


def test_wire_is_bytes_in_and_frames_out() -> None:
    """It owns no socket and no loop, so that any chunking can be tried."""
    loops = ("socket", "asyncio", "threading", "subprocess", "sqlite3")

    assert [str(one) for one in of_package("eryxd.wire") if within(one.module, loops)] == []


def loaded(start: Iterable[Path]) -> set[Import]:
    """Return every import that loading these files performs, through all of eryx, packages' own files included."""
    waiting, seen, found = list(start), set[Path](), set[Import]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for one in imports(path):
            if one.top:
                found.add(one)
                waiting += loading(one.module)
    return found


def loading(module: str) -> list[Path]:
    """Return the files of eryx that importing a module runs: its own, and that of each package above it."""
    parts = module.split(".")
    if parts[0] != "eryxd":
        return []
    names = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    bases = [ROOT / name.replace(".", "/") for name in names]
    return [path for base in bases for path in (base / "__init__.py", base.with_suffix(".py")) if path.exists()]


@pytest.mark.parametrize("name", ["eryxd.paths", "eryxd.api.errors", "eryxd.domain.errors"])
def test_what_every_command_needs_is_free_of_everything_else(name: str) -> None:
    """The standard library, and each other."""
    shared = ("eryxd", "eryxd.api.errors", "eryxd.domain.errors")
    ours = [one for one in imports(files(name)[0]) if one.module.startswith("eryxd")]

    assert [str(one) for one in ours if not within(one.module, shared)] == []
    assert [str(one) for one in loaded(files(name)) if within(one.module, (*HEAVY, "msgpack"))] == []


@pytest.mark.parametrize(("package", "allowed"), [("eryxd.client", FOR_CLIENT), ("eryxd.cli", FOR_CLI)])
def test_client_and_command_line_import_little_of_eryx(package: str, allowed: tuple[str, ...]) -> None:
    """Not inside functions either: the daemon is a process, never a call."""
    ours = [one for one in of_package(package) if one.module.split(".")[0] == "eryxd"]

    assert [str(one) for one in ours if not within(one.module, allowed)] == []


@pytest.mark.parametrize("package", ["eryxd.client", "eryxd.cli"])
def test_no_command_loads_what_is_heavy(package: str) -> None:
    """Followed through every module that is loaded with it."""
    assert sorted(str(one) for one in loaded(files(package)) if within(one.module, HEAVY)) == []


@pytest.mark.parametrize("plugin", ["mcp", "lsp", "copilot"])
def test_a_first_party_plugin_uses_what_any_plugin_may(plugin: str) -> None:
    """It is the template that others copy."""
    base = ROOT / "plugins" / plugin
    wrong = []
    for path in sorted(base.rglob("*.py")):
        allowed = FOR_PLUGIN_TESTS if "tests" in path.relative_to(base).parts else FOR_PLUGINS
        ours = [one for one in imports(path) if one.module.split(".")[0] == "eryxd"]
        wrong += [str(one) for one in ours if not within(one.module, allowed)]

    assert wrong == []


def test_the_modes_that_can_run_are_those_that_are_played() -> None:
    """A mode that validates as runnable and has no player would fail in the middle of a run."""
    assert set(PLAY) == RUNNABLE_MODES
