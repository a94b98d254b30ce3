"""Command groups of plugins: `eryx NAME` for a first word that is none of ours.

Law: nothing of a plugin that nobody enabled is imported, and one that breaks is one line and an exit status.
"""

import json
import os
from typing import Any, Final

import typer
from typer.main import get_group

from eryxd import paths
from eryxd.cli.kit import Problem, visible
from eryxd.domain.errors import ErrorCode, EryxError

COMMANDS_FILE: Final = "plugin-commands.json"
"""In the state folder, written by the daemon: plugins with a group, and their distributions."""

HOOK: Final = "eryxd_commands"


def known() -> dict[str, str]:
    """Return the groups that the daemon knows of, by name, with a line of help."""
    try:
        with open(os.path.join(paths.state_dir(), COMMANDS_FILE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, EryxError):
        # Help without them is better than no help.
        return {}
    if not isinstance(found, dict):
        return {}
    return {visible(str(name)): f"Commands of the plugin {visible(str(name))}." for name in sorted(found)}


def load(name: str) -> Any:
    """Return the click group of a plugin, or None when no plugin of that name is installed.

    Raises: Problem -- it is not enabled, has no commands, or breaks.
    """
    # What finds plugins costs 50 ms, which no other command should pay.
    from eryxd.plugin.installed import discover, read_choices, refuse_new

    found = discover().get(name)
    if found is None:
        return None
    try:
        refuse_new(found, read_choices(paths.config_dir()))
    except EryxError as error:
        hint = str(error.data.get("next", ""))
        raise Problem(error.message, hint, ErrorCode.INVALID) from error
    whose = f"The plugin {name} of {found.distribution} {found.version}"
    try:
        hook = getattr(found.loaded(), HOOK, None)
        return None if hook is None else get_group(_checked(hook()))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise Problem(
            f"{whose} has commands that cannot be used: {type(error).__name__}: {visible(str(error))}.",
            f"eryx plugins disable {name}",
            ErrorCode.PROVIDER_FAILED,
        ) from error


def _checked(group: Any) -> typer.Typer:
    if not isinstance(group, typer.Typer):
        raise TypeError(f"{HOOK} returned {type(group).__name__}, not a typer.Typer")
    return group
