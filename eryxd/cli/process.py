"""The daemon as a process: how to start it, to wait for it, and to read its log."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Final

from eryxd import paths
from eryxd.cli.report import Problem
from eryxd.client.client import Client, ClientError, DaemonNotRunning
from eryxd.domain.errors import ErrorCode

PATIENCE_S: Final = 10.0
"""How long the daemon may take to answer after its start, or to go after it was asked to."""

_SOMEBODY_ELSE_STARTS: Final = (0, 75)
"""How a daemon ends that finds another one, which may not listen yet."""

_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 256 * 1024


def daemon_command() -> list[str]:
    """Return what starts the daemon of this installation: the script beside our Python, else the module."""
    script = os.path.join(os.path.dirname(sys.executable), "eryxd")
    return [script] if os.access(script, os.X_OK) else [sys.executable, "-m", "eryxd.daemon.app"]


def answers(name: str) -> Client | None:
    """Return a connection to the daemon, or None when none is running.  Raises: ClientError."""
    try:
        return Client.connect(name=name)
    except DaemonNotRunning:
        return None


def start(name: str, command: list[str]) -> None:
    """Start the daemon in the background and return when it, or one that was started meanwhile, answers.

    Raises: Problem -- it ended instead, with the last lines of its log; or it does not answer in time.
    """
    log = open_log()
    offset = os.fstat(log).st_size
    try:
        daemon = subprocess.Popen(
            command,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended = daemon.poll()
        if _pings(name):
            return
        if ended not in (None, *_SOMEBODY_ELSE_STARTS):
            said = [line.removeprefix("eryxd: ") for line in tail(20, since=offset)[0]]
            problem = Problem(
                "The daemon could not start.", "", ErrorCode.INTERNAL, problems=said or ["it said nothing"]
            )
            # The daemon's own status says more than any of ours: 78 is a store or a configuration that is unfit.
            problem.exit_status = ended
            raise problem
        time.sleep(_POLL_S)
    raise Problem(f"The daemon does not answer after {PATIENCE_S:.0f} s.", "eryx daemon logs", ErrorCode.BUSY)


def wait_until_gone(name: str) -> None:
    """Wait until nothing listens any more.  Raises: Problem -- it still does."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not _pings(name):
            return
        time.sleep(_POLL_S)
    raise Problem(f"The daemon is still there after {PATIENCE_S:.0f} s.", "eryx daemon logs", ErrorCode.BUSY)


def _pings(name: str) -> bool:
    try:
        client = answers(name)
        if client is None:
            return False
        with client:
            client.call("ping")
    except ClientError:
        # It listens and is not ready, or is just going: both are found out by asking again.
        return False
    return True


def open_log() -> int:
    """Return a descriptor that appends to the daemon's log, which only this user can read.

    Raises: Problem -- its folder cannot be made or written to.
    """
    try:
        os.makedirs(paths.state_dir(), mode=0o700, exist_ok=True)
        return os.open(paths.log_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        where = error.filename or paths.state_dir()
        raise Problem(
            f"The daemon cannot keep its files in {paths.state_dir()}: {where}: {error.strerror}.",
            "ERYX_HOME=FOLDER eryx daemon start",
            ErrorCode.STORE_UNAVAILABLE,
        ) from error


def _environment() -> dict[str, str]:
    """Return our environment; a relative `ERYX_HOME` is made absolute, since the daemon starts in `/`."""
    home = os.environ.get("ERYX_HOME")
    return {**os.environ, "ERYX_HOME": os.path.abspath(home)} if home else dict(os.environ)


def tail(count: int, since: int = 0) -> tuple[list[str], int]:
    """Return the last lines of the log, none of them from before `since`, and the offset after them.

    Raises: Problem -- there is no log.
    """
    with _log() as log:
        size = os.fstat(log.fileno()).st_size
        log.seek(max(since, size - _TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
        return lines[-count:] if count else [], log.tell()


def growing(offset: int) -> Iterator[str]:
    """Yield the lines that come after an offset, for ever; a log that was replaced is opened again."""
    log = _log()
    log.seek(offset)
    pending = b""
    while True:
        chunk = log.read()
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
        if not chunk:
            time.sleep(4 * _POLL_S)
            if _replaced(log.fileno()):
                log.close()
                log, pending = _log(), b""


def _replaced(descriptor: int) -> bool:
    try:
        return os.stat(paths.log_path()).st_ino != os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _log() -> BinaryIO:
    try:
        return open(paths.log_path(), "rb")
    except FileNotFoundError:
        raise Problem(
            f"There is no log {paths.log_path()}; systemd keeps that of a daemon that it runs.",
            "journalctl --user -u eryxd",
            ErrorCode.NOT_FOUND,
        ) from None
    except OSError as error:
        raise Problem(f"The log {paths.log_path()} cannot be read: {error.strerror}.") from error
