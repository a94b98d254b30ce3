"""Approvals as text: what is asked, what answering would do, and who answered.

Source: APR-1, APR-4, APR-7.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from eryxd.cli.refs import shorten, sure
from eryxd.cli.render import facts
from eryxd.cli.text import PLAIN, Look, block, clock, cut, date, listed, plural, table, visible

Record = Mapping[str, Any]

WAITING, APPROVED, REJECTED = "?", "✓", "✗"

MARKS: Final = {"pending": (WAITING, "yellow"), "approved": (APPROVED, "green"), "rejected": (REJECTED, "red")}

NOT_PUBLISHED: Final = "not yet published"
"""The line that stands above text which only the person who decides may see."""

_NONE: Final[Mapping[str, Record]] = {}

_NOT_BY_A_PERSON: Final = {
    "interrupted": "because the daemon stopped",
    "cancelled": "because the run was cancelled",
    "expired": "because nobody answered in time",
    "run-failed": "because the run failed",
}


def approvals(reply: Record, look: Look, details: Mapping[str, Record] = _NONE) -> list[str]:
    """List approvals: short id, mark and state, when, agent, session, who decided, what is asked.

    `details` are whole approvals by id: a brief tells which tool, not what it would do.
    """
    short = shorten(row["id"] for row in reply["approvals"])
    any_decided = any(row["status"] != "pending" for row in reply["approvals"])
    rows = [
        (
            short[row["id"]],
            state(row, look),
            date(row["requested_at"]),
            visible(row.get("agent_name", "")),
            sure(row["session_id"]),
            *([decided(row, at=False, word=False)] if any_decided else []),
            summary(details[row["id"]]) if row["id"] in details else visible(row["title"]),
        )
        for row in reply["approvals"]
    ]
    return listed(table(rows, look), "Nothing waits for you.", reply)


def state(approval: Record, look: Look = PLAIN) -> str:
    """Return mark and word of where an approval stands."""
    mark, style = MARKS.get(approval["status"], (WAITING, "yellow"))
    word = "waiting" if approval["status"] == "pending" else visible(approval["status"])
    return look.paint(style, f"{mark} {word}")


def approval(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show one approval whole: everything `approvals.get` tells."""
    record = reply["approval"]
    return [
        f"{record['id']}  {state(record, look)}  {visible(record['kind'])}{place(reply)}",
        look.paint("bold", cut(record["title"], look.width)),
        *(block(record["detail"], look, rule="  ") if record.get("detail") else []),
        *content(record, look),
        *facts(
            ("agent", " ".join(visible(record[k]) for k in ("agent_name", "agent_id") if record.get(k))),
            ("tool", visible(record.get("tool_name", ""))),
            ("provider", visible(record.get("provider", ""))),
            ("permission", visible(record.get("permission_kind", ""))),
            ("session", record["session_id"]),
            ("run", record["run_id"]),
            ("requested", date(record["requested_at"])),
            ("expires", date(record["expires_at"]) if record.get("expires_at") else ""),
            ("decided", decided(record) if record["status"] != "pending" else ""),
            ("digest", visible(record["digest"])),
            ("remember", remember(reply)),
        ),
    ]


def place(reply: Record) -> str:
    """Say which of how many this is, where more than one waits in its session."""
    position, waiting = reply.get("position"), reply.get("waiting", 0)
    return f"  ({position} of {waiting} waiting)" if position and waiting > 1 else ""


def remember(reply: Record) -> str:
    """Say what `--remember` would store and release, or why it cannot be used (APR-4)."""
    preview = reply.get("remember")
    if preview is None:
        return ""
    if preview.get("refused"):
        return f"not here: {visible(preview['refused'])}"
    stores = ", ".join(visible(name) for name in preview["stores"]) or "nothing"
    releases = ", ".join(sure(each) for each in preview["releases"])
    return f"the session would auto-approve {stores}" + (f"; also releases {releases}" if releases else "")


def can_remember(reply: Record) -> bool:
    """Whether approving may be remembered for the session."""
    preview = reply.get("remember")
    return preview is not None and not preview.get("refused")


def content(record: Record, look: Look) -> list[str]:
    """Show what the approval covers: the call's parts, or the messages as they would be published."""
    lines: list[str] = []
    for name, text in _parts(record.get("permission") or {}):
        lines += [look.paint("dim", visible(name)), *(_diff(text, look) if name == "diff" else block(text, look))]
    if record.get("messages") is not None:
        lines.append(look.paint("yellow", f"── {NOT_PUBLISHED} ──"))
        for message in record["messages"]:
            lines += _message(message, look)
    if missing := missing_bytes(record):
        size = plural(missing, "byte")
        lines.append(look.paint("yellow", f"{size} not shown: eryx approvals show {record['id']} --full"))
    return lines


def missing_bytes(record: Record) -> int:
    """Return how much the daemon has cut from what it shows."""
    cut_away = ((record.get("permission") or {}).get("truncated"), record.get("messages_truncated"))
    return sum(one["bytes"] for one in cut_away if one)


def _message(message: Record, look: Look) -> Iterator[str]:
    thinking = " (thinking)" if message.get("kind") == "thinking" else ""
    yield look.paint("bold", visible(message["author_name"])) + thinking
    yield from block(message["content"], look)


def _parts(permission: Record) -> Iterator[tuple[str, str]]:
    """Yield what a call would do, part by part; arguments that another part shows already are left out."""
    parts = [(name, str(permission[name])) for name in ("server", "command", "url", "path") if name in permission]
    yield from parts
    shown = {text for _, text in parts}
    arguments = permission.get("arguments") or {}
    for name, value in arguments.items():
        text = argument(value)
        if text not in shown and not _within(text, permission.get("diff", "")):
            yield name, text
    if permission.get("diff"):
        yield "diff", str(permission["diff"])


def _within(text: str, diff: str) -> bool:
    """Whether a diff shows every line of a text already."""
    return bool(diff) and set(text.split("\n")) <= {"", *(line[1:] for line in diff.split("\n"))}


def argument(value: object) -> str:
    """Return one argument of a call as text."""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)


def _diff(text: str, look: Look) -> list[str]:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = []
    for line in text.rstrip("\n").split("\n"):
        style = styles.get(line[:1])
        shown = block(line, look)
        lines += [look.paint(style, each) for each in shown] if style else shown
    return lines


def summary(record: Record, width: int = 0) -> str:
    """Say in one line what an approval would let happen."""
    what = call_summary((record.get("permission") or {}).get("arguments") or {}, record.get("permission") or {})
    name = visible(record.get("tool_name") or record["title"])
    return cut_line(f"{name} {what}".strip() if record["kind"] == "tool-call" else visible(record["title"]), width)


def call_summary(arguments: Record, permission: Record | None = None) -> str:
    """Return the argument that tells most about a call, as one visible line."""
    wanted = arguments.get("pattern")
    if isinstance(wanted, str) and wanted and not (permission or {}).get("command"):
        where = arguments.get("path")
        return visible(f"{wanted} in {where}" if isinstance(where, str) and where else wanted)
    for source in (permission or {}, arguments):
        for name in ("command", "path", "url"):
            if isinstance(source.get(name), str) and source[name]:
                return visible(source[name])
    return visible(argument(dict(arguments))) if arguments else ""


def cut_line(line: str, width: int) -> str:
    """Cut a line that is visible already."""
    return cut(line, width) if width else line


def decided(record: Record, *, at: bool = True, word: bool = True) -> str:
    """Say who decided what, when, and with which note: of an approval, its timeline event, or a refusal's data."""
    what = visible(record.get("status") if record.get("status") in MARKS else record.get("decision", ""))
    parts = [what if word else "", _whence(record)]
    if at and record.get("resolved_at"):
        parts.append(f"at {clock(record['resolved_at'])}")
    if record.get("note"):
        parts.append(f"“{visible(record['note'])}”")
    return " ".join(part for part in parts if part)


def _whence(record: Record) -> str:
    resolution = record.get("resolution", "")
    if resolution == "remembered":
        return "because the tool was remembered for the session"
    if resolution in _NOT_BY_A_PERSON:
        return _NOT_BY_A_PERSON[resolution]
    return f"by {who(record['resolved_by'])}" if record.get("resolved_by") else ""


def who(decider: Record) -> str:
    """Name who decided: a process of this user is you."""
    person = "you" if decider["uid"] == os.getuid() else f"uid {decider['uid']}"
    return f"{person} ({visible(decider['client_name'])} pid {decider['pid']})"
