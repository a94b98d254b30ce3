"""`eryx runs`: turns of sessions, and how to end one.

Source: RUN-2, RUN-3.
"""

from typing import Annotated

import typer

from eryxd.cli import kit, refs, render
from eryxd.cli.report import EXIT_OF, EXIT_STILL_RUNNING

app = kit.group("Turns of sessions.")

Run = Annotated[str, typer.Argument(metavar="RUN", help="An id, or at least four characters of a recent one.")]


@app.command("list")
def list_runs(
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only of this session.")] = None,
    limit: kit.Limit = 20,
    cursor: kit.Cursor = None,
    as_json: kit.AsJson = False,
) -> None:
    """List runs, newest first."""
    with kit.client() as client:
        session_id = refs.session_id(client, session) if session else None
        reply = client.call("runs.list", session_id=session_id, limit=limit, cursor=cursor)
    kit.emit(reply, as_json, render.runs)


@app.command("show")
def show(run: Run, as_json: kit.AsJson = False) -> None:
    """Show one run: its agents, and the policy that it was started with."""
    with kit.client() as client:
        reply = client.call("runs.get", run_id=refs.run_id(client, run))
    kit.emit(reply, as_json, render.run)


@app.command("cancel")
def cancel(run: Run, as_json: kit.AsJson = False) -> None:
    """Cancel a run.  Nothing more is allowed from now on; its processes end within seconds."""
    with kit.client() as client:
        run_id = refs.run_id(client, run)
        had_ended = not as_json and client.call("runs.get", run_id=run_id)["run"]["status"] != "running"
        reply = client.call("runs.cancel", run_id=run_id)
    kit.emit(reply, as_json, lambda changed, _: [_cancelled(changed["run"], had_ended)])


def _cancelled(run: kit.Reply, had_ended: bool) -> str:
    """Say what became of it."""
    name, status = f"run {refs.sure(run['id'])}", kit.visible(run["status"])
    if had_ended:
        return f"{name} had ended already: {status}"
    if status != "running":
        return f"✓ {name} has ended: {status}"
    return f"✓ cancelling {name}: nothing more is allowed, and its processes end within seconds"


@app.command("wait")
def wait(
    run: Run,
    timeout: Annotated[float, typer.Option(help="Most seconds to wait.", min=0, max=86400)] = 3600,
    as_json: kit.AsJson = False,
) -> None:
    """Wait until a run has ended.  Exit status: 0 completed, 1 failed, 130 cancelled, 75 still running."""
    with kit.client() as client:
        asked = {"run_id": refs.run_id(client, run), "timeout_s": timeout}
        reply = client.request("runs.wait", asked, timeout_s=timeout + 30)
    kit.emit(reply, as_json, render.run)
    raise typer.Exit(EXIT_OF.get(reply["run"]["status"], EXIT_STILL_RUNNING))
