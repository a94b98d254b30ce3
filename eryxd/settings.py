"""The daemon's settings: `config.toml` in the configuration folder, read as a whole or refused as a whole.

Laws: an absent file means the defaults, and they are the narrowest values.  A key that is not declared here
is an error: a misspelt restriction that is skipped in silence is a hole.  A file that another user could
have written is not read.
"""

import os
import stat
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import FieldInfo, fields

from eryxd import toml
from eryxd.domain.errors import Invalid
from eryxd.trust import require_trusted

MAX_CONFIG_BYTES: Final = 64 * 1024
"""Largest `config.toml`.  A full one has forty lines; anything near this is some other file."""

MAX_PROBLEMS: Final = 50
"""How many problems of one file are told: enough to correct it, few enough to look up each one's line."""

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""A limit: a whole number, at least one."""


class ApprovalsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[approvals]`: `default` is the policy that a pattern without one is saved with.  Source: POL-4."""

    default: Literal["ask", "none"] = "ask"


class DefaultsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[defaults]`: `backend` runs every agent that names none.  Source: BKD-3."""

    backend: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET


class SessionsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sessions]`: `tooling` is what a new session has selected.  Source: SES-1."""

    tooling: Literal["none", "all"] = "none"


class LimitsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: connections at once, in all and per peer process, and how far back the journal reaches."""

    connections: Count = 256
    connections_per_peer: Count = 32
    journal_events: Count = 100_000
    journal_days: Count = 7


class GuardSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[guard]`: `no_new_privs` refuses all but open methods to a peer that carries the mark of an agent.

    Turning it off lets an agent's shell answer its own approvals; it exists for people whose own terminal
    runs with that mark, as inside some containers.
    """

    no_new_privs: bool = True


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that `config.toml` can say."""

    approvals: ApprovalsSection = ApprovalsSection()
    defaults: DefaultsSection = DefaultsSection()
    sessions: SessionsSection = SessionsSection()
    limits: LimitsSection = LimitsSection()
    guard: GuardSection = GuardSection()
    plugins: dict[str, dict[str, Any]] = {}
    """A table for each plugin, which is held against the plugin's own type when it is loaded."""


def load(path: str) -> Settings:
    """Return the settings in the file at `path`, or the defaults where there is none.

    Raises: Invalid -- the file cannot be read or trusted, is not TOML, or says what is not a setting.  The
    message names the file, where possible the line, and what to do, one problem a line; the data holds
    `file` and `problems [{path, line?, message}]`.
    """
    text = _read(path)
    if text is None:
        return Settings()
    table = _parse(path, text)
    if problems := list(islice(_problems((), table, Settings), MAX_PROBLEMS)):
        raise _refused(path, text, problems)
    return convert(table, Settings)


def _read(path: str) -> str | None:
    """Return the text of a trusted file, or None where nothing has that name."""
    try:
        # Without O_NONBLOCK a named pipe in place of the file would hang the start for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not os.path.lexists(path):
            return None
        raise Invalid(f"{path} is a link to nothing.  Restore its target or remove it.", file=path) from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", file=path) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Invalid(f"{path} is not a regular file.  Move it away.", file=path)
    with open(descriptor, "rb") as file:
        require_trusted(path, found)
        _require_trusted_folders(path)
        raw = file.read(MAX_CONFIG_BYTES + 1)
    return _decode(path, raw)


def _require_trusted_folders(path: str) -> None:
    """Check the folder that holds the name and, where a link leads elsewhere, the one that holds the file."""
    for folder in sorted({os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}):
        require_trusted(folder, os.stat(folder))


def _decode(path: str, raw: bytes) -> str:
    if len(raw) > MAX_CONFIG_BYTES:
        raise Invalid(f"{path} is larger than {MAX_CONFIG_BYTES} bytes.  Is it the right file?", file=path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Invalid(f"{path}, line {line}: not UTF-8 text.  Save it as UTF-8.", file=path) from None


def _parse(path: str, text: str) -> dict[str, Any]:
    try:
        return toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is not valid TOML: {error}.  Correct that line.", file=path) from None
    except RecursionError:
        raise Invalid(f"{path} is nested too deeply.  No setting needs it.", file=path) from None


Problem = tuple[tuple[str, ...], str]
"""The keys that lead to a value, and what is wrong with it."""


def _problems(where: tuple[str, ...], table: dict[str, Any], section: type[Struct]) -> Iterator[Problem]:
    """Yield everything that is wrong in `table` (found at `where`), in the order of the file."""
    known = {field.encode_name: field for field in fields(section)}
    for key, value in table.items():
        path = (*where, key)
        if key not in known:
            yield path, _unknown(where, key, list(known))
        elif isinstance(inner := known[key].type, type) and issubclass(inner, Struct):
            if isinstance(value, dict):
                yield from _problems(path, value, inner)
            else:
                yield path, f"{_dotted(path)} must be a table.  Write [{_dotted(path)}] on a line of its own."
        elif problem := _value_problem(known[key], value):
            yield path, f"{_dotted(path)}: {problem}."


def _unknown(where: tuple[str, ...], key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    names = [_dotted((*where, name)) for name in close or known]
    hint = f"Did you mean {names[0]}?" if close else f"Known here: {', '.join(names)}."
    return f"{_dotted((*where, key))} is not a setting.  {hint}"


def _value_problem(field: FieldInfo, value: object) -> str | None:
    """Return what is wrong with the value of one setting, or None."""
    try:
        convert(value, field.type)
    except ValidationError as error:
        if get_origin(field.type) is Literal:
            return "must be " + " or ".join(f'"{choice}"' for choice in get_args(field.type))
        return str(error)
    return None


def _refused(path: str, text: str, problems: list[Problem]) -> Invalid:
    """Return one error that tells every problem, each with its line where that is certain."""
    lines = [_line_of(text, keys) for keys, _ in problems]
    told = [
        f"{path}, line {line}: {message}" if line else f"{path}: {message}"
        for line, (_, message) in zip(lines, problems, strict=True)
    ]
    entries = [
        {"path": _dotted(keys), "message": message} | ({"line": line} if line else {})
        for line, (keys, message) in zip(lines, problems, strict=True)
    ]
    return Invalid("\n".join(told), file=path, problems=entries)


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """Return the line that brings `keys` in: the first with which the text down to it parses and has them.

    None where that cannot be told so, as for a value over several lines.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if keys[-1] in line and not line.startswith("#") and _has("\n".join(lines[:number]), keys):
            return number
    return None


def _has(text: str, keys: tuple[str, ...]) -> bool:
    try:
        found: Any = toml.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _dotted(keys: tuple[str, ...]) -> str:
    """Return the keys as one writes them in TOML; control characters come out escaped."""
    return ".".join(key if key.replace("_", "").replace("-", "").isalnum() else repr(key) for key in keys)
