"""A tool provider that answers as a test says, and the parts of a daemon that ask it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from eryxd.core.change import Effect
from eryxd.daemon.backends import Backends
from eryxd.daemon.children import Children
from eryxd.daemon.engine import Listener
from eryxd.daemon.provided import Providers, Registered
from eryxd.daemon.secret_file import SecretFile
from eryxd.daemon.sources import Sources
from eryxd.domain.errors import ProviderFailed
from eryxd.domain.ids import Record, ToolId
from eryxd.plugin.types import (
    Entry,
    Processes,
    ProvidedTool,
    ProviderCall,
    ProviderDescriptor,
    Secret,
    ToolKind,
    ToolOutcome,
)
from tests.engine_builders import Machine


class Server(Record, frozen=True, kw_only=True):
    """An entry's record."""

    command: str
    token: Secret | UnsetType = UNSET


class FakeProvider:
    """Offers what `listed` holds; `declares` says it at once, `fails` raises, `gate` holds the answer back."""

    def __init__(self, name: str = "mcp", record: type[Record] | None = Server) -> None:
        self.descriptor = ProviderDescriptor(name=name, label=name.upper(), kind=ToolKind.MCP, record=record)
        self.listed: Any = ["status", "log"]
        self.declares: Any = None
        self.version = "1"
        self.fails: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.asked: list[Entry | None] = []

    def problems(self, entry: Entry, others: Sequence[Entry]) -> Sequence[str]:
        """Refuse what is called bad."""
        return ["record.command: is bad"] if entry.record.command == "bad" else []

    def fingerprint(self, entry: Entry | None) -> str:
        """Return the version."""
        return self.version

    def declared(self, entry: Entry | None) -> Sequence[ProvidedTool] | None:
        """Return what needs no asking."""
        return self.declares if self.declares is None else [_tool(name) for name in self.declares]

    async def tools(self, entry: Entry | None, processes: Processes) -> Sequence[ProvidedTool]:
        """Answer."""
        self.asked.append(entry)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return [_tool(name) if isinstance(name, str) else name for name in self.listed]

    async def call(self, entry: Entry | None, call: ProviderCall, processes: Processes) -> ToolOutcome:
        """Say what was called."""
        if self.fails is not None:
            raise self.fails
        return ToolOutcome(ok=True, text=f"{call.tool_id} {call.arguments}")


def _tool(name: str) -> ProvidedTool:
    return ProvidedTool(id=ToolId(name))


class Place:
    """The parts of a daemon around the catalog, over a real engine."""

    def __init__(self, folder: Path, *providers: FakeProvider) -> None:
        self.machine = Machine(folder)
        self.children = Children(folder / "children")
        self.secrets = SecretFile(folder)
        self.providers = Providers(self.machine.engine.committed, self.secrets, self.children)
        for provider in providers:
            self.providers.by_name[provider.descriptor.name] = Registered("plugin", provider)
        self.sources = Sources(self.machine.engine, Backends([]), self.providers)

        def carry_out(effects: list[Effect]) -> None:
            self.sources.effects(effects)

        self.machine.engine.listen(Listener(self.machine._events, carry_out, lambda: None, lambda: None))

    async def ends(self) -> None:
        """Let go of everything."""
        await self.sources.close()
        await self.machine.engine.idle()
        await asyncio.to_thread(self.children.close)


FAILED = ProviderFailed("The server does not start.")
