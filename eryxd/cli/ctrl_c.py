"""Ctrl-C while a run is followed: it interrupts a wait, and never something that is half done.

Law: each press raises `KeyboardInterrupt` in the wait that it falls into, or else in the next one.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class CtrlC:
    """Holds presses back except in `waiting`.  For the main thread; what was there before comes back at the end."""

    def __init__(self) -> None:
        self._waiting = False
        self._held = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a press through.  Raises: KeyboardInterrupt."""
        self._waiting = True
        try:
            if self._held:
                self._held = False
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False

    def _pressed(self, _signal: int, _frame: FrameType | None) -> None:
        if self._waiting:
            raise KeyboardInterrupt
        self._held = True
