"""What the tools view, create, edit and glob do to files, with paths confined to the project.

Everything here blocks; callers give it a thread.  What cannot be done is a `Refused` with a sentence for the
model, or the `OSError` of the kernel.
"""

import contextlib
import fnmatch
import heapq
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from eryxd.backends.confine import (
    MAX_FILE_BYTES,
    Refused,
    open_folder,
    open_regular,
    project_root,
    read_all,
    resolve,
)
from eryxd.backends.diffs import split_lines

MAX_MATCHES: Final = 1000
"""Most names that glob lists: more than that is an answer nobody reads."""

MAX_ENTRIES: Final = 1_000_000
"""Most folder entries that one glob looks at, some ten seconds' worth."""

MAX_PARTS: Final = 64
"""Most parts of a pattern: each is looked at for each entry, and real folders are not that deep."""

BINARY_PROBE_BYTES: Final = 8192
"""How far from its beginning a file is searched for a NUL, as git does, to tell that it is not text."""


def view(project: str, path: str, start_line: int, end_line: int | None) -> str:
    """Return the lines of a text file from `start_line`, counted from 1, up to and with `end_line`."""
    data = read_text_file(project, path)
    lines = split_lines(data.decode(errors="replace"))
    if end_line is not None and end_line < start_line:
        raise Refused(f"end_line {end_line} comes before start_line {start_line}.")
    if start_line > max(len(lines), 1):
        raise Refused(f"{path} has {len(lines)} lines; there is no line {start_line}.")
    return "".join(lines[start_line - 1 : end_line])


def read_text_file(project: str, path: str) -> bytes:
    """Return the content of a file that is no binary."""
    target = resolve(project, path)
    _refuse_root(project, target)
    with open_folder(project, target.parent) as folder:
        data = read_all(open_regular(folder, target.name))
    _refuse_binary(path, data)
    return data


Agreed = Callable[[Path, bytes], None]
"""Refuses a file, given by its real path and what it holds now, unless it is what a person was shown."""


def create(project: str, path: str, content: str, agreed: Agreed) -> str:
    """Make a new file, and the folders that it needs; return what was done."""
    target = resolve(project, path)
    _refuse_root(project, target)
    data = content.encode()
    if path.endswith("/"):
        raise Refused(f"{path} names a folder, not a file.")
    if len(data) > MAX_FILE_BYTES:
        raise Refused(f"The content has {len(data):,} bytes; at most {MAX_FILE_BYTES:,} are written.")
    agreed(target, b"")
    with open_folder(project, target.parent, make=True) as folder:
        try:
            _write_new(folder, target.name, data, 0o666)
        except FileExistsError:
            raise Refused(f"{path} exists already; the tool edit changes it.") from None
    return f"Created {path}, {len(data):,} bytes."


def edit(project: str, path: str, old: str, new: str, agreed: Agreed) -> str:
    """Replace the one place where `old` stands; return what was done.

    The file is replaced as a whole, with its mode; other hard links to it keep the old content.
    """
    target = resolve(project, path)
    _refuse_root(project, target)
    with open_folder(project, target.parent) as folder:
        file = open_regular(folder, target.name)
        found = os.fstat(file)
        data = read_all(file)
        _refuse_binary(path, data)
        changed = replace_once(path, data, old.encode(), new.encode())
        # On what was opened and read, not on its name: that may stand for another file by now.
        agreed(target, data)
        _replace_file(folder, target.name, changed, found)
    return f"Edited {path}, {len(data):,} bytes before and {len(changed):,} now."


def replace_once(path: str, data: bytes, old: bytes, new: bytes) -> bytes:
    """Return `data` with `old` replaced, which must stand in it exactly once."""
    first = data.find(old)
    if not old or old == new:
        raise Refused("The old text is empty, or the new text is the same.")
    if first < 0:
        raise Refused(f"The old text is not in {path}.")
    # Counted with overlaps: "aa" stands twice in "aaa", and which is meant cannot be told.
    if data.find(old, first + 1) >= 0:
        raise Refused(f"The old text is in {path} more than once; give more of what surrounds it.")
    return data[:first] + new + data[first + len(old) :]


def _replace_file(folder: int, name: str, data: bytes, seen: os.stat_result) -> None:
    new = f".{name[:100]}.{secrets.token_hex(6)}"
    _write_new(folder, new, data, 0o600)
    try:
        with contextlib.suppress(PermissionError):
            os.chown(new, seen.st_uid, seen.st_gid, dir_fd=folder)
        os.chmod(new, seen.st_mode & 0o7777, dir_fd=folder)
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (now.st_ino, now.st_mtime_ns, now.st_size) != (seen.st_ino, seen.st_mtime_ns, seen.st_size):
            raise Refused(f"{name} was changed by something else just now; nothing was written.")
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(new, dir_fd=folder)
        raise


def _write_new(folder: int, name: str, data: bytes, mode: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as writer:
            writer.write(data)
            writer.flush()
            os.fsync(file)
    except OSError:
        # Half a file would pass for a whole one.
        os.unlink(name, dir_fd=folder)
        raise


def glob(project: str, pattern: str) -> str:
    """List the files whose path matches, sorted; `**` stands for any folders, none included.

    Names that begin with a dot match only a part that does so too.  Symlinks are listed and never followed.
    """
    parts = pattern.split("/")
    if not all(parts) or ".." in parts or "\0" in pattern:
        raise Refused("A pattern counts from the project's folder: no leading /, no empty part, no `..`.")
    if len(parts) > MAX_PARTS:
        raise Refused(f"A pattern has at most {MAX_PARTS} parts between slashes.")
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for name in _matches(project, [_Part(part) for part in parts]):
            count += 1
            yield name

    names = heapq.nsmallest(MAX_MATCHES, counted())
    if not names:
        return "No file matches."
    rest = [f"… and {count - len(names):,} more"] if count > len(names) else []
    return "\n".join(names + rest)


class _Part:
    """One part of a glob pattern, between two slashes."""

    def __init__(self, text: str) -> None:
        self.crosses_folders = text == "**"
        self._shows_hidden = text.startswith(".")
        self._regex = re.compile(fnmatch.translate(text))

    def matches(self, name: str) -> bool:
        """Whether it stands for this name."""
        return (self._shows_hidden or not name.startswith(".")) and self._regex.match(name) is not None


def _matches(project: str, parts: list[_Part]) -> Iterator[str]:
    """Walk only where a match can still come.  A state is the set of parts that may stand for the next."""
    root = Path(project_root(project))
    waiting = [("", _skip_crossing({0}, parts))]
    looked_at = 0
    while waiting:
        prefix, states = waiting.pop()
        for name, is_folder in _entries(project, root / prefix):
            looked_at += 1
            after = _step(states, parts, name)
            if is_folder and after - {len(parts)}:
                waiting.append((f"{prefix}{name}/", after))
            elif not is_folder and len(parts) in after:
                yield prefix + name
        if looked_at > MAX_ENTRIES:
            raise Refused(f"The pattern reaches over {MAX_ENTRIES:,} files; name a folder to look in.")


def _entries(project: str, folder: Path) -> list[tuple[str, bool]]:
    # A folder that vanished, may not be read, or has become a symlink shows nothing.
    with contextlib.suppress(OSError), open_folder(project, folder) as opened, os.scandir(opened) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    return []


def _step(states: set[int], parts: list[_Part], name: str) -> set[int]:
    after: set[int] = set()
    for index in states - {len(parts)}:
        if parts[index].matches(name):
            after.add(index if parts[index].crosses_folders else index + 1)
    return _skip_crossing(after, parts)


def _skip_crossing(states: set[int], parts: list[_Part]) -> set[int]:
    """Add what follows each `**`, which may stand for nothing."""
    closed = set(states)
    for index, part in enumerate(parts):
        if part.crosses_folders and index in closed:
            closed.add(index + 1)
    return closed


def _refuse_binary(path: str, data: bytes) -> None:
    if b"\0" in data[:BINARY_PROBE_BYTES]:
        raise Refused(f"{path} is binary, {len(data):,} bytes.")


def _refuse_root(project: str, target: Path) -> None:
    if str(target) == project_root(project):
        raise Refused("The project's folder is not a file; the tool glob lists its files.")
