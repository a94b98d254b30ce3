"""Backends and the catalog that their runtime tools make.

Laws: callers that ask at once share one request; a backend that fails or hangs leaves the others as they are and is
shown with its problem; a failure of the tool list alone leaves `ready` and the last good list.

Source: BKD-1, CAT-3.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.replies import BackendState
from eryxd.daemon import clock
from eryxd.domain.capabilities import BackendDescriptor, Capabilities, Connection, ConnectionState
from eryxd.domain.errors import NotFound
from eryxd.domain.ids import BackendName
from eryxd.domain.tools import EMPTY_CATALOG, Catalog, RuntimeTool, ToolDefinition, builtin_tools, merge
from eryxd.plugin.types import Backend

log = logging.getLogger("eryxd.backends")

DESCRIBE_S: Final = 10.0
"""How long a backend may take to say what it can do."""


class Backends:
    """The backends by name, what each last said of itself, and the catalog."""

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.by_name: dict[BackendName, Backend] = {one.descriptor.name: one for one in backends}
        self.states: dict[BackendName, BackendState] = {
            name: _unasked(one.descriptor) for name, one in self.by_name.items()
        }
        self.catalog: Catalog = EMPTY_CATALOG
        self._asking: dict[BackendName, asyncio.Task[None]] = {}
        self._rebuild()

    async def describe(self, name: BackendName | None = None) -> tuple[BackendState, ...]:
        """Return what one or all backends last said, asking those that were never asked.

        Raises: NotFound.
        """
        unasked = [one for one in self._names(name) if self.states[one].capabilities is UNSET]
        await self._ask(unasked)
        return tuple(self.states[one] for one in self._names(name))

    async def refresh(self, name: BackendName | None = None) -> tuple[BackendState, ...]:
        """Ask one or all backends again.

        Raises: NotFound.
        """
        await self._ask(self._names(name))
        return tuple(self.states[one] for one in self._names(name))

    def _names(self, name: BackendName | None) -> list[BackendName]:
        if name is not None and name not in self.by_name:
            raise NotFound(f"There is no backend {name!r}.", id=name, noun="backend", known=sorted(self.by_name))
        return sorted(self.by_name) if name is None else [name]

    async def _ask(self, names: Iterable[BackendName]) -> None:
        for name in names:
            if name not in self._asking:
                task = asyncio.get_running_loop().create_task(self._ask_one(name))
                self._asking[name] = task
                task.add_done_callback(lambda _, name=name: self._asking.pop(name, None))  # type: ignore[misc]
        # One caller that goes away must not take the answer from the others.
        await asyncio.gather(*(asyncio.shield(self._asking[name]) for name in names if name in self._asking))

    async def _ask_one(self, name: BackendName) -> None:
        try:
            capabilities = await asyncio.wait_for(self.by_name[name].describe(), DESCRIBE_S)
        except Exception as error:
            log.warning("the backend %s could not say what it can do", name, exc_info=error)
            self.states[name] = replace(self.states[name], problem=_reason(error), capabilities=_broken(error))
            return
        if capabilities.runtime_tools is UNSET:
            capabilities = replace(capabilities, runtime_tools=self._last_tools(name))
        self.states[name] = replace(self.states[name], capabilities=capabilities, problem=UNSET)
        self._rebuild()

    def _last_tools(self, name: BackendName) -> tuple[RuntimeTool, ...]:
        last = self.states[name].capabilities
        known = last.runtime_tools if last is not UNSET else UNSET
        return known or self.by_name[name].descriptor.fallback_tools

    def _rebuild(self) -> None:
        tools = merge(tool for name in sorted(self.by_name) for tool in self._tools(name))
        rebuilt = Catalog(tools)
        if rebuilt.tools != self.catalog.tools:
            self.catalog = Catalog(tools, self.catalog.generation + 1)

    def _tools(self, name: BackendName) -> Iterable[ToolDefinition]:
        return builtin_tools(name, self._last_tools(name))


def _unasked(descriptor: BackendDescriptor) -> BackendState:
    return BackendState(
        name=descriptor.name,
        label=descriptor.label,
        by_default=descriptor.by_default,
        needs_model=descriptor.needs_model,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {DESCRIBE_S:.0f} s"
    return f"{type(error).__name__}: {error}"


def _broken(error: Exception) -> Capabilities:
    return Capabilities(
        connection=ConnectionState(status=Connection.ERROR, summary=_reason(error), checked_at=clock.now())
    )
