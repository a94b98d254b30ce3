"""The least that a daemon can be: asyncio, one Unix socket, and every byte sent back.

A script, run by path, that imports nothing else of ours: it is a baseline.  It reads into a fixed buffer, because
asyncio's default allocates 256 KiB for every read and would make any goal look easy.
"""

import asyncio
import os
import signal


class Echo(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


async def main() -> None:
    """Serve until told to stop."""
    os.chdir(os.path.join(os.environ["ERYX_HOME"], "run"))
    buffer = bytearray(16 * 1024)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    server = await loop.create_unix_server(lambda: Echo(buffer), "eryxd.sock")
    async with server:
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(main())
