"""`eryx patterns`: teams of agents, read from TOML.

Source: PAT-1 to PAT-3.
"""

import datetime
from typing import Annotated, Any

import typer

from eryxd.cli import kit, refs, render
from eryxd.cli.kit import Problem, Reply, visible
from eryxd.client.client import Client, RemoteError
from eryxd.domain.errors import ErrorCode

app = kit.group("Teams of agents and what they must ask about.")

Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="Its id or name.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A pattern in TOML: the fields of `patterns.save`.")]


@app.command("list")
def list_patterns(as_json: kit.AsJson = False) -> None:
    """List patterns, favourites first."""
    with kit.client() as client:
        reply = client.call("patterns.list")
    kit.emit(reply, as_json, render.patterns)


@app.command("show")
def show(pattern: Pattern, as_json: kit.AsJson = False) -> None:
    """Show one pattern with its agents and its policy."""
    with kit.client() as client:
        reply = client.call("patterns.get", pattern_id=refs.pattern_id(client, pattern))
    kit.emit(reply, as_json, render.pattern)


@app.command("save")
def save(
    file: File,
    new: Annotated[bool, typer.Option("--new", help="Make another one, whatever it is called.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Create a pattern, or change the one of that id or name.

    A file without `revision` replaces what is stored, whatever it is; with one, a newer pattern is a conflict.
    """
    draft = read(file)
    if new and "id" in draft:
        raise Problem("--new makes another pattern, yet the file names an id: take one of them away.")
    with kit.client() as client:
        wanted = draft if new else _with_revision(client, _with_id(client, draft))
        reply = client.call("patterns.save", pattern=wanted)
    kit.emit(reply, as_json, lambda saved, look: [*_updated(saved["pattern"]), *render.pattern(saved, look)])


def _updated(pattern: Reply) -> list[str]:
    """Say that a pattern was there before."""
    is_first = pattern["revision"] == 1
    return [] if is_first else [f"updated {visible(pattern['name'])}, now at revision {pattern['revision']}"]


@app.command("validate")
def validate(file: File, as_json: kit.AsJson = False) -> None:
    """Name everything that saving would refuse.  Exit status 65 when there is something."""
    draft = read(file)
    with kit.client() as client:
        reply = client.call("patterns.validate", pattern=_with_revision(client, draft))
    kit.emit(reply, as_json, lambda found, _: [visible(each) for each in found["problems"]] or ["No problems."])
    if reply["problems"]:
        raise typer.Exit(65)


@app.command("copy")
def copy(
    pattern: Pattern,
    name: Annotated[str | None, typer.Option(help="Name of the copy.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Copy a pattern to a new one, which is yours to change."""
    with kit.client() as client:
        reply = client.call("patterns.copy", pattern_id=refs.pattern_id(client, pattern), name=name)
    kit.emit(reply, as_json, render.pattern)


@app.command("delete")
def delete(pattern: Pattern, as_json: kit.AsJson = False) -> None:
    """Delete a pattern; its sessions stay, but take no further message."""
    with kit.client() as client:
        pattern_id = refs.pattern_id(client, pattern)
        reply = client.call("patterns.delete", pattern_id=pattern_id)
    kit.emit(reply, as_json, lambda _, __: [f"deleted pattern {visible(pattern_id)}"])


@app.command("favorite")
def favorite(
    pattern: Pattern,
    off: Annotated[bool, typer.Option("--off", help="The other way round.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """Mark a pattern as a favourite, or unmark it with --off."""
    with kit.client() as client:
        pattern_id = refs.pattern_id(client, pattern)
        reply = client.call("patterns.favorite", pattern_id=pattern_id, is_favorite=not off)
    kit.emit(reply, as_json, render.pattern)


def read(file: str) -> Reply:
    """Return the draft in a TOML file.  Raises: Problem -- it cannot be read, or holds a value that cannot be sent."""
    import tomllib

    from eryxd import toml

    try:
        with open(file, encoding="utf-8") as opened:
            draft = toml.loads(opened.read())
    except OSError as error:
        raise Problem(f"{visible(file)} cannot be read: {error.strerror}.", code=ErrorCode.NOT_FOUND) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Problem(f"{visible(file)} is not TOML: {error}.", code=ErrorCode.INVALID) from error
    _refuse_dates(draft, file)
    if "step" in draft and "agents" not in draft:
        raise Problem(
            f"{visible(file)} looks like a plan, not like a pattern: it has steps and no agents.",
            f"eryx run MESSAGE --plan {visible(file)}",
            ErrorCode.INVALID,
        )
    return draft


def _refuse_dates(value: Any, where: str) -> None:
    """Refuse what TOML has and the protocol has not."""
    if isinstance(value, datetime.date | datetime.time):
        raise Problem(f"{visible(where)}: write the date as text, in quotes.", code=ErrorCode.INVALID)
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_dates(inner, f"{where}: {key}")
    if isinstance(value, list):
        for inner in value:
            _refuse_dates(inner, where)


def _with_id(client: Client, draft: Reply) -> Reply:
    """Return the draft with the id of the one pattern that is called so, unless it says one or none is.

    Raises: Problem -- several are.
    """
    name = draft.get("name")
    if "id" in draft or not isinstance(name, str):
        return draft
    listed = client.call("patterns.list")["patterns"]
    wanted = name.strip().casefold()
    same = [row["id"] for row in listed if row["name"].casefold() == wanted and not row.get("is_builtin")]
    if len(same) > 1:
        raise refs.several("pattern", name, same, "say which with `id` in the file, or make another with --new")
    return {**draft, "id": same[0]} if same else draft


def _with_revision(client: Client, draft: Reply) -> Reply:
    """Return the draft with the revision of what it replaces, unless it says one or replaces nothing.

    What makes a pattern a favourite is a command of its own: a file that does not speak of it changes nothing.
    """
    if "revision" in draft or "id" not in draft:
        return draft
    try:
        stored = client.call("patterns.get", pattern_id=draft["id"])["pattern"]
    except RemoteError as refusal:
        if refusal.code == ErrorCode.NOT_FOUND:
            return draft
        raise
    favourite = {"is_favorite": True} if stored.get("is_favorite") else {}
    return {**favourite, **draft, "revision": stored["revision"]}
