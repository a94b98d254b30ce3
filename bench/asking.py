"""A daemon that asks on order, with a client that answers it: the bench's end of `bench.asker`."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.process import Child, Home, serving
from bench.records import SESSION
from bench.stores import Size, cached, install
from eryxd.client.client import Client, EventStream

ASKER: Final = (sys.executable, "-m", "bench.asker")


class Decided(NamedTuple):
    """The seconds from a question to its approval in a client's hand, and from the client's decision to the reply."""

    pending_s: float
    resolve_s: float


class Asking:
    """A run that is under way, and the person who decides about it."""

    def __init__(self, child: Child, client: Client, events: EventStream) -> None:
        self.child = child
        self._client = client
        self._events = events

    def decide(self, times: int) -> list[float]:
        """Return the seconds that each of so many automatic decisions took."""
        self._order(decide=times)
        return [answered - asked for asked, answered in self._answer()]

    def ask(self) -> Decided:
        """Have one call ask, approve it, and see that it was let through."""
        self._order(ask=1)
        approval = next(event for event in self._events if event["type"] == "approval-requested")["approval"]
        seen = time.perf_counter()
        wanted = {"session_id": SESSION, "approval_id": approval["id"], "decision": "approved"}
        reply = self._client.call("approvals.resolve", **wanted)
        decided = time.perf_counter()
        if reply["approval"]["status"] != "approved":
            raise RuntimeError(f"the approval was not resolved: {reply}")
        [(asked, _)] = self._answer()
        return Decided(seen - asked, decided - seen)

    def _order(self, **order: int) -> None:
        stdin = self.child.popen.stdin
        assert stdin is not None
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()

    def _answer(self) -> list[tuple[float, float]]:
        stdout = self.child.popen.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError("the daemon that asks has ended")
        return [(asked, answered) for asked, answered in json.loads(line)]


@contextmanager
def asking(size: Size, cache: Path, folder: Path) -> Iterator[Asking]:
    """Start a daemon with a store of this size, and a run in its first session."""
    home = Home(folder)
    install(cached(size, cache), home.state)
    with serving(ASKER, home) as child, Client.connect(str(folder / "run" / "eryxd.sock"), "bench") as client:
        client.call("messages.send", session_id=SESSION, content="Go on.")
        with client.events(["approvals"]) as events:
            yield Asking(child, client, events)
