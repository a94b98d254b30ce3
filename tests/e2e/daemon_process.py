"""The daemon as a process of its own, over its real socket: started, killed, stopped, started again."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from eryxd.client.client import Client, ClientError
from eryxd.paths import SOCKET_NAME
from tests.e2e.serving import Client as RawClient

ROOT: Final = Path(__file__).parents[2]

WAIT_S: Final = 20.0
"""Bound of every wait here; reached only by a test that fails."""

POLL_S: Final = 0.01
"""How often a daemon that starts is asked whether it answers."""

COMMAND: Final = (sys.executable, "-m", "eryxd.daemon.app")


class DaemonProcess:
    """`eryxd` with an `ERYX_HOME` of its own in `folder`.  Leaving the context kills it and closes every client.

    `command` and `environ` are for daemons that are started in another way, say by another user.
    """

    def __init__(
        self,
        folder: Path,
        *,
        home: Path | None = None,
        command: Sequence[str] = COMMAND,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home or folder / "home"
        self.state = self.home / "state"
        self.config = self.home / "config"
        self.socket_path = self.home / "run" / SOCKET_NAME
        self.store_path = self.state / "store.db"
        self.log_path = folder / "eryxd.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._environ = environ or {}
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_S)

    @property
    def environ(self) -> dict[str, str]:
        """What the daemon, or a client that is a process, is started with: nothing that a shell happens to have."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        python = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**kept, **python, "HOME": str(self.home), "ERYX_HOME": str(self.home), **self._environ}

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self.process is not None
        return self.process.pid

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.process

    def start(self) -> Self:
        """Start the process and return when it answers."""
        self.spawn()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Return when the daemon answers a ping.  Fails when it ends instead."""
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            assert time.monotonic() < deadline, f"eryxd does not answer:\n{self.log()}"
            self.pause()

    def wait_for_answer(self) -> None:
        """Return when some daemon answers in this home, whoever started it."""
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            assert time.monotonic() < deadline, "no eryxd answers"

    def _answers(self) -> bool:
        try:
            with Client.connect(path=str(self.socket_path), timeout_s=WAIT_S) as client:
                client.call("ping")
        except ClientError:
            return False
        return True

    def pause(self) -> None:
        """Let a moment pass.  Fails when the daemon has ended."""
        assert self.process is not None
        try:
            status = self.process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"eryxd ended with {status}:\n{self.log()}")

    def run_to_end(self) -> tuple[int, str]:
        """Start a daemon that is expected to refuse; return its exit status and what it said."""
        before = len(self.log())
        status = self.spawn().wait(WAIT_S)
        return status, self.log()[before:]

    def kill9(self) -> None:
        """End the process as a power cut would, as far as a process can tell."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)

    def stop(self) -> int:
        """Ask the process to stop, as systemd does; return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def restart(self) -> Self:
        """Stop it in good order and start it again."""
        assert self.stop() == 0
        return self.start()

    def crash(self) -> Self:
        """Kill it and start it again."""
        self.kill9()
        return self.start()

    def log(self) -> str:
        """Everything that was written to standard output and error so far, by every start."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def client(self, name: str = "test") -> Client:
        """Return a new connection; it is closed with the daemon."""
        client = Client.connect(path=str(self.socket_path), name=name, timeout_s=WAIT_S)
        self._clients.append(client)
        return client

    @contextmanager
    def raw(self) -> Iterator[RawClient]:
        """Lend a client that sends and reads frames by hand."""
        client = RawClient(self.socket_path)
        try:
            yield client
        finally:
            client.sock.close()

    def database(self) -> sqlite3.Connection:
        """Open the store for reading, beside the daemon or without it."""
        return sqlite3.connect(f"file:{self.store_path}?mode=ro", uri=True)

    def stored_files(self) -> list[Path]:
        """Return the store's file and what SQLite keeps beside it, as far as they exist."""
        return [path for path in sorted(self.state.glob("store.db*")) if path.is_file()]


def is_gone(pid: int) -> bool:
    """Say whether a process has ended; one that nobody has waited for yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
