"""The runtime tools: what each takes, what a person is shown before it runs, and the running itself.

Law: what runs is decided by the arguments alone, and `permission_for` has shown all of them.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from eryxd.backends import commands, diffs, files
from eryxd.backends.confine import Refused, project_root, resolve
from eryxd.domain.approval import Permission, PermissionKind, cut_middle
from eryxd.domain.errors import BackendFailed
from eryxd.domain.ids import Record, ToolId
from eryxd.domain.tools import RuntimeTool
from eryxd.plugin.types import TOOL_OUTPUT_BYTES, Processes, ToolOutcome

SHELL_TIMEOUT_S: Final = 120
"""How long a command may take unless it says otherwise: a test suite of ordinary size."""

LONGEST_SHELL_TIMEOUT_S: Final = 600
"""Longest time that a command may ask for."""

_GLOBS: Final = ThreadPoolExecutor(2, "eryxd-glob")
"""Where globs run: they can take seconds, and must leave the threads that everybody's questions need."""

_Path = Annotated[str, Meta(min_length=1, description="Path in the project, from its folder or absolute.")]
_Line = Annotated[int, Meta(ge=1, description="Line number, counted from 1.")]


class ViewArguments(Record, frozen=True, kw_only=True):
    """Show a text file of the project, or some of its lines."""

    path: _Path
    start_line: _Line | UnsetType = UNSET
    end_line: _Line | UnsetType = UNSET


class GlobArguments(Record, frozen=True, kw_only=True):
    """List the project's files whose path matches a pattern, sorted."""

    pattern: Annotated[
        str, Meta(min_length=1, description="Like `src/**/*.py`: `*` and `?` within a name, `**` for any folders.")
    ]


class RgArguments(Record, frozen=True, kw_only=True):
    """Search the project's files with ripgrep, with line numbers."""

    pattern: Annotated[str, Meta(min_length=1, description="Regular expression of ripgrep.")]
    path: _Path = "."
    glob: Annotated[str, Meta(min_length=1, description="Only files whose path matches.")] | UnsetType = UNSET


class CreateArguments(Record, frozen=True, kw_only=True):
    """Make a new file in the project, and the folders that it needs."""

    path: _Path
    content: str


class EditArguments(Record, frozen=True, kw_only=True):
    """Replace text that stands exactly once in a file of the project."""

    path: _Path
    old: Annotated[str, Meta(min_length=1, description="What is there now, exactly.")]
    new: Annotated[str, Meta(description="What replaces it.")]


class ShellArguments(Record, frozen=True, kw_only=True):
    """Run a command line with /bin/sh in the project's folder."""

    command: Annotated[str, Meta(min_length=1, description="The command line.")]
    timeout_s: Annotated[
        float, Meta(gt=0, le=LONGEST_SHELL_TIMEOUT_S, description="Seconds until everything it started is killed.")
    ] = SHELL_TIMEOUT_S


async def _view(arguments: ViewArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    first, last = arguments.start_line or 1, arguments.end_line or None
    return _answer(await asyncio.to_thread(files.view, project, arguments.path, first, last))


async def _glob(arguments: GlobArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    return _answer(await asyncio.get_running_loop().run_in_executor(_GLOBS, files.glob, project, arguments.pattern))


async def _rg(arguments: RgArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    glob = arguments.glob or None
    return await commands.search(project, processes, arguments.pattern, arguments.path, glob)


async def _create(arguments: CreateArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    agreed = _agreed(arguments, project, shown)
    return _answer(await asyncio.to_thread(files.create, project, arguments.path, arguments.content, agreed))


async def _edit(arguments: EditArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    agreed = _agreed(arguments, project, shown)
    work = asyncio.to_thread(files.edit, project, arguments.path, arguments.old, arguments.new, agreed)
    return _answer(await work)


async def _shell(arguments: ShellArguments, project: str, processes: Processes, shown: Permission) -> ToolOutcome:
    return await commands.shell(project, processes, arguments.command, arguments.timeout_s)


def _agreed(arguments: CreateArguments | EditArguments, project: str, shown: Permission) -> files.Agreed:
    path, diff = shown.path, shown.diff

    def agreed(target: Path, before: bytes) -> None:
        name = _shown(target, project)
        if isinstance(arguments, CreateArguments):
            now = _diff_of_create(arguments, project)
        else:
            now = _unified(name, before, arguments)
        if (name, now) != (path, diff):
            raise Refused(CHANGED)

    return agreed


def _answer(text: str) -> ToolOutcome:
    return ToolOutcome(ok=True, text=text)


CHANGED: Final = "What this call would do has changed since it was shown, so nothing was done. Ask again."


class _Tool(NamedTuple):
    """One tool: `program`, where it has one, must be on PATH for the tool to be there."""

    kind: PermissionKind
    arguments: type[Record]
    run: Callable[[Any, str, Processes, Permission], Awaitable[ToolOutcome]]
    program: str = ""


_TOOLS: Final = {
    "view": _Tool(PermissionKind.READ, ViewArguments, _view),
    "glob": _Tool(PermissionKind.READ, GlobArguments, _glob),
    "rg": _Tool(PermissionKind.READ, RgArguments, _rg, program="rg"),
    "create": _Tool(PermissionKind.WRITE, CreateArguments, _create),
    "edit": _Tool(PermissionKind.WRITE, EditArguments, _edit),
    "shell": _Tool(PermissionKind.SHELL, ShellArguments, _shell),
}


def _describe(name: str, tool: _Tool) -> RuntimeTool:
    _, schemas = msgspec.json.schema_components([tool.arguments])
    schema = schemas[tool.arguments.__name__]
    return RuntimeTool(id=ToolId(name), description=schema.pop("description"), input_schema=schema)


RUNTIME_TOOLS: Final = tuple(_describe(name, tool) for name, tool in _TOOLS.items())
"""All of them, also those whose program is not installed."""


def available_tools() -> tuple[RuntimeTool, ...]:
    """Return the tools that can run here, now."""
    return tuple(tool for tool in RUNTIME_TOOLS if _is_available(_TOOLS[tool.id]))


def _is_available(tool: _Tool) -> bool:
    return not tool.program or shutil.which(tool.program) is not None


def permission_for(tool_id: str, arguments: dict[str, Any], project: str) -> Permission:
    """Describe what a call would do, as a person is to see it; reads the file that it would change.

    Blocks.  Total: for arguments that make no sense, or a file that cannot be read, what depends on them is
    absent.

    Source: APR-8.
    """
    shown = Permission(arguments=arguments)
    tool = _TOOLS.get(tool_id)
    if tool is None:
        return shown
    shown = replace(shown, kind=tool.kind)
    if tool.kind is PermissionKind.SHELL:
        return replace(shown, command=_text(arguments, "command"))
    if tool.kind is PermissionKind.WRITE:
        path = _real_path(project, _text(arguments, "path"))
        return replace(shown, path=path, diff=_diff(tool_id, arguments, project))
    return replace(shown, path=_real_path(project, _path_of(arguments)))


def _path_of(arguments: dict[str, Any]) -> str:
    return _text(arguments, "path") or "."


def _text(arguments: dict[str, Any], name: str) -> str | UnsetType:
    value = arguments.get(name)
    return value if isinstance(value, str) else UNSET


def _real_path(project: str, path: str | UnsetType) -> str | UnsetType:
    """Return what a path really names, from the project's folder; as it was given when that is refused."""
    if path is UNSET:
        return UNSET
    try:
        return _sendable(os.path.relpath(resolve(project, path), project_root(project)))
    except Refused:
        return path


def _diff(tool_id: str, arguments: dict[str, Any], project: str) -> str | UnsetType:
    try:
        asked = msgspec.convert(arguments, _TOOLS[tool_id].arguments)
        if isinstance(asked, CreateArguments):
            return _diff_of_create(asked, project)
        if isinstance(asked, EditArguments):
            return _diff_of_edit(asked, project)
    except (msgspec.ValidationError, Refused, OSError, UnicodeError):
        return UNSET
    return UNSET


def _diff_of_create(asked: CreateArguments, project: str) -> str | UnsetType:
    target = resolve(project, asked.path)
    # Over a file that is there it will refuse, so there is nothing to show.
    return UNSET if target.exists() else diffs.unified(_shown(target, project), None, asked.content)


def _diff_of_edit(asked: EditArguments, project: str) -> str:
    before = files.read_text_file(project, asked.path)
    return _unified(_shown(resolve(project, asked.path), project), before, asked)


def _unified(name: str, before: bytes, asked: EditArguments) -> str:
    after = files.replace_once(asked.path, before, asked.old.encode(), asked.new.encode())
    return diffs.unified(name, before.decode(errors="replace"), after.decode(errors="replace"))


def _shown(target: Path, project: str) -> str:
    return _sendable(str(target.relative_to(project_root(project))))


async def run_tool(
    tool_id: str, arguments: dict[str, Any], project: str, processes: Processes, shown: Permission
) -> ToolOutcome:
    """Run a tool for real, unless it would do something else by now than what was `shown` of it.

    Whatever goes wrong is an outcome that says so; only cancellation is raised.
    """
    tool = _TOOLS.get(tool_id)
    if tool is None or not _is_available(tool):
        return _failure(f"There is no such tool here: {tool_id}.")
    try:
        asked = msgspec.convert(arguments, tool.arguments)
        if tool.kind is PermissionKind.READ and _real_path(project, _path_of(arguments)) != shown.path:
            return _failure(CHANGED)
        return _bounded(await tool.run(asked, project, processes, shown))
    except msgspec.ValidationError as error:
        return _failure(f"The arguments of {tool_id} do not fit: {error}.")
    except (Refused, BackendFailed) as error:
        return _failure(error.message)
    except UnicodeError:
        return _failure(f"The arguments of {tool_id} hold text that is not valid Unicode.")
    except OSError as error:
        return _failure(f"{tool_id} failed: {error.strerror or error} ({error.filename}).")


def _failure(text: str) -> ToolOutcome:
    return _bounded(ToolOutcome(ok=False, text=text))


def _bounded(outcome: ToolOutcome) -> ToolOutcome:
    text, lost = cut_middle(_sendable(outcome.text), TOOL_OUTPUT_BYTES)
    return replace(outcome, text=text, truncated_bytes=outcome.truncated_bytes + lost)


def _sendable(text: str) -> str:
    """Replace what cannot be encoded: file names may hold any bytes."""
    return text.encode(errors="replace").decode()
