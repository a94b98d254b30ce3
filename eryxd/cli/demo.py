"""`eryx demo`: two agents at work in a small Git repository, governed before your eyes.

Everything is real: a daemon of its own, tools that run, approvals that wait.  On a terminal you answer; elsewhere
a second client does, by the commands that are shown.  Nothing of it touches your own eryx or your files.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from eryxd.cli import kit, narrate, process, render_approvals
from eryxd.cli.ctrl_c import CtrlC
from eryxd.cli.kit import CLIENT_NAME, Problem
from eryxd.cli.live import Live
from eryxd.cli.refs import sure
from eryxd.cli.terminal import is_interactive
from eryxd.client.client import Client
from eryxd.client.follow import follow_run
from eryxd.domain.errors import ErrorCode

PLAN: Final = os.path.join(os.path.dirname(__file__), "plans", "demo.toml")

NOTE: Final = "Commit if you like, but never push by force."
"""What the agent is told when its second command is rejected."""

PATTERN: Final = {
    "name": "Scout and fixer",
    "mode": "sequential",
    "agents": [
        {"id": "scout", "name": "Scout", "instructions": "Find what is wrong. Change nothing."},
        {"id": "fixer", "name": "Fixer", "instructions": "Mend what was found."},
    ],
    "approval_policy": {
        "rules": [{"kind": "tool-call"}, {"kind": "final-response", "agent_ids": ["fixer"]}],
        "auto_approved_tool_names": ["view"],
    },
}
"""Every call of both agents asks, except `view`; what the second one says last is held until it was read."""

INTRODUCTION: Final = """\
Two agents share a small Git repository. The pattern "Scout and fixer" says:
  - every tool call asks a person, except `view`, which the pattern approves by itself;
  - what Fixer says at the end is held back until a person has read it.
"""


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the demo's folder and say where it is.")] = False,
    as_json: kit.AsJson = False,
) -> None:
    """See two agents being governed: one call approved by the pattern, two asked, one response held back.

    On a terminal you are asked; elsewhere a second client answers.  With --json only the timeline is printed.
    Whatever you answer, the exit status is 0; left with Ctrl-C it is 130.
    """
    folder = tempfile.mkdtemp(prefix="eryx-demo-")
    try:
        project = _repository(os.path.join(folder, "project"))
        with _own_daemon(os.path.join(folder, "home")):
            status = _show(project, as_json)
    except KeyboardInterrupt:
        status = kit.EXIT_LEFT
    finally:
        if keep:
            print(f"The demo's folder: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if status == kit.EXIT_LEFT:
        removed = "its daemon is stopped" if keep else "its daemon and folder are removed"
        print(f"The demo ends; {removed}.", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(status)


def _repository(path: str) -> str:
    """Make a Git repository of one file.  Raises: Problem -- there is no git."""
    git = shutil.which("git")
    if git is None:
        raise Problem("The demo needs git.", "sudo apt-get install git", ErrorCode.INVALID)
    os.makedirs(path)
    with open(os.path.join(path, "README.md"), "w", encoding="utf-8") as readme:
        readme.write("# Greeter\n\nHelo, world.\n")
    author = ["-c", "user.name=eryx demo", "-c", "user.email=demo@example.invalid"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Start"]):
        done = subprocess.run([git, *words], cwd=path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(f"git {words[0]} failed: {done.stderr.strip()}", f"ls -ld {path}", ErrorCode.INVALID)
    return path


@contextmanager
def _own_daemon(home: str) -> Iterator[None]:
    """Run a daemon for the demo alone; its home is in the environment of everything that the demo starts."""
    os.environ["ERYX_HOME"] = home
    try:
        # Ctrl-C is heard before and after, not half way: no daemon may be left behind.
        with CtrlC() as ctrl_c:
            process.start(CLIENT_NAME, process.daemon_command())
            with ctrl_c.waiting():
                pass
        yield
    finally:
        with CtrlC():
            _stop()


def _stop() -> None:
    client = process.answers(CLIENT_NAME)
    if client is not None:
        with client:
            client.call("daemon.shutdown")
        process.wait_until_gone(CLIENT_NAME)


def _own_command() -> str:
    """Return how to call eryx from another terminal: nothing there says where the demo's daemon is."""
    script = os.path.join(os.path.dirname(sys.executable), "eryx")
    beside = shlex.quote(script) if os.access(script, os.X_OK) else f"{shlex.quote(sys.executable)} -m eryxd.cli.app"
    return f"ERYX_HOME={shlex.quote(os.environ['ERYX_HOME'])} {'eryx' if shutil.which('eryx') else beside}"


def _show(project: str, as_json: bool) -> int:
    """Play the run and return the exit status."""
    with Client.connect(name=CLIENT_NAME) as client:
        started = _start(client, project)
        run_id, session_id = started["run_id"], started["session"]["id"]
        if is_interactive() and not as_json:
            kit.say([*INTRODUCTION.splitlines(), "Ctrl-C ends the demo.", ""])
            # Imported here: answering in place is only for a terminal.
            from eryxd.cli.following import follow

            follow(client, run_id, session_id, as_json=False, cancels=False, command=_own_command())
        else:
            _watch(run_id, session_id, as_json)
        reply = client.call("timeline.get", run_id=run_id)
    if reply["run"]["status"] == "running":
        return kit.EXIT_LEFT
    if not as_json:
        kit.say(["", "The whole run, as `eryx timeline` shows it:", ""])
    kit.emit(reply, as_json, narrate.timeline)
    return 0 if reply["run"]["status"] == "completed" or _was_answered(reply["events"]) else 1


def _was_answered(events: list[dict[str, Any]]) -> bool:
    """Whether the run failed because its final response was rejected: that is an answer, and no fault."""
    return any(event.get("approval_kind") == "final-response" and event.get("resolution") == "user" for event in events)


def _start(client: Client, project: str) -> dict[str, Any]:
    pattern = client.call("patterns.save", pattern=PATTERN)["pattern"]
    project_id = client.call("projects.add", path=project)["project"]["id"]
    session = client.call("sessions.create", pattern_id=pattern["id"], project_id=project_id)["session"]
    message = "Look for mistakes in this repository and mend them."
    reply: dict[str, Any] = client.call("messages.send", session_id=session["id"], content=message, plan=PLAN)
    return reply


def _watch(run_id: str, session_id: str, as_json: bool) -> None:
    """Follow the run, and have each approval answered by a second client: the command that is shown."""
    live = Live()
    if not as_json:
        kit.say([*INTRODUCTION.splitlines(), "Nobody is at a terminal, so a second client answers:", ""])
    with Client.connect(name=CLIENT_NAME) as events, Client.connect(name=CLIENT_NAME) as client:
        for event in follow_run(events, run_id, session_id):
            lines = live.take(event)
            if not as_json:
                kit.say(lines)
            if event["type"] == "approval-requested":
                _answer(client, event["approval"]["id"], as_json)
    if not as_json:
        kit.say(live.closing())


def _answer(client: Client, approval_id: str, as_json: bool) -> None:
    reply = client.call("approvals.get", approval_id=approval_id)
    if reply["approval"]["status"] != "pending":
        return
    pushes = "push" in reply["approval"].get("permission", {}).get("command", "")
    words = ["reject", approval_id, "--note", NOTE] if pushes else ["approve", approval_id]
    if not as_json:
        shown = ["reject", sure(approval_id), "--note", f"'{NOTE}'"] if pushes else ["approve", sure(approval_id)]
        approval = reply["approval"]
        head = f"{render_approvals.WAITING} {approval['title']}{render_approvals.place(reply)}"
        kit.say([head, *render_approvals.content(approval, kit.here())])
        kit.say([f"  $ eryx approvals {' '.join(shown)}"])
    command = [sys.executable, "-m", "eryxd.cli.app", "approvals", *words]
    answered = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answered.returncode != 0:
        raise Problem(f"The second client was refused: {answered.stderr.strip()}", code=ErrorCode.INTERNAL)
    if not as_json:
        kit.say([f"  {line}" for line in answered.stdout.splitlines()] + [""])
