"""The state of the daemon as text."""

from collections.abc import Iterator, Mapping
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
    lines += [look.paint("red", line) for line in _refusals(reply)]
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
    chosen = "" if backend["by_default"] else "  (only when named)"
    return f"  {mark} backend {visible(backend['name'])}: {word}{f', {why}' if why else ''}{chosen}"


def _refusals(reply: Record) -> Iterator[str]:
    """Say which calls were refused because an agent made them: the person is told."""
    for refusal in reply["refusals"]:
        session = f" of session {visible(refusal['session_id'])}" if refusal.get("session_id") else ""
        yield (
            f"✗ refused {date(refusal['at'])}: pid {refusal['pid']}{session} called {visible(refusal['method'])}"
            f" ({visible(refusal['command'])}; {visible(refusal['check'])})"
        )
