"""The daemon as its parts know it: one record of what there is, without the parts that serve it."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from eryxd.api.replies import Refusal
from eryxd.api.tool_replies import Reloaded
from eryxd.core.change import Context
from eryxd.daemon import clock
from eryxd.daemon.backends import Backends
from eryxd.daemon.bus import Bus
from eryxd.daemon.children import Children
from eryxd.daemon.engine import Engine
from eryxd.daemon.history import History
from eryxd.daemon.observers import Observers
from eryxd.daemon.plugins import Plugins
from eryxd.daemon.provided import Providers
from eryxd.daemon.runs import Runs
from eryxd.daemon.secret_file import SecretFile
from eryxd.daemon.sources import Sources
from eryxd.daemon.store import Reader, Store
from eryxd.domain.approval import Decider
from eryxd.domain.ids import BackendName
from eryxd.domain.policy import ASK_POLICY, NO_CHECKPOINTS
from eryxd.plugin.types import Backend
from eryxd.settings import Settings

Caller = Decider
"""Who made a call, as the daemon saw it."""

REFUSALS_SHOWN: Final = 10
"""How many refused calls `daemon.status` shows; the journal has the rest."""


GUARD_OFF: Final = "guard.no_new_privs is off in config.toml: an agent's shell can answer its own approvals."
"""Said in `eryx status` for as long as it is so."""


class Folders(NamedTuple):
    """Where a daemon keeps its files.  `own` are the real paths of all of them, which no project may touch."""

    config: Path
    state: Path
    scratch: Path
    own: tuple[str, ...] = ()


class Reloading(Protocol):
    """What takes over the files of the configuration."""

    def warnings(self) -> list[str]:
        """Say what is wrong with them."""

    async def reload(self) -> Reloaded:
        """Read them again.  Raises: Invalid."""


class Daemon:
    """Everything that a call may need."""

    def __init__(
        self,
        folders: Folders,
        settings: Settings,
        backends: list[Backend],
        children: Children,
    ) -> None:
        """Open the store and put the parts together.  Nothing runs yet.

        Raises: StoreUnavailable -- the store is not fit to be used.
        """
        self.settings = settings
        self.scratch_dir = folders.scratch
        self.started_at = clock.now()
        self.warnings: list[str] = [] if settings.guard.no_new_privs else [GUARD_OFF]
        self.refusals: deque[Refusal] = deque(maxlen=REFUSALS_SHOWN)
        self.stopping = asyncio.Event()
        self.backends = Backends(backends)
        self._own_folders = folders.own
        store = Store(folders.state)
        self.store_path = store.path
        self.epoch = store.epoch
        """Changes when a store is restored; clients that see another one start over."""
        self.is_sound = store.meta("clean") == "1"
        """The last stop was clean, or the store was checked since: else the next start has to check it."""
        self._reader = Reader(store.path)
        self.engine = Engine(store, self._reader.get, self._context)
        self.history = History(store.path)
        self.bus = Bus()
        self.secrets = SecretFile(folders.state)
        self.providers = Providers(self.engine.committed, self.secrets, children)
        self.sources = Sources(self.engine, self.backends, self.providers)
        self.observers = Observers(asyncio.get_running_loop().call_soon_threadsafe)
        places = (str(folders.config), str(folders.state))
        self.plugins = Plugins(places, settings.plugins, self.providers, self.backends, self.observers)
        self.config_dir = folders.config
        self.reloader: Reloading | None = None
        """Set when the daemon begins."""
        self.runs = Runs(self.engine, self.bus, self.history, self.backends.by_name, children, self.providers)

    @property
    def default_backend(self) -> BackendName | UnsetType:
        """The backend of agents that name none, if the configuration says one."""
        named = self.settings.defaults.backend
        return UNSET if named is UNSET else BackendName(named)

    def _context(self, caller: Decider | None = None) -> Context:
        return Context(
            now=clock.now(),
            caller=caller or Decider(uid=-1, pid=0, client_name="eryxd"),
            new_id=clock.new_id,
            number=self.engine.next_number,
            later=clock.later,
            catalog=self.sources.catalog,
            backends=self.backends.states,
            default_policy=ASK_POLICY if self.settings.approvals.default == "ask" else NO_CHECKPOINTS,
            own_folders=self._own_folders,
            sources=self.sources.states,
            select_all=self.settings.sessions.tooling == "all",
        )

    def shown_settings(self) -> dict[str, str]:
        """Return the settings that clients may want to know."""
        return {
            "approvals.default": self.settings.approvals.default,
            "defaults.backend": self.default_backend or "",
            "sessions.tooling": self.settings.sessions.tooling,
        }

    def apply(self, settings: Settings) -> None:
        """Live by other settings from now on."""
        self.settings = settings
        self.warnings[:] = [warning for warning in self.warnings if warning != GUARD_OFF]
        if not settings.guard.no_new_privs:
            self.warnings.append(GUARD_OFF)

    def request_stop(self) -> None:
        """Ask the main loop to stop the daemon in good order."""
        self.stopping.set()

    async def close(self) -> None:
        """Let go of the store.  The writer goes last, so that it folds its log into the file."""
        await self.engine.idle()
        await self.history.close()
        self._reader.close()
        await self.engine.close(self.is_sound)
