"""The tools that start programs: rg and shell."""

import asyncio
import signal
from typing import Final

from eryxd.backends.confine import Refused, project_root, resolve
from eryxd.plugin.types import TOOL_OUTPUT_BYTES, Processes, ProcessResult, ToolOutcome

SEARCH_TIMEOUT_S: Final = 60.0
"""Longest search: ripgrep reads a gigabyte in a few seconds."""

CAPTURE_BYTES: Final = TOOL_OUTPUT_BYTES - 1024
"""Most output that is kept of a program: leaves room for what is said about its end."""

_RG: Final = ("rg", "--no-config", "--line-number", "--with-filename", "--no-heading", "--color=never", "--sort=path")
_RG_FOUND_NOTHING: Final = 1

# The command stays an argument of its own, untouched; both outputs go into one pipe, in the order they came.
_SHELL: Final = ("/bin/sh", "-c", 'exec /bin/sh -c "$1" 2>&1', "sh")


async def search(project: str, processes: Processes, pattern: str, path: str, glob: str | None) -> ToolOutcome:
    """Search with ripgrep; finding nothing is an answer, not an error."""
    root, where = await asyncio.to_thread(_searchable, project, path)
    options = () if glob is None else (f"--glob={glob}",)
    result = await processes.run(
        (*_RG, *options, "--", pattern, where),
        cwd=root,
        timeout_s=SEARCH_TIMEOUT_S,
        limit_bytes=CAPTURE_BYTES,
    )
    if result.exit_status == _RG_FOUND_NOTHING and not result.timed_out:
        return ToolOutcome(ok=True, text="Nothing matches.")
    return _outcome(result, SEARCH_TIMEOUT_S)


def _searchable(project: str, path: str) -> tuple[str, str]:
    """Return the project's folder, and from there the folder or file to search."""
    root = project_root(project)
    target = resolve(project, path)
    # Ripgrep would wait for ever for somebody to write into a fifo that it is told to read.
    if not (target.is_dir() or target.is_file()):
        raise Refused(f"{path} is not there, or is neither a folder nor a regular file.")
    return root, str(target.relative_to(root))


async def shell(project: str, processes: Processes, command: str, timeout_s: float) -> ToolOutcome:
    """Run a command line with /bin/sh in the project's folder, both outputs as one."""
    root = await asyncio.to_thread(project_root, project)
    result = await processes.run((*_SHELL, command), cwd=root, timeout_s=timeout_s, limit_bytes=CAPTURE_BYTES)
    return _outcome(result, timeout_s)


def _outcome(result: ProcessResult, timeout_s: float) -> ToolOutcome:
    """Put output, what is missing of it, and how the program ended into one text."""
    output = result.output.decode(errors="replace")
    if result.truncated_bytes and len(result.output) == CAPTURE_BYTES:
        half = CAPTURE_BYTES // 2
        head, tail = (part.decode(errors="replace") for part in (result.output[:half], result.output[half:]))
        output = f"{head}\n… {result.truncated_bytes:,} bytes are not shown …\n{tail}"
    parts = [output.rstrip("\n"), result.stderr.decode(errors="replace").rstrip("\n"), _ending(result, timeout_s)]
    return ToolOutcome(
        ok=result.exit_status == 0 and not result.timed_out,
        text="\n".join(part for part in parts if part),
        truncated_bytes=result.truncated_bytes,
    )


def _ending(result: ProcessResult, timeout_s: float) -> str:
    if result.timed_out:
        return f"Not done after {timeout_s:g} s; it and everything it started were killed."
    if result.exit_status < 0:
        return f"Ended by {_signal_name(-result.exit_status)}."
    return f"Exit status {result.exit_status}." if result.exit_status else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
