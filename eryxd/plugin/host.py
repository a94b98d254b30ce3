"""Loads one plugin and takes apart what its hooks return, all in threads that nobody has to wait for.

Law: whatever a plugin does, the outcome is a `Loaded` or a `Refused` that names plugin, distribution and the cure.

Source: architecture 4.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pluggy

from eryxd.domain.capabilities import BackendDescriptor
from eryxd.domain.ids import Record
from eryxd.domain.plugins import PluginStatus
from eryxd.plugin import spec
from eryxd.plugin.foreign import Broke, in_thread
from eryxd.plugin.installed import Found
from eryxd.plugin.types import Backend, Observer, PluginContext, ProviderDescriptor, ToolProvider

T = TypeVar("T")

HOOK_S: Final = 5.0
"""How long an import or a hook may take."""

RESERVED: Final = frozenset({"builtin", "backend"})
"""Names that stand for something else in the ids of the catalog."""

_PROVIDER: Final = ("problems", "fingerprint", "declared", "tools", "call")
_PROVIDER_ASYNC: Final = ("tools", "call")
_BACKEND: Final = ("describe", "prepare", "run_turn")


class Refused(Exception):
    """A plugin that is not used: its status, and what is wrong."""

    def __init__(self, status: PluginStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


class Loaded(NamedTuple):
    """What a plugin contributes."""

    providers: tuple[ToolProvider, ...] = ()
    backends: tuple[Backend, ...] = ()
    observers: tuple[Observer, ...] = ()
    has_commands: bool = False

    def words(self) -> tuple[str, ...]:
        """Say what it is, for a list."""
        found = [f"tools: {one.descriptor.name}" for one in self.providers]
        found += [f"backend: {one.descriptor.name}" for one in self.backends]
        found += ["observer"] if self.observers else []
        return (*found, *(["commands"] if self.has_commands else []))


async def load(found: Found, table: Mapping[str, Any], state_dir: str) -> Loaded:
    """Import a plugin and call its hooks.

    Raises: Refused.
    """
    manager = await _guarded("importing it", PluginStatus.LOAD_ERROR, lambda: _manager(found))
    settings = await _settings(manager, found, table)
    context = PluginContext(settings=settings, state_dir=state_dir)
    hook = manager.hook
    return Loaded(
        providers=await _listed("eryxd_tool_providers", lambda: hook.eryxd_tool_providers(context=context), _provider),
        backends=await _listed("eryxd_backends", lambda: hook.eryxd_backends(context=context), _backend),
        observers=await _listed("eryxd_observers", lambda: hook.eryxd_observers(context=context), _observer),
        has_commands=bool(hook.eryxd_commands.get_hookimpls()),
    )


def _manager(found: Found) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("eryxd")
    manager.add_hookspecs(spec)
    manager.register(found.loaded(), found.name)
    # A hook that is misspelt would otherwise be silently ignored.
    manager.check_pending()
    return manager


async def _settings(manager: pluggy.PluginManager, found: Found, table: Mapping[str, Any]) -> Any:
    def work() -> tuple[Any, ...]:
        kinds = tuple(_finished(one) for one in manager.hook.eryxd_settings())
        for kind in kinds:
            _need_record(kind, "what it returned")
        return kinds

    where = f"[plugins.{found.name}] in config.toml"
    kinds = await _guarded("eryxd_settings", PluginStatus.FAULTED, work)
    if not kinds and table:
        raise Refused(PluginStatus.CONFIG_ERROR, f"{where} is for a plugin that takes no settings")
    if not kinds:
        return None
    try:
        return msgspec.convert(dict(table), kinds[0])
    except msgspec.ValidationError as error:
        raise Refused(PluginStatus.CONFIG_ERROR, f"{where}: {error}") from error


async def _listed(name: str, hook: Callable[[], Any], checked: Callable[[Any], T]) -> tuple[T, ...]:
    def work() -> tuple[T, ...]:
        return tuple(checked(one) for result in _whole(hook()) for one in _whole(result))

    return await _guarded(name, PluginStatus.FAULTED, work)


def _finished(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("it returned a coroutine: write `def`, not `async def`")
    return result


def _whole(result: Any) -> tuple[Any, ...]:
    """Return everything that was returned; a generator runs here, inside the guard."""
    result = _finished(result)
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise TypeError(f"it returned {_name(result)}, not a list")
    return tuple(result)


async def _guarded(what: str, status: PluginStatus, work: Callable[[], T]) -> T:
    try:
        return await in_thread(work, HOOK_S)
    except TimeoutError:
        raise Refused(status, f"{what} did not return within {HOOK_S:.0f} s") from None
    except Broke as error:
        raise Refused(status, f"{what} failed: {error}") from error


def _provider(one: Any) -> ToolProvider:
    descriptor = one.descriptor
    if not isinstance(descriptor, ProviderDescriptor):
        raise TypeError(f"the descriptor of {_name(one)} is {_name(descriptor)}, not a ProviderDescriptor")
    _need_methods(one, _PROVIDER, _PROVIDER_ASYNC)
    name, record = descriptor.name, descriptor.record
    if not (str(name).isidentifier() and name.islower()) or name in RESERVED:
        raise ValueError(f"{name!r} is no name of a provider: lower-case letters, digits and _, and none of eryx's own")
    if record is not None:
        _need_record(record, f"the record of {name}")
        # A type without a schema could not be checked either.
        msgspec.json.schema(record)
    return one  # type: ignore[no-any-return]


def _backend(one: Any) -> Backend:
    if not isinstance(one.descriptor, BackendDescriptor):
        raise TypeError(f"the descriptor of {_name(one)} is {_name(one.descriptor)}, not a BackendDescriptor")
    _need_methods(one, _BACKEND, _BACKEND)
    return one  # type: ignore[no-any-return]


def _observer(one: Any) -> Observer:
    _need_methods(one, ("saw",), ())
    return one  # type: ignore[no-any-return]


def _need_methods(one: Any, methods: Iterable[str], asynchronous: Iterable[str]) -> None:
    missing = [name for name in methods if not callable(getattr(one, name, None))]
    if missing:
        raise TypeError(f"{_name(one)} has no {', '.join(missing)}")
    for name in methods:
        if inspect.iscoroutinefunction(getattr(one, name)) != (name in asynchronous):
            raise TypeError(f"{_name(one)}.{name} must be `{'async ' if name in asynchronous else ''}def`")


def _need_record(kind: Any, what: str) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Record)):
        raise TypeError(f"{what} is {_name(kind)}, not a Record's type")


def _name(one: Any) -> str:
    return one.__name__ if isinstance(one, type) else type(one).__name__
