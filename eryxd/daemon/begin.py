"""What a daemon does between opening its store and serving, and when it stops serving.

Begin: recovery in one transaction, plugins, backends, whatever source has no answer yet.  End: tell everybody, and
settle every run.
"""

import logging
import sqlite3

from eryxd.api.tool_replies import PluginState
from eryxd.core import audit, recovery
from eryxd.core.change import Effect
from eryxd.daemon.daemon import Daemon
from eryxd.daemon.engine import Announced, Listener
from eryxd.daemon.reloading import Reloader
from eryxd.domain.errors import EryxError, StoreUnavailable

log = logging.getLogger("eryxd")


async def begin(daemon: Daemon) -> Reloader:
    """Put in order what a start finds unfinished, load the plugins, and ask the backends what they can do.

    Returns what takes over the files from now on.

    Raises: StoreUnavailable -- the disk refuses the recovery.
    """
    await _recover(daemon)

    def carry_out(effects: list[Effect]) -> None:
        daemon.runs.effects(effects)
        daemon.sources.effects(effects)

    def publish(events: list[Announced]) -> None:
        daemon.bus.publish(events)
        daemon.observers.saw(events)

    def announce(plugin: PluginState) -> None:
        daemon.engine.execute(audit.plugin_status, plugin, lambda _reply, _error: None)

    daemon.engine.listen(Listener(publish, carry_out, daemon.runs.failed, daemon.runs.recovered))
    daemon.plugins.announce = announce
    await daemon.plugins.load()
    daemon.reloader = reloader = Reloader(daemon, daemon.config_dir)
    await reloader.begin()
    await daemon.sources.start()
    return reloader


async def _recover(daemon: Daemon) -> None:
    try:
        interrupted = await daemon.engine.run(recovery.recover, str(daemon.scratch_dir))
        await daemon.engine.on_writer(lambda store: store.mark_clean(False))
    except (StoreUnavailable, sqlite3.Error, OSError) as error:
        why = error.data.get("why", error.message) if isinstance(error, StoreUnavailable) else error
        raise StoreUnavailable(
            f"The store {daemon.store_path} cannot be written: {why}. It was left as it is."
            " Make room on its disk, or make the disk writable, and start eryxd again.",
            path=str(daemon.store_path),
        ) from error
    if interrupted:
        log.warning("%d running sessions were interrupted by the last stop", interrupted)


async def end(daemon: Daemon) -> None:
    """Tell everybody, then interrupt and settle every run."""
    try:
        await daemon.engine.run(audit.stopping, None)
    except EryxError as error:
        log.warning("the stop could not be journalled: %s", error.code)
    await daemon.sources.close()
    daemon.observers.close()
    await daemon.runs.stop_all()
