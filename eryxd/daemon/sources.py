"""The sources of the catalog: who is asked, when, and how far each is.

Laws: a source that fails or hangs costs nobody anything, its last good answer stands in; a source whose fingerprint
has an answer is not asked at a start; a few are asked at a time; nothing here prunes, only an answer does.

Source: CAT-3, CAT-7, VAL-2.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.replies import SourceState
from eryxd.core import reconcile
from eryxd.core.change import Ask, Effect, Sweep
from eryxd.core.state import GENERATION, State
from eryxd.daemon import clock
from eryxd.daemon.backends import Backends
from eryxd.daemon.engine import Engine
from eryxd.daemon.provided import Asked, Providers
from eryxd.domain.capabilities import Capabilities, Connection
from eryxd.domain.catalog import (
    Generation,
    Prune,
    SourceAnswer,
    SourceId,
    SourceStatus,
    build,
    runtime_tools,
    taken,
)
from eryxd.domain.errors import EryxError
from eryxd.domain.ids import BackendName, Timestamp, ToolId
from eryxd.domain.pattern import Pattern
from eryxd.domain.providers import ProviderEntry
from eryxd.domain.session import SessionHead
from eryxd.domain.tools import EMPTY_CATALOG, Catalog, ToolKind

log = logging.getLogger("eryxd.sources")

AT_ONCE: Final = 4
"""Sources that are asked at a time: each may start a program."""

VALIDATION_WAIT_S: Final = 5.0
"""How long saving a list waits for sources that have not answered (VAL-2)."""

SWEEP_LISTS: Final = 10
"""Lists that a prune is written into in one change: a few milliseconds' worth."""

SWEEP_LOOKS: Final = 500
"""Lists that are looked at before others may run again."""

BUILTIN_NAME: Final = "Built-in"


class Sources:
    """Asks sources and knows how far each is; the catalog that follows from their answers."""

    def __init__(self, engine: Engine, backends: Backends, providers: Providers) -> None:
        self._engine = engine
        self._backends = backends
        self._providers = providers
        self.states: dict[SourceId, SourceState] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._asking: dict[SourceId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._catalog: Catalog = EMPTY_CATALOG
        self._built_from = -1
        self._sweeping = False
        self._sweep_again = False
        backends.heard = self._backend_said

    @property
    def catalog(self) -> Catalog:
        """The catalog of what is durable."""
        state = self._engine.committed
        if self._built_from != state.answers_version:
            row = state.get(Generation, GENERATION)
            self._catalog = build(state.all(SourceAnswer), 0 if row is None else row.number)
            self._built_from = state.answers_version
        return self._catalog

    async def start(self) -> None:
        """Let fallbacks stand in, ask the backends, and ask in the background whoever has no answer yet."""
        unasked = [self._fallback(name) for name in self._backends.by_name]
        await self._engine.run(reconcile.fall_back, unasked)
        for name in self._backends.by_name:
            self._note(_backend_source(name), SourceStatus.PENDING, "it has not answered yet")
        await self._backends.describe()
        for source in self._wanted():
            self.look_again(source)
        self.sweep()

    def _wanted(self) -> Iterable[SourceId]:
        yield from (SourceId(entry.provider_id) for entry in self._engine.committed.all(ProviderEntry))
        yield from (SourceId(name) for name in self._providers.without_entries())

    def _fallback(self, name: BackendName) -> SourceAnswer:
        tools = runtime_tools(self._backends.by_name[name].descriptor.fallback_tools)
        return SourceAnswer(
            source=_backend_source(name),
            kind=ToolKind.BUILTIN,
            name=BUILTIN_NAME,
            fingerprint="fallback",
            tools=tools,
            answered_at=clock.now(),
            since=Timestamp(""),
            backend=name,
            is_fallback=True,
        )

    async def _backend_said(self, name: BackendName, said: Capabilities, is_new: bool) -> None:
        source, connection = _backend_source(name), said.connection
        tools = runtime_tools(said.runtime_tools or ())
        if tools:
            fingerprint = f"{connection.path or ''} {connection.version or ''}"
            answer = replace(self._fallback(name), fingerprint=fingerprint, tools=tools, is_fallback=False)
            await self._engine.persist(reconcile.take, reconcile.Taken(answer, is_new))
        if connection.status is Connection.READY:
            self._note(source, SourceStatus.ANSWERED)
        else:
            self._note(source, SourceStatus.FAILED, connection.summary)

    def provider_came(self, provider: str) -> None:
        """Ask what a provider has that was not there before."""
        entries = [one for one in self._engine.committed.all(ProviderEntry) if one.provider == provider]
        for entry in entries:
            self.look_again(SourceId(entry.provider_id))
        if provider in self._providers.without_entries():
            self.look_again(SourceId(provider))

    def backend_came(self) -> None:
        """Ask the backends that were never asked."""
        self._spawn(self._describe())

    async def _describe(self) -> None:
        await self._engine.run(reconcile.fall_back, [self._fallback(name) for name in self._backends.by_name])
        await self._backends.describe()

    async def withdraw_plugin(self, plugin: str) -> tuple[ToolId, ...]:
        """Forget everything that a plugin offered, because a person took it away; return what was pruned."""
        pruned: tuple[ToolId, ...] = ()
        for answer in list(self._engine.committed.all(SourceAnswer)):
            if answer.plugin == plugin:
                pruned += await self._engine.run(reconcile.withdraw_one, answer.source)
                self.forget(answer.source)
        return pruned

    def look_again(self, source: SourceId) -> None:
        """Ask a source unless it has answered exactly this before, or is not defined any more."""
        provider, is_entry, id = source.partition(":")
        if is_entry and self._engine.committed.get(ProviderEntry, (provider, id)) is None:
            self.forget(source)
            return
        self._note(source, SourceStatus.PENDING, "it is being asked")
        self._spawn(self._looked(source))

    async def _looked(self, source: SourceId) -> None:
        try:
            await self._look(source)
        finally:
            state = self.states.get(source)
            if state is not None and state.status is SourceStatus.PENDING:
                self._note(source, SourceStatus.FAILED, "asking it broke down; the log says why")

    async def _look(self, source: SourceId) -> None:
        asked = await self._prepare(source)
        known = self._engine.committed.get(SourceAnswer, source)
        if asked is None:
            return
        if known is not None and known.fingerprint == asked.fingerprint and not known.is_fallback:
            self._note(source, SourceStatus.ANSWERED)
            return
        await self._ask(source, asked, is_new=False)

    async def check(self, source: SourceId) -> SourceState:
        """Ask a source anew, and wait for its answer.  What it no longer offers is pruned (PRN-2)."""
        asked = await self._prepare(source)
        if asked is not None:
            await self._ask(source, asked, is_new=True)
        return self.by_status()[source]

    async def _prepare(self, source: SourceId) -> Asked | None:
        self._note(source, SourceStatus.PENDING, "it is being asked")
        try:
            return await self._providers.asked(source)
        except EryxError as error:
            self._note(source, SourceStatus.FAILED, error.message)
            return None

    async def _ask(self, source: SourceId, asked: Asked, is_new: bool) -> None:
        if source not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask_one(source, asked, is_new))
            self._asking[source] = task
            task.add_done_callback(lambda _: self._asking.pop(source, None))
        await asyncio.shield(self._asking[source])

    async def _ask_one(self, source: SourceId, asked: Asked, is_new: bool) -> None:
        try:
            async with self._places:
                answer = await self.answer_of(asked)
        except EryxError as error:
            self._note(source, SourceStatus.FAILED, error.message)
            return
        if not self._providers.is_current(asked):
            # Its definition was edited or deleted meanwhile: nobody asked this.
            return
        await self._engine.persist(reconcile.take, reconcile.Taken(answer, is_new))
        self._note(source, SourceStatus.ANSWERED)

    async def answer_of(self, asked: Asked) -> SourceAnswer:
        """Return what a source answers.

        Raises: ProviderFailed.
        """
        tools, quarantined = taken(await self._providers.tools(asked))
        return replace(asked.answer, tools=tools, quarantined=quarantined, answered_at=clock.now())

    def answered(self, source: SourceId) -> None:
        """Take note that a source has answered by itself."""
        self._note(source, SourceStatus.ANSWERED)

    def _note(self, source: SourceId, status: SourceStatus, reason: str = "") -> None:
        self.states[source] = SourceState(
            id=source,
            name=source,
            kind=ToolKind.BUILTIN,
            status=status,
            reason=reason or UNSET,
            at=clock.now(),
        )
        self._moved.set()

    def forget(self, source: SourceId) -> None:
        """Know nothing of a source any more."""
        self.states.pop(source, None)
        self._moved.set()

    def shown(self) -> tuple[SourceState, ...]:
        """Return every source, those included that only an answer is left of."""
        answers = {answer.source: answer for answer in self._engine.committed.all(SourceAnswer)}
        known = {**{source: self._orphan(source) for source in answers}, **self.states}
        return tuple(_shown(known[source], answers.get(source)) for source in sorted(known))

    def _orphan(self, source: SourceId) -> SourceState:
        reason = self._providers.why_absent(source)
        return SourceState(
            id=source, name=source, kind=ToolKind.PLUGIN, status=SourceStatus.FAILED, reason=reason or UNSET
        )

    def trouble(self) -> list[str]:
        """Say which sources failed, for `eryx status`; backends are shown there by themselves."""
        return [
            f"The source {state.id} failed: {state.reason or 'no reason is known'}."
            for state in self.shown()
            if state.status is SourceStatus.FAILED and not state.id.startswith("backend:")
        ]

    def by_status(self) -> Mapping[SourceId, SourceState]:
        """Return every source by its id."""
        return {state.id: state for state in self.shown()}

    async def settled(self, is_enough: Callable[[], bool]) -> None:
        """Wait until no source is pending or it is enough, at most five seconds (VAL-2)."""
        with_deadline = asyncio.timeout(VALIDATION_WAIT_S)
        try:
            async with with_deadline:
                while not is_enough() and self._is_pending():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            log.info("a list is validated before all sources have answered")

    async def idle(self) -> None:
        """Wait until nothing is asked or swept any more."""
        while tasks := [*self._tasks, *self._asking.values()]:
            await asyncio.wait(tasks)

    def _is_pending(self) -> bool:
        return any(state.status is SourceStatus.PENDING for state in self.states.values())

    def effects(self, effects: list[Effect]) -> None:
        """Carry out what has become durable."""
        for effect in effects:
            match effect:
                case Sweep():
                    self.sweep()
                case Ask(source):
                    self.look_again(source)

    def sweep(self) -> None:
        """Write prunes into the stored lists, in the background."""
        self._sweep_again = True
        if not self._sweeping:
            self._sweeping = True
            self._spawn(self._sweep())

    async def _sweep(self) -> None:
        try:
            while self._sweep_again:
                self._sweep_again = False
                for change in sweepings(self._engine.committed):
                    if change is None:
                        await asyncio.sleep(0)
                    else:
                        await self._engine.persist(reconcile.sweep, change)
        finally:
            self._sweeping = False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("asking a source broke down", exc_info=task.exception())

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [*self._tasks, *self._asking.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)


def sweepings(state: State) -> Iterator[reconcile.Sweeping | None]:
    """Yield the changes that write every prune into every list that it concerns; None: others may run meanwhile."""
    prunes = list(state.all(Prune))
    if not prunes:
        return
    lost = {tool for prune in prunes for tool in prune.lost}
    yield reconcile.Sweeping(patterns=tuple(pattern.id for pattern in state.all(Pattern)))
    found: list[str] = []
    for looked_at, head in enumerate(list(state.all(SessionHead)), 1):
        settings = head.approval_settings
        if settings is not UNSET and not lost.isdisjoint(settings.auto_approved_tool_names):
            found.append(head.id)
        if len(found) == SWEEP_LISTS:
            yield reconcile.Sweeping(sessions=tuple(found))
            found.clear()
        elif looked_at % SWEEP_LOOKS == 0:
            yield None
    yield reconcile.Sweeping(sessions=tuple(found), done=tuple(prune.number for prune in prunes))


def _backend_source(name: BackendName) -> SourceId:
    return SourceId(f"backend:{name}")


def _shown(state: SourceState, answer: SourceAnswer | None) -> SourceState:
    if answer is None:
        return state
    return replace(
        state,
        name=answer.name,
        kind=answer.kind,
        tools=len(answer.tools),
        answered_at=answer.answered_at,
        missing=answer.missing,
        quarantined=answer.quarantined,
        is_fallback=answer.is_fallback,
        plugin=answer.plugin,
    )
