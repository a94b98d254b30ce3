"""Events that arrive while something else is waited for: a key, or Ctrl-C.

Law: events come out in the order in which they went in, and after the last one the error that ended them, once.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

from eryxd.client.errors import ClientError

Event = dict[str, Any]


class Feed:
    """Reads an iterator of events in a thread; `fileno` is readable when there is something to take.

    Close it from the thread that takes.  The reading thread is left to itself then: it can be deep in a read.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self._arrived: deque[Event | ClientError] = deque()
        self._ready, self._wake = os.pipe()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._read, name="eryx-events", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._ready

    def wait(self, also: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until there is something to take, or `also` is readable.  Return whether there is something."""
        watched = [self._ready] if also is None else [self._ready, also]
        readable, _, _ = select.select(watched, [], [], timeout_s)
        return self._ready in readable

    def take(self) -> list[Event]:
        """Return what has arrived.  Raises: ClientError -- the events broke off; everything before was taken."""
        if self.wait(timeout_s=0):
            os.read(self._ready, 65536)
        taken: list[Event] = []
        while self._arrived:
            match self._arrived[0]:
                case ClientError() as error if not taken:
                    self._arrived.popleft()
                    raise error
                case ClientError():
                    self._signal()
                    return taken
                case event:
                    self._arrived.popleft()
                    taken.append(event)
        return taken

    def close(self) -> None:
        """Stop taking."""
        with self._lock:
            self._closed = True
            os.close(self._ready)
            os.close(self._wake)

    def _read(self) -> None:
        try:
            for event in self._events:
                self._arrive(event)
        except ClientError as error:
            self._arrive(error)

    def _arrive(self, what: Event | ClientError) -> None:
        self._arrived.append(what)
        self._signal()

    def _signal(self) -> None:
        # The lock keeps a late event from writing into a descriptor that is somebody else's by now.
        with self._lock:
            if not self._closed:
                os.write(self._wake, b"\0")
