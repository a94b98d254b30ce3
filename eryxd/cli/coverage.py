"""Which agents a tool-call checkpoint covers: where none does, no list matters, for every call runs unasked.

Source: POL-1, POL-9.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eryxd.cli.text import visible

Record = Mapping[str, Any]

_ASKS: Final = {"rules": ({"kind": "tool-call"},)}
"""What stands in for a policy that is missing."""


def uncovered(pattern: Record) -> Sequence[Record]:
    """Return the agents of a pattern whose calls no tool-call checkpoint covers."""
    rules = (pattern.get("approval_policy") or _ASKS)["rules"]
    scopes = [rule.get("agent_ids") or () for rule in rules if rule["kind"] == "tool-call"]
    if any(not scope for scope in scopes):
        return ()
    named = {agent for scope in scopes for agent in scope}
    return [agent for agent in pattern["agents"] if agent["id"] not in named]


def asks_nowhere(pattern: Record | None) -> bool:
    """Whether no call of any agent asks; of a pattern that is gone every call would."""
    return pattern is not None and len(uncovered(pattern)) == len(pattern["agents"])


def unasked(pattern: Record | None) -> str:
    """Say which calls run unasked because no checkpoint covers them; nothing where all are covered."""
    loose = uncovered(pattern) if pattern is not None else ()
    if not loose:
        return ""
    if asks_nowhere(pattern):
        return "every call runs unasked (no tool-call checkpoint)"
    names = ", ".join(visible(agent["name"]) for agent in loose)
    return f"those of {names} run unasked (no tool-call checkpoint covers them)"
