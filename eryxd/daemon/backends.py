"""Backends, and what each last said of itself.

Laws: callers that ask at once share one request; a backend that fails or hangs leaves the others as they are and is
shown with its problem; a failure of the tool list alone leaves `ready`.

Source: BKD-1, CAT-3.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.replies import BackendState
from eryxd.daemon import clock
from eryxd.domain.capabilities import BackendDescriptor, Capabilities, Connection, ConnectionState
from eryxd.domain.errors import NotFound
from eryxd.domain.ids import BackendName
from eryxd.plugin.types import Backend

log = logging.getLogger("eryxd.backends")

DESCRIBE_S: Final = 10.0
"""How long a backend may take to say what it can do."""


class Backends:
    """The backends by name, and what each last said of itself."""

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.by_name: dict[BackendName, Backend] = {one.descriptor.name: one for one in backends}
        self.states: dict[BackendName, BackendState] = {
            name: _unasked(one.descriptor) for name, one in self.by_name.items()
        }
        self.heard: Heard = _nobody
        """Told of everything that a backend says, before who asked."""
        self._asking: dict[BackendName, asyncio.Task[None]] = {}

    def add(self, backend: Backend) -> None:
        """Let one more be chosen from now on."""
        self.by_name[backend.descriptor.name] = backend
        self.states[backend.descriptor.name] = _unasked(backend.descriptor)

    async def describe(self, name: BackendName | None = None) -> tuple[BackendState, ...]:
        """Return what one or all backends last said, asking those that were never asked.

        Raises: NotFound.
        """
        unasked = [one for one in self._names(name) if self.states[one].capabilities is UNSET]
        await self._ask(unasked)
        return tuple(self.states[one] for one in self._names(name))

    async def refresh(self, name: BackendName | None = None) -> tuple[BackendState, ...]:
        """Ask one or all backends anew.

        Raises: NotFound.
        """
        await self._ask(self._names(name), is_new=True)
        return tuple(self.states[one] for one in self._names(name))

    def _names(self, name: BackendName | None) -> list[BackendName]:
        if name is not None and name not in self.by_name:
            raise NotFound(f"There is no backend {name!r}.", id=name, noun="backend", known=sorted(self.by_name))
        return sorted(self.by_name) if name is None else [name]

    async def _ask(self, names: Iterable[BackendName], is_new: bool = False) -> None:
        for name in names:
            if name not in self._asking:
                task = asyncio.get_running_loop().create_task(self._ask_one(name, is_new))
                self._asking[name] = task
                task.add_done_callback(lambda _, name=name: self._asking.pop(name, None))  # type: ignore[misc]
        # One caller that goes away must not take the answer from the others.
        await asyncio.gather(*(asyncio.shield(self._asking[name]) for name in names if name in self._asking))

    async def _ask_one(self, name: BackendName, is_new: bool) -> None:
        try:
            capabilities = await asyncio.wait_for(self.by_name[name].describe(), DESCRIBE_S)
        except Exception as error:
            log.warning("the backend %s could not say what it can do", name, exc_info=error)
            capabilities, problem = _broken(error), _reason(error)
            self.states[name] = replace(self.states[name], problem=problem, capabilities=capabilities)
        else:
            self.states[name] = replace(self.states[name], capabilities=capabilities, problem=UNSET)
        await self.heard(name, capabilities, is_new)


Heard = Callable[[BackendName, Capabilities, bool], Awaitable[None]]
"""Takes what a backend said; the flag says that it was asked anew."""


async def _nobody(name: BackendName, capabilities: Capabilities, is_new: bool) -> None:
    """Stand in until somebody listens."""


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
