"""The socket's server: who is let in, and how it ends.

A refused connection is told why at once, in an error response with message id 0, and closed: waiting for its
first request would hold what it was refused for.
"""

import asyncio
import logging
import resource
import socket
import sys
from collections import Counter
from typing import Final

from eryxd.daemon.connection import Connection, Handler
from eryxd.daemon.guard import refusal
from eryxd.daemon.limits import RETRY_MS, Limits
from eryxd.domain.errors import Busy, EryxError, ShuttingDown

__all__ = ["Connection", "Handler", "Limits", "Server"]

BACKLOG: Final = 64
"""Connections that wait to be accepted.  Small, because a loop out of descriptors complains once for each."""

RECEIVE_BYTES: Final = 16 * 1024
"""How much is read at once: bounds the requests that one turn of the loop serves for one client.

Fixed, because the default of asyncio allocates 256 KiB for every read, which costs more than the request.
"""

log = logging.getLogger("eryxd.server")


class Server:
    """Accepts connections on a bound socket and keeps count of them."""

    def __init__(self, sock: socket.socket, handler: Handler, limits: Limits, own_uid: int) -> None:
        self.handler = handler
        self.limits = limits
        self.own_uid = own_uid
        self.receive_buffer = bytearray(RECEIVE_BYTES)
        self._sock = sock
        self._most = _most_connections(limits)
        self._open: set[Connection] = set()
        self._per_peer: Counter[int] = Counter()
        self._marked = 0
        self._listener: asyncio.Server | None = None
        self._stopping = False
        self._told_full = False
        self._all_gone = asyncio.Event()

    async def start(self) -> None:
        """Listen.  The socket file stays whoever made it: nothing here removes it."""
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 13):
            self._listener = await loop.create_unix_server(
                self._connection, sock=self._sock, backlog=BACKLOG, cleanup_socket=False
            )
        else:
            self._listener = await loop.create_unix_server(self._connection, sock=self._sock, backlog=BACKLOG)

    async def stop(self) -> None:
        """Accept no more, send what is written, hang up.  Ends within a second of `linger_s`."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._open):
            connection.close()
        if not self._open:
            return
        try:
            async with asyncio.timeout(self.limits.linger_s + 1):
                await self._all_gone.wait()
        except TimeoutError:
            log.error("%d connections did not end.", len(self._open))

    def admit(self, conn: Connection) -> EryxError | None:
        """Count a connection in, or return why it cannot be."""
        if refused := self._objection(conn):
            return refused
        self._open.add(conn)
        self._per_peer[conn.peer.pid] += 1
        self._marked += bool(conn.peer.marks)
        return None

    def forget(self, conn: Connection) -> None:
        """Count a connection out."""
        self._open.discard(conn)
        self._per_peer[conn.peer.pid] -= 1
        self._marked -= bool(conn.peer.marks)
        if not self._per_peer[conn.peer.pid]:
            del self._per_peer[conn.peer.pid]
        if len(self._open) < self._most // 2:
            self._told_full = False
        if self._stopping and not self._open:
            self._all_gone.set()

    def _connection(self) -> Connection:
        return Connection(self)

    def _objection(self, conn: Connection) -> EryxError | None:
        if conn.peer.uid != self.own_uid:
            return refusal(conn.peer)
        if self._stopping:
            return ShuttingDown("The daemon is stopping.")
        if len(self._open) >= self._most:
            self._tell_full()
            return Busy(f"All {self._most} connections are taken.", retry_ms=RETRY_MS)
        if conn.peer.marks and self._marked >= self.limits.marked:
            return Busy(f"Agents have {self.limits.marked} connections already.", retry_ms=RETRY_MS)
        if self._per_peer[conn.peer.pid] >= self.limits.per_peer:
            limit = self.limits.per_peer
            return Busy(f"Process {conn.peer.pid} has {limit} connections already.", retry_ms=RETRY_MS)
        return None

    def _tell_full(self) -> None:
        """Log once until half of the connections are free again: a flood must not fill the log."""
        if not self._told_full:
            self._told_full = True
            log.warning("All %d connections are taken; more are refused.", self._most)


def _most_connections(limits: Limits) -> int:
    """Return how many connections fit: half of the descriptors stay for the store and for children."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits.connections
    return min(limits.connections, descriptors // 2)
