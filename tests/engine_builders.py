"""The real engine over a real store, with everything that it releases written down in order."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from eryxd.api import requests as ask
from eryxd.core.change import Context, Effect, Tx
from eryxd.daemon.engine import Announced, Engine, Listener
from eryxd.daemon.store import Reader, Store, Written
from eryxd.domain.approval import Decider
from eryxd.domain.errors import EryxError
from eryxd.domain.ids import Record
from eryxd.domain.session import SessionHead
from tests.builders import pattern, project, session
from tests.core_builders import World, wanted

T = TypeVar("T")

WAIT_S: Final = 20.0
"""Bound of every wait here; reached only by a test that fails."""


def story(work: Coroutine[Any, Any, T]) -> T:
    """Play a test's story on a loop of its own."""
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


class HeldStore(Store):
    """A store whose disk can be made to wait, and to break after the commit."""

    def __init__(self, state_dir: Path) -> None:
        self.is_mute = False
        super().__init__(state_dir)
        self.may_write = threading.Event()
        self.may_write.set()
        self.reached = threading.Event()
        self.commits: list[int] = []
        self.breaks_with: BaseException | None = None
        self.breaks_after: BaseException | None = None

    def commit(self, batch: Sequence[Written], number: int) -> None:
        """Commit when it is allowed; `commits` counts the changes of each batch."""
        self.reached.set()
        assert self.may_write.wait(WAIT_S)
        self.commits.append(len(batch))
        if self.breaks_with is not None:
            raise self.breaks_with
        super().commit(batch, number)
        if self.breaks_after is not None:
            raise self.breaks_after

    def batches(self) -> int:
        """Count the batches, unless the disk does not even let itself be read."""
        if self.is_mute:
            raise sqlite3.OperationalError("disk I/O error")
        return super().batches()

    def fill(self) -> None:
        """Let the file grow no more: the next write that needs a page meets a full disk.

        The limit is the connection's, so the fresh one of a probe does not have it.
        """
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        self._db.execute(f"PRAGMA max_page_count = {pages}")


class Machine:
    """An engine in a folder.  `log` has what was released, in order: events, effects, replies, signals."""

    def __init__(self, folder: Path, world: World | None = None, opens: type[HeldStore] = HeldStore) -> None:
        self.world = world or World()
        self.store = opens(folder)
        self.reader = Reader(self.store.path)
        # A connection that has read keeps the log in its place, whatever the writer does.
        self.reader.get(SessionHead, "")
        self.engine = Engine(self.store, self.reader.get, self._context)
        self.log: list[tuple[str, Any]] = []
        self.engine.listen(
            Listener(self._events, self._effects, lambda: self._note("failed"), lambda: self._note("recovered"))
        )

    def _context(self, caller: Decider | None = None) -> Context:
        return self.world.context()._replace(number=self.engine.next_number)

    def _events(self, events: list[Announced]) -> None:
        self.log += (("event", one) for one in events)

    def _effects(self, effects: list[Effect]) -> None:
        self.log += (("effect", one) for one in effects)

    def _note(self, signal: str) -> None:
        self.log.append(("signal", signal))

    def start(self, use_case: Callable[[Tx, Any], Any], request: Any, name: str = "reply") -> None:
        """Execute a use case and write its outcome down under a name when it is released."""

        def done(reply: Any, error: EryxError | None) -> None:
            self.log.append((name, reply if error is None else error.code.value))

        self.engine.execute(use_case, request, done)

    async def has(self, *records: Record) -> None:
        """Store these rows."""
        for record in records:
            await self.engine.run(put, record)
        self.log.clear()

    async def holds_the_disk(self) -> None:
        """Let a first change reach the disk and wait there, so that whatever comes now is in flight."""
        self.store.may_write.clear()
        self.store.reached.clear()
        self.start(put, session("held"), "held")
        assert await asyncio.to_thread(self.store.reached.wait, WAIT_S)

    async def idle(self) -> None:
        """Let the disk go, and wait until nothing is in flight."""
        self.store.may_write.set()
        await self.engine.idle()

    def said(self, *names: str) -> list[Any]:
        """Return what was released under these names, in order."""
        return [what for name, what in self.log if name in names]

    async def dies(self) -> None:
        """Let go of the file as a killed process does: what is in flight may be lost, nothing is tidied up."""
        await self.engine.idle()
        self.engine._writer.shutdown()
        self.store._db.close()
        self.reader.close()


async def workplace(folder: Path) -> Machine:
    """Return a machine with project j1, pattern p1 and its session s1 in the store."""
    machine = Machine(folder)
    await machine.has(project(), pattern(), session())
    return machine


def put(tx: Tx, record: Record) -> None:
    """A use case: store a row."""
    tx.put(record)


def titled(n: int) -> ask.SessionsRename:
    """Return the request that renames session s1."""
    return wanted(ask.SessionsRename, session_id="s1", title=f"Title {n}")


FULL: Final = sqlite3.OperationalError("database or disk is full")
