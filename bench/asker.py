"""The daemon with a backend that does what it is told on standard input: `python -m bench.asker`.

Everything but the backend is the real thing.  An order is a line of JSON, and so is its answer:
`{"decide": n}` asks n times for the tool that is on the list, `{"ask": 1}` once for one that is not.  The answer, once
everything was decided, is a list of when each question was put and when it was answered, in seconds of the clock
`time.perf_counter`, which all processes share.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, UnsetType

from bench.records import AUTOMATIC, NOON
from eryxd import paths
from eryxd.backends.tools import available_tools
from eryxd.daemon import single
from eryxd.daemon.begin import begin, end
from eryxd.daemon.children import Children
from eryxd.daemon.daemon import Daemon, Folders
from eryxd.daemon.dispatch import Dispatcher
from eryxd.daemon.server import Limits, Server
from eryxd.domain.approval import Permission, PermissionKind
from eryxd.domain.ids import BackendName, CallId, ProviderId, ToolId
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import (
    Allow,
    Backend,
    BackendDescriptor,
    Capabilities,
    Connection,
    ConnectionState,
    Gate,
    ToolCall,
    ToolOutcome,
    Turn,
)
from eryxd.settings import Settings, load

ASKING: Final = ToolId("shell")
"""A tool that is in the catalog and on no list."""

DONE: Final = ToolOutcome(ok=True, text="done")


class Asker:
    """A backend whose one turn lasts as long as there are orders."""

    descriptor = BackendDescriptor(name=BackendName("bench"), label="Bench", by_default=True)

    def __init__(self) -> None:
        self._calls = 0

    async def describe(self) -> Capabilities:
        state = ConnectionState(status=Connection.READY, summary="Does what it is told.", checked_at=NOON)
        return Capabilities(connection=state, runtime_tools=available_tools())

    async def prepare(self, agent: RunAgent) -> str | UnsetType:
        return UNSET

    async def run_turn(self, turn: Turn, gate: Gate) -> None:
        async for order in _orders():
            tools = [AUTOMATIC] * order.get("decide", 0) + [ASKING] * order.get("ask", 0)
            print(json.dumps([await self._call(gate, tool) for tool in tools]), flush=True)

    async def _call(self, gate: Gate, tool: ToolId) -> tuple[float, float]:
        """Return when the question was put, and when the answer came, which must be yes."""
        self._calls += 1
        arguments = {"path": f"src/module_{self._calls}.py"}
        call = ToolCall(
            call_id=CallId(f"c{self._calls}"),
            tool_id=tool,
            provider=ProviderId(f"builtin:{tool}"),
            permission=Permission(kind=PermissionKind.READ, path=arguments["path"]),
            arguments=arguments,
        )
        asked = time.perf_counter()
        answer = await gate.tool_call(call)
        answered = time.perf_counter()
        if not isinstance(answer, Allow):
            raise RuntimeError(f"a call was denied: {answer}")
        await gate.tool_done(call.call_id, DONE)
        return asked, answered


async def _orders() -> AsyncIterator[dict[str, Any]]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def started(state: Path, settings: Settings, children: Children, backend: Backend) -> Daemon:
    """Return a daemon that has begun as `eryxd` does, with one backend of ours instead of its own."""
    folders = Folders(config=state / "config", state=state, scratch=state / "scratch")
    daemon = Daemon(folders, settings, [backend], children)
    await begin(daemon)
    gc.collect()
    gc.freeze()
    return daemon


async def main() -> None:
    """Start and stop as the daemon does."""
    state = Path(paths.state_dir())
    lock = single.acquire(state)
    children = Children(state / "children")
    settings = load(os.path.join(paths.config_dir(), "config.toml"))
    daemon = await started(state, settings, children, Asker())
    dispatcher = Dispatcher(daemon)
    runtime = Path(paths.runtime_dir())
    single.prepare_runtime(runtime)
    server = Server(single.bind_socket(runtime), dispatcher, Limits(), os.geteuid())
    await server.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.request_stop)
    await daemon.stopping.wait()
    await end(daemon)
    await server.stop()
    await dispatcher.close()
    await asyncio.to_thread(children.close)
    await daemon.close()
    lock.release()


if __name__ == "__main__":
    asyncio.run(main())
