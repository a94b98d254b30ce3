"""One daemon per user: the lock, the folder of the socket, and the socket's place in it.

Whoever holds the lock owns store and socket; the loser touches nothing.  A socket file is removed only under
the lock, if it is ours and nobody listens on it.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eryxd.daemon.guard import command_name
from eryxd.domain.errors import Busy, Invalid, StoreUnavailable
from eryxd.paths import SOCKET_NAME, is_private_dir
from eryxd.trust import require_trusted

LOCK_NAME: Final = "lock"
"""Name of the lock in the state folder.  The file stays when the daemon ends; only the lock counts."""

MAX_ADDRESS_BYTES: Final = 100
"""Longest path used as an address; the kernel takes 107.  The client draws the same line."""

_PID_BYTES: Final = 12
"""Width of the number in the lock file.  Always overwritten in place, which a full disk allows."""

_PATIENCE: Final = 100
_PAUSE_S: Final = 0.01
"""How often, and how far apart, the lock file is read until it names a process that lives."""


class AlreadyRunning(Busy):
    """Another daemon holds the lock.  `pid` is 0 when the one that took it has gone and a child kept it."""

    def __init__(self, pid: int) -> None:
        holder = f"as process {pid}" if pid else "as a process that it left behind"
        super().__init__(f"eryxd is already running {holder}.", pid=pid)
        self.pid = pid


class SocketHeld(Busy):
    """Somebody else listens where our socket belongs.  `pid` is 0 when the kernel does not say who."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(
            f"{_holder(pid)} listens on {path}.  Stop it, then start eryxd again.", path=str(path), pid=pid
        )


class UnsafePlace(Invalid):
    """A folder or a file is not what a private socket needs.  The message says how to mend it."""


class Lock:
    """The right to be the daemon, until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next daemon start.  Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def acquire(state_dir: Path) -> Lock:
    """Take the lock in `state_dir`, creating the folder, and write our process id into it.

    Raises: AlreadyRunning; StoreUnavailable -- the folder or the lock cannot be written.
    Invalid -- somebody else owns one of them, or may write to it.
    """
    path = state_dir / LOCK_NAME
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_trusted(str(state_dir), state_dir.stat())
        # Not inheritable (O_CLOEXEC is Python's default): a child that kept it would keep the lock.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        require_trusted(str(path), os.fstat(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, f"{os.getpid()}\n".rjust(_PID_BYTES).encode(), 0)
    except BlockingIOError:
        holder = _living_holder(descriptor)
        os.close(descriptor)
        raise AlreadyRunning(holder) from None
    except OSError as error:
        os.close(descriptor)
        raise _unwritable(path, error) from error
    except Invalid:
        os.close(descriptor)
        raise
    return Lock(descriptor)


def prepare_runtime(runtime_dir: Path) -> None:
    """Make the socket's folder, or check the one that is there: a folder of ours, no link, mode 0700.

    Never changes what it finds: a folder that others could write to may hold their files.

    Raises: UnsafePlace.
    """
    try:
        runtime_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            runtime_dir.mkdir(mode=0o700)
        found = runtime_dir.lstat()
    except OSError as error:
        raise UnsafePlace(
            f"The socket's folder {runtime_dir} cannot be made: {error.strerror}.", path=str(runtime_dir)
        ) from error
    if problem := _problem(runtime_dir, found):
        raise UnsafePlace(problem, path=str(runtime_dir))


def bind_socket(runtime_dir: Path) -> socket.socket:
    """Return a stream socket bound to `eryxd.sock` in `runtime_dir`, mode 0600, not yet listening.

    Call it under the lock.  A socket file that a dead daemon left is replaced.

    Raises: SocketHeld; UnsafePlace -- something else is in the way, or the folder cannot be written.
    """
    path = runtime_dir / SOCKET_NAME
    try:
        _clear_stale(path)
        return _bound(path)
    except OSError as error:
        raise UnsafePlace(f"The socket {path} cannot be made: {error.strerror}.", path=str(path)) from error


def refuse_held(runtime_dir: Path) -> None:
    """Refuse to go on where a daemon answers already, whatever became of its lock: the store is its own.

    Raises: SocketHeld.
    """
    path = runtime_dir / SOCKET_NAME
    # What lies in a folder that is not ours alone says nothing; `prepare_runtime` refuses such a folder.
    holder = peer_listening(path) if is_private_dir(str(runtime_dir)) else None
    if holder is not None:
        raise SocketHeld(path, holder)


def remove_socket(runtime_dir: Path) -> None:
    """Remove our socket file when the daemon ends.  Call it under the lock, after the socket is closed.

    Leaves what somebody else listens on, as a socket unit does, and what is not ours.
    """
    with contextlib.suppress(SocketHeld, UnsafePlace):
        _clear_stale(runtime_dir / SOCKET_NAME)


def peer_listening(path: Path) -> int | None:
    """Return the process that listens at `path`: 0 when it is unknown which, None when nobody does.

    Asks by connecting.  /proc/net/unix has the address as it was given to `bind`, which for a long path says
    nothing; and its entries stay when the file was replaced.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _address(path) as address:
            # Without this a full backlog would be waited for.
            probe.setblocking(False)
            probe.connect(address)
            pid: int = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            return pid
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except OSError:
        # Its backlog is full, or it speaks in datagrams: it is there.
        return 0


def _living_holder(descriptor: int) -> int:
    """Return the process that the lock file names, 0 if it lives no more.

    Between taking the lock and writing its number a new daemon is still known by the number of the last one.
    """
    for _ in range(_PATIENCE):
        pid = _written_pid(descriptor)
        if pid and _lives(pid):
            return pid
        time.sleep(_PAUSE_S)
    return 0


def _written_pid(descriptor: int) -> int:
    text = os.pread(descriptor, _PID_BYTES, 0).strip()
    return int(text) if text.isdigit() else 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _unwritable(path: Path, error: OSError) -> StoreUnavailable:
    if error.errno == errno.ELOOP:
        return StoreUnavailable(f"The lock {path} is a link.  Remove it.", path=str(path))
    return StoreUnavailable(f"The lock {path} cannot be written: {error.strerror}.", path=str(path))


def _problem(folder: Path, found: os.stat_result) -> str | None:
    """Return what is wrong with the socket's folder and how to mend it."""
    if stat.S_ISLNK(found.st_mode):
        return f"The socket's folder {folder} is a link.  Remove it."
    if not stat.S_ISDIR(found.st_mode):
        return f"The socket's folder {folder} is not a folder.  Remove it."
    if found.st_uid != os.geteuid():
        return f"The socket's folder {folder} belongs to another user (uid {found.st_uid}).  Remove it."
    if (mode := stat.S_IMODE(found.st_mode)) != 0o700:
        return f"Others can reach the socket's folder {folder} (mode {mode:04o}).  Type: chmod 700 {folder}"
    return None


def _clear_stale(path: Path) -> None:
    """Remove the socket file of a daemon that has gone, if there is one.  Raises: SocketHeld, UnsafePlace."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise UnsafePlace(f"{path} is in the way and no socket.  Remove it.", path=str(path))
    if found.st_uid != os.geteuid():
        raise UnsafePlace(f"{path} belongs to another user (uid {found.st_uid}).", path=str(path))
    if (pid := peer_listening(path)) is not None:
        raise SocketHeld(path, pid)
    path.unlink()


def _bound(path: Path) -> socket.socket:
    """Return a new socket bound to `path`.  Raises: OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file gets the mode of the socket, so there is no moment at which it has another.
        os.fchmod(sock.fileno(), 0o600)
        with _address(path) as address:
            sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _holder(pid: int) -> str:
    """Return whom to name as the listener."""
    name = command_name(pid)
    if name == "systemd":
        return f"A socket unit of systemd (process {pid})"
    return f"Process {pid} ({name or 'unknown'})" if pid else "Another process"


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield an address for `path` that the kernel takes, however long it is."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
