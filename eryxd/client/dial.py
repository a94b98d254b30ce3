"""Reach the daemon's socket, after checking who could be behind it.

Law: no byte is sent before the socket's folder and the listening process have proven to be ours.
"""

import os
import socket
import stat
import struct
from typing import Final

from eryxd.client.errors import ConnectionLost, DaemonNotRunning, RemoteError, UntrustedSocket
from eryxd.domain.errors import ErrorCode

MAX_ADDRESS_BYTES: Final = 100
"""Longest path that is used as the address itself; the kernel takes 107.  The daemon draws the same line."""

CONNECT_TIMEOUT_S: Final = 60.0
"""Never waited for in practice: with a time-out set, the kernel reports a full backlog at once."""


def open_socket(path: str) -> socket.socket:
    """Connect to the daemon at `path` after checking who could be there.

    Raises: DaemonNotRunning, UntrustedSocket, ConnectionLost; RemoteError `busy` -- its backlog is full.
    """
    path = os.path.abspath(path)
    _check_folder(path)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(CONNECT_TIMEOUT_S)
        _connect(connected, path)
        _check_peer(connected, path)
    except BaseException:
        connected.close()
        raise
    return connected


def _check_folder(path: str) -> None:
    """Check that nobody else can put a socket at `path`."""
    folder = os.path.dirname(path)
    try:
        found = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise DaemonNotRunning(path) from None
    except OSError as error:
        raise UntrustedSocket(f"The socket's folder {folder} cannot be checked: {error.strerror}.") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UntrustedSocket(f"The socket's folder {folder} is a link or a file.  Remove it.")
    if found.st_uid != os.getuid():
        raise UntrustedSocket(f"The socket's folder {folder} belongs to another user (uid {found.st_uid}).")
    if (mode := stat.S_IMODE(found.st_mode) & 0o777) != 0o700:
        raise UntrustedSocket(f"Others can reach {folder} (mode {mode:04o}).  Type: chmod 700 {folder}")


def _connect(connected: socket.socket, path: str) -> None:
    try:
        _connect_anywhere(connected, path)
    except (FileNotFoundError, ConnectionRefusedError):
        raise DaemonNotRunning(path) from None
    except BlockingIOError:
        raise RemoteError(ErrorCode.BUSY, "The daemon has too many connections waiting.", {"retry_ms": 10}) from None
    except PermissionError:
        raise UntrustedSocket(f"The socket {path} belongs to another user.") from None
    except OSError as error:
        raise ConnectionLost(f"The socket {path} cannot be reached: {error.strerror or error}.") from error


def _connect_anywhere(connected: socket.socket, path: str) -> None:
    """Connect, however long the path: a long one is reached through a descriptor of its folder."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        connected.connect(path)
        return
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        connected.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _check_peer(connected: socket.socket, path: str) -> None:
    """Check that the process that listens (systemd, for an activated daemon) runs as the same user."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    if uid != os.getuid():
        raise UntrustedSocket(f"The daemon on {path} runs as another user (uid {uid}).")
