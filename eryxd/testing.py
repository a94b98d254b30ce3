"""For authors of plugins: a daemon in memory, a backend that does what a test says, and the checks of the contract.

`check_plugin("make")` holds an installed plugin against what eryx expects of every plugin.  `Daemon` is a real daemon
without a socket, in a folder of its own, which serves the same methods:

    with testing.Daemon(tmp_path, plugins={"make": eryx_make}) as daemon:
        daemon.call("providers.save", provider="make", id="web", record={"folder": "/src/web"})
        daemon.settle()
        assert "make_test" in daemon.tools()
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from eryxd.backends.replay import Replay
from eryxd.core.secrets import fill, hide
from eryxd.daemon import clock
from eryxd.daemon.begin import begin, end
from eryxd.daemon.children import Children
from eryxd.daemon.daemon import Daemon as Served, Folders
from eryxd.daemon.dispatch import Dispatcher
from eryxd.daemon.guard import identify
from eryxd.domain.capabilities import BackendDescriptor, Capabilities, Connection, ConnectionState
from eryxd.domain.errors import EryxError
from eryxd.domain.ids import BackendName, ToolId
from eryxd.domain.session import RunAgent
from eryxd.domain.tools import RuntimeTool
from eryxd.plugin.installed import Choice, Found, discover, write_choices
from eryxd.plugin.types import Backend, Entry, Gate, ProvidedTool, ToolProvider, Turn
from eryxd.settings import GuardSection, Settings
from eryxd.wire.peer import Request

T = TypeVar("T")

WAIT_S: Final = 20.0
"""Bound of every wait here; reached only by what hangs."""

DISTRIBUTION: Final = "under-test"
"""Distribution of the plugins that a test hands to a daemon."""

Script = Callable[[Turn, Gate], Awaitable[None]]


class Refused(Exception):
    """A call was refused; `code`, `message` and `data` are those of the error."""

    def __init__(self, error: EryxError) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.code = str(error.code)
        self.message = error.message
        self.data = error.data


class FakeBackend:
    """A backend whose turns are what a test says: an async function of the turn and its gate."""

    def __init__(self, script: Script, *, tools: Sequence[str] = (), name: str = "fake") -> None:
        self._script = script
        self._tools = tuple(RuntimeTool(id=ToolId(tool)) for tool in tools)
        self.descriptor = BackendDescriptor(name=BackendName(name), label=name.title())

    async def describe(self) -> Capabilities:
        """Always ready."""
        state = ConnectionState(status=Connection.READY, summary="Does what a test says.", checked_at=clock.now())
        return Capabilities(connection=state, runtime_tools=self._tools)

    async def prepare(self, agent: RunAgent) -> Any:
        """Nothing has to be kept."""
        return UNSET

    async def run_turn(self, turn: Turn, gate: Gate) -> None:
        """Do what the test says."""
        await self._script(turn, gate)


class _Module:
    """What an entry point of a module under test names."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def load(self) -> Any:
        return self._module


class _Line:
    """The connection of one call."""

    closed = False
    errors_as_text = False

    def __init__(self, done: "asyncio.Future[Any]") -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.peer = identify(ours, os.geteuid())
        self.client_name = "test"
        self._done = done

    def reply(self, msgid: int, result: Any) -> None:
        if not self._done.done():
            self._done.set_result(msgspec.to_builtins(result))

    def fail(self, msgid: int, error: EryxError) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Daemon:
    """A daemon without a socket, in `folder`; its plugins are modules, enabled from the start.

    A context manager: leaving it stops the daemon in good order, and `folder` can be used for another.
    """

    def __init__(
        self,
        folder: Path,
        *,
        plugins: Mapping[str, Any] | None = None,
        backends: Sequence[Backend] = (),
        tables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`tables` are the plugins' settings, as config.toml would have them."""
        self._folder = folder
        self._plugins = dict(plugins or {})
        self._backends = list(backends)
        self._settings = Settings(
            plugins={name: dict(table) for name, table in (tables or {}).items()},
            # Where tests run, everything may carry the mark of an agent.
            guard=GuardSection(no_new_privs=False),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="eryx-under-test", daemon=True)

    def __enter__(self) -> "Daemon":
        self._thread.start()
        self._on_loop(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._on_loop(self._end())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WAIT_S)
            self._loop.close()

    async def _begin(self) -> None:
        config, state = self._folder / "config", self._folder / "state"
        for made in (config, state):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_choices(str(config), {name: Choice(True, DISTRIBUTION, "") for name in self._plugins})
        self._children = Children(state / "children")
        folders = Folders(config=config, state=state, scratch=state / "scratch", own=(str(config), str(state)))
        backends: list[Backend] = [Replay(config / "plans", clock.now), *self._backends]
        self._daemon = Served(folders, self._settings, backends, self._children)
        found = {name: Found(name, DISTRIBUTION, "", _Module(module)) for name, module in self._plugins.items()}
        self._daemon.plugins.discover = lambda: found
        await begin(self._daemon)
        self._dispatcher = Dispatcher(self._daemon)

    async def _end(self) -> None:
        await end(self._daemon)
        await self._dispatcher.close()
        await asyncio.to_thread(self._children.close)
        await self._daemon.close()

    def call(self, method: str, **params: Any) -> Any:
        """Call a method, as a client on the socket would.

        Raises: Refused.
        """
        try:
            return self._on_loop(self._call(method, params))
        except EryxError as error:
            raise Refused(error) from error

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = Request(1, method, msgspec.Raw(msgspec.msgpack.encode(params)))
        line: Any = _Line(done)
        self._dispatcher.request(line, request)
        return await done

    def settle(self) -> None:
        """Wait until every source has answered or failed, and every prune has been written down."""
        self._on_loop(self._settled())

    async def _settled(self) -> None:
        await self._daemon.sources.settled(lambda: False)
        await self._daemon.sources.idle()
        await self._daemon.engine.idle()

    def until(self, wanted: Callable[[], T]) -> T:
        """Return what `wanted` returns once it is something; changes are waited for, not slept for.

        Raises: AssertionError -- it never was.
        """
        deadline = self._loop.time() + WAIT_S
        while not (found := wanted()):
            assert self._loop.time() < deadline, "what a test waited for never came"
            self._on_loop(self._daemon.engine.idle())
        return found

    def tools(self) -> set[str]:
        """Return the ids of the catalog."""
        return {tool["id"] for tool in self.call("tools.list")["tools"]}

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, WAIT_S), self._loop).result()


def check_plugin(name: str, *, module: Any = None, entries: Sequence[Mapping[str, Any]] = ()) -> None:
    """Hold a plugin against the contract: it loads, its hooks return what they must, its providers keep their word.

    `module` is one that is not installed; `entries` are records that its provider must take.

    Raises: AssertionError -- naming what is broken.
    """
    asyncio.run(_check(name, module, entries))


async def _check(name: str, module: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    from eryxd.plugin.host import Refused as NotLoaded, load

    if module is not None:
        found = Found(name, DISTRIBUTION, "", _Module(module))
    else:
        installed = discover()
        assert name in installed, f"no plugin {name!r} is installed; there are: {', '.join(installed)}"
        found = installed[name]
    try:
        loaded = await load(found, {}, "/nonexistent")
    except NotLoaded as error:
        raise AssertionError(f"the plugin {name} does not load ({error.status}): {error.problem}") from error
    for provider in loaded.providers:
        _check_provider(provider, entries)
    again = await load(found, {}, "/nonexistent")
    assert again.words() == loaded.words(), f"the plugin {name} contributes something else each time"


def _check_provider(provider: ToolProvider, records: Sequence[Mapping[str, Any]]) -> None:
    descriptor, kind = provider.descriptor, provider.descriptor.record
    whose = f"the provider {descriptor.name}"
    if kind is None:
        _check_answers(provider, None, whose)
        return
    for number, raw in enumerate(records):
        shown, secrets = hide(kind, raw)
        assert fill(kind, shown, secrets) == (dict(raw), []), f"{whose}: the secrets of record {number} get lost"
        entry = Entry(id=f"e{number}", name=f"Entry {number}", record=msgspec.convert(dict(raw), kind))
        problems = list(provider.problems(entry, []))
        assert problems == [], f"{whose} refuses record {number}: {problems}"
        _check_answers(provider, entry, f"{whose}, record {number}")


def _check_answers(provider: ToolProvider, entry: Entry | None, whose: str) -> None:
    fingerprint = provider.fingerprint(entry)
    assert isinstance(fingerprint, str), f"{whose}: a fingerprint is a text"
    assert provider.fingerprint(entry) == fingerprint, f"{whose}: the fingerprint changes although nothing did"
    declared = provider.declared(entry)
    if declared is None:
        return
    tools = list(declared)
    for tool in tools:
        assert isinstance(tool, ProvidedTool), f"{whose}: a tool is a ProvidedTool, not {type(tool).__name__}"
        assert tool.id.strip() == tool.id != "", f"{whose}: the tool {tool.id!r} has no plain name"
        msgspec.msgpack.encode(tool)
    assert len({tool.id for tool in tools}) == len(tools), f"{whose}: two tools have one id"
    assert list(provider.declared(entry) or ()) == tools, f"{whose}: it declares other tools each time"
