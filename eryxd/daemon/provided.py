"""The tool providers of plugins, with the entries that people have defined for them.

Laws: a provider is called in a thread of its own and for a bounded time; what it raises becomes `provider_failed` with
its name; a secret reaches the provider and nobody else.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, structs

from eryxd.core.secrets import fill
from eryxd.core.state import State, encode
from eryxd.daemon.children import Children, OwnedProcesses
from eryxd.daemon.secret_file import SecretFile
from eryxd.domain.catalog import SourceAnswer, SourceId
from eryxd.domain.errors import EryxError, NotFound, ProviderFailed
from eryxd.domain.ids import Timestamp
from eryxd.domain.providers import ProviderEntry
from eryxd.domain.session import Project
from eryxd.plugin.foreign import Broke, in_thread
from eryxd.plugin.types import Entry, ProvidedTool, ProviderCall, ToolOutcome, ToolProvider

T = TypeVar("T")

HOOK_S: Final = 5.0
"""How long a provider may take for what it answers without asking anybody."""

ASK_S: Final = 60.0
"""How long a provider may take to ask which tools there are: a first start may have to install something."""

MAX_TOOLS: Final = 2000
"""Tools of one source; more is a defect of it."""

MAX_TOOLS_BYTES: Final = 2 * 1024 * 1024
"""Size of one source's definitions, encoded."""


class Registered(NamedTuple):
    """A provider, and the plugin that contributes it."""

    plugin: str
    provider: ToolProvider


class Asked(NamedTuple):
    """A source, ready to be asked: with the answer that will hold its tools, and those that need no asking."""

    answer: SourceAnswer
    provider: ToolProvider
    entry: Entry | None
    stored: ProviderEntry | None
    declared: tuple[ProvidedTool, ...] | None

    @property
    def fingerprint(self) -> str:
        """What stands for the question."""
        return self.answer.fingerprint


class Providers:
    """Finds the provider behind a source, and calls it safely."""

    def __init__(self, state: State, secrets: SecretFile, children: Children) -> None:
        self._state = state
        self._secrets = secrets
        self._children = children
        self.by_name: dict[str, Registered] = {}
        self.absent: dict[str, str] = {}
        """Why the provider of a name is not here: its plugin did not load, is disabled, or is new."""

    def without_entries(self) -> Iterable[str]:
        """Return the providers that are sources by themselves."""
        return [name for name, one in self.by_name.items() if one.provider.descriptor.record is None]

    def need(self, name: str) -> Registered:
        """Return a provider.

        Raises: NotFound -- naming those that there are.
        """
        if name not in self.by_name:
            why = self.absent.get(name, "no plugin that is installed and enabled contributes it")
            raise NotFound(
                f"There is no tool provider {name!r}: {why}.",
                id=name,
                noun="provider",
                known=sorted(self.by_name),
                next="eryx plugins list",
            )
        return self.by_name[name]

    def why_absent(self, source: SourceId) -> str:
        """Say why only an answer is left of a source."""
        provider, _, entry = source.partition(":")
        if provider == "backend":
            return f"there is no backend {entry!r} any more"
        if provider not in self.by_name:
            return self.absent.get(provider, "its plugin is not installed")
        return "withdrawn: its definition is not there any more"

    async def asked(self, source: SourceId) -> Asked:
        """Get ready to ask a source.

        Raises: NotFound, ProviderFailed.
        """
        name, _, id = source.partition(":")
        registered = self.need(name)
        stored = self._state.get(ProviderEntry, (name, id)) if id else None
        if id and stored is None:
            raise NotFound(f"There is no {name} entry {id!r}.", id=id, noun="entry", next="eryx providers list")
        return await self.asked_for(registered, stored)

    async def asked_for(self, registered: Registered, stored: ProviderEntry | None) -> Asked:
        """Get ready to ask an entry, stored or about to be, or a provider without entries.

        Raises: ProviderFailed, StoreUnavailable.
        """
        provider = registered.provider
        source = SourceId(provider.descriptor.name if stored is None else stored.provider_id)
        entry = None if stored is None else await asyncio.to_thread(self.entry, provider, stored)
        extra = await self.in_thread(provider, "fingerprint", lambda: str(provider.fingerprint(entry)))
        declared = await self.in_thread(provider, "declared", lambda: _materialised(provider.declared(entry)))
        raw = None if entry is None else (entry.record, entry.project_path or "")
        answer = SourceAnswer(
            source=source,
            kind=provider.descriptor.kind,
            name=provider.descriptor.label if stored is None else stored.name,
            fingerprint=sha256(encode((raw, extra))).hexdigest(),
            tools=(),
            answered_at=Timestamp(""),
            since=Timestamp("") if stored is None else stored.created_at,
            plugin=registered.plugin,
        )
        return Asked(answer, provider, entry, stored, declared)

    def entry(self, provider: ToolProvider, stored: ProviderEntry) -> Entry:
        """Return an entry as its provider gets it: of its own type, secrets filled in.  Blocks.

        Raises: ProviderFailed -- the record does not fit the type any more.  StoreUnavailable.
        """
        kind = provider.descriptor.record
        if kind is None:
            raise ProviderFailed(f"The provider {stored.provider} has no entries.", provider=stored.provider)
        raw, unknown = fill(kind, stored.record, self._secrets.of(stored.provider_id))
        if unknown:
            raise ProviderFailed(
                f"{stored.provider_id} has lost its secret {unknown[0]}; enter it again.",
                provider=stored.provider_id,
                problems=unknown,
            )
        try:
            record = msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            raise ProviderFailed(
                f"The definition of {stored.provider_id} is not one any more: {error}.", provider=stored.provider_id
            ) from error
        return Entry(id=stored.id, name=stored.name, record=record, project_path=self.path(stored))

    def usable(self, provider: ToolProvider, stored: Iterable[ProviderEntry]) -> list[Entry]:
        """Return those entries that their provider can be given.  Blocks."""
        found = []
        for one in stored:
            with contextlib.suppress(ProviderFailed):
                found.append(self.entry(provider, one))
        return found

    def path(self, stored: ProviderEntry) -> str | msgspec.UnsetType:
        """Return the folder of an entry's project."""
        project = self._state.get(Project, stored.project_id) if stored.project_id is not UNSET else None
        return UNSET if project is None else project.path

    async def tools(self, asked: Asked) -> tuple[ProvidedTool, ...]:
        """Return the tools of a source.

        Raises: ProviderFailed -- with a sentence for the person.
        """
        if asked.declared is not None:
            return _bounded(asked.answer.source, asked.declared)

        async def listed() -> tuple[ProvidedTool, ...]:
            found = await asked.provider.tools(asked.entry, OwnedProcesses(self._children, ""))
            return _materialised(found) or ()

        return _bounded(asked.answer.source, await self._awaited(asked.answer.source, listed(), ASK_S))

    def is_current(self, asked: Asked) -> bool:
        """Say whether a source is still defined as it was asked."""
        if asked.stored is None:
            return asked.provider.descriptor.name in self.by_name
        return self._state.get(ProviderEntry, (asked.stored.provider, asked.stored.id)) == asked.stored

    async def call(self, source: SourceId, call: ProviderCall, owner: str) -> ToolOutcome:
        """Run a tool that the gate has let pass.

        Raises: NotFound, ProviderFailed.
        """
        asked = await self.asked(source)

        async def called() -> ToolOutcome:
            outcome = await asked.provider.call(asked.entry, call, OwnedProcesses(self._children, owner))
            if not isinstance(outcome, ToolOutcome):
                raise TypeError(f"a call has a ToolOutcome, not {type(outcome).__name__}")
            return outcome

        return await self._awaited(source, called(), None)

    async def in_thread(self, provider: ToolProvider, what: str, work: Callable[[], T]) -> T:
        """Call what blocks.

        Raises: ProviderFailed -- naming the provider and the method.
        """
        return await self._awaited(f"{provider.descriptor.name}.{what}", in_thread(work, HOOK_S), HOOK_S)

    async def _awaited(self, what: str, work: Awaitable[T], limit_s: float | None) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except EryxError:
            raise
        except TimeoutError as error:
            raise ProviderFailed(f"{what} did not answer within {limit_s:.0f} s.", provider=what) from error
        except Broke as error:
            if isinstance(error.cause, EryxError):
                raise error.cause from error
            raise ProviderFailed(f"{what} broke down: {error}", provider=what) from error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # A plugin that exits must not take the daemon along.
            raise ProviderFailed(f"{what} broke down: {type(error).__name__}: {error}", provider=what) from error


def _materialised(found: Any) -> tuple[ProvidedTool, ...] | None:
    """Return what a provider listed as records; a generator runs here, inside the guard.

    Raises: TypeError -- it is something else.
    """
    if found is None:
        return None
    tools = tuple(found)
    for tool in tools:
        if not isinstance(tool, ProvidedTool):
            raise TypeError(f"a tool is a ProvidedTool, not {type(tool).__name__}")
    return tuple(ProvidedTool(**structs.asdict(tool)) for tool in tools)


def _bounded(source: str, tools: tuple[ProvidedTool, ...]) -> tuple[ProvidedTool, ...]:
    if len(tools) > MAX_TOOLS:
        raise ProviderFailed(f"{source} lists {len(tools)} tools; at most {MAX_TOOLS} are taken.", provider=source)
    try:
        checked = msgspec.convert(msgspec.to_builtins(tools), tuple[ProvidedTool, ...])
        size = len(encode(checked))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise ProviderFailed(f"{source} lists a tool that is not well formed: {error}.", provider=source) from error
    if size > MAX_TOOLS_BYTES:
        raise ProviderFailed(
            f"{source} lists {size} bytes of definitions, more than {MAX_TOOLS_BYTES}.", provider=source
        )
    return checked
