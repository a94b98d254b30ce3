"""The files of `workspace.d`: read as they are, and parsed into drafts with the place of each.

Laws: every problem of every file is named at once, with file and line; an id that stands in two files is in neither,
and both are named (FIL-2); the order of the files does not matter.

Source: FIL-2, FIL-3, architecture 10.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from eryxd import toml
from eryxd.api import requests as ask
from eryxd.core.workspace import FilePattern
from eryxd.domain.errors import Invalid
from eryxd.domain.origin import FileOrigin, revision_of
from eryxd.domain.providers import ENTRY_ID
from eryxd.trust import require_trusted

FOLDER: Final = "workspace.d"

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 500

_OURS: Final = frozenset({"id", "revision", "created_at", "updated_at", "is_builtin"})
"""Fields of a pattern that a file does not say: they follow from it."""


class FileEntry(NamedTuple):
    """An entry as a file has it, not yet held against its provider's type."""

    provider: str
    id: str
    name: str
    project: str | UnsetType
    record: dict[str, Any]
    origin: FileOrigin
    revision: int


class Parsed(NamedTuple):
    """What the files say, what is wrong with them, and what has no effect."""

    patterns: tuple[FilePattern, ...]
    entries: tuple[FileEntry, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def read(config_dir: Path) -> tuple[dict[str, str], list[str]]:
    """Return the texts of all files by path, and what cannot be read.  No folder is no file."""
    folder = config_dir / FOLDER
    texts: dict[str, str] = {}
    problems: list[str] = []
    try:
        found = os.stat(folder)
        if not stat.S_ISDIR(found.st_mode):
            return {}, [f"{folder} is not a folder"]
        require_trusted(str(folder), found)
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except FileNotFoundError:
        return {}, []
    except Invalid as error:
        return {}, [error.message]
    except OSError as error:
        return {}, [f"{folder} cannot be read: {error.strerror}"]
    if len(paths) > MAX_FILES:
        return {}, [f"{folder} holds more than {MAX_FILES} files"]
    for path in paths:
        try:
            texts[str(path)] = _text(path)
        except Invalid as error:
            problems.append(error.message)
        except FileNotFoundError:
            # Renamed away while we looked; the watch comes again.
            continue
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path} cannot be read: {error}")
    return texts, problems


def _text(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Invalid(f"{path} is not a regular file.", file=str(path))
        require_trusted(str(path), found)
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise Invalid(f"{path} is larger than {MAX_FILE_BYTES} bytes.", file=str(path))
    return raw.decode()


def parse(texts: Mapping[str, str]) -> Parsed:
    """Parse the texts of all files."""
    patterns: list[FilePattern] = []
    entries: list[FileEntry] = []
    problems: list[str] = []
    for path in sorted(texts):
        try:
            table = toml.loads(texts[path])
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problems.append(f"{path} is not TOML: {error}")
            continue
        for key in table:
            if key not in ("patterns", "providers"):
                problems.append(f"{path}: {key!r} is neither `patterns` nor `providers`")
        _collect(path, texts[path], table, patterns, entries, problems)
    twice = [*_twice("pattern", [(str(one.draft.id), one.origin) for one in patterns])]
    twice += _twice("entry", [(f"{one.provider}:{one.id}", one.origin) for one in entries])
    again = {name for name, _ in twice}
    return Parsed(
        patterns=tuple(one for one in patterns if f"pattern {one.draft.id}" not in again),
        entries=tuple(one for one in entries if f"entry {one.provider}:{one.id}" not in again),
        problems=tuple(problems),
        warnings=tuple(warning for _, warning in twice),
    )


def _twice(kind: str, found: list[tuple[str, FileOrigin]]) -> Iterator[tuple[str, str]]:
    places: dict[str, list[str]] = {}
    for id, origin in found:
        places.setdefault(id, []).append(f"{origin.file}, line {origin.line}")
    for id, where in places.items():
        if len(where) > 1:
            yield f"{kind} {id}", f"the {kind} {id!r} is defined twice, so neither is used: {' and '.join(where)}"


def _collect(
    path: str,
    text: str,
    table: Mapping[str, Any],
    patterns: list[FilePattern],
    entries: list[FileEntry],
    problems: list[str],
) -> None:
    for id, found in _tables(path, table.get("patterns", {}), "patterns", problems):
        origin = FileOrigin(file=path, line=_line(text, ("patterns", id)))
        try:
            patterns.append(_pattern(id, found, origin))
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            problems.append(f"{path}, line {origin.line}: the pattern {id!r}: {error}")
    for provider, those in _tables(path, table.get("providers", {}), "providers", problems):
        for id, found in _tables(path, those, f"providers.{provider}", problems):
            origin = FileOrigin(file=path, line=_line(text, ("providers", provider, id)))
            try:
                entries.append(_entry(provider, id, found, origin))
            except (ValueError, TypeError) as error:
                problems.append(f"{path}, line {origin.line}: the entry {provider}:{id}: {error}")


def _tables(path: str, found: Any, where: str, problems: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(found, dict):
        problems.append(f"{path}: {where} is no table")
        return
    for id, table in found.items():
        if not isinstance(table, dict):
            problems.append(f"{path}: {where}.{id} is no table")
        elif not ENTRY_ID.fullmatch(id):
            problems.append(f"{path}: {where}.{id}: an id has lower-case letters, digits, - and _")
        else:
            yield id, table


def _pattern(id: str, table: dict[str, Any], origin: FileOrigin) -> FilePattern:
    ours = sorted(_OURS & set(table))
    if ours:
        raise ValueError(f"{ours[0]} follows from the file and is not written in it")
    draft = msgspec.convert({**table, "id": id}, ask.PatternDraft)
    return FilePattern(draft, origin, revision_of(table))


def _entry(provider: str, id: str, table: dict[str, Any], origin: FileOrigin) -> FileEntry:
    unknown = sorted(set(table) - {"name", "project", "record"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of `name`, `project` and `record`")
    name, project, record = table.get("name", id), table.get("project", UNSET), table.get("record", {})
    if not isinstance(name, str) or not isinstance(record, dict):
        raise ValueError("`name` is a text and `record` a table")
    if project is not UNSET and not isinstance(project, str):
        raise ValueError("`project` is the path of a folder")
    return FileEntry(provider, id, name, project, record, origin, revision_of(table))


def _line(text: str, keys: tuple[str, ...]) -> int:
    """Return the line of the first header that brings a table in; 1 where it is written in another way."""
    path = r"\s*\.\s*".join(rf"[\"']?{re.escape(key)}[\"']?" for key in keys)
    found = re.search(rf"^\s*\[\[?\s*{path}\s*[\].]", text, re.MULTILINE)
    return 1 if found is None else text.count("\n", 0, found.start() + len(found[0])) + 1
