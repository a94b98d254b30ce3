"""One key at a time from a person at a terminal, while events go on.

Law: only a single key, pressed after it was asked for, is a key: what was typed ahead, pasted, or sent as an
escape sequence (an arrow key ends in a letter) is thrown away.
"""

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eryxd.cli.ctrl_c import CtrlC
from eryxd.cli.feed import Feed

_CHUNK_BYTES: Final = 4096
_SEQUENCE_S: Final = 0.1
"""How long the rest of an escape sequence may take, over a slow line."""

QUIET_S: Final = 0.75
"""How long no key may have come before a question is asked: longer than until a key that is held down repeats."""

_ESCAPE: Final = b"\x1b"

_UNTYPED: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|O.|.)?|[\x00-\x1f\x7f-\x9f]")
"""What stands in a line and was not written: sequences that keys such as the arrows send, and control characters."""


def is_interactive() -> bool:
    """Whether a person can be asked: input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Closed(Exception):
    """The terminal went away."""


class Terminal:
    """The terminal that the command was started from.  Its waits are where Ctrl-C is heard."""

    def __init__(self, ctrl_c: CtrlC) -> None:
        self._input = sys.stdin.fileno()
        self._ctrl_c = ctrl_c
        self._quiet_at = 0.0

    def show(self, text: str) -> None:
        """Write text that is visible already."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def settle(self) -> None:
        """Throw keys away until none has come for a moment, before a question is asked.  Raises: Closed.

        A key that is held down, or pressed twice, must not answer what nobody has read yet.  Where no key was
        pressed, nothing is waited for.
        """
        with self._single_keys(), self._ctrl_c.waiting():
            while select.select([self._input], [], [], max(self._quiet_at - time.monotonic(), 0))[0]:
                self._read()

    def key(self, feed: Feed) -> str | None:
        """Return the key that was pressed, or None when there are events to take instead.  Raises: Closed."""
        with self._single_keys():
            with self._ctrl_c.waiting():
                is_event = feed.wait(also=self._input)
            if is_event:
                return None
            typed = self._read()
            while typed.startswith(_ESCAPE) and self._more():
                typed += self._read()
        return typed.decode() if len(typed) == 1 and typed.isascii() else ""

    def line(self, question: str) -> str | None:
        """Return a line of text, or None when the person changed their mind (Ctrl-D, also behind some text)."""
        self.show(question)
        with self._ctrl_c.waiting():
            typed = os.read(self._input, _CHUNK_BYTES)
        if not typed.endswith(b"\n"):
            self.show("\n")
            return None
        return _UNTYPED.sub("", typed.decode(errors="replace")).strip()

    def _read(self) -> bytes:
        typed = os.read(self._input, _CHUNK_BYTES)
        if not typed:
            raise Closed
        self._quiet_at = time.monotonic() + QUIET_S
        return typed

    def _more(self) -> bool:
        readable, _, _ = select.select([self._input], [], [], _SEQUENCE_S)
        return bool(readable)

    @contextmanager
    def _single_keys(self) -> Iterator[None]:
        before = termios.tcgetattr(self._input)
        # TCSANOW: the default of setcbreak throws away keys that are pressed while events are taken.
        tty.setcbreak(self._input, termios.TCSANOW)
        try:
            yield
        finally:
            termios.tcsetattr(self._input, termios.TCSANOW, before)
