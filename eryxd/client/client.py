"""The daemon as a Python object: calls that block, and streams of events.

Every command of `eryx` imports this, so it stays free of asyncio, msgspec and the like.  Replies are plain
maps as they came; a client ignores the keys that it does not know.
"""

import os
import time
from collections.abc import Sequence
from typing import Any, Final, Self

from eryxd import __version__, paths
from eryxd.client.channel import Channel, Event
from eryxd.client.dial import open_socket
from eryxd.client.errors import (
    BadReply,
    ClientError,
    ConnectionLost,
    DaemonNotRunning,
    RemoteError,
    TimedOut,
    UntrustedSocket,
)
from eryxd.domain.errors import ErrorCode

__all__ = [
    "BadReply",
    "Client",
    "ClientError",
    "ConnectionLost",
    "DaemonNotRunning",
    "Event",
    "EventStream",
    "RemoteError",
    "TimedOut",
    "UntrustedSocket",
]

PROTOCOL: Final = 1
"""Version of the protocol that this client speaks; the daemon refuses one that does not fit."""

TIMEOUT_S: Final = 30.0
"""How long a call waits for its answer unless told otherwise; asking a slow tool server takes half of it."""

PATIENCE_S: Final = 5.0
"""How long a busy daemon is asked again before the caller hears of it."""

_LONGEST_PAUSE_S: Final = 0.5
"""Where the pauses between tries stop growing, unless the daemon asks for longer ones."""


class Client:
    """Calls to one daemon over one connection, opened again after an error.  For one thread."""

    def __init__(self, path: str, name: str, timeout_s: float | None, patience_s: float) -> None:
        self._path = path
        self._name = name
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._channel: Channel | None = None

    @classmethod
    def connect(
        cls,
        path: str | None = None,
        name: str = "eryx",
        timeout_s: float | None = TIMEOUT_S,
        *,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """Return a client that has been greeted by the daemon at `path` (absent: where `paths` puts it).

        `name` is what an approval's `resolved_by` shows.  `timeout_s` bounds each call; None waits for ever.
        Raises: DaemonNotRunning, UntrustedSocket, and what `call` raises.
        """
        client = cls(path or paths.socket_path(), name, timeout_s, patience_s)
        client._channel = client._greeted()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up.  Idempotent."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def call(self, method: str, /, **params: Any) -> Any:
        """Return the result of one method.  An argument that is None is left out: the protocol has no nil.

        A busy daemon is asked again for up to `patience_s`.
        Raises: RemoteError -- the daemon refused; ConnectionLost, BadReply, TimedOut -- there is no answer.
        """
        return self.request(method, params, timeout_s=self._timeout_s)

    def request(self, method: str, params: dict[str, Any], *, timeout_s: float | None) -> Any:
        """`call` with a time-out of its own, for what waits on purpose (None: for ever)."""
        arguments = _present(params)
        patience = _Patience(self._patience_s)
        while True:
            if self._channel is None or self._channel.closed:
                self._channel = self._greeted()
            try:
                return self._channel.request(method, arguments, timeout_s)
            except RemoteError as refusal:
                if not patience.retries(refusal):
                    raise

    def events(
        self,
        topics: Sequence[str] | None = None,
        session_id: str | None = None,
        since: int | None = None,
        *,
        epoch: str | None = None,
        timeout_s: float | None = None,
    ) -> "EventStream":
        """Subscribe now, on a connection of its own, and return the events from here (or from `since`) on.

        `timeout_s` bounds the wait for each event.
        Raises: RemoteError `journal_gap` -- `since` is too old, or of a store with another `epoch`: take a
        snapshot; and what `connect` raises.
        """
        asked = {"topics": topics, "session_id": session_id, "since": since, "epoch": epoch}
        channel = self._greeted()
        try:
            reply = channel.request("events.subscribe", _present(asked), self._timeout_s)
        except RemoteError:
            channel.close()
            raise
        return EventStream(channel, reply, timeout_s)

    def _greeted(self) -> Channel:
        """Return a new connection on which the daemon has said hello."""
        patience = _Patience(self._patience_s)
        while True:
            try:
                return self._greet()
            except RemoteError as refusal:
                if not patience.retries(refusal):
                    raise

    def _greet(self) -> Channel:
        channel = Channel(open_socket(self._path))
        hello = {"client": self._name, "version": __version__, "protocol": PROTOCOL}
        try:
            channel.request("hello", hello, self._timeout_s)
        except RemoteError:
            channel.close()
            raise
        return channel


class EventStream:
    """An iterator over events.  It ends after `lagged`; a lost connection is an error, never a quiet end.

    `epoch` and `seq` are what the subscription answered: the store's epoch and where the live stream joined.
    """

    def __init__(self, channel: Channel, reply: dict[str, Any], timeout_s: float | None) -> None:
        self.epoch: str | None = reply.get("epoch")
        self.seq: int | None = reply.get("seq")
        self._channel = channel
        self._timeout_s = timeout_s
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """Return the next event.  Raises: ConnectionLost, BadReply, TimedOut."""
        if self._ended:
            raise StopIteration
        event = self._channel.next_event(self._timeout_s)
        self._ended = event.get("type") == "lagged"
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up.  Idempotent."""
        self._ended = True
        self._channel.close()


class _Patience:
    """How long to go on asking a busy daemon: pauses that double, spread so that clients do not collide."""

    def __init__(self, limit_s: float) -> None:
        self._deadline = time.monotonic() + limit_s
        self._pause_s = 0.0

    def retries(self, refusal: RemoteError) -> bool:
        """Pause and return True if the refusal invites another try and there is time for one."""
        retry_ms = refusal.data.get("retry_ms")
        left_s = self._deadline - time.monotonic()
        if refusal.code != ErrorCode.BUSY or not isinstance(retry_ms, int) or left_s <= 0:
            return False
        self._pause_s = max(min(2 * self._pause_s, _LONGEST_PAUSE_S), retry_ms / 1000)
        spread = 0.75 + os.urandom(1)[0] / 510
        time.sleep(min(self._pause_s * spread, left_s))
        return True


def _present(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value is not None}
