"""Which entries of providers a session is offered, by what a person types."""

from typing import Any

from eryxd.cli.kit import Problem, split, visible
from eryxd.client.client import Client
from eryxd.domain.errors import ErrorCode

Tooling = dict[str, list[str]]


def chosen(client: Client, words: list[str]) -> Tooling:
    """Return what `git`, or `mcp:git` where several providers have one, stands for.

    Raises: Problem -- nothing, or several, are called so.
    """
    entries = client.call("providers.list")["entries"]
    found: Tooling = {}
    for word in split(words):
        entry = _one(word, entries)
        ids = found.setdefault(entry["provider"], [])
        if entry["id"] not in ids:
            ids.append(entry["id"])
    return found


def _one(word: str, entries: list[Any]) -> Any:
    same = [one for one in entries if word in (one["id"], f"{one['provider']}:{one['id']}")]
    if len(same) == 1:
        return same[0]
    if same:
        names = ", ".join(visible(f"{one['provider']}:{one['id']}") for one in same)
        raise Problem(f"{visible(word)!r} is several entries: {names}.")
    raise Problem(f"There is no entry {visible(word)!r}.", "eryx providers list", ErrorCode.NOT_FOUND)


def select(client: Client, session_id: str, words: list[str]) -> Any:
    """Let a session be offered exactly these entries."""
    return client.call("sessions.update_tooling", session_id=session_id, tooling=chosen(client, words))
