"""The real engine on a disk that obeys orders, one batch at a time, on a loop that turns only when it is told."""

import asyncio
import queue
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from eryxd.core.change import Tx
from eryxd.daemon.store import STORE_FILE, Written
from eryxd.domain.approval import Approval
from eryxd.domain.errors import EryxError
from eryxd.plugin.types import Allow, Deny
from tests.core_builders import World
from tests.engine_builders import WAIT_S, HeldStore, Machine


class OrderedStore(HeldStore):
    """A store whose every commit waits for an order: how it goes."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.orders: queue.Queue[str] = queue.Queue()
        # The disk is not what is tested here.
        self._db.execute("PRAGMA synchronous = OFF")

    def commit(self, batch: Sequence[Written], number: int) -> None:
        """Commit as ordered."""
        order = self.orders.get(timeout=WAIT_S)
        self.breaks_with = sqlite3.OperationalError("disk I/O error") if order == "fails" else None
        self.breaks_after = None if order == "happens" else sqlite3.OperationalError("disk I/O error")
        super().commit(batch, number)


class Watched(Machine):
    """A machine that counts its batches and outcomes, and keeps what callers heard, in order."""

    store: OrderedStore

    def __init__(self, folder: Path, world: World) -> None:
        self.heard: list[str] = []
        self.batches = 0
        self.outcomes = 0
        self.loop = asyncio.new_event_loop()
        super().__init__(folder, world, OrderedStore)

    def _events(self, events: Any) -> None:
        super()._events(events)
        self.batches += 1

    def _note(self, signal: str) -> None:
        super()._note(signal)
        self.batches += signal == "failed"

    def play(self, work: Callable[[], None], until: Callable[[], bool] = lambda: True) -> None:
        """Do something on the loop, let it turn until something is so, and then until it is quiet."""

        async def turn() -> None:
            work()
            while not until():
                await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(turn(), WAIT_S))

    def executes(self, use_case: Callable[[Tx, Any], Any], request: Any) -> None:
        """Execute a use case; the outcome is heard when it is released."""

        def done(reply: Any, error: EryxError | None) -> None:
            self.outcomes += 1
            self.heard.append(_outcome(reply) if error is None else error.code.value)

        self.play(lambda: self.engine.execute(use_case, request, done))

    def disk_goes(self, order: str) -> None:
        """Let the batch that is being written go as ordered."""
        before = self.batches
        self.play(lambda: self.store.orders.put(order), lambda: self.batches > before)

    def probes(self) -> None:
        """Try the disk again, which takes writes now."""
        self.play(self.engine._probe, lambda: self.engine.problem is None)
        self.log.clear()

    def is_killed(self, order: str) -> int:
        """End at once, the batch that is being written going as ordered; return how many changes it had."""
        writing = len(self.engine._writing)
        if writing:
            self.store.orders.put(order)
        self.engine._writer.shutdown()
        self.loop.close()
        self.store.close()
        self.reader.close()
        return 0 if order == "fails" else writing

    def is_let_go(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        self.store.orders.put("fails")
        self.engine._writer.shutdown()
        self.loop.close()
        self.store.close()
        self.reader.close()


def _outcome(reply: Any) -> str:
    match reply:
        case Allow():
            return "allow"
        case Deny():
            return "deny"
        case str():
            return f"waits {reply}"
    return "ok"


def stored_approvals(folder: Path) -> dict[str, tuple[str, str]]:
    """Return how every approval in the file stands: its status, and its resolution if it has one."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        rows = [msgspec.msgpack.decode(body, type=Approval) for (body,) in db.execute("SELECT body FROM approval")]
    return {row.id: (row.status.value, row.resolution.value if row.resolution else "") for row in rows}


def stored_texts(folder: Path, text: re.Pattern[bytes]) -> tuple[set[str], set[str]]:
    """Return the texts of a kind that lie anywhere in the file, and those in the one table for what is withheld."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: _texts(db.execute(f'SELECT * FROM "{name}"'), text) for name in tables}  # noqa: S608
    held = found.pop("withheld")
    return set().union(*found.values()), held


def _texts(rows: Iterable[tuple[Any, ...]], text: re.Pattern[bytes]) -> set[str]:
    values = (value.encode() if isinstance(value, str) else value for row in rows for value in row)
    return {one.decode() for value in values if isinstance(value, bytes) for one in text.findall(value)}
