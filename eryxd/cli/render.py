"""Records as text.  Pure: a record and what the output can show, in; lines, out.

Everything that agents, tools, files or other clients wrote passes `visible` on its way.  States are told by a
mark and a word, never by colour alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from eryxd.cli.coverage import asks_nowhere, unasked
from eryxd.cli.refs import shorten, sure
from eryxd.cli.text import PLAIN, Look, block, cut, date, listed, plural, table, visible

Record = Mapping[str, Any]

STATE_STYLE: Final = {"error": "red", "running": "cyan", "completed": "green", "awaiting": "yellow"}
_NAMES: Final[Mapping[str, str]] = {}


def state(session: Record) -> str:
    """Say how a session stands; whether it waits is told by what is pending, never by the status (APR-2)."""
    waiting = pending(session)
    return f"awaiting approval ({len(waiting)})" if waiting else visible(session["status"])


def pending(session: Record) -> list[Record]:
    """Return what waits in a session, oldest first."""
    head = session.get("pending_approval")
    return [head, *session.get("pending_approval_queue", ())] if head else []


def styled(look: Look, words: str) -> str:
    """Return a state in its colour."""
    style = STATE_STYLE.get(words.split(" ", 1)[0])
    return look.paint(style, words) if style else words


def sessions(
    reply: Record,
    look: Look,
    names: Mapping[str, str] = _NAMES,
    nothing: str = "No sessions.  Start one with: eryx run MESSAGE",
) -> list[str]:
    """List sessions: short id, state, title, pattern, project, last change.  `names` are those of other records."""
    short = shorten(row["id"] for row in reply["sessions"])
    rows = [
        (
            short[row["id"]],
            styled(look, state(row)),
            cut(row["title"], 40) + (" (pinned)" if row.get("is_pinned") else ""),
            cut(names.get(row["pattern_id"], row["pattern_id"]), 40),
            cut(names.get(row["project_id"], row["project_id"]), 40),
            date(row["updated_at"]),
        )
        for row in reply["sessions"]
    ]
    return listed(table(rows, look), nothing, reply)


def session(reply: Record, look: Look = PLAIN, names: Mapping[str, str] = _NAMES) -> list[str]:
    """Show one session.  `names` are those of other records, by id."""
    record = reply["session"]
    lines = [
        f"{record['id']}  {styled(look, state(record))}  {look.paint('bold', visible(record['title']))}",
        *facts(
            ("project", visible(names.get(record["project_id"], record["project_id"]))),
            ("pattern", visible(names.get(record["pattern_id"], record["pattern_id"]))),
            ("changed", date(record["updated_at"])),
            ("auto-approves", auto_approves(record)),
            ("archived", "yes" if record.get("is_archived") else ""),
        ),
    ]
    if record.get("last_error"):
        lines += ["last error:", *block(record["last_error"], look)]
    short = shorten(each["id"] for each in pending(record))
    for each in pending(record):
        lines.append(f"  ? {short[each['id']]}  {visible(each['title'])}")
    if short:
        lines.append(f"try: eryx approvals show {short[pending(record)[0]['id']]}")
    return lines


def auto_approves(record: Record) -> str:
    """Say which list is in force, and whose it is (POL-5)."""
    effective = record.get("effective")
    if effective is None:
        return "nothing: the pattern is gone"
    names = ", ".join(visible(name) for name in effective["auto_approved_tool_names"]) or "nothing"
    return f"{names}  ({inheritance(record)})"


def inheritance(record: Record) -> str:
    """Say whether a session has a list of its own."""
    own = record.get("approval_settings") is not None
    return "Custom for this session" if own else "Inheriting pattern defaults"


def session_tools(
    record: Record, tools: Sequence[Record], look: Look = PLAIN, pattern: Record | None = None
) -> list[str]:
    """Show what becomes of a call of each tool of the catalog, and what is listed in vain.

    Without a checkpoint of the pattern a list decides nothing, so that is told first.
    """
    names = list((record.get("effective") or {}).get("auto_approved_tool_names", ()))
    known = [tool["id"] for tool in tools]
    passes = asks_nowhere(pattern)
    rows = [(_switch(look, tool["id"] in names, passes), visible(tool["id"]), visible(tool["label"])) for tool in tools]
    rows += [("- inactive", visible(name), "no source offers it now") for name in names if name not in known]
    loose = unasked(pattern)
    return [inheritance(record), *([f"tool calls: {loose}"] if loose else []), *table(rows, look)]


def _switch(look: Look, on: bool, passes: bool) -> str:
    if passes:
        return look.paint("yellow", "✓ passes")
    return look.paint("green", "✓ auto") if on else "? asks"


def projects(reply: Record, look: Look) -> list[str]:
    """List projects."""
    short = shorten(row["id"] for row in reply["projects"])
    rows = [
        (row["id"] if row["id"] == "scratchpad" else short[row["id"]], visible(row["name"]), visible(row["path"]))
        for row in reply["projects"]
    ]
    return table(rows, look)


def patterns(reply: Record, look: Look) -> list[str]:
    """List patterns: id, name, mode, agents, what they auto-approve."""
    short = shorten(row["id"] for row in reply["patterns"])
    rows = [
        (
            visible(row["id"] if row.get("is_builtin") else short[row["id"]]),
            ("★ " if row.get("is_favorite") else "") + visible(row["name"]),
            visible(row["mode"]),
            plural(len(row["agents"]), "agent"),
            visible(row["availability"]),
        )
        for row in reply["patterns"]
    ]
    return listed(table(rows, look), "No patterns.", reply)


def pattern(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show one pattern with its agents and its policy."""
    record = reply["pattern"]
    reason = record.get("unavailability_reason")
    available = visible(record["availability"]) + (f": {visible(reason)}" if reason else "")
    policy = record.get("approval_policy") or {}
    lines = [
        f"{visible(record['id'])}  {look.paint('bold', visible(record['name']))}",
        *facts(
            ("mode", visible(record["mode"])),
            ("available", available),
            ("about", visible(record.get("description", ""))),
            ("asks before", "; ".join(rule_text(rule) for rule in policy.get("rules", ())) or "nothing"),
            ("tool calls", unasked(record)),
            (
                "auto-approves",
                ", ".join(visible(name) for name in policy.get("auto_approved_tool_names", ())) or "nothing",
            ),
            ("from", origin(record)),
            ("revision", str(record["revision"]) + (" (built in)" if record.get("is_builtin") else "")),
        ),
    ]
    for agent in record["agents"]:
        lines += _agent(agent, look)
    return lines


def origin(record: Record) -> str:
    """Say from which file a record comes; nothing of one that was saved."""
    place = record.get("origin")
    return f"{visible(place['file'])}:{place['line']}" if place else ""


def rule_text(rule: Record) -> str:
    """Say what one checkpoint rule covers."""
    kind = "a tool call" if rule["kind"] == "tool-call" else "a final response"
    agents = rule.get("agent_ids")
    return f"{kind} of {', '.join(visible(agent) for agent in agents) if agents else 'any agent'}"


def _agent(agent: Record, look: Look) -> Iterator[str]:
    runs_on = " ".join(visible(agent[key]) for key in ("backend", "model", "reasoning_effort") if agent.get(key))
    yield f"agent {visible(agent['id'])}: {visible(agent['name'])}" + (f"  ({runs_on})" if runs_on else "")
    if agent.get("instructions"):
        yield from block(agent["instructions"], look)


def tooling(reply: Record, look: Look) -> list[str]:
    """Show which entries a session is offered."""
    chosen = reply["session"].get("tooling", {})
    names = [f"{visible(provider)}:{visible(id)}" for provider in sorted(chosen) for id in chosen[provider]]
    return names or ["No entry is selected.  Choose with: eryx sessions tooling SESSION --with ENTRY"]


def messages(reply: Record, look: Look) -> list[str]:
    """Show a transcript."""
    lines: list[str] = []
    for row in reply["messages"]:
        lines += message(row, look)
    return listed(lines, "No messages.", reply)


def message(record: Record, look: Look) -> list[str]:
    """Show one message: who, when, what."""
    end = "  (incomplete)" if record.get("incomplete") else ""
    author = look.paint("bold", visible(record["author_name"] or record["role"]))
    return [f"{author}  {date(record['created_at'])}{end}", *block(record["content"], look)]


def runs(reply: Record, look: Look) -> list[str]:
    """List runs: short id, state, pattern, start, session, project folder."""
    short = shorten(row["id"] for row in reply["runs"])
    rows = [
        (
            short[row["id"]],
            styled(look, visible(row["status"])),
            visible(row["pattern_name"]),
            date(row["started_at"]),
            sure(row["session_id"]),
            visible(row["project_path"]),
        )
        for row in reply["runs"]
    ]
    return listed(table(rows, look), "No runs.", reply)


def run(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show one run."""
    record = reply["run"]
    policy = record["approval_policy"]
    grants = record.get("grants") or {}
    remembered = ", ".join(visible(name) for name in grants.get("remembered", ()))
    lines = [
        f"{record['id']}  {styled(look, visible(record['status']))}  {visible(record['pattern_name'])}",
        *facts(
            ("session", record["session_id"]),
            ("folder", visible(record["project_path"])),
            ("started", date(record["started_at"])),
            ("ended", date(record["completed_at"]) if record.get("completed_at") else ""),
            ("agents", ", ".join(f"{visible(a['name'])} on {visible(a['backend'])}" for a in record["agents"])),
            ("asks before", "; ".join(rule_text(rule) for rule in policy["rules"]) or "nothing"),
            (
                "auto-approves",
                ", ".join(visible(name) for name in policy["auto_approved_tool_names"]) or "nothing",
            ),
            ("remembered", remembered),
            ("revoked", "yes: every further call asks" if grants.get("revoked") else ""),
            ("cancel asked", date(record["cancel_requested_at"]) if record.get("cancel_requested_at") else ""),
        ),
    ]
    if record.get("error"):
        lines += ["error:", *block(record["error"], look)]
    return lines


def facts(*pairs: tuple[str, str]) -> Iterable[str]:
    """Return `name  value` lines, empty values left out."""
    return table([("", name, value) for name, value in pairs if value])
