"""Where time and ids come from; everything below the daemon is given them."""

import secrets
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from eryxd.domain.ids import ID_LENGTH, ID_LETTERS, TimelineId, Timestamp

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"


def now() -> Timestamp:
    """Return the present moment."""
    return _stamp(datetime.now(UTC))


def later(seconds: float) -> Timestamp:
    """Return a moment from now; one that no calendar has becomes its last, or its first, day."""
    try:
        return _stamp(datetime.now(UTC) + timedelta(seconds=seconds))
    except OverflowError:
        return _stamp((datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC))


def _stamp(moment: datetime) -> Timestamp:
    return Timestamp(moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def new_id(noun: str) -> str:
    """Return a fresh id: the kind's letter and 16 random base32 characters."""
    return ID_LETTERS[noun] + _base32(secrets.token_bytes(10))


def call_event_id(seed: str) -> TimelineId:
    """Return the id of a tool call's one timeline event; the same call gives the same id."""
    return TimelineId(ID_LETTERS["timeline"] + _base32(sha256(seed.encode()).digest()[:10]))


def _base32(raw: bytes) -> str:
    number = int.from_bytes(raw)
    return "".join(_LETTERS[number >> shift & 31] for shift in range(0, (ID_LENGTH - 1) * 5, 5))
