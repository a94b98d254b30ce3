"""`eryxd`: start, serve, stop.

Start: lock, leftovers of a killed daemon, settings, store, recovery in one transaction, backends, socket, ready.
Stop: no new calls, runs interrupted and settled, what they started killed, store closed, socket removed.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from eryxd import __version__, paths, settings as configuration
from eryxd.backends.replay import Replay
from eryxd.daemon import clock, single
from eryxd.daemon.begin import begin, end
from eryxd.daemon.children import Children, become_subreaper, clean_leftovers
from eryxd.daemon.daemon import Daemon, Folders
from eryxd.daemon.dispatch import Dispatcher
from eryxd.daemon.marks import is_marked
from eryxd.daemon.restore import restore
from eryxd.daemon.server import Limits, Server
from eryxd.domain.errors import EryxError, Invalid, StoreUnavailable
from eryxd.plugin.types import Backend
from eryxd.settings import Settings

log = logging.getLogger("eryxd")

EXIT_ALREADY_RUNNING: Final = 75
EXIT_UNFIT: Final = 78
"""Configuration or store are not fit to start with; starting again would not help."""

STARTED_BY_AN_AGENT: Final = (
    "This process carries no_new_privs, as everything does that an agent starts: an agent must not start the daemon"
    " that judges it. Start it from your own shell or service. Where everything carries that mark, as in some"
    " containers, set guard.no_new_privs = false in config.toml."
)

WORKERS: Final = 32
"""Threads for what blocks: looking at files, parsing plans.  They are started as they are needed."""

TRIM_EVERY_S: Final = 60.0
TRIM_STEP: Final = 500
"""The journal is trimmed when nothing else happens, in steps that hold up nobody."""


def main(argv: list[str] | None = None) -> int:
    """Run the daemon in the foreground.  Returns its exit status."""
    options = _options(argv)
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        lock = single.acquire(Path(paths.state_dir()))
    except single.AlreadyRunning as error:
        return _refuse(error, EXIT_ALREADY_RUNNING)
    except EryxError as error:
        return _refuse(error, EXIT_UNFIT)
    try:
        return _restore(options.restore) if options.restore else _serve()
    except (EryxError, OSError, sqlite3.Error) as error:
        return _refuse(error, EXIT_UNFIT)
    finally:
        lock.release()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("eryxd", description="The eryx daemon, in the foreground; logs go to stderr.")
    parser.add_argument("--version", action="version", version=f"eryxd {__version__}")
    parser.add_argument("--restore", metavar="FILE", type=Path, help="install a backup as the store, and end")
    return parser.parse_args(argv)


def _refuse(error: Exception, status: int) -> int:
    print(f"eryxd: {error}", file=sys.stderr)
    return status


def _restore(backup: Path) -> int:
    kept = restore(Path(paths.state_dir()), backup.absolute())
    print(f"The store is now that of {backup}." + (f" The old one lies in {kept}." if kept else ""))
    return 0


def _serve() -> int:
    single.refuse_held(Path(paths.runtime_dir()))
    become_subreaper()
    records = Path(paths.state_dir()) / "children"
    killed = clean_leftovers(records)
    if killed:
        log.warning("killed what an earlier daemon had left running: %s", killed)
    settings = configuration.load(os.path.join(paths.config_dir(), "config.toml"))
    if settings.guard.no_new_privs and is_marked("self"):
        raise Invalid(STARTED_BY_AN_AGENT)
    asyncio.run(_run(settings, Children(records)))
    return 0


async def _run(settings: Settings, children: Children) -> None:
    # Blocking work of all sessions shares these threads: a few slow searches must not hold up everybody's questions.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WORKERS, "eryxd-work"))
    backends: list[Backend] = [Replay(Path(paths.plans_dir()), clock.now)]
    daemon = Daemon(folders(), settings, backends, children)
    reloader = await begin(daemon)
    # What was loaded stays; the collector need not look at it again.
    gc.freeze()
    runtime = Path(paths.runtime_dir())
    single.prepare_runtime(runtime)
    dispatcher = Dispatcher(daemon)
    limits = Limits(connections=settings.limits.connections, per_peer=settings.limits.connections_per_peer)
    server = Server(single.bind_socket(runtime), dispatcher, limits, os.geteuid())
    await server.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.request_stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.ask)
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, children.child_ended)
    chores = asyncio.create_task(_chores(daemon))
    watching = asyncio.create_task(reloader.watch())
    log.info("ready: process %d, socket %s", os.getpid(), paths.socket_path())
    try:
        await daemon.stopping.wait()
    finally:
        log.info("stopping")
        chores.cancel()
        watching.cancel()
        await end(daemon)
        await server.stop()
        await dispatcher.close()
        await asyncio.to_thread(children.close)
        await daemon.close()
        _remove_socket(runtime)


def folders() -> Folders:
    """Return where this user's eryx keeps its files."""
    own = (paths.config_dir(), paths.state_dir(), paths.runtime_dir())
    return Folders(
        config=Path(paths.config_dir()),
        state=Path(paths.state_dir()),
        scratch=Path(paths.scratch_dir()),
        own=tuple(os.path.realpath(folder) for folder in own),
    )


def _remove_socket(runtime: Path) -> None:
    """Remove our socket; on a disk that has become read-only it stays, and the next start replaces it."""
    try:
        single.remove_socket(runtime)
    except OSError as error:
        log.warning("the socket stays where it is: %s", error)


async def _chores(daemon: Daemon) -> None:
    """Check the store after a stop that was not clean; then trim the journal when nothing else happens."""
    if not daemon.is_sound:
        await _check_store(daemon)
    while True:
        await asyncio.sleep(TRIM_EVERY_S)
        keep, days = daemon.settings.limits.journal_events, daemon.settings.limits.journal_days
        await daemon.engine.idle()
        before = clock.later(-days * 86400.0)
        try:
            while await daemon.engine.on_writer(lambda store: store.trim_journal(keep, before, TRIM_STEP)) == TRIM_STEP:  # noqa: B023
                await daemon.engine.idle()
        except (sqlite3.Error, OSError) as error:
            log.warning("the journal was not trimmed: %s", error)


async def _check_store(daemon: Daemon) -> None:
    try:
        problems = await daemon.history.check()
    except StoreUnavailable as error:
        problems = [error.message]
    daemon.is_sound = not problems
    if problems:
        daemon.warnings.append(f"The store is damaged: {problems[0]}. Restore a backup: eryx store restore FILE")
        log.error("the store is damaged: %s", "; ".join(problems[:5]))


if __name__ == "__main__":
    raise SystemExit(main())
