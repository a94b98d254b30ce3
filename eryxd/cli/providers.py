"""`eryx providers`: what offers tools, and the entries that you define for it.

Source: architecture 5, PRN-3.
"""

import json
import sys
from typing import Annotated, Any

import typer

from eryxd.cli import kit, refs, render_tools
from eryxd.cli.kit import Problem, Reply, visible
from eryxd.client.client import Client, RemoteError
from eryxd.domain.errors import ErrorCode

app = kit.group("What offers tools, and the entries you define.")

Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name; `eryx providers list` has them.")]
Id = Annotated[str, typer.Argument(metavar="ENTRY", help="The entry's id: lower-case letters, digits, - and _.")]

CHECK_S = 120.0
"""How long asking a source may take: a first start may have to install something."""


@app.command("list")
def list_providers(
    provider: Annotated[str | None, typer.Argument(metavar="PROVIDER", help="Only this one.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """List providers, and the entries that are defined for them."""
    with kit.client() as client:
        reply = client.call("providers.list", provider=provider)
    kit.emit(reply, as_json, render_tools.providers)


@app.command("show")
def show(provider: Provider, entry: Id, as_json: kit.AsJson = False) -> None:
    """Show one entry with the tools that it offers.  Secrets are masked."""
    with kit.client() as client:
        reply = client.call("providers.get", provider=provider, id=entry)
    kit.emit(reply, as_json, render_tools.entry)


@app.command("save")
def save(
    provider: Provider,
    entry: Id,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="The record in TOML; - reads JSON from stdin.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="One field; the value in JSON, or text.")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", metavar="FIELD", help="Ask for this field without showing it.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    project: Annotated[str | None, typer.Option(help="Only for this project; without it for the workspace.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Create an entry, or change the one of that id.

    Fields that are not given keep their value, secrets too.  `a.b=x` sets a key of a table.
    """
    with kit.client(timeout_s=CHECK_S) as client:
        old = _stored(client, provider, entry)
        record = dict(old["record"]) if old else {}
        if file is not None:
            record = _read(file)
        for word in set_ or ():
            _set(record, word)
        for field in secret or ():
            _put(record, field, _ask_secret(field))
        reply = client.call(
            "providers.save",
            provider=provider,
            id=entry,
            record=record,
            name=name or (old or {}).get("name"),
            project_id=refs.project_id(client, project) if project else (old or {}).get("project_id"),
            revision=(old or {}).get("revision"),
        )
    kit.emit(reply, as_json, render_tools.saved)


@app.command("delete")
def delete(
    provider: Provider,
    entry: Annotated[str | None, typer.Argument(metavar="ENTRY", help="The entry's id.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Delete an entry: what it alone offers is taken off every list.

    One that vanished from a file is forgotten like this; so is, without an ENTRY, a provider that is gone.
    """
    with kit.client() as client:
        reply = client.call("providers.delete", provider=provider, id=entry)
    kit.emit(reply, as_json, render_tools.deleted)


@app.command("check")
def check(
    provider: Provider,
    entry: Annotated[str | None, typer.Argument(metavar="ENTRY", help="The entry's id.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Ask an entry anew which tools it has.  What it no longer has is taken off the lists.

    Exit status 69 when it does not answer.
    """
    with kit.client(timeout_s=CHECK_S) as client:
        reply = client.call("providers.check", provider=provider, id=entry)
    kit.emit(reply, as_json, render_tools.checked)
    if reply["source"]["status"] != "answered":
        raise typer.Exit(69)


def _stored(client: Client, provider: str, entry: str) -> Reply | None:
    try:
        return dict(client.call("providers.get", provider=provider, id=entry)["entry"])
    except RemoteError as refusal:
        if refusal.code == ErrorCode.NOT_FOUND:
            return None
        raise


def _read(file: str) -> Reply:
    if file != "-":
        from eryxd.cli.patterns import read

        return read(file)
    try:
        found = json.load(sys.stdin)
    except ValueError as error:
        raise Problem(f"Standard input is not JSON: {error}.", code=ErrorCode.INVALID) from error
    if not isinstance(found, dict):
        raise Problem("Standard input is no JSON object.", code=ErrorCode.INVALID)
    return found


def _set(record: Reply, word: str) -> None:
    field, equals, text = word.partition("=")
    if not equals or not field:
        raise Problem(f"{visible(word)!r} is not FIELD=VALUE.")
    value: Any
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    _put(record, field, text if value is None else value)


def _put(record: Reply, field: str, value: Any) -> None:
    *tables, last = field.split(".")
    place = record
    for key in tables:
        inner = place.get(key, {})
        if not isinstance(inner, dict):
            raise Problem(f"{visible(field)}: {visible(key)} holds no fields.")
        place[key] = dict(inner)
        place = place[key]
    place[last] = value


def _ask_secret(field: str) -> str:
    import getpass

    if not sys.stdin.isatty():
        line = sys.stdin.readline().rstrip("\n")
        if not line:
            raise Problem(f"There is no secret for {visible(field)} on standard input.")
        return line
    return getpass.getpass(f"{visible(field)}: ")
