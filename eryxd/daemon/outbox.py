"""What is on its way to one client: gathered for a turn of the loop, written at once, in order."""

import asyncio
from typing import Final

FULL_BYTES: Final = 64 * 1024
"""How much one turn gathers before it is written all the same."""


class Outbox:
    """Frames for one transport.  A write for each would cost a system call for each."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._frames: list[bytes] = []
        self._gathered_bytes = 0
        self._held = False

    @property
    def unread_bytes(self) -> int:
        """How much the client has not taken yet, apart from what the kernel holds."""
        return self._gathered_bytes + self._transport.get_write_buffer_size()

    def put(self, data: bytes) -> None:
        """Send whole frames, at the latest in the next turn of the loop."""
        if not self._frames and not self._held:
            self._loop.call_soon(self.flush)
        self._frames.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > FULL_BYTES:
            self.flush()

    def hold(self) -> None:
        """Gather until `release`, without waiting for the next turn."""
        self._held = True

    def release(self) -> None:
        """Write what was gathered, and go on as usual."""
        self._held = False
        self.flush()

    def flush(self) -> None:
        """Hand over what was gathered.  A transport that is closed already drops it."""
        if not self._frames:
            return
        data = self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
        self._frames.clear()
        self._gathered_bytes = 0
        if not self._transport.is_closing():
            self._transport.write(data)
