"""What a run did, as lines.

Law: every tool call shows the decision of each ask and its reason, automatic ones too.

Source: TLN-1 to TLN-4.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eryxd.cli.refs import shorten, sure
from eryxd.cli.render import styled
from eryxd.cli.render_approvals import APPROVED, MARKS, REJECTED, WAITING, call_summary, decided
from eryxd.cli.text import PLAIN, Look, block, clock, cut, date, plural, seconds, visible

Record = Mapping[str, Any]

_INDENT: Final = " " * 10
_RESULT_COLUMNS: Final = 72
_CALL_COLUMNS: Final = 64
_NAME_COLUMNS: Final = 40
_LONG_S: Final = 60.0
_ENDS: Final = {"completed": (APPROVED, "green"), "error": (REJECTED, "red"), "cancelled": (REJECTED, "yellow")}


def timeline(reply: Record, look: Look = PLAIN) -> list[str]:
    """Show a run and its events in order, each decision with its reason and who made it."""
    run, events = reply["run"], reply["events"]
    told = Told(events)
    lines = [
        f"{run['id']}  {styled(look, visible(run['status']))}  {visible(run['pattern_name'])}"
        f"  {date(run['started_at'])}  {visible(run['project_path'])}"
    ]
    for event in events:
        lines += told.lines(event, look)
    lines += summary(events)
    return lines


class Told:
    """The events of a run, by what refers to them."""

    def __init__(self, events: Iterable[Record] = ()) -> None:
        self.approvals: dict[str, Record] = {}
        self.asked: dict[str, tuple[Record, Record]] = {}
        for event in events:
            self.take(event)

    def take(self, event: Record) -> None:
        """Remember an approval by its id, and which ask of which call waits for it."""
        if event["kind"] == "approval":
            self.approvals[event["approval_id"]] = event
        for ask in event.get("asks", ()):
            if "approval_id" in ask:
                self.asked[ask["approval_id"]] = (event, ask)

    def lines(self, event: Record, look: Look) -> list[str]:
        """Return an event as it stands; an approval that a tool call asked for is told with the call."""
        match event["kind"]:
            case "tool-call":
                asks = [self.ask_line(event, ask, look) for ask in event.get("asks", ())]
                return [*asks, *outcome(event, look)]
            case "approval":
                alone = event["approval_id"] not in self.asked
                return [self.approval_line(event, look)] if alone else []
            case _:
                return plain_event(event, look)

    def ask_line(self, event: Record, ask: Record, look: Look) -> str:
        """Say which call asked, and what it was told."""
        mark, style, words = self._answer(ask)
        return _line(ask["at"], look.paint(style, mark), f"{_call(event, _CALL_COLUMNS)}  {words}", event)

    def approval_line(self, event: Record, look: Look) -> str:
        """Say how an approval stands, with the call that asked where it is known."""
        call, ask = self.asked.get(event["approval_id"], (None, None))
        if call is not None and ask is not None:
            return self.ask_line(call, ask, look)
        mark, style = MARKS[event.get("decision", "pending")]
        is_final = event["approval_kind"] == "final-response"
        kind = "final response" if is_final else cut(event["approval_title"], _CALL_COLUMNS)
        return _line(
            event["occurred_at"], look.paint(style, mark), f"{kind}  asked: {_standing(event)}{_when(event)}", event
        )

    def _answer(self, ask: Record) -> tuple[str, str, str]:
        decision = ask["decision"]
        reason = f"({visible(decision['reason'])})"
        if decision["verdict"] != "ask":
            return APPROVED, "green", f"{visible(decision['verdict'])} {reason}"
        if "refused" in ask:
            return REJECTED, "red", f"{reason}: denied, {visible(ask['refused'])}"
        approval = self.approvals.get(ask.get("approval_id", ""))
        if approval is None:
            return WAITING, "yellow", f"asked {reason}"
        mark, style = MARKS[approval.get("decision", "pending")]
        return mark, style, f"asked {reason}: {_standing(approval)}{_when(approval)}"


def plain_event(event: Record, look: Look) -> list[str]:
    """Tell an event that nobody decides about."""
    when, text = event.get("updated_at", event["occurred_at"]), event.get("content", "")
    match event["kind"]:
        case "message" if event["status"] != "running":
            unfinished = "  (incomplete)" if event["status"] == "error" else ""
            return [_line(when, "»", look.paint("bold", _author(event)) + unfinished), *_text(text, look)]
        case "thinking":
            return [_line(when, "·", f"{_author(event)} thinks"), *_text(text, look)]
        case "handoff":
            return [_line(when, "→", f"handed to {_author(event)}")]
        case "run-started":
            return [_line(event["occurred_at"], "▸", "started"), *_text(text, look)]
        case "run-completed" | "run-failed" | "run-cancelled" as kind:
            return [_line(event["occurred_at"], "■", kind.removeprefix("run-")), *_text(event.get("error", ""), look)]
    return []


def outcome(event: Record, look: Look, *, named: bool = False) -> list[str]:
    """Say in one line how a call ended, if it has; `named` says which call, where others stand between."""
    if event["status"] == "running" or "result" not in event:
        return []
    first, _, rest = str(event["result"]).strip("\n").partition("\n")
    more = f"  (+{plural(rest.count(chr(10)) + 1, 'line')})" if rest else ""
    missing = f"  ({plural(event['result_truncated'], 'byte')} cut)" if event.get("result_truncated") else ""
    call = _call(event, _NAME_COLUMNS) if named else ""
    if event["status"] == "error":
        mark = look.paint("red", f"{REJECTED} {f'{call} ' if call else ''}failed: ")
    else:
        mark = f"↳ {call}: " if call else "↳ "
    return [f"{_INDENT}  {mark}{look.paint('dim', cut(first, _RESULT_COLUMNS))}{more}{missing}"]


def summary(events: Sequence[Record]) -> list[str]:
    """Say what ran without a person: per tool how often, and why."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for event in events:
        for ask in event.get("asks", ()):
            decision = ask["decision"]
            counted[decision["verdict"], event.get("tool_name", "tool"), decision["reason"]] += 1
    lines = []
    for verdict, words in (("auto", "auto-approved"), ("pass", "ran unasked")):
        each = [
            f"{visible(tool)}{f' ×{count}' if count > 1 else ''} ({visible(reason)})"
            for (which, tool, reason), count in counted.items()
            if which == verdict
        ]
        if each:
            lines.append(f"{words}: {', '.join(each)}")
    return lines


def ending(run: Record, look: Look) -> list[str]:
    """Say how a run ended."""
    mark, style = _ENDS.get(run.get("status", ""), (WAITING, "yellow"))
    word = "failed" if run.get("status") == "error" else visible(run.get("status", "unknown"))
    lines = [look.paint(style, f"{mark} {word}")]
    return [*lines, *_text(run.get("error", ""), look)]


def waiting_lines(waiting: Mapping[str, Record], look: Look) -> list[str]:
    """Say what waits and what to type, where nobody can be asked in place."""
    short = shorten(waiting)
    lines = []
    for id, record in waiting.items():
        what = cut(record.get("title") or record.get("approval_title", ""), _CALL_COLUMNS)
        lines.append(_line(_since(record), look.paint("yellow", WAITING), f"waiting: {what}", record))
        lines.append(f"{_INDENT}  eryx approvals show {short[id]}")
        lines.append(f"{_INDENT}  eryx approvals approve {short[id]}")
    return lines


def _since(record: Record) -> str:
    return str(record.get("requested_at") or record.get("occurred_at", ""))


def _standing(approval: Record) -> str:
    if "decision" in approval:
        return decided(approval, at=False)
    return f"waiting, eryx approvals show {sure(approval['approval_id'])}"


def _call(event: Record, width: int) -> str:
    """Return the tool and the argument that tells most, in one line."""
    return cut(f"{event.get('tool_name', 'tool')} {call_summary(event.get('arguments') or {})}".strip(), width)


def _when(approval: Record) -> str:
    """Say when an approval was decided, where that was long after it was asked for."""
    asked_at, decided_at = approval["occurred_at"], approval.get("updated_at")
    if "decision" not in approval or not decided_at or seconds(asked_at, decided_at) <= _LONG_S:
        return ""
    day, _, minute = date(decided_at).rpartition(" ")
    return f" at {minute}" if date(asked_at).startswith(day) else f" at {day} {minute}"


def _author(event: Record) -> str:
    return cut(event.get("agent_name", ""), _NAME_COLUMNS) or "agent"


def _text(text: str, look: Look) -> list[str]:
    return block(text, look, rule=f"{_INDENT}│ ") if text else []


def _line(when: str, mark: str, words: str, event: Record | None = None) -> str:
    agent = cut((event or {}).get("agent_name", ""), _NAME_COLUMNS)
    return f"{clock(when)}  {mark} {words}" + (f"  · {agent}" if agent else "")
