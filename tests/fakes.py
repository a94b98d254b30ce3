"""Working doubles: a daemon that answers from a table, with subscribers, and a person at a terminal."""

import codecs
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from tests.unit.fake_daemon import FakeDaemon as SocketDaemon, Handler, Peer, Refuse

ROOT: Final = Path(__file__).parents[1]

WAIT_S: Final = 20.0
"""Bound of every wait here; reached only by a test that fails."""

Reply = Callable[[dict[str, Any]], Any]


def wire(record: Any) -> Any:
    """Return a record as it comes out of the socket: plain maps and lists."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record))


def refuse(code: str, message: str = "No.", **data: Any) -> Refuse:
    """Return what a reply raises to refuse a request."""
    return Refuse({"code": code, "message": message, "data": data})


class FakeDaemon(SocketDaemon):
    """Listens where the clients of `ERYX_HOME=<home>` look; each reply is a function of the request's arguments.

    `emit` sends an event to all subscribers.  `asked` lists (method, arguments) in order of arrival.
    """

    def __init__(self, home: Path, replies: Mapping[str, Reply]) -> None:
        self.home = home
        folder = home / "run"
        folder.mkdir(mode=0o700, parents=True)
        self._subscribers: list[Peer] = []
        self._seq = 100
        handlers: dict[str, Handler] = {name: _ignoring_peer(reply) for name, reply in replies.items()}
        super().__init__(folder, {"events.subscribe": self._subscribe, **handlers})

    @property
    def environ(self) -> dict[str, str]:
        """Return what a command needs to find this daemon, and nothing that changes its looks."""
        return {"ERYX_HOME": str(self.home), "TERM": "xterm", "TZ": "UTC", "NO_COLOR": ""}

    def emit(self, type: str, **record: Any) -> None:
        """Send a durable event to all subscribers."""
        self._seq += 1
        for peer in self._subscribers:
            peer.event(type=type, seq=self._seq, at="2026-11-30T12:00:00.000Z", **wire(record))

    def arguments(self, method: str) -> list[dict[str, Any]]:
        """Return the arguments of each call of a method."""
        return [params for asked, params in self.asked if asked == method]

    def _subscribe(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        self._subscribers.append(peer)
        return {"epoch": "e1", "seq": self._seq}


def _ignoring_peer(reply: Reply) -> Handler:
    def handle(_peer: Peer, params: dict[str, Any]) -> Any:
        return reply(params)

    return handle


class Script:
    """A program with its output in a pipe.  `output` is what was read of it."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.output = ""
        self._read_to = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._errors = os.memfd_create("errors")
        self._source, target = self._ends()
        self.process = subprocess.Popen(
            command,
            stdin=self._stdin(target),
            stdout=target,
            stderr=self._stderr(target),
            env={**os.environ, **environ},
            cwd=ROOT,
            start_new_session=True,
        )
        os.close(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._errors)
        os.close(self._source)

    def sees(self, text: str) -> None:
        """Read until the text was said, after everything that was waited for before."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.output[self._read_to :]:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} never came; this did:\n{self.output}\n{self.errors()}")
        self._read_to = self.output.index(text, self._read_to) + len(text)

    def leaves_with(self) -> int:
        """Read to the end and return the exit status."""
        deadline = time.monotonic() + WAIT_S
        while self._read(deadline):
            pass
        return self.process.wait(WAIT_S)

    def errors(self) -> str:
        """Return what was written to standard error."""
        return os.pread(self._errors, 1024 * 1024, 0).decode()

    def _ends(self) -> tuple[int, int]:
        return os.pipe()

    def _stdin(self, target: int) -> int:
        return subprocess.DEVNULL

    def _stderr(self, target: int) -> int:
        return self._errors

    def _read(self, deadline: float) -> bool:
        readable, _, _ = select.select([self._source], [], [], max(deadline - time.monotonic(), 0))
        if not readable:
            return False
        try:
            chunk = os.read(self._source, 65536)
        except OSError:
            # A terminal's way to say that nobody has the other end open any more.
            return False
        self.output += self._decoder.decode(chunk)
        return bool(chunk)


class Person(Script):
    """A person at a terminal of 100 columns: starts a command, reads what it shows, presses keys."""

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._source, keys.encode())

    def interrupts(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def _ends(self) -> tuple[int, int]:
        person, program = pty.openpty()
        termios.tcsetwinsize(program, (40, 100))
        return person, program

    def _stdin(self, target: int) -> int:
        return target

    def _stderr(self, target: int) -> int:
        return target


def eryx(*words: str) -> list[str]:
    """Return the command line that a person would type."""
    return [sys.executable, "-m", "eryxd.cli.app", *words]
