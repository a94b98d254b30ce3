"""Which plugins are installed, and which of them a person has enabled.  Imports none of them, and nothing heavy.

Laws: a plugin of another distribution than ours is new until it is enabled; one that was enabled for another
distribution is new again; a file that cannot be used enables nobody.

Source: architecture 4.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eryxd import toml
from eryxd.domain.errors import Invalid
from eryxd.domain.plugins import PluginStatus
from eryxd.trust import require_trusted

GROUP: Final = "eryxd"
"""Entry-point group of plugins."""

OURS: Final = frozenset({"eryxd", "eryxd-mcp", "eryxd-lsp", "eryxd-copilot"})
"""Distributions whose plugins are enabled unless somebody disables them."""

PLUGINS_FILE: Final = "plugins.toml"
"""In the configuration folder: what was enabled and disabled."""

_MAX_BYTES: Final = 256 * 1024


class Choice(NamedTuple):
    """What a person has decided about a plugin, for which distribution and version."""

    is_enabled: bool
    distribution: str
    version: str


class Found(NamedTuple):
    """A plugin that is installed.  `target` is what its entry point names; `rivals` are others of the same name."""

    name: str
    distribution: str
    version: str
    target: Any
    rivals: tuple[str, ...] = ()

    def loaded(self) -> object:
        """Import it.  For a thread of its own: it is other people's code."""
        return self.target.load()


def discover() -> dict[str, Found]:
    """Return the installed plugins by name."""
    # Costs 50 ms, which only whoever asks for plugins should pay.
    from importlib.metadata import entry_points

    found: dict[str, Found] = {}
    for point in entry_points(group=GROUP):
        distribution = point.dist.name if point.dist else "an unknown distribution"
        version = point.dist.version if point.dist else ""
        one = Found(point.name, distribution, version, point)
        other = found.get(point.name)
        if other is None:
            found[point.name] = one
        elif other.distribution != distribution:
            found[point.name] = other._replace(rivals=tuple(sorted({*other.rivals, other.distribution, distribution})))
    return dict(sorted(found.items()))


def standing(found: Found, choices: Mapping[str, Choice]) -> PluginStatus:
    """Say whether a plugin may be imported."""
    choice = choices.get(found.name)
    if choice is not None and choice.distribution == found.distribution:
        return PluginStatus.ENABLED if choice.is_enabled else PluginStatus.DISABLED
    return PluginStatus.ENABLED if found.distribution in OURS else PluginStatus.NEW


def read_choices(config_dir: str) -> dict[str, Choice]:
    """Return what was decided.

    Raises: Invalid -- the file is there and cannot be used; the message says what to do.
    """
    path = os.path.join(config_dir, PLUGINS_FILE)
    try:
        with open(path, "rb") as file:
            require_trusted(path, os.fstat(file.fileno()))
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", file=path) from error
    try:
        if len(raw) > _MAX_BYTES:
            raise ValueError("it is too large")
        tables = toml.loads(raw.decode()).get("plugins", {})
        return {name: _choice(table) for name, table in tables.items()}
    except (tomllib.TOMLDecodeError, RecursionError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise Invalid(
            f"{path} cannot be used ({error}), so no plugin of others is enabled.  Mend it, or move it away and enable"
            " them again: eryx plugins enable NAME",
            file=path,
        ) from error


def _choice(table: Any) -> Choice:
    enabled, distribution, version = table["enabled"], table["distribution"], table.get("version", "")
    if not (isinstance(enabled, bool) and isinstance(distribution, str) and isinstance(version, str)):
        raise ValueError("a plugin has `enabled`, `distribution` and `version`")
    return Choice(enabled, distribution, version)


def write_choices(config_dir: str, choices: Mapping[str, Choice]) -> None:
    """Replace the file, whole or not at all.

    Raises: Invalid -- it cannot be written.
    """
    path = os.path.join(config_dir, PLUGINS_FILE)
    fresh = f"{path}.new"
    try:
        os.makedirs(config_dir, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
            file.write("# Written by eryx plugins enable and disable.\n")
            file.writelines(_table(name, choice) for name, choice in sorted(choices.items()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}.", file=path) from error


def _table(name: str, choice: Choice) -> str:
    # A JSON string is a TOML string as well.
    return (
        f"\n[plugins.{json.dumps(name)}]\nenabled = {json.dumps(choice.is_enabled)}\n"
        f"distribution = {json.dumps(choice.distribution)}\nversion = {json.dumps(choice.version)}\n"
    )


def refuse_new(found: Found, choices: Mapping[str, Choice]) -> None:
    """Refuse to import what nobody has enabled.

    Raises: Invalid -- with the command that enables it.
    """
    status = standing(found, choices)
    if status is not PluginStatus.ENABLED or found.rivals:
        why = f"several distributions have one: {', '.join(found.rivals)}" if found.rivals else f"it is {status.value}"
        raise Invalid(
            f"The plugin {found.name!r} of {found.distribution} {found.version} is not used: {why}.",
            problems=[f"{found.name}: {why}"],
            next=f"eryx plugins enable {found.name}",
        )
