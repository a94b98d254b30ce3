"""A child's pipes on the loop: its output drained into bounded memory, its input fed as fast as it reads.

Laws: a drain never makes the writer wait for more than a turn of the loop, and never holds more than its
limit and two chunks; what it keeps is the beginning and the end.
"""

import asyncio
import os
from typing import IO, Final

CHUNK_BYTES: Final = 64 * 1024
"""Most that is read or written in one turn of the loop: what a pipe holds by default."""


class BothEnds:
    """The beginning and the end of a stream of bytes, at most `limit_bytes` together."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = limit_bytes // 2
        self._tail_bytes = limit_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self._total += len(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._tail_bytes + CHUNK_BYTES:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(len(self._tail) - self._tail_bytes, 0)]

    def value(self) -> bytes:
        """Return what is kept; where something is missing, that is after `limit_bytes // 2`."""
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def missing_bytes(self) -> int:
        """How much of the stream is not in `value`."""
        return max(self._total - self._head_bytes - self._tail_bytes, 0)


class Drain:
    """Reads a pipe to its end.  `ended` is done when the last writer has closed it, or we have."""

    def __init__(self, pipe: IO[bytes], limit_bytes: int) -> None:
        self.kept = BothEnds(limit_bytes)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self.kept.add(data)
        else:
            self.close()

    def close(self) -> None:
        """Read no more.  Closing twice is fine."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
        if not self.ended.done():
            self.ended.set_result(None)


class Feed:
    """Writes to a pipe what a child is to read, then closes it; a child that reads less is no error."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._rest = memoryview(data)
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._write)

    def _write(self) -> None:
        try:
            written = os.write(self._pipe.fileno(), self._rest[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:
            written = len(self._rest)
        self._rest = self._rest[written:]
        if not self._rest:
            self.close()

    def close(self) -> None:
        """Write no more.  Closing twice is fine."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()
