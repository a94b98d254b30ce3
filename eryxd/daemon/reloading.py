"""Taking over `config.toml` and `workspace.d`, when they change or somebody asks for it.

Laws: each of the two is taken over whole or not at all; a bad one keeps what was good, and says so in the status and in
an event; a daemon that nobody bothers wakes twice a second for it.

Source: FIL-4, architecture 10.
"""

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from eryxd import settings as configuration
from eryxd.api.tool_replies import Reloaded
from eryxd.core import audit, workspace
from eryxd.core.secrets import fill, hide
from eryxd.daemon import workspace_files
from eryxd.daemon.daemon import Daemon
from eryxd.daemon.workspace_files import FileEntry, Parsed
from eryxd.domain.errors import EryxError, Invalid, StoreUnavailable
from eryxd.domain.ids import ProjectId, Timestamp
from eryxd.domain.providers import EntryId, ProviderEntry
from eryxd.domain.session import Project
from eryxd.plugin.types import Entry

log = logging.getLogger("eryxd.files")

CONFIG_FILE: Final = "config.toml"

DEBOUNCE_MS: Final = 300
STEP_MS: Final = 500
"""How long changes are gathered, and how often the watch looks: an idle daemon should hardly wake."""

RECHECK_MS: Final = 5000
"""How often it is looked whether the folders are still the same ones."""

NEEDS_RESTART: Final = "limits.connections and limits.connections_per_peer change with the next start of the daemon."


class Reloader:
    """Reads the files and takes them over."""

    def __init__(self, daemon: Daemon, config_dir: Path) -> None:
        self._daemon = daemon
        self._config_dir = config_dir
        self._reloading = asyncio.Lock()
        self._asked: asyncio.Task[None] | None = None
        self._seen: Any = None
        """What the files held when they were last read, good or bad."""
        self._notes: dict[str, list[str]] = {"config": [], "workspace": []}

    def warnings(self) -> list[str]:
        """Say what is wrong with the files, and what in them has no effect."""
        return [note for notes in self._notes.values() for note in notes]

    async def begin(self) -> None:
        """Take over `workspace.d` at the start; bad files leave the last good records as they are."""
        async with self._reloading:
            self._seen = await asyncio.to_thread(self._all)
            with contextlib.suppress(Invalid):
                await self._workspace()

    async def reload(self) -> Reloaded:
        """Read everything again.

        Raises: Invalid -- naming every problem; what was good stands.
        """
        async with self._reloading:
            self._seen = await asyncio.to_thread(self._all)
            problems: list[str] = []
            reloaded = Reloaded(seq=self._daemon.engine.seq)
            try:
                await self._settings()
            except Invalid as error:
                problems += self._notes["config"] or [error.message]
            try:
                reloaded = await self._workspace()
            except Invalid:
                problems += self._notes["workspace"]
            if problems:
                await self._tell_rejected(problems)
                raise Invalid("The files were not taken over: " + "; ".join(problems), problems=problems)
            shown = msgspec.structs.replace(reloaded, warnings=(*reloaded.warnings, *self._notes["config"]))
            return await self._daemon.engine.run(audit.reloaded, shown)

    def ask(self) -> None:
        """Reload soon, because a signal says so."""
        self._asked = asyncio.get_running_loop().create_task(self._look(even_if_same=True))

    async def _tell_rejected(self, problems: list[str]) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._daemon.engine.run(audit.rejected, tuple(problems[:50]))

    def _all(self) -> tuple[Any, ...]:
        return workspace_files.read(self._config_dir), self._config_text()

    def _config_text(self) -> str | None:
        try:
            return (self._config_dir / CONFIG_FILE).read_text()
        except (OSError, UnicodeDecodeError):
            return None

    async def _settings(self) -> None:
        path = str(self._config_dir / CONFIG_FILE)
        try:
            fresh = await asyncio.to_thread(configuration.load, path)
        except Invalid as error:
            self._notes["config"] = error.message.splitlines()
            raise
        old = self._daemon.settings
        self._notes["config"] = [NEEDS_RESTART] if _connections(fresh) != _connections(old) else []
        self._daemon.apply(fresh)

    async def _workspace(self) -> Reloaded:
        texts, unread = await asyncio.to_thread(workspace_files.read, self._config_dir)
        parsed = workspace_files.parse(texts)
        problems = [*unread, *parsed.problems]
        warnings: list[str] = [*parsed.warnings]
        found, secrets = workspace.Workspace(), dict[str, dict[str, str]]()
        if not problems:
            found, secrets = await self._checked(parsed, problems, warnings)
        if problems:
            self._notes["workspace"] = [*problems, "The last good files of workspace.d stand."]
            raise Invalid("; ".join(problems), problems=problems)
        for name, of_one in secrets.items():
            await asyncio.to_thread(self._daemon.secrets.keep, name, of_one)
        try:
            taken: Reloaded = await self._daemon.engine.run(workspace.take_over, found)
        except Invalid as error:
            told: Any = error.data.get("problems", [error.message])
            self._notes["workspace"] = [*told, "The last good files of workspace.d stand."]
            raise
        self._notes["workspace"] = [*warnings, *taken.warnings]
        return msgspec.structs.replace(taken, warnings=(*warnings, *taken.warnings))

    async def _checked(
        self, parsed: Parsed, problems: list[str], warnings: list[str]
    ) -> tuple[workspace.Workspace, dict[str, dict[str, str]]]:
        """Hold the entries against their providers; one whose provider is not loaded stays as it is stored."""
        entries: list[ProviderEntry] = []
        kept: set[tuple[str, str]] = set()
        secrets: dict[str, dict[str, str]] = {}
        for one in parsed.entries:
            where = f"{one.origin.file}, line {one.origin.line}: the entry {one.provider}:{one.id}"
            registered = self._daemon.providers.by_name.get(one.provider)
            if registered is None:
                why = self._daemon.providers.absent.get(one.provider, "no plugin contributes that provider")
                warnings.append(f"{where} has no effect: {why}")
                kept.add((one.provider, one.id))
                continue
            try:
                entry, of_one = await self._entry(one, registered.provider)
            except EryxError as error:
                problems.append(f"{where}: {error.message}")
                continue
            entries.append(entry)
            secrets[entry.provider_id] = of_one
        return workspace.Workspace(parsed.patterns, tuple(entries), frozenset(kept)), secrets

    async def _entry(self, one: FileEntry, provider: Any) -> tuple[ProviderEntry, dict[str, str]]:
        kind = provider.descriptor.record
        if kind is None:
            raise Invalid("the provider has no entries")
        shown, secrets = hide(kind, one.record)
        try:
            record = msgspec.convert(fill(kind, shown, secrets)[0], kind)
        except msgspec.ValidationError as error:
            raise Invalid(f"record: {error}") from error
        stored = ProviderEntry(
            provider=one.provider,
            id=EntryId(one.id),
            name=one.name,
            record=shown,
            created_at=Timestamp(""),
            updated_at=Timestamp(""),
            revision=one.revision,
            project_id=UNSET if one.project is UNSET else self._project(one.project),
            origin=one.origin,
        )
        entry = Entry(id=one.id, name=one.name, record=record, project_path=self._daemon.providers.path(stored))
        found = await self._daemon.providers.in_thread(
            provider, "problems", lambda: [str(problem) for problem in provider.problems(entry, [])]
        )
        if found:
            raise Invalid("; ".join(found))
        return stored, secrets

    def _project(self, folder: str) -> ProjectId:
        path = os.path.realpath(os.path.expanduser(folder))
        for project in self._daemon.engine.committed.all(Project):
            if project.path == path:
                return project.id
        raise Invalid(f"{folder} is no project; add it first: eryx projects add {folder}")

    async def watch(self) -> None:
        """Take over what changes, for as long as the daemon runs."""
        # Costs 60 ms, after the daemon is ready.
        from watchfiles import awatch

        while True:
            await asyncio.to_thread(self._config_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
            watched = self._watched()
            seen = _identities(watched)
            try:
                changes = awatch(
                    *watched,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    rust_timeout=RECHECK_MS,
                    yield_on_timeout=True,
                    watch_filter=None,
                    recursive=True,
                )
                async for _ in changes:
                    await self._look()
                    if _identities(self._watched()) != seen:
                        break
            except OSError as error:
                log.error("the configuration cannot be watched: %s", error)
                self._notes["config"] = [
                    f"The configuration is not watched ({error}); after a change type: eryx daemon reload"
                ]
                return

    def _watched(self) -> list[str]:
        folder = self._config_dir / workspace_files.FOLDER
        real = os.path.realpath(folder)
        inside = os.path.realpath(self._config_dir)
        extra = [real] if os.path.isdir(real) and not real.startswith(inside + os.sep) else []
        return [inside, *extra]

    async def _look(self, even_if_same: bool = False) -> None:
        """Reload if what is written there is another text than before."""
        seen = await asyncio.to_thread(self._all)
        if seen == self._seen and not even_if_same:
            return
        try:
            await self.reload()
        except EryxError as error:
            log.error("the files were not taken over: %s", error.message)


def _connections(settings: configuration.Settings) -> tuple[int, int]:
    return settings.limits.connections, settings.limits.connections_per_peer


def _identities(paths: list[str]) -> list[tuple[int, int]]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            one = os.stat(path)
            found.append((one.st_dev, one.st_ino))
    return found
