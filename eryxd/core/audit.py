"""What the daemon itself has to announce: a refused caller, its stop.

Source: the socket's peer rules.
"""

from eryxd.api import tool_replies as told
from eryxd.api.events import EventType
from eryxd.api.replies import Refusal
from eryxd.api.tool_replies import PluginState, Rejected, Reloaded
from eryxd.core.change import Tx


def refuse(tx: Tx, refusal: Refusal) -> None:
    """Journal that a call was refused because of who made it."""
    tx.emit(EventType.PEER_REFUSED, session_id=refusal.session_id, refusal=refusal)


def plugin_status(tx: Tx, plugin: PluginState) -> told.PluginChanged:
    """Announce how a plugin stands now."""
    tx.emit(EventType.PLUGIN_STATUS, plugin=plugin)
    return told.PluginChanged(seq=0, plugin=plugin)


def reloaded(tx: Tx, reloaded: Reloaded) -> Reloaded:
    """Announce that files of the configuration were taken over."""
    tx.emit(EventType.CONFIG_RELOADED, reloaded=reloaded)
    return reloaded


def rejected(tx: Tx, problems: tuple[str, ...]) -> None:
    """Announce that files of the configuration were not taken over."""
    tx.emit(EventType.CONFIG_REJECTED, rejected=Rejected(problems=problems))


def stopping(tx: Tx, request: None) -> None:
    """Announce that the daemon stops."""
    tx.emit(EventType.DAEMON_STOPPING)
