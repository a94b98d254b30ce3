"""Short ids: what is shown, and what is accepted in place of the whole.

Laws: among the ids given, `shorten` never gives two the same; what it gives, `pick` finds again.

Source: APR-9.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from eryxd.cli.report import Problem
from eryxd.cli.text import visible
from eryxd.client.client import Client
from eryxd.domain.errors import ErrorCode

LEAST: Final = 4
"""Fewest characters of an id that are shown or accepted: less is a typing error, not a name."""

SURE: Final = 8
"""Characters that name one of many without looking at the rest: the kind letter and 35 random bits."""

_WHOLE: Final = 17
_PAGE: Final = 1000
_RUNS: Final = 1000
"""How many of the newest runs a prefix is looked up in: there can be millions."""


def shorten(ids: Iterable[str]) -> dict[str, str]:
    """Return the shortest prefix of each id that none of the others has, at least `LEAST` long."""
    ordered = sorted(set(ids))
    need = dict.fromkeys(ordered, LEAST)
    for left, right in pairwise(ordered):
        common = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), len(left)) + 1
        need[left] = max(need[left], common)
        need[right] = max(need[right], common)
    return {each: each[: need[each]] for each in ordered}


def sure(id: str) -> str:
    """Return a prefix that can be pasted later, when there may be more ids."""
    return id[:SURE] if len(id) == _WHOLE else id


def pick(noun: str, given: str, ids: Collection[str]) -> str:
    """Return the one id that begins with what was given.

    Raises: Problem -- none does, several do, or it is too short to tell.
    """
    wanted = given.lower()
    if wanted in ids:
        return wanted
    if len(wanted) < LEAST:
        name = " or name" if noun in ("pattern", "project") else ""
        raise Problem(f"{visible(given)!r} is too short: give at least {LEAST} characters of the {noun}'s id{name}.")
    found = sorted(each for each in ids if each.startswith(wanted))
    if not found:
        raise _missing(noun, given)
    if len(found) > 1:
        several = ", ".join(shorten(found).values())
        raise Problem(f"{visible(given)!r} begins the ids of several {noun}s: {several}.", f"eryx {noun}s list")
    return found[0]


def approval_id(client: Client, given: str) -> str:
    """Return a whole approval id; what waits is looked at first, then what was decided."""
    if _is_whole(given):
        return given
    for resolved in (None, True):
        ids = [row["id"] for row in rows(client, "approvals.list", "approvals", resolved=resolved)]
        if any(each.startswith(given.lower()) for each in ids) or len(given) < LEAST:
            return pick("approval", given, ids)
    raise _missing("approval", given)


def session_id(client: Client, given: str) -> str:
    """Return a whole session id, archived sessions included."""
    if _is_whole(given):
        return given
    ids = {
        row["id"] for archived in (None, True) for row in rows(client, "sessions.list", "sessions", archived=archived)
    }
    return pick("session", given, ids)


def run_id(client: Client, given: str) -> str:
    """Return a whole run id; a prefix is looked up among the newest runs."""
    if _is_whole(given):
        return given
    newest = rows(client, "runs.list", "runs", most=_RUNS)
    return pick("run", given, [row["id"] for row in newest])


def pattern_id(client: Client, given: str) -> str:
    """Return a pattern's id, from its id, its name in any case, or the beginning of either."""
    patterns = client.call("patterns.list")["patterns"]
    return _named("pattern", given, patterns)


def project_id(client: Client, given: str) -> str:
    """Return a project's id, from its id, its folder, its name in any case, or the beginning of either."""
    projects = client.call("projects.list")["projects"]
    folder = os.path.realpath(given)
    for project in projects:
        if os.path.isdir(given) and project["path"] == folder:
            return str(project["id"])
    return _named("project", given, projects)


def rows(client: Client, method: str, key: str, most: int = 0, **params: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a paged listing, all or the first `most`."""
    cursor = None
    left = most or None
    while True:
        limit = min(_PAGE, left) if left else _PAGE
        page = client.call(method, limit=limit, cursor=cursor, **params)
        yield from page[key]
        cursor = page.get("cursor")
        left = left - len(page[key]) if left else None
        if cursor is None or (left is not None and left <= 0):
            return


def names(client: Client) -> dict[str, str]:
    """Return what patterns and projects are called, by id."""
    asked = (("patterns.list", "patterns"), ("projects.list", "projects"))
    return {str(row["id"]): str(row["name"]) for method, key in asked for row in client.call(method)[key]}


def _named(noun: str, given: str, records: Iterable[Mapping[str, Any]]) -> str:
    """Return the id of the one record that has this id or name, else of the one whose id or name begins so.

    Raises: Problem -- there is none, or more than one.
    """
    by_id = {str(record["id"]): str(record["name"]) for record in records}
    wanted = given.casefold()
    if given in by_id:
        return given
    named = [id for id, name in by_id.items() if name.casefold() == wanted]
    if len(named) > 1:
        raise several(noun, given, named)
    if named:
        return named[0]
    begun = [id for id, name in by_id.items() if name.casefold().startswith(wanted) or id.startswith(wanted)]
    if len(wanted) >= LEAST and len(begun) == 1:
        return begun[0]
    if len(wanted) >= LEAST and len(begun) > 1:
        found = ", ".join(f"{short} {visible(by_id[id])}" for id, short in shorten(begun).items())
        raise Problem(f"Several {noun}s begin with {visible(given)!r}: {found}.", f"eryx {noun}s list")
    return pick(noun, given, by_id.keys())


def several(noun: str, name: str, ids: Collection[str], cure: str = "") -> Problem:
    """Return the refusal of a name that more than one record has."""
    short = ", ".join(shorten(ids).values())
    more = f"; {cure}" if cure else ""
    return Problem(f"{len(ids)} {noun}s are called {visible(name)!r}: {short}{more}.", f"eryx {noun}s list")


def _is_whole(given: str) -> bool:
    return len(given) == _WHOLE and given.isalnum()


def _missing(noun: str, given: str) -> Problem:
    return Problem(f"No {noun} begins with {visible(given)!r}.", f"eryx {noun}s list", ErrorCode.NOT_FOUND, noun=noun)
