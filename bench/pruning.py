"""How long a prune keeps everybody else waiting: 500 ids that are gone, on 10,000 lists of 50."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from bench import records
from bench.harness import Bench, Pair, Place
from eryxd.core import reconcile
from eryxd.core.change import Context, Effect
from eryxd.daemon import clock
from eryxd.daemon.engine import Engine, Listener
from eryxd.daemon.sources import sweepings
from eryxd.daemon.store import Reader, Store
from eryxd.domain.approval import Decider
from eryxd.domain.catalog import Prune, SourceAnswer, SourceId
from eryxd.domain.ids import ProviderId, Record, SessionId, ToolId
from eryxd.domain.policy import ASK_POLICY, ApprovalSettings
from eryxd.domain.session import ListOwner, Offers, SessionHead
from eryxd.domain.tools import EMPTY_CATALOG, ProvidedTool, ToolKind

LISTS: Final = 10_000
LISTED: Final = 50
KNOWN: Final = 2000
GONE: Final = 500

SOURCE: Final = SourceId("mcp:hub")


class Lists:
    """An engine that holds the lists, and the source whose tools stand on them."""

    def __init__(self, place: Place) -> None:
        random = Random(7)  # noqa: S311 -- it only spreads tools over lists
        self.tools = [ToolId(f"tool_{number}") for number in range(KNOWN)]
        self.names = [tuple(random.sample(self.tools, LISTED)) for _ in range(LISTS)]
        self.rows = [row for number, names in enumerate(self.names) for row in _list(number, names)]
        self.answer = SourceAnswer(
            source=SOURCE,
            kind=ToolKind.MCP,
            name="Hub",
            fingerprint="before",
            tools=tuple(ProvidedTool(id=tool) for tool in self.tools),
            answered_at=clock.now(),
            since=clock.now(),
        )
        self.store = Store(place.folder)
        self.engine = Engine(self.store, Reader(self.store.path).get, self._context)
        self.engine.listen(Listener(lambda _: None, self._effects, lambda: None, lambda: None))

    def _context(self, caller: Decider | None = None) -> Context:
        return Context(
            now=clock.now(),
            caller=caller or Decider(uid=0, pid=0, client_name="bench"),
            new_id=clock.new_id,
            number=self.engine.next_number,
            later=clock.later,
            catalog=EMPTY_CATALOG,
            backends={},
            default_policy=ASK_POLICY,
            own_folders=(),
        )

    def _effects(self, effects: list[Effect]) -> None:
        """The sweep is driven below."""

    def restore(self) -> None:
        """Put every list back in memory as it was."""
        for state in (self.engine.head, self.engine.committed):
            for row in [self.answer, *self.rows]:
                state.put(row)

    async def prune(self) -> float:
        """Take an answer without the ids that are gone, write that into every list; return the longest stall, in s."""
        self.restore()
        # As the daemon does when it has loaded its rows.
        gc.collect()
        gc.freeze()
        ticking = asyncio.create_task(_longest_stall())
        await asyncio.sleep(0)
        kept = replace(self.answer, fingerprint="after", tools=self.answer.tools[GONE:])
        await self.engine.run(reconcile.take, reconcile.Taken(kept))
        for change in sweepings(self.engine.committed):
            if change is None:
                await asyncio.sleep(0)
            else:
                await self.engine.persist(reconcile.sweep, change)
        ticking.cancel()
        stall = await ticking
        self._check()
        return stall

    def _check(self) -> None:
        gone = set(self.tools[:GONE])
        assert not list(self.engine.committed.all(Prune))
        for number, names in enumerate(self.names):
            head = self.engine.committed.get(SessionHead, _id(number))
            assert head is not None
            assert head.approval_settings is not UNSET
            assert head.approval_settings.auto_approved_tool_names == tuple(one for one in names if one not in gone)


async def _longest_stall() -> float:
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest


def _id(number: int) -> SessionId:
    return SessionId(f"s{number:016}")


def _list(number: int, names: tuple[ToolId, ...]) -> Iterator[Record]:
    head = records.session(_id(number))
    yield replace(head, approval_settings=ApprovalSettings(auto_approved_tool_names=names))
    providers: dict[ToolId, tuple[ProviderId, ...]] = {name: (ProviderId(SOURCE),) for name in names}
    yield Offers(owner=ListOwner.SESSION, owner_id=_id(number), providers=providers, number=0)


def _naive(lists: Lists) -> float:
    known = set(lists.tools[GONE:])
    started = time.perf_counter()
    kept = [[name for name in names if name in known] for names in lists.names]
    took = time.perf_counter() - started
    assert len(kept) == LISTS
    return took


@contextmanager
def _pruning(place: Place) -> Iterator[Pair]:
    lists = Lists(place)
    with asyncio.Runner() as runner:
        try:
            yield Pair(lambda: runner.run(lists.prune()), lambda: _naive(lists))
        finally:
            runner.run(lists.engine.close(True))


BENCHES: Final = (
    Bench(
        name="prune",
        subject="longest stall while 500 ids leave 10,000 lists of 50",
        baseline="filtering the lists in one go, in memory",
        goal=0.3,
        pairs=5,
        open=_pruning,
    ),
)
