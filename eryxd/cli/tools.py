"""`eryx tools`: the catalog, what is stale in lists, and what each call would meet.

Source: CAT-2, PRN-2, POL-7.
"""

from typing import Annotated

import typer

from eryxd.cli import kit, refs, render_tools
from eryxd.cli.kit import Problem
from eryxd.cli.patterns import read

app = kit.group("What agents can call.")


@app.command("list")
def list_tools(
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only what this session is offered.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """List every tool with its id, and every source that is not well.

    The id is the name that patterns and sessions approve.
    """
    with kit.client() as client:
        session_id = refs.session_id(client, session) if session else None
        reply = client.call("tools.list", session_id=session_id)
    kit.emit(reply, as_json, render_tools.tools)


@app.command("stale")
def stale(as_json: kit.AsJson = False) -> None:
    """List ids on lists that nobody offers now, where, and why."""
    with kit.client() as client:
        reply = client.call("tools.stale")
    kit.emit(reply, as_json, render_tools.stale)


@app.command("prune")
def prune(
    tools: Annotated[list[str] | None, typer.Argument(metavar="TOOL...", help="Ids; without any, all of them.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Take ids that nobody offers off every list.  `eryx tools stale` shows them first."""
    with kit.client() as client:
        reply = client.call("tools.prune", tools=kit.split(tools) if tools else None)
    kit.emit(reply, as_json, render_tools.pruned)


@app.command("explain")
def explain(
    pattern: Annotated[str | None, typer.Argument(metavar="PATTERN", help="A pattern's id or name.")] = None,
    session: Annotated[str | None, typer.Option("--session", "-s", help="A session, with its own list.")] = None,
    draft: Annotated[
        str | None, typer.Option("--if", metavar="FILE", help="As if the pattern were the one in this TOML file.")
    ] = None,
    tool: Annotated[
        list[str] | None, typer.Option("--tool", "-t", help="Only these tools.", metavar="TOOL,...")
    ] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Tell what every call would meet, and why, before anything runs."""
    if not (pattern or session or draft) or (pattern and (session or draft)):
        raise Problem("Name a pattern, or give --session, --if, or both of these.", "eryx tools explain coding")
    with kit.client() as client:
        reply = client.call(
            "tools.explain",
            pattern_id=refs.pattern_id(client, pattern) if pattern else None,
            session_id=refs.session_id(client, session) if session else None,
            draft=read(draft) if draft else None,
        )
    wanted = set(kit.split(tool))
    if wanted:
        reply["rows"] = [row for row in reply["rows"] if row["tool_id"] in wanted]
    kit.emit(reply, as_json, render_tools.explanation)
