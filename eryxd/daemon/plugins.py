"""The plugins of a daemon: which there are, how each stands, and what it contributes.

Laws: nothing that nobody enabled is imported; one plugin that fails costs the others nothing; of two that contribute
one name the later loses, by the order of their own names, and says to whom.

Source: architecture 4.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from eryxd.api.tool_replies import PluginState
from eryxd.daemon.backends import Backends
from eryxd.daemon.observers import Observers
from eryxd.daemon.provided import Providers, Registered
from eryxd.domain.errors import Invalid, NotFound
from eryxd.domain.plugins import PluginStatus
from eryxd.plugin.installed import Choice, Found, discover, read_choices, standing, write_choices

log = logging.getLogger("eryxd.plugins")

COMMANDS_FILE: Final = "plugin-commands.json"
"""In the state folder: which plugins have a command group, for `eryx --help`."""

TROUBLE: Final = frozenset({PluginStatus.LOAD_ERROR, PluginStatus.CONFIG_ERROR, PluginStatus.FAULTED})

BACKEND_STAYS: Final = "its backend is used until the daemon is started again"


class Plugins:
    """Finds, loads, enables and disables plugins."""

    def __init__(
        self,
        folders: tuple[str, str],
        tables: Mapping[str, Mapping[str, Any]],
        providers: Providers,
        backends: Backends,
        observers: Observers,
    ) -> None:
        """`folders` are those of configuration and state; `tables` are the plugins' own in config.toml."""
        self._config_dir, self._state_dir = folders
        self._tables = tables
        self._providers = providers
        self._backends = backends
        self._observers = observers
        self._states: dict[str, PluginState] = {}
        self._changing = asyncio.Lock()
        self._warnings: list[str] = []
        self.discover: Callable[[], dict[str, Found]] = discover
        """Finds what is installed; a test has its own."""
        self.announce: Callable[[PluginState], None] = lambda _: None
        """Told of a plugin whose standing changed by itself."""

    @property
    def states(self) -> tuple[PluginState, ...]:
        """How each plugin stands, by name."""
        return tuple(self._states[name] for name in sorted(self._states))

    async def load(self) -> None:
        """Load everything that is enabled."""
        async with self._changing:
            found = await asyncio.to_thread(self.discover)
            choices = await self._choices()
            for one in found.values():
                await self._stand(one, choices)
            for name in sorted(set(self._tables) - set(found)):
                self._warnings.append(f"config.toml has [plugins.{name}], and no plugin of that name is installed.")
            self._note_absent(found, choices)
            await asyncio.to_thread(self._write_commands)

    async def _choices(self) -> dict[str, Choice]:
        try:
            return await asyncio.to_thread(read_choices, self._config_dir)
        except Invalid as error:
            log.error("%s", error)
            self._warnings.append(error.message)
            return {}

    async def _stand(self, found: Found, choices: Mapping[str, Choice]) -> None:
        status = standing(found, choices)
        if found.rivals:
            rivals = ", ".join(found.rivals)
            problem = f"several distributions have a plugin of this name: {rivals}; uninstall all but one"
            self._refuse(found, PluginStatus.LOAD_ERROR, problem)
        elif status is PluginStatus.ENABLED:
            await self._load_one(found, choices)
        else:
            cure = f"eryx plugins enable {found.name}"
            self._put(found, status, next=cure)
            self._providers.absent[found.name] = f"the plugin {found.name} is {status.value}; {cure}"

    async def _load_one(self, found: Found, choices: Mapping[str, Choice]) -> None:
        # pluggy and inspect cost 30 ms, which a daemon without plugins need not pay.
        from eryxd.plugin.host import Refused, load

        try:
            loaded = await load(found, self._tables.get(found.name, {}), self._state_dir)
        except Refused as error:
            self._refuse(found, error.status, error.problem)
            return
        if problem := self._clash(loaded.providers, loaded.backends):
            self._refuse(found, PluginStatus.LOAD_ERROR, problem)
            return
        for provider in loaded.providers:
            self._providers.by_name[provider.descriptor.name] = Registered(found.name, provider)
            self._providers.absent.pop(provider.descriptor.name, None)
        for backend in loaded.backends:
            self._backends.add(backend)
        for observer in loaded.observers:
            self._observers.add(found.name, observer, lambda why: self._faulted(found, why))
        choice = choices.get(found.name)
        changed = choice is not None and choice.version != found.version
        note = f"it was enabled at version {choice.version or 'unknown'}" if choice is not None and changed else ""
        self._put(found, PluginStatus.ENABLED, problem=note, provides=loaded.words())

    def _faulted(self, found: Found, why: str) -> None:
        self._refuse(found, PluginStatus.FAULTED, why)
        self.announce(self._states[found.name])

    def _clash(self, providers: Iterable[Any], backends: Iterable[Any]) -> str:
        for one in providers:
            other = self._providers.by_name.get(one.descriptor.name)
            if other is not None:
                return f"the provider {one.descriptor.name} is the plugin {other.plugin}'s already"
        for one in backends:
            if one.descriptor.name in self._backends.by_name:
                return f"there is a backend {one.descriptor.name} already"
        return ""

    def _refuse(self, found: Found, status: PluginStatus, problem: str) -> None:
        log.error("plugin %s of %s %s: %s", found.name, found.distribution, found.version, problem)
        cure = (
            f"mend [plugins.{found.name}] in config.toml, then: eryx plugins enable {found.name}"
            if status is PluginStatus.CONFIG_ERROR
            else f"upgrade or uninstall {found.distribution}, or: eryx plugins disable {found.name}"
        )
        self._put(found, status, problem=problem, next=cure)
        self._providers.absent[found.name] = f"the plugin {found.name} of {found.distribution} failed: {problem}"

    def _put(
        self,
        found: Found,
        status: PluginStatus,
        *,
        problem: str = "",
        next: str = "",
        provides: tuple[str, ...] = (),
    ) -> None:
        self._states[found.name] = PluginState(
            name=found.name,
            distribution=found.distribution,
            version=found.version,
            status=status,
            problem=problem or UNSET,
            next=next or UNSET,
            provides=provides,
        )

    def _note_absent(self, found: Mapping[str, Found], choices: Mapping[str, Choice]) -> None:
        """List what was enabled and is not installed any more."""
        for name, choice in choices.items():
            if name not in found and choice.is_enabled:
                self._states[name] = PluginState(
                    name=name,
                    distribution=choice.distribution,
                    version=choice.version,
                    status=PluginStatus.LOAD_ERROR,
                    problem="it is not installed any more",
                    next=f"install {choice.distribution} again, or: eryx plugins forget {name}",
                )

    def trouble(self) -> list[str]:
        """Say what is wrong, for `eryx status`."""
        return self._warnings + [
            f"The plugin {one.name} of {one.distribution} {one.version} is not used ({one.status}): {one.problem}."
            f" To do: {one.next}"
            for one in self.states
            if one.status in TROUBLE
        ]

    async def enable(self, name: str) -> PluginState:
        """Let a plugin be imported, now and at every start, as long as it comes from this distribution.

        Raises: NotFound; Invalid -- what was decided cannot be read or written.
        """
        async with self._changing:
            found = (await asyncio.to_thread(self.discover)).get(name)
            if found is None:
                raise self._unknown(name)
            await self._decide(name, Choice(True, found.distribution, found.version))
            state = self._states.get(name)
            if state is None or state.status is not PluginStatus.ENABLED:
                await self._stand(found, {name: Choice(True, found.distribution, found.version)})
                await asyncio.to_thread(self._write_commands)
            return self._states[name]

    async def disable(self, name: str) -> PluginState:
        """Stop using a plugin, now and at every start.  A backend of it goes with the next start.

        Raises: NotFound; Invalid.
        """
        async with self._changing:
            state = self._states.get(name)
            if state is None:
                raise self._unknown(name)
            await self._decide(name, Choice(False, state.distribution, state.version))
            self._drop(name)
            has_backend = any(word.startswith("backend:") for word in state.provides)
            self._states[name] = PluginState(
                name=name,
                distribution=state.distribution,
                version=state.version,
                status=PluginStatus.DISABLED,
                problem=BACKEND_STAYS if has_backend else UNSET,
                next=f"eryx plugins enable {name}",
            )
            await asyncio.to_thread(self._write_commands)
            return self._states[name]

    async def forget(self, name: str) -> PluginState | None:
        """Remember nothing of a plugin; one that is still installed is new again, or enabled if it is ours.

        Raises: NotFound; Invalid.
        """
        async with self._changing:
            choices = await asyncio.to_thread(read_choices, self._config_dir)
            if name not in self._states and name not in choices:
                raise self._unknown(name)
            await self._decide(name, None)
            self._drop(name)
            self._states.pop(name, None)
            found = (await asyncio.to_thread(self.discover)).get(name)
            if found is not None:
                await self._stand(found, {})
            await asyncio.to_thread(self._write_commands)
            return self._states.get(name)

    async def _decide(self, name: str, choice: Choice | None) -> None:
        choices = await asyncio.to_thread(read_choices, self._config_dir)
        choices.pop(name, None)
        if choice is not None:
            choices[name] = choice
        await asyncio.to_thread(write_choices, self._config_dir, choices)

    def _unknown(self, name: str) -> NotFound:
        return NotFound(
            f"No plugin {name!r} is installed.",
            id=name,
            noun="plugin",
            known=sorted(self._states),
            next="eryx plugins list",
        )

    def _drop(self, name: str) -> None:
        for provider, registered in list(self._providers.by_name.items()):
            if registered.plugin == name:
                del self._providers.by_name[provider]
                self._providers.absent[provider] = f"the plugin {name} is disabled; eryx plugins enable {name}"
        self._observers.drop(name)

    def _write_commands(self) -> None:
        """Keep for `eryx --help` which plugins have commands."""
        named = {one.name: one.distribution for one in self.states if "commands" in one.provides}
        path = Path(self._state_dir) / COMMANDS_FILE
        fresh = path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(named))
            os.replace(fresh, path)
        except OSError as error:
            log.warning("the commands of plugins cannot be kept for --help: %s", error)
