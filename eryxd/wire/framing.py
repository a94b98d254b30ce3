"""Frames on the socket: consecutive MessagePack-RPC arrays, no length prefix.

Knows nothing of methods or sockets, builds no values, and never raises: what is wrong with the stream is its
state.  Law: any chunking of the bytes yields the same frames and the same `failure`; the frames before the
fault are handed out, nothing after it.
"""

from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from eryxd.domain.errors import BadFrame, FrameTooLarge
from eryxd.wire.tokens import BIN, EXT, RESERVED, STRING, WHOLE, read_header

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""Largest frame a client may send.  A pattern with 500 tools is 20 kB; this leaves room for long prompts."""

MAX_REPLY_BYTES: Final = 8 * 1024 * 1024
"""Largest frame the daemon sends.  What can be longer comes in pages."""

LOOK_AHEAD_BYTES: Final = 256
"""How much of an unfinished frame is searched for a length that cannot fit: where a client's text begins."""

KEPT_BYTES: Final = 64 * 1024
"""Memory a resting connection may keep.  After a larger frame the parser is replaced, for it never shrinks."""

HEAD_BYTES: Final = 32
"""How much of a broken frame is kept: enough for its message id."""


class FrameReader:
    """Cuts a stream into frames.  Work is linear in the bytes, however small the pieces they come in."""

    def __init__(self, limit_bytes: int = MAX_REQUEST_BYTES) -> None:
        self.failure: BadFrame | FrameTooLarge | None = None
        """What is wrong with the stream.  Once set, nothing more is read."""
        self._limit = limit_bytes
        self._pending = bytearray()
        self._looked = 0
        self._passed = 0
        self._unpacker = self._new_unpacker()

    @property
    def incomplete(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._pending)

    @property
    def head(self) -> bytes:
        """The first bytes of the frame that is incomplete or broken: whom to tell may be read from them."""
        return bytes(self._pending[:HEAD_BYTES])

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take what arrived and return the frames that it completes.  `data` may be reused afterwards."""
        frames: list[bytes] = []
        rest = memoryview(data)
        while len(rest) and self.failure is None:
            # No byte past the limit of the current frame is parsed.  What lies there would otherwise be
            # judged when it comes in one piece with the frame, and not when it comes later.
            room = self._limit - len(self._pending)
            self._take(rest[:room], frames)
            rest = rest[room:]
        return frames

    def _take(self, piece: memoryview, frames: list[bytes]) -> None:
        pending, unpacker, start = self._pending, self._unpacker, 0
        unpacker.feed(piece)
        pending += piece
        try:
            while start < len(pending):
                unpacker.skip()
                end = unpacker.tell() - self._passed
                frames.append(bytes(pending[start:end]))
                start = end
        except msgpack.OutOfData:
            self._forget(start)
            if len(pending) >= self._limit or self._announces_too_much():
                self.failure = self._too_large()
        except (msgpack.FormatError, msgpack.StackError):
            self._forget(start)
            # Announced first, noticed first: had the bytes come one by one, the length had been refused.
            self.failure = (
                self._too_large()
                if self._announces_too_much()
                else BadFrame("The bytes are not MessagePack, or nest too deep.")
            )
        else:
            self._forget(start)

    def _forget(self, count: int) -> None:
        """Drop the frames at the front of what is pending; they have been handed out."""
        if not count:
            return
        del self._pending[:count]
        self._passed += count
        self._looked = 0
        if count > KEPT_BYTES and not self._pending:
            self._passed = 0
            self._unpacker = self._new_unpacker()

    def _new_unpacker(self) -> Any:
        return msgpack.Unpacker(max_buffer_size=self._limit, read_size=min(self._limit, KEPT_BYTES // 4))

    def _announces_too_much(self) -> bool:
        """Whether a header near the start of the pending frame announces more than fits into the limit.

        Every value takes a byte at least, so a count is a length too.  Resumes where it stopped.  Gives up at
        what no request may hold; for the longest ext type the parser and the specification do not agree.
        """
        pending = self._pending
        while self._looked < min(len(pending), LOOK_AHEAD_BYTES):
            if step := WHOLE[pending[self._looked]]:
                self._looked += step
                continue
            header = read_header(pending, self._looked)
            if header is None:
                return False
            form, body_at, count = header
            if form in (EXT, RESERVED):
                self._looked = LOOK_AHEAD_BYTES
            elif body_at + count > self._limit:
                return True
            else:
                self._looked = body_at + count if form in (STRING, BIN) else body_at
        return False

    def _too_large(self) -> FrameTooLarge:
        return FrameTooLarge(f"A frame is larger than {self._limit} bytes.", limit_bytes=self._limit)
