"""What one client, and all of them together, may take from the daemon."""

from typing import Final

import msgspec

from eryxd.wire.framing import MAX_REPLY_BYTES, MAX_REQUEST_BYTES

RETRY_MS: Final = 250
"""When a client that met a limit should ask again: most requests are over by then."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client, and all of them, may take.  The reasons are in the protocol."""

    connections: int = 256
    per_peer: int = 32
    marked: int = 16
    """Connections of all marked peers together: an agent must not take those of its person."""
    in_flight: int = 64
    incomplete_s: float = 5.0
    frame_bytes: int = MAX_REQUEST_BYTES
    unread_bytes: int = 2 * MAX_REPLY_BYTES
    """A client that has left more than this unread when the next frame comes is cut off."""
    linger_s: float = 2.0
    """How long a connection that was closed may take to read its last answers."""
