"""What the daemon itself has to announce: a refused caller, its stop.

Source: the socket's peer rules.
"""

from eryxd.api.events import EventType
from eryxd.api.replies import Refusal
from eryxd.core.change import Tx


def refuse(tx: Tx, refusal: Refusal) -> None:
    """Journal that a call was refused because of who made it."""
    tx.emit(EventType.PEER_REFUSED, session_id=refusal.session_id, refusal=refusal)


def stopping(tx: Tx, request: None) -> None:
    """Announce that the daemon stops."""
    tx.emit(EventType.DAEMON_STOPPING)
