"""Calls that have to wait for something outside before, or after, they change the state."""

import asyncio
import os
import shutil
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask, tool_replies as told
from eryxd.core import projects as project_rules, runs as run_rules, sessions as session_rules
from eryxd.daemon import clock
from eryxd.daemon.daemon import Caller, Daemon
from eryxd.daemon.reads import modes, need
from eryxd.domain.errors import Conflict, Invalid, SessionRunning, ShuttingDown
from eryxd.domain.ids import AgentId, BackendName
from eryxd.domain.pattern import Agent, Pattern
from eryxd.domain.session import SCRATCHPAD, Project, Run, RunAgent, SessionHead

REPLAY = BackendName("replay")
"""The backend that plays plans (BKD-4)."""


async def refresh(daemon: Daemon, caller: Caller, request: ask.CapabilitiesOf) -> out.CapabilitiesReply:
    """Ask the backends again; a changed catalog is an event."""
    states = await daemon.backends.refresh(request.backend or None)
    return out.CapabilitiesReply(backends=states, modes=modes())


async def add_project(daemon: Daemon, caller: Caller, request: ask.ProjectsAdd) -> out.ProjectChanged:
    """Add a folder by its real path.

    Raises: Invalid -- it does not exist, is no folder, or touches eryx's own.
    """
    _refuse_no_path(request.path, "A project")
    path = os.path.realpath(request.path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise Invalid(f"{path} is a file, not a folder.", problems=["path: is a file, not a folder"])
    if not os.path.isdir(path):
        raise Invalid(f"There is no folder {path}.", problems=["path: does not exist"], next=f"mkdir -p {path}")
    name = request.name or os.path.basename(path) or path
    return await daemon.engine.run(project_rules.add, project_rules.FoundFolder(path, name), caller=caller)


def _refuse_no_path(path: str, what: str) -> None:
    """Refuse what the daemon, which works in a folder of its own, could not find or not even look for."""
    if not os.path.isabs(path) or "\0" in path:
        raise Invalid(f"{what} needs an absolute path.", problems=["path: is not absolute, or holds a NUL"])


async def remove_project(daemon: Daemon, caller: Caller, request: ask.ProjectsRemove) -> out.Ended:
    """End what runs in a project, then forget it with its sessions."""
    project = need(daemon, Project, request.project_id, "project")
    daemon.engine.look(lambda tx, _: project_rules.refuse_removal(tx, project, request), None)
    for head in daemon.engine.committed.of(SessionHead, project.id):
        await daemon.runs.end_session(head.id)
    return await daemon.engine.run(project_rules.remove_project, request, caller=caller)


async def delete_session(daemon: Daemon, caller: Caller, request: ask.SessionsDelete) -> out.Ended:
    """End a session's run, then delete it; a scratchpad's folder goes only when that is asked for."""
    head = need(daemon, SessionHead, request.session_id, "session")
    await daemon.runs.end_session(head.id)
    ended = await daemon.engine.run(session_rules.delete, request, caller=caller)
    if request.remove_folder and head.project_id == SCRATCHPAD:
        await asyncio.to_thread(shutil.rmtree, daemon.scratch_dir / head.id, ignore_errors=True)
    return ended


async def cancel_run(daemon: Daemon, caller: Caller, request: ask.RunsGet) -> out.RunChanged:
    """Close the gate of a run; it ends on its own time."""
    return await daemon.engine.run(run_rules.cancel, request.run_id, caller=caller)


async def send(daemon: Daemon, caller: Caller, request: ask.MessagesSend) -> out.RunStarted:
    """Find out what a run needs, then start it."""
    head, pattern = run_rules.refuse_send(daemon.engine.committed, request)
    _refuse_running(daemon, head)
    path = _project_path(daemon, head)
    agents = [_run_agent(daemon, agent, request) for agent in pattern.agents]
    inputs: dict[AgentId, str] = {}
    for agent in agents:
        text = await daemon.backends.by_name[agent.backend].prepare(agent)
        if text is not UNSET:
            inputs[agent.id] = text
    _refuse_changed(daemon, pattern)
    wanted = run_rules.Send(request, pattern, tuple(agents), inputs, path)
    return await daemon.engine.run(run_rules.send, wanted, caller=caller)


def _refuse_running(daemon: Daemon, head: SessionHead) -> None:
    daemon.engine.look(lambda tx, _: session_rules.refuse_running(tx, head, "sent a message"), None)


def _refuse_changed(daemon: Daemon, pattern: Pattern) -> None:
    now = daemon.engine.head.get(Pattern, pattern.id)
    if now is None or now.revision != pattern.revision:
        raise Conflict(
            f"Pattern {pattern.name!r} was changed while the run was being prepared; send again.",
            pattern_id=pattern.id,
        )


def _project_path(daemon: Daemon, head: SessionHead) -> str:
    """Return the folder a run works in; a scratchpad session's own is made on the way.

    Raises: Invalid -- the project's folder is gone.
    """
    project = need(daemon, Project, head.project_id, "project")
    if project.id == SCRATCHPAD:
        folder = daemon.scratch_dir / head.id
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(
                f"The scratchpad folder {folder} cannot be made: {error.strerror}.", problems=["folder"]
            ) from (error)
        return os.path.realpath(folder)
    real = os.path.realpath(project.path)
    if real != project.path or not os.path.isdir(real):
        gone = "is gone" if real == project.path else f"leads to {real} now"
        raise Invalid(
            f"The folder {project.path} of project {project.name!r} {gone}.",
            problems=["project: its folder is not there any more"],
            next=f"eryx projects remove {project.id}",
        )
    return project.path


def _run_agent(daemon: Daemon, agent: Agent, request: ask.MessagesSend) -> RunAgent:
    """Fix an agent for a run.  A plan is played by every agent of the run, whatever they run on otherwise."""
    if request.plan is not UNSET:
        agent = replace(agent, backend=REPLAY, model=request.plan)
    backend = run_rules.choose_backend(agent, daemon.default_backend, daemon.backends.states)
    return RunAgent(
        id=agent.id,
        name=agent.name,
        backend=backend,
        description=agent.description,
        instructions=agent.instructions,
        model=agent.model,
        reasoning_effort=agent.reasoning_effort,
    )


async def backup(daemon: Daemon, caller: Caller, request: ask.StoreBackup) -> out.StoreBackedUp:
    """Write a verified copy of the store.

    Raises: Invalid -- the path is not absolute, exists, or cannot be written.
    """
    if request.path is UNSET:
        folder = daemon.store_path.parent / "backups"
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / f"store-{clock.now().replace(':', '').replace('.', '')}.db"
    else:
        _refuse_no_path(request.path, "A backup")
        target = Path(request.path)
    return out.StoreBackedUp(path=str(target), bytes=await daemon.history.backup(target))


async def shutdown(daemon: Daemon, caller: Caller, request: ask.DaemonShutdown) -> out.Ended:
    """Stop the daemon after this reply; running sessions are interrupted.

    Raises: SessionRunning -- `when_idle` was asked for, and something runs.
    """
    running = daemon.engine.committed.count(Run)
    if request.when_idle and running:
        raise SessionRunning(
            f"{running} session{'s are' if running != 1 else ' is'} running; the daemon goes on.", running=running
        )
    daemon.request_stop()
    return out.Ended(seq=daemon.engine.seq)


async def reload(daemon: Daemon, caller: Caller, request: ask.Nothing) -> told.Reloaded:
    """Read the files of the configuration again.

    Raises: Invalid -- naming every problem; what was good stands.
    """
    if daemon.reloader is None:
        raise ShuttingDown("The daemon has not begun yet.")
    return await daemon.reloader.reload()
