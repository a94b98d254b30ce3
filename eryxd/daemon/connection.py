"""One client on the socket: frames in, answers and events out, all in order.

Laws: every request that is handed over is answered once, unless the connection ends first; a client that
does not read its answers is not read from.  Knows no method: the handler does.
"""

import asyncio
import logging
import select
from collections import deque
from typing import Final, Protocol, cast

from eryxd.daemon.guard import HasDescriptor, Peer, identify
from eryxd.daemon.limits import RETRY_MS, Limits
from eryxd.daemon.outbox import Outbox
from eryxd.domain.errors import BadFrame, Busy, ErrorCode, EryxError, Internal
from eryxd.wire.framing import FrameReader
from eryxd.wire.peer import (
    CONNECTION,
    Request,
    decode_request,
    encode_error,
    encode_error_text,
    encode_reply,
    message_id,
)

_FATAL: Final = frozenset({ErrorCode.BAD_FRAME, ErrorCode.FRAME_TOO_LARGE})
"""After these nobody can say where the next frame begins, or what its sender is."""

_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What the encoder raises for a value that has no place on the wire."""

log = logging.getLogger("eryxd.server")


class Handler(Protocol):
    """What the daemon does with a connection.  Called on the loop; must not block."""

    def connected(self, conn: "Connection") -> None:
        """Welcome a client that passed the limits and runs as our user; `conn.peer` may still be marked."""

    def request(self, conn: "Connection", request: Request) -> None:
        """Answer now or later, once, by `conn.reply` or `conn.fail`; an EryxError raised here is a `fail`."""

    def closed(self, conn: "Connection") -> None:
        """Forget a client that was `connected`.  What is still in flight finds nobody."""


class House(Protocol):
    """What a connection needs from its server."""

    handler: Handler
    limits: Limits
    own_uid: int
    receive_buffer: bytearray

    def admit(self, conn: "Connection") -> EryxError | None:
        """Count the connection in, or return why it cannot be."""

    def forget(self, conn: "Connection") -> None:
        """Count the connection out."""


class Connection(asyncio.BufferedProtocol):
    """A client.  Reads into one buffer that all connections share: nothing is awaited while it is in use."""

    def __init__(self, house: House) -> None:
        self.peer: Peer
        self.client_name = ""
        self.errors_as_text = False
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = FrameReader(house.limits.frame_bytes)
        self._frames: deque[bytes] = deque()
        self._in_flight: set[int] = set()
        self._out: Outbox
        self._admitted = False
        self._closing = False
        self._ended = False
        self._paused = False
        self._serving = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closing

    def reply(self, msgid: int, result: object) -> None:
        """Answer a request.  `result` is a record, or what msgspec can write."""
        if not self._settle(msgid):
            return
        try:
            frame = encode_reply(msgid, result, self._encode_error)
        except _UNWRITABLE:
            log.exception("The reply to a request has no place on the wire.")
            frame = self._encode_error(msgid, _internal())
        self.send(frame)
        self._finish()

    def fail(self, msgid: int, error: EryxError) -> None:
        """Refuse a request.  A `bad_frame` or `frame_too_large` ends the connection."""
        if self._settle(msgid):
            self._refuse(msgid, error)
            self._finish()

    def send(self, data: bytes) -> None:
        """Send whole frames.  What is sent in one turn of the loop is written together."""
        if self._closing:
            return
        if self._paused and self.write_buffer_size() > self._house.limits.unread_bytes:
            log.warning("Process %d does not read what it asked for: cut off.", self.peer.pid)
            self._abort()
            return
        self._out.put(data)

    def write_buffer_size(self) -> int:
        """Return how many bytes the client has not taken yet, apart from what the kernel holds."""
        return 0 if self._closing else self._out.unread_bytes

    def close(self) -> None:
        """Hang up once what was sent has been read; a client that takes too long over it is cut off."""
        if self._closing:
            return
        self._out.flush()
        self._closing = True
        self._disarm()
        self._transport.close()
        self._deadline = self._loop.call_later(self._house.limits.linger_s, self._transport.abort)

    # From here on: what the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._out = Outbox(self._transport)
        self.peer = identify(self._socket(), self._house.own_uid)
        if refused := self._house.admit(self):
            # Sent before any request was read: a first request that is numbered 0 gets it as its answer.
            self._refuse(CONNECTION, refused)
            self.close()
            return
        self._admitted = True
        try:
            self._house.handler.connected(self)
        except Exception:
            log.exception("A client could not be welcomed.")
            self.close()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._house.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._reader.feed(memoryview(self._house.receive_buffer)[:nbytes])
        if frames:
            self._frames += frames
            self._disarm()
        if self._reader.incomplete:
            self._arm()
        self._advance()

    def eof_received(self) -> bool:
        """Keep the connection for what is still to be answered, unless the client has gone altogether."""
        self._ended = True
        self._disarm()
        self._advance()
        if _has_hung_up(self._socket()):
            self.close()
        return not self._closing

    def pause_writing(self) -> None:
        self._paused = True
        # The client cannot complete its frame while it is not read from.
        self._disarm()
        if not self._ended and not self._closing:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._closing:
            return
        if not self._ended:
            self._transport.resume_reading()
            self._arm()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._disarm()
        self._in_flight.clear()
        if not self._admitted:
            return
        self._house.forget(self)
        try:
            self._house.handler.closed(self)
        except Exception:
            log.exception("A client that left could not be forgotten.")

    def _advance(self) -> None:
        """Serve what was read, as long as the client reads its answers; then see whether that was all."""
        if self._serving:
            return
        self._serving = True
        self._out.hold()
        while self._frames and not self._paused and not self._closing:
            self._serve(self._frames.popleft())
        self._out.release()
        self._serving = False
        if self._reader.failure and not self._frames:
            self._refuse(message_id(self._reader.head) or CONNECTION, self._reader.failure)
        self._finish()

    def _serve(self, frame: bytes) -> None:
        try:
            request = decode_request(frame)
        except EryxError as error:
            msgid = error.data.get("msgid", CONNECTION)
            self._refuse(cast(int, msgid), error)
            return
        if self._is_taken(request.msgid):
            return
        self._in_flight.add(request.msgid)
        try:
            self._house.handler.request(self, request)
        except EryxError as error:
            self.fail(request.msgid, error)
        except Exception:
            log.exception("A request failed.")
            if request.msgid in self._in_flight:
                self.fail(request.msgid, _internal())

    def _is_taken(self, msgid: int) -> bool:
        """Refuse a request that cannot be told from one in flight, or that is one too many."""
        if msgid in self._in_flight:
            self._refuse(msgid, BadFrame("A request with this id is still in flight.", msgid=msgid))
            return True
        limit = self._house.limits.in_flight
        if len(self._in_flight) >= limit:
            error = Busy(f"{limit} requests are in flight on this connection.", retry_ms=RETRY_MS)
            self._refuse(msgid, error)
            return True
        return False

    def _settle(self, msgid: int) -> bool:
        """Count a request as answered.  False when nobody waits for it."""
        if self._closing:
            return False
        if msgid not in self._in_flight:
            log.error("Request %d was answered twice, or never made.", msgid)
            return False
        self._in_flight.remove(msgid)
        return True

    def _refuse(self, msgid: int, error: EryxError) -> None:
        self.send(self._encode_error(msgid, error))
        if error.code in _FATAL:
            self.close()

    def _encode_error(self, msgid: int, error: EryxError) -> bytes:
        encode = encode_error_text if self.errors_as_text else encode_error
        try:
            return encode(msgid, error)
        except _UNWRITABLE:
            log.exception("An error has no place on the wire.")
            return encode(msgid, _internal())

    def _finish(self) -> None:
        """Hang up on a client that asks no more and has all its answers."""
        if self._ended and not (self._in_flight or self._frames or self._serving):
            self.close()

    def _arm(self) -> None:
        """Give a frame that has begun its time."""
        if self._deadline is None and self._reader.incomplete and not self._paused:
            self._deadline = self._loop.call_later(self._house.limits.incomplete_s, self.close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self._closing = True
        self._disarm()
        self._transport.abort()

    def _socket(self) -> HasDescriptor:
        return cast(HasDescriptor, self._transport.get_extra_info("socket"))


def _internal() -> EryxError:
    return Internal("Something went wrong inside the daemon; its log says what.")


def _has_hung_up(sock: HasDescriptor) -> bool:
    """Whether the other side can read no more either, so that answers would find nobody."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
