"""The sole writer: computes changes on head, commits them in batches, releases what they promised in order.

Laws: a reply or an event is released only after its change is durable, in commit order; a failed batch leaves
memory as the store is; a refusal that rests on something in flight is released with it; nothing else assigns state.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from eryxd.api.events import Event
from eryxd.core.change import Change, Context, Effect, Stored, Tx
from eryxd.core.state import TABLES, Key, State
from eryxd.daemon.store import Store, Written, written
from eryxd.domain.approval import Decider
from eryxd.domain.errors import Busy, EryxError, StoreUnavailable
from eryxd.domain.ids import Record

log = logging.getLogger("eryxd.engine")

MAX_IN_FLIGHT: Final = 4096
"""Changes that may wait for the disk.  More than that means that it has stopped."""

BUSY_WAIT_S: Final = 0.2
"""How long the daemon's own work waits before it tries again when too many changes wait for the disk."""

PROBE_S: Final = 5.0
"""How often a store that refused is tried again."""

_UNSURE: Final = (
    "Nothing took effect; should eryxd be killed before it writes again, the record may show the change all the same."
)
"""SQLite cannot say whether a commit that could not be synced will be found after a crash."""

_NOTHING: Final = Change((), (), (), (), None)

_ABSENT: Final = object()
"""Tells a tombstone (None) from no entry at all."""

T = TypeVar("T")
Outcome = Callable[[Any, EryxError | None], None]
"""Called once on the loop with the reply or the error, after the commit."""


class Flight(NamedTuple):
    """A computed change on its way to the disk, or an error that waits for what it rests on."""

    written: Written
    done: Outcome
    error: EryxError | None = None


class Announced(NamedTuple):
    """A durable event: its record (without a number of its own), its number, and its encoding with that number."""

    event: Event
    seq: int
    body: bytes


class Listener(NamedTuple):
    """Who is told of what has become durable.

    `failed` is called when a batch was lost; `recovered` when the store takes writes again.
    """

    events: Callable[[list[Announced]], None]
    effects: Callable[[list[Effect]], None]
    failed: Callable[[], None]
    recovered: Callable[[], None]


class Engine:
    """Owns both views and the writer thread."""

    def __init__(self, store: Store, stored: Stored, context: Callable[[Decider | None], Context]) -> None:
        self.committed = State()
        self.head = State()
        self.problem: str | None = None
        self.seq, self._number = store.last()
        """The last durable event."""
        self._store = store
        self.stored = stored
        """Reads one row that is not kept in memory, as the store has it."""
        self._context = context
        self._next_seq = self.seq + 1
        self._batches = store.batches()
        self._departed: dict[tuple[type[Record], Key], Record | None] = {}
        self._waiting: list[Flight] = []
        self._writing: list[Flight] = []
        self._kicked = False
        self._closed = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="eryxd-writer")
        self._listener: Listener | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        store.load(self.committed, self.head)

    def listen(self, listener: Listener) -> None:
        """Set who is told from now on; once, when what a start finds unfinished has been put in order."""
        self._listener = listener

    def next_number(self) -> int:
        """Return the next number that orders records.  Numbers are never used twice, gaps are fine."""
        self._number += 1
        return self._number

    def execute(
        self, use_case: Callable[[Tx, Any], T], request: Any, done: Outcome, caller: Decider | None = None
    ) -> None:
        """Compute a use case on head and send its change to the disk; `done` hears the outcome.

        `caller` goes into the context; the daemon itself is nobody's client.
        """
        refusal = self._refusal()
        if refusal is not None:
            done(None, refusal)
            return
        tx = self._tx(caller)
        try:
            one = self._numbered(tx.finish(use_case(tx, request)))
        except EryxError as error:
            tx.rollback()
            self._refuse(error, done)
            return
        except BaseException:
            tx.rollback()
            raise
        self._accept(one, done)

    def look(self, use_case: Callable[[Tx, Any], T], request: Any) -> T:
        """Compute a use case that only looks, on what is durable; whatever it puts is taken back."""
        tx = Tx(self.committed, self.committed, {}, self.stored, self._context(None))
        try:
            return use_case(tx, request)
        finally:
            tx.rollback()

    async def run(self, use_case: Callable[[Tx, Any], T], request: Any, caller: Decider | None = None) -> T:
        """Execute and wait for the outcome.

        Raises: EryxError -- what the use case refused, or that the store did.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(reply: Any, error: EryxError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(reply)
            else:
                future.set_exception(error)

        self.execute(use_case, request, done, caller)
        return await future

    async def persist(self, use_case: Callable[[Tx, Any], T], request: Any) -> T:
        """Execute and wait, also while too many changes wait for the disk: for what the daemon itself must record.

        Raises: EryxError -- as `run`, but never Busy.
        """
        while True:
            try:
                return await self.run(use_case, request)
            except Busy:
                await asyncio.sleep(BUSY_WAIT_S)

    def _refusal(self) -> EryxError | None:
        if self.problem is not None:
            return StoreUnavailable(
                f"The store takes no writes: {self.problem}. Nothing was changed; it is tried again every"
                f" {PROBE_S:.0f} s.",
                why=self.problem,
            )
        if len(self._waiting) + len(self._writing) >= MAX_IN_FLIGHT:
            return Busy("Too many changes wait for the disk.", retry_ms=200)
        return None

    def _tx(self, caller: Decider | None) -> Tx:
        return Tx(self.head, self.committed, self._departed, self.stored, self._context(caller))

    def _refuse(self, error: EryxError, done: Outcome) -> None:
        if self._waiting or self._writing:
            self._waiting.append(Flight(Written(_NOTHING, self._next_seq, (), ()), done, error))
            self._kick()
        else:
            done(None, error)

    def _numbered(self, change: Change) -> Written:
        if "seq" in getattr(change.reply, "__struct_fields__", ()):
            last = self._next_seq + len(change.events) - 1
            change = change._replace(reply=replace(change.reply, seq=last))
        return written(change, self._next_seq)

    def _accept(self, one: Written, done: Outcome) -> None:
        self._next_seq += len(one.bodies)
        for record in one.change.puts:
            kind = type(record)
            if not TABLES[kind].keep(record):
                self._departed[kind, TABLES[kind].key(record)] = record
        for kind, key in one.change.deletes:
            self._departed[kind, key] = None
        self._waiting.append(Flight(one, done))
        self._kick()

    def _kick(self) -> None:
        """Start a batch at the end of this turn of the loop, so that what arrives together is synced together."""
        if not self._kicked and not self._writing:
            self._kicked = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._kicked = False
        self._writing, self._waiting = self._waiting, []
        batch = [flight.written for flight in self._writing if not flight.written.is_empty]
        if not batch:
            self._land()
            return
        loop = asyncio.get_running_loop()
        # Not `run_in_executor`: its second future and its extra turn of the loop are a tenth of a commit.
        future = self._writer.submit(self._commit, batch, self._number)
        future.add_done_callback(lambda written: loop.call_soon_threadsafe(self._written, written))

    def _commit(self, batch: list[Written], number: int) -> None:
        try:
            self._store.commit(batch, number)
        except (sqlite3.Error, OSError) as error:
            if self._happened_after_all():
                return
            raise StoreUnavailable(f"The disk refused: {error}. {_UNSURE}", why=str(error)) from error

    def _happened_after_all(self) -> bool:
        """A COMMIT that reported an error may still be in the file: look before saying anything."""
        try:
            return self._store.batches() > self._batches
        except (sqlite3.Error, OSError):
            return False

    def _written(self, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            self._batches += 1
            self._land()
            return
        if not isinstance(error, StoreUnavailable):
            log.error("the writer broke down", exc_info=error)
            error = StoreUnavailable(f"The writer broke down: {type(error).__name__}.", why="internal")
        self._lose(error)

    def _land(self) -> None:
        """Move the batch to committed, then release events, effects and replies, in order, in this one callback."""
        landed, self._writing = self._writing, []
        announced: list[Announced] = []
        effects: list[Effect] = []
        for flight in landed:
            one = flight.written
            self._make_durable(one.change)
            numbered = zip(one.change.events, one.bodies, strict=True)
            announced += (Announced(event, one.first_seq + n, body) for n, (event, body) in enumerate(numbered))
            effects += one.change.effects
            self.seq = max(self.seq, one.first_seq + len(one.bodies) - 1)
        if self._listener is not None:
            self._listener.events(announced)
            self._listener.effects(effects)
        for flight in landed:
            flight.done(None if flight.error else flight.written.change.reply, flight.error)
        self._next_batch()

    def _make_durable(self, change: Change) -> None:
        for record in change.puts:
            self.committed.put(record)
            row = (type(record), TABLES[type(record)].key(record))
            if self._departed.get(row) is record:
                del self._departed[row]
        for kind, key in change.deletes:
            self.committed.delete(kind, key)
            if self._departed.get((kind, key), _ABSENT) is None:
                del self._departed[kind, key]

    def _next_batch(self) -> None:
        if self._waiting:
            self._kick()
        elif not self._writing and not self._kicked:
            self._idle.set()

    def _lose(self, error: StoreUnavailable) -> None:
        """Drop everything in flight, so that memory is what the store says; tell everybody who waits."""
        lost = self._writing + self._waiting
        self._writing, self._waiting = [], []
        self._departed.clear()
        for flight in lost:
            self._take_back(flight.written.change)
        self._next_seq = self.seq + 1
        self.problem = str(error.data.get("why", error.message))
        log.error("the store takes no writes: %s", self.problem)
        for flight in lost:
            flight.done(None, error)
        self._idle.set()
        if self._listener is not None:
            self._listener.failed()
        if not self._closed:
            asyncio.get_running_loop().call_later(PROBE_S, self._probe)

    def _take_back(self, change: Change) -> None:
        keys = [(type(record), TABLES[type(record)].key(record)) for record in change.puts]
        for kind, key in [*keys, *change.deletes]:
            durable = self.committed.get(kind, key)
            if durable is None:
                self.head.delete(kind, key)
            else:
                self.head.put(durable)

    def _probe(self) -> None:
        if self._closed or self.problem is None:
            return
        future = asyncio.get_running_loop().run_in_executor(self._writer, self._probe_store)
        future.add_done_callback(self._probed)

    def _probe_store(self) -> int:
        self._store.probe()
        return self._store.batches()

    def _probed(self, future: asyncio.Future[int]) -> None:
        error = future.exception()
        if error is not None:
            self.problem = str(error)
            if not self._closed:
                asyncio.get_running_loop().call_later(PROBE_S, self._probe)
            return
        if future.result() != self._batches:
            # A commit of which nobody could learn anything has happened: memory is behind, and must not go on.
            self.problem = "a commit that had reported an error is in the file after all; restart eryxd"
            log.error("the store is ahead of memory: %s", self.problem)
            return
        log.warning("the store takes writes again")
        self.problem = None
        if self._listener is not None:
            self._listener.recovered()

    async def on_writer(self, work: Callable[[Store], T]) -> T:
        """Do something with the store between batches, in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, self._store)

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._idle.wait()

    async def close(self, is_sound: bool) -> None:
        """Commit what is in flight, mark the stop as clean where the store is known to be sound, close the file."""
        await self.idle()
        self._closed = True
        if self.problem is None:
            await self.on_writer(lambda store: store.mark_clean(is_sound))
        await self.on_writer(lambda store: store.close())
        self._writer.shutdown()
