"""The real server on a real socket, in a thread, with a handler whose methods show what the server does."""

import asyncio
import importlib.util
import os
import queue
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgpack  # type: ignore[import-untyped]

from eryxd.daemon.server import Connection, Limits, Server
from eryxd.daemon.single import bind_socket, prepare_runtime
from eryxd.domain.errors import Conflict
from eryxd.wire.peer import Request, encode_event

T = TypeVar("T")

PATIENCE_S: Final = 20.0
"""Longest wait for anything.  Only a failure takes that long."""

LOOPS: Final = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


class Rehearsal:
    """A handler.  `later` is answered by `release`; the other methods do at once what they are called."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[Connection] = queue.Queue()
        self.left: queue.Queue[Connection] = queue.Queue()
        self.served = 0
        self._held: list[tuple[Connection, int]] = []

    def connected(self, conn: Connection) -> None:
        self.arrived.put(conn)

    def closed(self, conn: Connection) -> None:
        self.left.put(conn)

    def request(self, conn: Connection, request: Request) -> None:
        self.served += 1
        getattr(self, f"do_{request.method}")(conn, request.msgid, msgpack.unpackb(bytes(request.params)))

    def do_echo(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, arguments)

    def do_later(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        self._held.append((conn, msgid))

    def do_release(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        for held, held_msgid in self._held:
            held.reply(held_msgid, "released")
        self._held.clear()
        conn.reply(msgid, True)

    def do_refuse(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        raise Conflict("Changed meanwhile.", revision=2)

    def do_crash(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        raise RuntimeError("a secret of the inside")

    def do_crash_late(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, "answered")
        raise RuntimeError("a secret of the inside")

    def do_twice(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, "first")
        conn.reply(msgid, "second")

    def do_odd(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, object())

    def do_odd_refusal(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        raise Conflict("Changed meanwhile.", what=object())

    def do_big(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, "x" * arguments["size"])

    def do_text(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.errors_as_text = True
        conn.reply(msgid, True)

    def do_events(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        for seq in range(arguments["before"]):
            conn.send(encode_event(msgpack.packb({"seq": seq})))
        conn.reply(msgid, "subscribed")
        conn.send(encode_event(msgpack.packb({"seq": "after"})))

    def do_hang_up(self, conn: Connection, msgid: int, arguments: dict[str, Any]) -> None:
        conn.reply(msgid, "bye")
        conn.close()


class Client:
    """A client of few lines: msgpack and a socket."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            # Without a time-out yet: with one, a full backlog is an error at once.
            self.sock.connect(str(path))
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(PATIENCE_S)
        self._unpacker = msgpack.Unpacker(max_buffer_size=2**26)

    def send(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def read(self) -> Any:
        """Return the next frame.  Raises: EOFError."""
        while True:
            try:
                return self._unpacker.unpack()
            except msgpack.OutOfData:
                try:
                    chunk = self.sock.recv(65536)
                except ConnectionResetError:
                    chunk = b""
                if not chunk:
                    raise EOFError from None
                self._unpacker.feed(chunk)

    def rest(self) -> list[Any]:
        """Return what comes until the daemon hangs up."""
        frames = []
        while True:
            try:
                frames.append(self.read())
            except EOFError:
                return frames

    def ask(self, method: str, **arguments: Any) -> Any:
        """Return `[1, msgid, error, result]`."""
        self.send(frame(method, **arguments))
        return self.read()


def frame(method: str, msgid: int = 1, **arguments: Any) -> bytes:
    return bytes(msgpack.packb([0, msgid, method, [arguments]]))


def result(value: Any, msgid: int = 1) -> list[Any]:
    return [1, msgid, None, value]


def code_of(response: Any) -> tuple[int, str]:
    """Return message id and error code of a refusal."""
    _, msgid, error, nothing = response
    assert nothing is None
    return msgid, error["code"]


class House:
    """A server that runs, and a way to talk to it from outside and inside."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, handler: Rehearsal, path: Path) -> None:
        self.server = server
        self.handler = handler
        self.path = path
        self._loop = loop
        self._clients: list[Client] = []

    def client(self) -> Client:
        """Return a client that the server has let in."""
        client = self.stranger()
        self.handler.arrived.get(timeout=PATIENCE_S)
        return client

    def stranger(self) -> Client:
        """Return a client that may be refused."""
        client = Client(self.path)
        self._clients.append(client)
        return client

    def wait_until_left(self) -> Connection:
        return self.handler.left.get(timeout=PATIENCE_S)

    def inside(self, act: Callable[[], T]) -> T:
        """Do something on the server's loop."""

        async def acted() -> T:
            return act()

        return self.run(acted)

    def run(self, act: Callable[[], Awaitable[T]]) -> T:
        async def acted() -> T:
            return await act()

        return asyncio.run_coroutine_threadsafe(acted(), self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self.run(self.server.stop)
        for client in self._clients:
            client.sock.close()


@contextmanager
def serving(folder: Path, loop_kind: str, limits: Limits, own_uid: int = os.getuid()) -> Iterator[House]:
    """Run a server in a thread until the test is over."""
    prepare_runtime(folder)
    handler = Rehearsal()
    ready: queue.Queue[tuple[asyncio.AbstractEventLoop, Server, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        over = asyncio.Event()
        server = Server(bind_socket(folder), handler, limits, own_uid)
        await server.start()
        ready.put((asyncio.get_running_loop(), server, over))
        await over.wait()

    thread = threading.Thread(target=_run, args=(serve, loop_kind), daemon=True)
    thread.start()
    loop, server, over = ready.get(timeout=PATIENCE_S)
    house = House(loop, server, handler, folder / "eryxd.sock")
    try:
        yield house
    finally:
        house.close()
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def _run(serve: Callable[[], Any], loop_kind: str) -> None:
    factory = None
    if loop_kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve())
