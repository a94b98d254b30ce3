"""Events to subscribers: encoded once, sent once per batch, dropped rather than waited for.

Laws: a subscriber hears every journalled event of its topics after its starting point exactly once and in order,
until it is told `lagged`; nobody's slowness delays the writer or another subscriber.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from eryxd.api.events import TOPIC, Event, EventType
from eryxd.core.state import encode
from eryxd.daemon import clock
from eryxd.daemon.engine import Announced
from eryxd.wire.peer import encode_event

MAX_QUEUED_EVENTS: Final = 1024
MAX_QUEUED_BYTES: Final = 1024 * 1024
"""What a subscriber may leave unread before it is dropped with `lagged`."""


class Outlet(Protocol):
    """The part of a connection that events need."""

    @property
    def closed(self) -> bool:
        """Whether it is gone."""

    def send(self, data: bytes) -> None:
        """Write encoded frames."""

    def write_buffer_size(self) -> int:
        """Return how many bytes are not read yet."""


class Subscription:
    """One connection's wish to hear events after `after`."""

    def __init__(self, outlet: Outlet, topics: frozenset[str] | None, session_id: str | None, after: int) -> None:
        self.outlet = outlet
        self.topics = topics
        self.session_id = session_id
        self.after = after
        self.queued = 0

    def wants(self, topic: str, session_id: str) -> bool:
        """Say whether an event belongs to what was asked for.  The daemon's own events reach everybody."""
        if self.topics is not None and topic not in self.topics:
            return False
        return self.session_id is None or session_id in ("", self.session_id)

    def is_behind(self) -> bool:
        """Say whether too much is unread."""
        unread = self.outlet.write_buffer_size()
        if unread == 0:
            self.queued = 0
        return unread > MAX_QUEUED_BYTES or self.queued > MAX_QUEUED_EVENTS


class Bus:
    """Everybody who listens, by connection."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, Subscription] = {}

    def join(self, subscription: Subscription) -> None:
        """Deliver from now on; a second subscription of a connection replaces the first."""
        self._subscriptions[id(subscription.outlet)] = subscription

    def leave(self, outlet: Outlet) -> None:
        """Deliver nothing more."""
        self._subscriptions.pop(id(outlet), None)

    def publish(self, events: Sequence[Announced]) -> None:
        """Send a batch of durable events."""
        if not events or not self._subscriptions:
            return
        frames = [(one, TOPIC[one.event.type].value, encode_event(one.body)) for one in events]
        for subscription in list(self._subscriptions.values()):
            wanted = [
                frame
                for one, topic, frame in frames
                if one.seq > subscription.after and subscription.wants(topic, one.event.session_id or "")
            ]
            self._deliver(subscription, wanted, events[-1].seq)

    def _deliver(self, subscription: Subscription, frames: list[bytes], last_seq: int) -> None:
        if frames and subscription.is_behind():
            self.drop(subscription)
            return
        subscription.after = max(subscription.after, last_seq)
        if frames:
            subscription.queued += len(frames)
            subscription.outlet.send(b"".join(frames))

    def drop(self, subscription: Subscription) -> None:
        """End a subscription that fell behind; the connection stays, and its owner may subscribe again."""
        self.leave(subscription.outlet)
        lagged = Event(at=clock.now(), type=EventType.LAGGED, seq=subscription.after)
        subscription.outlet.send(encode_event(encode(lagged)))

    def transient(self, event: Event) -> None:
        """Send an event that is not journalled, to those who keep up; the others miss it."""
        frame = b""
        for subscription in self._subscriptions.values():
            if subscription.wants(TOPIC[event.type].value, event.session_id or "") and not subscription.is_behind():
                frame = frame or encode_event(encode(event))
                subscription.queued += 1
                subscription.outlet.send(frame)
