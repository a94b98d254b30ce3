"""Plans: what the replay backend plays, written in TOML.  The format is described in docs/plans.md.

Law: a plan is either read whole or refused with all its problems, each with the number of its step.
"""

import math
import os
import stat
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from eryxd import toml
from eryxd.domain.errors import BackendFailed
from eryxd.domain.ids import Record
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import Model

MAX_PLAN_BYTES: Final = 1024 * 1024
"""Largest plan: its text is stored with every run that plays it."""

_LARGEST_INTEGER: Final = 2**63
_DEEPEST: Final = 32
"""Deepest nesting of a call's arguments, as that of a request."""

_SUFFIX: Final = ".toml"


class Ending(StrEnum):
    """How a call can end."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"


class Expect(Record, frozen=True, kw_only=True):
    """What must come of a call, or the run fails: how it ends, and text that its output contains."""

    outcome: Ending | UnsetType = UNSET
    contains: str | UnsetType = UNSET


class Call(Record, frozen=True, kw_only=True):
    """One tool call."""

    call: str
    arguments: dict[str, Any] = {}
    expect: Expect | UnsetType = UNSET


class Step(Record, frozen=True, kw_only=True):
    """One thing that an agent does: exactly one of `say`, `think`, `call` and `calls`."""

    agent: str | UnsetType = UNSET
    say: str | UnsetType = UNSET
    think: str | UnsetType = UNSET
    call: str | UnsetType = UNSET
    calls: tuple[Call, ...] | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    expect: Expect | UnsetType = UNSET

    def all_calls(self) -> tuple[Call, ...]:
        """Return the calls that are made at once: none, one or several."""
        if self.call is UNSET:
            return self.calls or ()
        return (Call(call=self.call, arguments=self.arguments or {}, expect=self.expect),)

    def is_for(self, agent: RunAgent) -> bool:
        """Whether this agent plays the step."""
        return self.agent is UNSET or self.agent in (agent.id, agent.name)


class Plan(Record, frozen=True, kw_only=True):
    """A title and the steps in order, which are numbered from 1."""

    title: str
    steps: tuple[Step, ...]

    def steps_of(self, agent: RunAgent) -> Iterator[tuple[int, Step]]:
        """Return the steps that an agent plays, with their numbers."""
        return ((number, step) for number, step in enumerate(self.steps, 1) if step.is_for(agent))


def parse(text: str, where: str) -> Plan:
    """Read a plan; `where` names its source in the error.

    Raises: BackendFailed -- with every problem, also as `problems` in the data.
    """
    try:
        raw = toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(where, [f"it is not TOML: {error}"]) from None
    except RecursionError:
        raise _too_deep(where) from None
    problems: list[str] = []
    try:
        steps = tuple(_read_steps(raw.pop("step", []), problems))
    except RecursionError:
        raise _too_deep(where) from None
    title = raw.pop("title", None)
    if not isinstance(title, str) or not title.strip():
        problems.append("title: a plan needs one, a text")
    problems += [f"{key}: a plan has only `title` and `[[step]]`" for key in raw]
    if problems:
        raise _refused(where, problems)
    return Plan(title=str(title), steps=steps)


def _too_deep(where: str) -> BackendFailed:
    return _refused(where, ["it is nested too deeply"])


def _refused(where: str, problems: list[str]) -> BackendFailed:
    return BackendFailed(f"The plan {where} cannot be played: {'; '.join(problems)}.", place=where, problems=problems)


def _read_steps(raw: object, problems: list[str]) -> Iterator[Step]:
    """Yield the steps that are well formed and add what is wrong with the others to `problems`."""
    if not isinstance(raw, list) or not raw:
        problems.append("step: a plan needs at least one `[[step]]` table")
        return
    for number, table in enumerate(raw, 1):
        try:
            step = msgspec.convert(table, Step)
        except msgspec.ValidationError as error:
            problems.append(f"step {number}: {error}")
            continue
        problems += [f"step {number}: {problem}" for problem in _step_problems(step)]
        yield step


def _step_problems(step: Step) -> Iterator[str]:
    actions = [name for name in ("say", "think", "call", "calls") if getattr(step, name) is not UNSET]
    if len(actions) != 1:
        yield f"needs exactly one of say, think, call and calls, and has {' and '.join(actions) or 'none'}"
    if step.call is UNSET and (step.arguments is not UNSET or step.expect is not UNSET):
        yield "arguments and expect stand beside `call`, or in each entry of `calls`"
    blank = [
        name for name in ("agent", "say", "think") if (text := getattr(step, name)) is not UNSET and not text.strip()
    ]
    yield from (f"{name} is blank" for name in blank)
    if step.calls == ():
        yield "calls is empty"
    for call in step.all_calls():
        if not call.call.strip():
            yield "the tool of a call is blank"
        yield from (f"{call.call}: {problem}" for problem in _value_problems(call.arguments, "arguments"))


def _value_problems(value: object, path: str, depth: int = 1) -> Iterator[str]:
    """Name what TOML can write and a tool's arguments cannot hold."""
    if depth > _DEEPEST:
        yield f"{path[:60]}… is nested more than {_DEEPEST} deep"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _value_problems(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _value_problems(inner, f"{path}[{index}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is not a finite number"
    elif isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        yield f"{path} does not fit 64 bits"
    elif not isinstance(value, str | int | float):
        yield f"{path} is a date or time; write it as text"


def find(name: str, plans_dir: Path) -> Path:
    """Return the file of a plan: `NAME.toml` in `plans_dir`, or the absolute path that `name` is.

    Raises: BackendFailed -- there is none; `places` in the data names where it was looked for.
    """
    path = Path(name)
    if not path.is_absolute():
        if not name or name != path.name or "\0" in name:
            raise BackendFailed(f"{name!r} is neither the name of a plan nor an absolute path.", places=[])
        path = plans_dir / f"{name}{_SUFFIX}"
    try:
        found = path.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        raise BackendFailed(f"There is no plan {name}: looked at {path}.", places=[str(path)])
    return path


def read(path: Path) -> str:
    """Return the text of a plan.

    Raises: BackendFailed -- it cannot be read; the message says why.
    """
    try:
        # Not to wait for a writer, should it be a fifo by now.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as reader:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _refused(str(path), ["it is not a regular file"])
            data = reader.read(MAX_PLAN_BYTES + 1)
        if len(data) > MAX_PLAN_BYTES:
            raise _refused(str(path), [f"it is larger than {MAX_PLAN_BYTES:,} bytes"])
        return data.decode()
    except OSError as error:
        raise _refused(str(path), [error.strerror or str(error)]) from error
    except UnicodeDecodeError as error:
        raise _refused(str(path), ["it is not UTF-8"]) from error


MAX_LISTED: Final = 200
MAX_LABEL: Final = 200
"""Plans that are listed, and characters of the label of each: all of them go with every status."""


def list_plans(plans_dir: Path) -> tuple[Model, ...]:
    """Return the plans of the folder, by name; one that cannot be played says so in its label."""
    try:
        paths = sorted(path for path in plans_dir.iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return ()
    return tuple(Model(id=path.stem, label=_label(path)[:MAX_LABEL]) for path in paths[:MAX_LISTED])


def _label(path: Path) -> str:
    try:
        return parse(read(path), path.name).title
    except BackendFailed as error:
        return error.message
