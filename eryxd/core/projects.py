"""Projects: folders that sessions work in.

Source: PRJ-1.
"""

from typing import Final, NamedTuple

from eryxd.api import replies as out, requests as ask
from eryxd.api.events import EventType
from eryxd.core.change import Tx
from eryxd.core.sessions import refuse_running, remove
from eryxd.domain.errors import Conflict, Invalid, ReadOnly
from eryxd.domain.ids import ProjectId
from eryxd.domain.session import SCRATCHPAD, Project, SessionHead

MAX_PROJECTS: Final = 500
"""They are listed, and stand in a snapshot, all at once."""


class FoundFolder(NamedTuple):
    """A folder that exists, by its real path."""

    path: str
    name: str


def add(tx: Tx, folder: FoundFolder) -> out.ProjectChanged:
    """Add a folder; adding one that is known returns it as it is."""
    for own in tx.context.own_folders:
        if _inside(folder.path, own) or _inside(own, folder.path):
            raise Invalid(
                f"{folder.path} contains or lies in eryx's own folder {own}; an agent there could change its rules.",
                problems=[f"path: touches {own}"],
            )
    for project in tx.all(Project):
        if project.path == folder.path:
            return out.ProjectChanged(project=project, seq=0)
    if sum(1 for _ in tx.all(Project)) >= MAX_PROJECTS:
        problem = f"there are {MAX_PROJECTS} projects already; remove some"
        raise Invalid(f"The project cannot be added: {problem}.", problems=[problem], next="eryx projects list")
    project = Project(id=ProjectId(tx.new_id("project")), name=folder.name, path=folder.path, created_at=tx.now)
    tx.put(project)
    return out.ProjectChanged(project=project, seq=0)


def remove_project(tx: Tx, request: ask.ProjectsRemove) -> out.Ended:
    """Forget a project and delete its sessions, which must have been settled; never its folder."""
    project = tx.need(Project, request.project_id, "project")
    refuse_removal(tx, project, request)
    for head in tx.of(SessionHead, project.id):
        refuse_running(tx, head, "deleted")
        remove(tx, head)
    tx.delete(Project, project.id)
    tx.emit(EventType.PROJECT_REMOVED, project_id=project.id)
    return out.Ended(seq=0)


def refuse_removal(tx: Tx, project: Project, request: ask.ProjectsRemove) -> None:
    """Refuse to remove the scratchpad, or sessions that the caller has not counted.

    Raises: ReadOnly, Conflict.
    """
    if project.id == SCRATCHPAD:
        raise ReadOnly("The scratchpad is built in and cannot be removed.", project_id=project.id)
    count = len(tx.of(SessionHead, project.id))
    if count and request.confirm != count:
        raise Conflict(
            f"Project {project.name!r} has {count} session{'s' * (count != 1)}, which would be deleted.",
            project_id=project.id,
            sessions=count,
            next=f"eryx projects remove {project.id} --confirm {count}",
        )


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
