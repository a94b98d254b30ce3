"""One connection to the daemon: MessagePack-RPC frames, one request at a time.

Laws: any chunking of the bytes gives the same frames; an event that arrives between a request and its reply
is neither lost nor reordered.  Knows no method and trusts the socket it is given.
"""

import socket
import time
from collections import deque
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from eryxd.client.errors import BadReply, ConnectionLost, RemoteError, TimedOut
from eryxd.domain.errors import ErrorCode

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""Largest frame that the daemon takes from a client."""

MAX_REPLY_BYTES: Final = 8 * 1024 * 1024
"""Largest frame that the daemon may send; what is longer comes in pages."""

_CHUNK_BYTES: Final = 64 * 1024

_FATAL: Final = frozenset({ErrorCode.BAD_FRAME, ErrorCode.FRAME_TOO_LARGE})
"""Refusals after which the daemon hangs up."""

Event = dict[str, Any]
"""One event as it came: `type`, for durable ones `seq` and `at`, and the record under its name."""


class Channel:
    """A connection.  It closes itself when a request ends without its reply, so that no later one gets it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._unpacker = msgpack.Unpacker(max_buffer_size=MAX_REPLY_BYTES + _CHUNK_BYTES)
        self._received_bytes = 0
        self._frame_start = 0
        # The first number is 0, so that a refusal sent before any request was read finds its request.
        self._next_id = 0
        self._events: deque[Event] = deque()

    @property
    def closed(self) -> bool:
        """Whether it was hung up."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Hang up.  Idempotent."""
        self._socket.close()

    def request(self, method: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        """Send one request and return its result; events that come meanwhile are kept for `next_event`.

        Raises: RemoteError, ConnectionLost, BadReply, TimedOut.
        """
        frame = _frame(self._next_id, method, arguments)
        deadline = _deadline(timeout_s)
        try:
            self._send(frame, deadline)
            error, result = self._reply(deadline)
        except BaseException:
            self.close()
            raise
        if error is None:
            return result
        refusal = _refusal(error)
        if refusal.code in _FATAL:
            self.close()
        raise refusal

    def next_event(self, timeout_s: float | None) -> Event:
        """Return the next event in the order of arrival.  Raises: ConnectionLost, BadReply, TimedOut."""
        deadline = _deadline(timeout_s)
        while not self._events:
            match self._receive(deadline):
                case [2, "event", events]:
                    self._events.extend(events)
        return self._events.popleft()

    def _reply(self, deadline: float | None) -> tuple[Any, Any]:
        """Return error and result of the open request; a refusal without a number is about the connection."""
        msgid = self._next_id
        self._next_id += 1
        while True:
            match self._receive(deadline):
                case [2, "event", events]:
                    self._events.extend(events)
                case [1, answered, error, result] if answered == msgid:
                    return error, result
                case [1, None, error, result] if error is not None:
                    return error, result

    def _send(self, frame: bytes, deadline: float | None) -> None:
        self._socket.settimeout(_left(deadline))
        try:
            self._socket.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            # The daemon hung up; why it did may still be waiting to be read.
            return
        except TimeoutError:
            raise TimedOut() from None

    def _receive(self, deadline: float | None) -> list[Any]:
        """Return the next frame: `[1, msgid, error, result]` or `[2, method, params]`."""
        while True:
            try:
                frame = self._unpacker.unpack()
            except msgpack.OutOfData:
                self._check_size(self._received_bytes)
                self._feed(deadline)
                continue
            except (ValueError, msgpack.UnpackException) as error:
                raise BadReply(f"What the daemon sent is not MessagePack: {error}.") from error
            end = self._unpacker.tell()
            self._check_size(end)
            self._frame_start = end
            return _checked(frame)

    def _feed(self, deadline: float | None) -> None:
        self._socket.settimeout(_left(deadline))
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise TimedOut() from None
        except OSError as error:
            raise ConnectionLost(f"The connection to the daemon broke: {error.strerror}.") from error
        if not chunk:
            raise ConnectionLost("The daemon closed the connection.  See: eryx daemon logs")
        self._received_bytes += len(chunk)
        self._unpacker.feed(chunk)

    def _check_size(self, end: int) -> None:
        if end - self._frame_start > MAX_REPLY_BYTES:
            raise BadReply(f"A reply of the daemon is larger than {MAX_REPLY_BYTES} bytes.")


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _left(deadline: float | None) -> float | None:
    """Return the seconds left, None for without end.  Raises: TimedOut."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut()
    return left


def _frame(msgid: int, method: str, arguments: dict[str, Any]) -> bytes:
    try:
        frame: bytes = msgpack.packb([0, msgid, method, [arguments] if arguments else []])
    except (ValueError, OverflowError) as error:
        # Text from a command line can hold bytes that are not UTF-8.
        raise RemoteError(ErrorCode.INVALID_PARAMS, f"An argument cannot be sent: {error}.") from error
    if len(frame) > MAX_REQUEST_BYTES:
        raise RemoteError(ErrorCode.FRAME_TOO_LARGE, f"The request is larger than {MAX_REQUEST_BYTES} bytes.")
    return frame


def _checked(frame: Any) -> list[Any]:
    """Return the frame if it has the shape of a response or a notification."""
    match frame:
        case [1, int() | None, _, _] | [2, str(), list()]:
            return list(frame)
    raise BadReply("The daemon sent a frame that is neither a response nor a notification.")


def _refusal(error: Any) -> RemoteError:
    """Return the error of a response as an exception; it is a map, or `code: message` as text."""
    if isinstance(error, dict):
        data = error.get("data")
        code = error.get("code", ErrorCode.INTERNAL)
        return RemoteError(code, str(error.get("message", "")), data if isinstance(data, dict) else None)
    code, colon, message = str(error).partition(": ")
    return RemoteError(code, message) if colon else RemoteError(ErrorCode.INTERNAL, str(error))
