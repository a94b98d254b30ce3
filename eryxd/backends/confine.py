"""Paths confined to a project, and files opened without leaving it.

Law: what `resolve` returns lies in the project by its real path, whatever symlinks, `..` and absolute names
it was made of.

A path is checked and used at different times.  Files are therefore opened from the project's folder down, one
component after the other, following no symlink at any of them: one that is swapped in after the check makes
the opening fail.  What remains: a folder that is moved out of the project between two components is still
followed; a hard link inside to a file outside cannot be told from that file; and programs (ripgrep, a shell)
open paths by themselves.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eryxd.domain.errors import Invalid

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
"""Largest file that is read or written whole: what people look at is smaller, and a diff must fit memory."""

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_RDONLY
# A fifo without a writer would hold up the opening for ever; a terminal must not become ours.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class Refused(Invalid):
    """The path leaves the project, or is nothing that a tool may touch."""


def project_root(project: str) -> str:
    """Return the project folder, which is given by its real path.

    Raises: Refused -- it is gone, or no folder, or by now a symlink on the way leads elsewhere.
    """
    try:
        root = os.path.realpath(project)
    except (OSError, RecursionError) as error:
        raise Refused(f"The project folder {project} cannot be looked at: {error}.", path=project) from error
    if not os.path.isdir(root):
        raise Refused(f"The project folder {project} is not there any more.", path=project)
    if root != os.path.normpath(project):
        raise Refused(f"The project folder {project} leads to {root} now; that is not what was added.", path=project)
    return root


def resolve(project: str, path: str) -> Path:
    """Return the real path of `path`, which counts from the project's folder and need not exist.

    Raises: Refused -- it lies outside, is no path at all, or the project folder is gone.
    """
    root = project_root(project)
    if not path or "\0" in path:
        raise Refused("A path must not be empty or hold a NUL.", path=path)
    try:
        real = os.path.realpath(os.path.join(root, path))
        again = os.path.realpath(real)
    except (OSError, UnicodeError, RecursionError) as error:
        raise Refused(f"{path!r} is not a usable path: {error}.", path=path) from error
    # In a circle of symlinks the first answer still holds one.
    if again != real:
        raise Refused(f"{path} leads round in a circle of symlinks.", path=path)
    if not _is_inside(root, real):
        raise Refused(f"{path} is outside the project {root}.", path=path)
    return Path(real)


def _is_inside(root: str, real: str) -> bool:
    # With the separator, or a sibling whose name only begins alike would count.
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


@contextlib.contextmanager
def open_folder(project: str, folder: Path, *, make: bool = False) -> Iterator[int]:
    """Open a resolved folder of the project while the block lasts; with `make`, make what is missing.

    Raises: Refused -- the project folder is gone or is another one now.  OSError -- as when opening any
    folder.
    """
    root = project_root(project)
    if not _is_inside(root, str(folder)):
        raise Refused(f"{folder} is outside the project {root}.", path=str(folder))
    opened = os.open(root, _FOLDER)
    try:
        for part in folder.relative_to(root).parts:
            inner = _open_inner(opened, part, make)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _open_inner(outer: int, name: str, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=outer)
    return os.open(name, _FOLDER, dir_fd=outer)


def open_regular(folder: int, name: str) -> int:
    """Open a regular file of a folder for reading and return its descriptor.

    Raises: Refused -- it is a symlink, a folder, anything else that is no file, or too large to be read
    whole.  OSError -- as when opening any file.
    """
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        # What has become a symlink since it was resolved, and what is a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Refused(f"{name} is not a regular file.", path=name) from error
        raise
    problem = _unreadable(os.fstat(file))
    if problem:
        os.close(file)
        raise Refused(f"{name} {problem}", path=name)
    return file


def _unreadable(found: os.stat_result) -> str:
    if stat.S_ISDIR(found.st_mode):
        return "is a folder; the tool glob lists its files."
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file."
    if found.st_size > MAX_FILE_BYTES:
        return f"has {found.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are read."
    return ""


def read_all(file: int) -> bytes:
    """Read a descriptor to its end, at most `MAX_FILE_BYTES`, and close it."""
    with os.fdopen(file, "rb") as reader:
        return reader.read(MAX_FILE_BYTES)
