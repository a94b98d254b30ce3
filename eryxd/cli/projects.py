"""`eryx projects`: the folders that sessions work in.

Source: PRJ-1.
"""

import os
from typing import Annotated

import typer

from eryxd.cli import kit, refs, render

app = kit.group("Folders that sessions work in.")


@app.command("list")
def list_projects(as_json: kit.AsJson = False) -> None:
    """List projects; the scratchpad is the first."""
    with kit.client() as client:
        reply = client.call("projects.list")
    kit.emit(reply, as_json, render.projects)


@app.command("add")
def add(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder that exists.")],
    name: Annotated[str | None, typer.Option(help="Name.  [default: the folder's]")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Add a folder; a folder that is a project already stays what it is."""
    with kit.client() as client:
        reply = client.call("projects.add", path=os.path.abspath(folder), name=name)
    kit.emit(reply, as_json, lambda added, look: render.projects({"projects": [added["project"]]}, look))


@app.command("remove")
def remove(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its id, name or folder.")],
    confirm: Annotated[int | None, typer.Option(help="How many sessions go with it.", metavar="COUNT")] = None,
    as_json: kit.AsJson = False,
) -> None:
    """Forget a project and delete its sessions; the folder stays."""
    with kit.client() as client:
        project_id = refs.project_id(client, project)
        reply = client.call("projects.remove", project_id=project_id, confirm=confirm)
    kit.emit(reply, as_json, lambda _, __: [f"removed project {kit.visible(project_id)}; its folder stays"])
