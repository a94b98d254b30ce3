"""`eryx tools`: the catalog."""

from typing import Annotated

import typer

from eryxd.cli import kit, refs, render

app = kit.group("What agents can call.")


@app.command("list")
def list_tools(
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only what this session is offered.")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """List every tool with its id.  The id is the name that patterns and sessions approve."""
    with kit.client() as client:
        session_id = refs.session_id(client, session) if session else None
        reply = client.call("tools.list", session_id=session_id)
    kit.emit(reply, as_json, render.tools)
