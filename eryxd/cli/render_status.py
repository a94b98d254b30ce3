"""The state of the daemon as text."""

from collections.abc import Mapping
from typing import Any

from eryxd.cli.render import facts
from eryxd.cli.text import PLAIN, Look, date, plural, visible

Record = Mapping[str, Any]


def status(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show what waits first, then the daemon, its store, its backends, and what went wrong."""
    waiting = plural(reply["waiting"], "approval") + " waiting"
    lines = [
        look.paint("yellow", f"? {waiting}") if reply["waiting"] else f"✓ {waiting}",
        *facts(
            ("sessions", f"{reply['sessions']}, {reply['running']} running"),
            ("daemon", f"{visible(reply['version'])}, pid {reply['pid']}, since {date(reply['started_at'])}"),
            ("store", _store(reply["store"])),
        ),
    ]
    for backend in reply["backends"]:
        lines.append(_backend(backend, look))
    lines += [look.paint("yellow", f"! {visible(warning)}") for warning in reply["warnings"]]
    lines += [look.paint("red", f"{refused(one)}  {date(one['at'])}") for one in reply["refusals"]]
    if reply["waiting"]:
        lines.append("try: eryx approvals list")
    return lines


def _store(store: Record) -> str:
    if store["writable"]:
        return visible(store["path"])
    return f"✗ takes no writes, {visible(store['path'])}: {visible(store.get('problem', 'unknown reason'))}"


def _backend(backend: Record, look: Look) -> str:
    connection = (backend.get("capabilities") or {}).get("connection") or {}
    problem = backend.get("problem")
    word = "error" if problem else visible(connection.get("status", "not asked yet"))
    mark = look.paint("green", "✓") if word == "ready" else look.paint("yellow", "✗")
    why = visible(problem or connection.get("summary", ""))
    chosen = "" if backend["by_default"] else "  (only when named: by an agent, --plan or defaults.backend)"
    return f"  {mark} backend {visible(backend['name'])}: {word}{f', {why}' if why else ''}{chosen}"


def refused(refusal: Record) -> str:
    """Say that a call was refused because of who made it: the person is told what an agent tried."""
    session = refusal.get("session_id")
    who = f"the agent of session {visible(session)}" if session else "a process that is marked as an agent"
    return (
        f"✗ refused: {who} called {visible(refusal['method'])}"
        f" (pid {refusal['pid']} {visible(refusal['command'])}, check {visible(refusal['check'])})"
    )
