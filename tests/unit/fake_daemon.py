"""A daemon of a hundred lines for tests of the client: a real Unix socket, a thread per connection, msgpack.

What it answers is a table of functions.  It keeps to the protocol unless a function breaks it on purpose.
"""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgpack  # type: ignore[import-untyped]

WAIT_S = 10.0
"""Bound of every wait here; reached only by a test that fails."""


class Refuse(Exception):
    """Raised by a handler: answer with this error, which is a map or a text."""

    def __init__(self, error: Any) -> None:
        super().__init__(error)
        self.error = error


class NoAnswer(Exception):
    """Raised by a handler that answers nothing, or has sent its bytes itself."""


class HangUp(Exception):
    """Raised by a handler: close the connection without a word."""


class Peer:
    """The daemon's end of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.msgid = 0

    def send(self, frame: Any) -> None:
        self.socket.sendall(msgpack.packb(frame))

    def event(self, **fields: Any) -> None:
        self.send([2, "event", [fields]])


Handler = Callable[[Peer, dict[str, Any]], Any]


def welcome(_peer: Peer, _params: dict[str, Any]) -> dict[str, Any]:
    return {"protocol": 1, "version": "0", "epoch": "e1", "plugins": [], "catalog_generation": 1}


def pong(_peer: Peer, _params: dict[str, Any]) -> dict[str, Any]:
    return {"at": "2026-01-01T00:00:00Z"}


class FakeDaemon:
    """Listens on `<folder>/eryxd.sock` while it is entered; `asked` lists (method, params) in order of arrival."""

    def __init__(self, folder: Path, handlers: Mapping[str, Handler] | None = None) -> None:
        self.path = str(folder / "eryxd.sock")
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._handlers = {"hello": welcome, "ping": pong} | dict(handlers or {})
        self._listener = _listener(folder)
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(WAIT_S)
        for peer in self._peers:
            # Wakes the thread that reads; one that has ended has closed its socket.
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        self._listener.close()
        assert self._failures == []

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(connected)
            self._threads.append(threading.Thread(target=self._serve, args=(connected,)))
            self._threads[-1].start()

    def _serve(self, connected: socket.socket) -> None:
        # The test wants the end of a connection, or its client left first.
        with suppress(HangUp, ConnectionError), connected:
            try:
                self._talk(Peer(connected))
            except (KeyError, TypeError, ValueError) as error:
                self._failures.append(error)

    def _talk(self, peer: Peer) -> None:
        unpacker = msgpack.Unpacker()
        while chunk := peer.socket.recv(65536):
            unpacker.feed(chunk)
            for _, msgid, method, params in unpacker:
                self._answer(peer, msgid, method, params[0] if params else {})

    def _answer(self, peer: Peer, msgid: int, method: str, params: dict[str, Any]) -> None:
        self.asked.append((method, params))
        peer.msgid = msgid
        try:
            peer.send([1, msgid, None, self._handlers[method](peer, params)])
        except Refuse as refusal:
            peer.send([1, msgid, refusal.error, None])
        except NoAnswer:
            return


def _listener(folder: Path) -> socket.socket:
    """Return a listening socket in the folder, however long its path is."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener.bind(f"/proc/self/fd/{descriptor}/eryxd.sock")
    os.close(descriptor)
    listener.listen(16)
    return listener
