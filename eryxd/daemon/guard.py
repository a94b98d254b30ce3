"""Who is on the other end of the socket, and what that peer may call.

Everything eryx starts carries `NoNewPrivs: 1` for ever; a peer that has it counts as an agent and gets what
is `open`.  Every doubt is a mark, and a marked peer is refused.  It knows processes, not intentions: an agent
that gets another program of the user to type for it is not recognised here.
"""

import errno
import os
import select
import socket
import struct
from typing import Final, Protocol

import msgspec

from eryxd.api.access import Access
from eryxd.domain.errors import ForbiddenPeer

OTHER_USER: Final = "uid"
"""Mark: the peer runs as another user."""

NO_NEW_PRIVS: Final = "no-new-privs"
"""Mark: the peer was started by something that took its right to gain privileges, as eryx does."""

UNREADABLE: Final = "unreadable"
"""Mark: what /proc says about the peer cannot be read, or is not that of one process."""

GONE: Final = "gone"
"""Mark: the process that connected has ended, so its number may be another's."""

REASONS: Final = {
    OTHER_USER: "it runs as another user",
    NO_NEW_PRIVS: "it was started with no_new_privs, as agents are",
    UNREADABLE: "it cannot be identified",
    GONE: "the process that connected has ended",
}
"""What a refused peer is told about each mark."""

MAX_ANCESTORS: Final = 128
"""Longest line of parents that is followed.  An honest one has about ten."""

_SO_PEERPIDFD: Final = 77
"""Socket option of Linux 6.5: a handle of the process that connected.  Python has no name for it."""

_PROC_BYTES: Final = 16 * 1024
"""More than `stat` or `status` hold, so that one read gets all of it."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A process on the other end.  `start_time` is in clock ticks since boot; no `marks` means: a person."""

    pid: int
    uid: int
    start_time: int
    marks: tuple[str, ...] = ()


class HasDescriptor(Protocol):
    """A socket, or what a loop shows instead of one."""

    def fileno(self) -> int: ...


def identify(sock: HasDescriptor, own_uid: int) -> Peer:
    """Return who connected.  Total: what cannot be read is a mark; an unknown uid is -1."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(sock.fileno())) as connected:
            return _identify(connected, own_uid)
    except (OSError, struct.error):
        return Peer(pid=0, uid=-1, start_time=0, marks=(UNREADABLE,))


def recheck(peer: Peer) -> Peer:
    """Return what the peer is now: for a decision on a connection that has been open for long.

    A mark is never lost, and another process under the same number is unreadable.
    """
    start_time, marks = _examine(peer.pid)
    if not marks and start_time != peer.start_time:
        marks = (UNREADABLE,)
    return msgspec.structs.replace(peer, marks=tuple(dict.fromkeys(peer.marks + marks)))


def check(peer: Peer, access: Access) -> None:
    """Let the call pass, or raise.

    Raises: ForbiddenPeer -- the peer carries a mark, and the method is not `open`.
    """
    if access is not Access.OPEN and peer.marks:
        raise refusal(peer)


def refusal(peer: Peer) -> ForbiddenPeer:
    """Return what a marked peer is told.  `check` in the data is its first mark."""
    mark = peer.marks[0]
    return ForbiddenPeer(
        f"Process {peer.pid} may not call this: {REASONS[mark]} (check {mark!r}).", check=mark, pid=peer.pid
    )


def command_name(pid: int) -> str:
    """Return the name a process goes by, for people to read: it chose that itself.  Empty when unreadable."""
    try:
        name = _read(pid, "comm").decode(errors="replace")
    except OSError:
        return ""
    return "".join(c if c.isprintable() else "?" for c in name.removesuffix("\n"))


def ancestry(pid: int) -> tuple[int, ...]:
    """Return `pid`, its parent, and so on up to 1, as far as that can be read.  Says whose run an agent is of."""
    line: list[int] = []
    while pid > 0 and pid not in line and len(line) < MAX_ANCESTORS:
        line.append(pid)
        try:
            pid = int(_stat(pid)[_PARENT])
        except (OSError, ValueError, IndexError):
            break
    return tuple(line)


def _identify(connected: socket.socket, own_uid: int) -> Peer:
    pid, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != own_uid:
        return Peer(pid=pid, uid=uid, start_time=0, marks=(OTHER_USER,))
    start_time, marks = _examine(pid)
    # Asked last: while the process lives nobody else has its number, so what was read before is its own.
    if not marks and _has_ended(connected):
        marks = (GONE,)
    return Peer(pid=pid, uid=uid, start_time=start_time, marks=marks)


def _examine(pid: int) -> tuple[int, tuple[str, ...]]:
    """Return the start time of a process and its marks."""
    try:
        start_time = int(_stat(pid)[_START_TIME])
        marked = _no_new_privs(pid)
        same = int(_stat(pid)[_START_TIME]) == start_time
    except (OSError, ValueError, IndexError):
        return 0, (UNREADABLE,)
    if not same:
        return start_time, (UNREADABLE,)
    return start_time, (NO_NEW_PRIVS,) if marked else ()


_PARENT: Final = 1
_START_TIME: Final = 19
"""Places in /proc/PID/stat, counted from the state, which is behind the name."""


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on.  Raises: OSError, ValueError."""
    text = _read(pid, "stat")
    # The name may hold brackets and blanks, so the fields begin behind the last bracket.
    return text[text.rindex(b")") + 2 :].split()


def _no_new_privs(pid: int) -> bool:
    """Whether the process can gain no privileges.  Raises: OSError; ValueError -- the kernel does not say."""
    # The name stands in the first line, with its line breaks escaped: it cannot pass for this one.
    _, found, rest = _read(pid, "status").partition(b"\nNoNewPrivs:\t")
    if not found:
        raise ValueError("no NoNewPrivs in /proc/PID/status")
    return int(rest[: rest.index(b"\n")]) != 0


def _read(pid: int, name: str) -> bytes:
    """Return a small file of /proc/PID whole.  Raises: OSError.  No pathlib: every decision comes through here."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PROC_BYTES)
    finally:
        os.close(descriptor)


def _has_ended(connected: socket.socket) -> bool:
    """Whether the process that connected has ended.  Before Linux 6.5 nobody can tell, and it counts as alive."""
    try:
        handle = struct.unpack("i", connected.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))[0]
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return bool(ended.poll(0))
    finally:
        os.close(handle)
