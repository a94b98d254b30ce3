"""Observers of plugins: they see what has become durable, in threads of their own, and can do nothing about it.

Laws: an observer gets a copy; one that is slow misses the oldest and the log says how many; one that raises three times
in a row is called no more; none delays anybody.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from eryxd.daemon.engine import Announced
from eryxd.plugin.types import Observer

log = logging.getLogger("eryxd.observers")

KEPT: Final = 1000
"""Events that wait for an observer; the oldest go first."""

PATIENCE: Final = 3
"""Failures in a row after which it is called no more."""

Faulted = Callable[[str], None]


class Observers:
    """Everybody who looks on."""

    def __init__(self, on_loop: Callable[[Callable[[], None]], object]) -> None:
        """`on_loop` runs something in the daemon's own thread."""
        self._on_loop = on_loop
        self._watchers: dict[str, list[_Watcher]] = {}

    def add(self, plugin: str, observer: Observer, faulted: Faulted) -> None:
        """Let an observer see what happens from now on."""

        def tell(why: str) -> None:
            self._on_loop(lambda: faulted(why))

        self._watchers.setdefault(plugin, []).append(_Watcher(plugin, observer, tell))

    def drop(self, plugin: str) -> None:
        """Show a plugin nothing more."""
        for watcher in self._watchers.pop(plugin, ()):
            watcher.stop()

    def saw(self, events: Sequence[Announced]) -> None:
        """Pass on what has become durable."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.queue(events)

    def close(self) -> None:
        """Show nobody anything more."""
        for plugin in list(self._watchers):
            self.drop(plugin)


class _Watcher:
    """One observer with its thread and what waits for it."""

    def __init__(self, plugin: str, observer: Observer, faulted: Faulted) -> None:
        self._plugin = plugin
        self._observer = observer
        self._faulted = faulted
        self._waiting: deque[bytes] = deque(maxlen=KEPT)
        self._missed = 0
        self._failures = 0
        self._is_stopped = False
        self._wake = threading.Condition()
        # A daemon thread: an observer that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name=f"observer-{plugin}", daemon=True).start()

    def queue(self, events: Sequence[Announced]) -> None:
        """Let events wait for the observer."""
        with self._wake:
            self._missed += max(len(self._waiting) + len(events) - KEPT, 0)
            self._waiting.extend(event.body for event in events)
            self._wake.notify()

    def stop(self) -> None:
        """Call it no more."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()

    def _run(self) -> None:
        while (body := self._next()) is not None:
            error = self._shown(body)
            self._failures = 0 if error is None else self._failures + 1
            if error is not None and self._failures == PATIENCE:
                self._faulted(f"its observer failed {PATIENCE} times in a row: {type(error).__name__}: {error}")
                return

    def _shown(self, body: bytes) -> BaseException | None:
        try:
            self._observer.saw(msgspec.msgpack.decode(body))
        except BaseException as error:  # noqa: BLE001 -- a plugin must not end the daemon
            log.warning("the observer of %s failed: %s", self._plugin, error)
            return error
        return None

    def _next(self) -> bytes | None:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._is_stopped)
            if self._is_stopped:
                return None
            if self._missed:
                log.warning("the observer of %s is slow and missed %d events", self._plugin, self._missed)
                self._missed = 0
            return self._waiting.popleft()
