"""Processes that benches start: private homes, readiness, what they use, their end."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgpack  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[1]

READY_S: Final = 60.0
"""Longest wait for a process to serve."""

POLL_S: Final = 0.001
"""How often a process that starts is tried: the resolution of a start."""

REPLY_BYTES: Final = 64 * 1024

PING: Final[bytes] = msgpack.packb([0, 1, "ping", []])

DAEMON: Final = (sys.executable, "-c", "from eryxd.daemon.app import main; raise SystemExit(main())")
"""What the installed `eryxd` does, in the shape of a console script."""

ECHO: Final = (sys.executable, str(ROOT / "bench" / "echo.py"))


def environment(home: Path) -> dict[str, str]:
    """Return what every measured process gets: ours, apart from what would change how it runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ERYX_", "PYTHON"))}
    return {**kept, "ERYX_HOME": str(home)}


class Home:
    """A folder for one server: state, configuration, and the folder of its socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"
        (path / "run").mkdir(mode=0o700, parents=True)
        # The path may be longer than an address can be, so it is reached through a descriptor of the folder.
        self._folder = os.open(path / "run", os.O_PATH | os.O_DIRECTORY)
        self.address = f"/proc/self/fd/{self._folder}/eryxd.sock"
        _accept_our_mark(path / "config")

    def connect(self) -> socket.socket:
        """Return a blocking connection.  Raises: OSError -- nobody listens."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(self.address)
        except BaseException:
            connected.close()
            raise
        return connected


def _accept_our_mark(config: Path) -> None:
    """Where this very process carries the mark of an agent, as in some containers, let it in all the same."""
    if b"\nNoNewPrivs:\t1\n" in Path("/proc/self/status").read_bytes():
        config.mkdir(mode=0o700)
        (config / "config.toml").write_text("[guard]\nno_new_privs = false\n", encoding="utf-8")


class Child:
    """A process that was started here, and that ends with `stop`."""

    def __init__(self, argv: Sequence[str], home: Home) -> None:
        self.started = time.perf_counter()
        self._log = (home.path / "log").open("ab")
        self.popen = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environment(home.path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._home = home

    def wait_ready(self) -> float:
        """Wait for the first reply over the socket; return the seconds since the start."""
        while True:
            try:
                with self._home.connect() as connected:
                    exchange(connected, PING)
                return time.perf_counter() - self.started
            except (FileNotFoundError, ConnectionRefusedError):
                self._refuse_dead()
                time.sleep(POLL_S)

    def _refuse_dead(self) -> None:
        if self.popen.poll() is not None or time.perf_counter() - self.started > READY_S:
            log = (self._home.path / "log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{self.popen.args!r} does not serve:\n{log[-2000:]}")

    def cpu_s(self) -> float:
        """Return the processor time it has used.  The clock of another process has a number made of its pid."""
        return time.clock_gettime(~self.popen.pid << 3 | 2)

    def rss_bytes(self) -> float:
        """Return how much of its memory is resident."""
        return self._status("VmRSS") * 1024

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.popen.pid}/status").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0])
        raise RuntimeError(f"There is no {name} in /proc.")

    def stop(self) -> None:
        """End it in good order, or at least end it."""
        self.popen.terminate()
        try:
            self.popen.wait(READY_S)
        finally:
            self.popen.kill()
            self.popen.wait()
            for pipe in (self.popen.stdin, self.popen.stdout, self._log):
                if pipe is not None:
                    pipe.close()


@contextmanager
def serving(argv: Sequence[str], home: Home) -> Iterator[Child]:
    """Run a server until the block ends."""
    child = Child(argv, home)
    try:
        child.wait_ready()
        yield child
    finally:
        child.stop()


def exchange(connected: socket.socket, frame: bytes) -> bytes:
    """Send a frame and return the answer, which is small enough to come in one piece."""
    connected.sendall(frame)
    answer = connected.recv(REPLY_BYTES)
    if not answer:
        raise ConnectionError("The server hung up.")
    return answer
