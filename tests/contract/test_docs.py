"""The documents are true: generated parts are current, links lead somewhere, and what is named exists.

That commands print what the pages show is tested in `tests/e2e/test_pages.py`.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from docs import generate
from eryxd import settings
from eryxd.api.describe import describe
from eryxd.cli.tree import ALIASES, WORDS, load
from eryxd.daemon import guard, store, workspace_files
from eryxd.daemon.rows import COLUMNS
from eryxd.daemon.secret_file import SECRETS_FILE
from eryxd.domain.policy import CORE_INFRASTRUCTURE
from eryxd.plugin.installed import PLUGINS_FILE
from eryxd.plugin.types import Gate
from tests.documents import DOCUMENTS, ROOT, anchors, blocks, eryx_commands, links, shown, spans

EACH_DOCUMENT: Final = pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
RECORDS: Final = sorted((ROOT / "docs/adr").glob("*.md"))

ADR_PARTS: Final = ("Context", "Decision", "Instead", "Price", "Revisit")
ADR_WORDS: Final = 500
"""About one page."""

FOREIGN: Final = frozenset(
    {
        *("no_new_privs", "secure_delete", "preexec_fn"),
        *("systemd-run", "send-keys"),
        *("retry_ms", "same_decision"),
        *("eryx-make",),
        *("eryxd-mcp", "eryxd-lsp", "eryxd-copilot", "untrusted_socket", "not_running", "no_answer"),
    }
)
"""Names of Linux, SQLite and Python, of what `data` of an error holds, and of distributions."""

WRITTEN: Final = frozenset({"make"})
"""Command groups of plugins that a page writes."""

_DOTTED: Final = re.compile(r"[a-z]+\.[a-z_]+")
_KEBAB: Final = re.compile(r"[a-z]+(?:-[a-z]+)+")
_SNAKE: Final = re.compile(r"[a-z]+(?:_[a-z]+)+")
_SOURCE: Final = re.compile(r"[\w*/]+\.py|eryxd/[\w/]+")
_MAKE: Final = re.compile(r"^make ([a-z-]+)$")


def names_in(schema: Any) -> set[str]:
    """Return the fields and the values of enumerations in a JSON Schema, however deep."""
    if isinstance(schema, list):
        return set[str]().union(*(names_in(part) for part in schema))
    if not isinstance(schema, dict):
        return set()
    found = {str(name) for name in [*schema.get("properties", ()), *schema.get("enum", ())]}
    return found.union(*(names_in(part) for part in schema.values()))


@cache
def vocabulary() -> frozenset[str]:
    """Return every name of the interface: methods, events, topics, codes, fields, stable words, settings, files."""
    described = msgspec.to_builtins(describe())
    rows = [*described["methods"], *described["events"], *described["errors"]]
    named = {str(row[key]) for row in rows for key in ("name", "type", "topic", "code", "access") if key in row}
    sections = [one for one in msgspec.structs.fields(settings.Settings) if isinstance(one.type, type)]
    options = {f"{one.name}.{field.name}" for one in sections for field in msgspec.structs.fields(one.type)}
    tables = {columns.table for columns in COLUMNS.values()} | {"message_text", "journal"}
    files = {store.STORE_FILE, store.MARKER_FILE, SECRETS_FILE, PLUGINS_FILE, workspace_files.FOLDER}
    gate = {f"gate.{name}" for name in vars(Gate)}
    own = {*guard.REASONS, *CORE_INFRASTRUCTURE}
    return frozenset(named | names_in(described["definitions"]) | options | tables | files | gate | own)


def nouns() -> set[str]:
    """Return what stands before the dot of methods and settings."""
    return {name.partition(".")[0] for name in vocabulary() if "." in name}


def is_known(name: str) -> bool:
    """Say whether a word in backticks that looks like one of our names is one."""
    if _DOTTED.fullmatch(name):
        return name.partition(".")[0] not in nouns() or name in vocabulary()
    if _KEBAB.fullmatch(name) or _SNAKE.fullmatch(name):
        return name in vocabulary() or name in FOREIGN
    if _SOURCE.fullmatch(name) and "/" in name:
        return any(True for base in (ROOT, ROOT / "eryxd") for _ in base.glob(name))
    return True


@pytest.mark.parametrize("path", generate.PAGES, ids=shown)
def test_generated_parts_are_current(path: Path) -> None:
    """They say what the code says."""
    page = path.read_text()

    assert generate.current(page) == page, f"{shown(path)} is out of date; run: {generate.COMMAND}"


def test_every_generated_part_stands_on_a_page() -> None:
    """A part that nobody shows would be kept in vain."""
    written = "".join(path.read_text() for path in generate.PAGES)

    assert [name for name in generate.PARTS if f"<!-- generated: {name} -->" not in written] == []


@EACH_DOCUMENT
def test_links_lead_somewhere(path: Path) -> None:
    """To a file of the checkout, and to a heading in it where one is named."""
    broken = []
    for line, target in links(path):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{shown(path)}:{line}: {target}")

    assert broken == []


@EACH_DOCUMENT
def test_names_in_backticks_exist(path: Path) -> None:
    """Methods, events, errors, fields, stable words, settings and files of the source."""
    assert [f"{shown(path)}:{line}: {name}" for line, name in spans(path) if not is_known(name)] == []


@EACH_DOCUMENT
def test_commands_exist(path: Path) -> None:
    """Each word and each option of every `eryx` command that a page shows."""
    wrong = [f"{shown(path)}:{line}: {problem}" for line, words in eryx_commands(path) for problem in problems(words)]

    assert wrong == []


def problems(words: list[str]) -> list[str]:
    """Name what is wrong with the words behind `eryx`.  Words in capitals stand for something."""
    if not words or words[0].isupper() or words[0].startswith("-"):
        return []
    first, *rest = words
    name = ALIASES.get(first, first)
    if name in WRITTEN:
        return []
    if name not in WORDS:
        return [f"there is no command {first!r}"]
    command = load(name)
    if WORDS[name].is_group and rest and not rest[0].startswith(("-", "[")) and not rest[0].isupper():
        if rest[0] not in command.commands:
            return [f"there is no command {first} {rest[0]}"]
        command, rest = command.commands[rest[0]], rest[1:]
    known = {option for each in command.params for option in each.opts} | {"--help", "-h", "--json"}
    return [f"{first} has no option {word}" for word in rest if re.match(r"--?[a-z]", word) and word not in known]


@EACH_DOCUMENT
def test_targets_of_make_exist(path: Path) -> None:
    """Those that a page tells to type."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = [line.partition("#")[0].strip() for block in blocks(path) for line in block.lines]
    named = [match[1] for text in [*typed, *(name for _, name in spans(path))] if (match := _MAKE.match(text))]

    assert [name for name in named if name not in targets] == []


@EACH_DOCUMENT
def test_toml_can_be_read(path: Path) -> None:
    """Every block that a reader may save."""
    for block in blocks(path):
        if block.language == "toml":
            assert tomllib.loads(block.text)


def test_the_index_names_every_page() -> None:
    """So that none is found only by chance."""
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for _, target in links(index)}

    assert [shown(page) for page in sorted((ROOT / "docs").rglob("*.md")) if page not in {*linked, index}] == []


@pytest.mark.parametrize("path", RECORDS, ids=shown)
def test_decisions_have_one_form(path: Path) -> None:
    """A number, a status with a date, five parts in their order, one page."""
    text = path.read_text()
    number = int(path.name[:4])
    places = [text.find(f"\n**{part}") for part in ADR_PARTS]

    assert re.match(rf"# {number}\. .+ {{2,}}Status: accepted, \d{{4}}-\d\d-\d\d\n", text)
    assert -1 not in places
    assert places == sorted(places)
    assert len(text.split()) <= ADR_WORDS


@pytest.mark.parametrize("path", RECORDS, ids=shown)
def test_the_index_gives_decisions_their_titles(path: Path) -> None:
    title = path.read_text().partition(". ")[2].partition("  ")[0]

    assert f"[{title}](adr/{path.name})" in (ROOT / "docs/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["approvals", "approve", "a5zs", "--remember"], 0),
        (["approval", "list"], 0),
        (["approvals", "aprove", "a5zs"], 1),
        (["run", "Say it", "--pan", "x.toml"], 1),
        (["nothing"], 1),
        (["approvals"], 0),
    ],
)
def test_wrong_commands_are_noticed(words: list[str], wrong: int) -> None:
    """The check itself works."""
    assert len(problems(words)) == wrong


@pytest.mark.parametrize("name", ["sessions.approve", "journal-hole", "session_runs", "eryxd/domain/polices.py"])
def test_wrong_names_are_noticed(name: str) -> None:
    assert not is_known(name)
