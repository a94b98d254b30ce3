"""A daemon in a process of its own, for tests that start one."""

import os
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tests.unit.fake_daemon import FakeDaemon, NoAnswer, Peer

WAIT_S: Final = 20.0
"""How long it serves at most when nobody ends it."""


def serve(home: Path) -> None:
    """Answer `daemon.status` and `daemon.shutdown`, which ends it."""
    told = threading.Event()

    def shutdown(peer: Peer, _: dict[str, Any]) -> Any:
        # The answer goes out first: who is told hangs up on everybody.
        peer.send([1, peer.msgid, None, {"seq": 1}])
        told.set()
        raise NoAnswer

    folder = home / "run"
    folder.mkdir(mode=0o700, parents=True)
    with FakeDaemon(folder, {"daemon.shutdown": shutdown, "daemon.status": lambda _, __: {"pid": os.getpid()}}):
        told.wait(WAIT_S)
    (folder / "eryxd.sock").unlink()


if __name__ == "__main__":
    print("ready", flush=True)
    serve(Path(sys.argv[1]))
