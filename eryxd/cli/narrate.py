"""What a run did, as lines: a whole timeline, or event by event while it happens.

Laws: every tool call shows the decision of each ask and its reason, automatic ones too; `Live` says nothing twice.

Source: TLN-1 to TLN-4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from eryxd.cli.refs import shorten, sure
from eryxd.cli.render import styled
from eryxd.cli.render_approvals import APPROVED, MARKS, REJECTED, WAITING, call_summary, decided
from eryxd.cli.render_status import refused
from eryxd.cli.text import PLAIN, Look, block, clock, cut, date, plural, visible

Record = Mapping[str, Any]

_INDENT: Final = " " * 10
_RESULT_COLUMNS: Final = 72
_CALL_COLUMNS: Final = 64
_NAME_COLUMNS: Final = 40
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
        call = cut(
            f"{event.get('tool_name', 'tool')} {call_summary(event.get('arguments') or {})}".strip(), _CALL_COLUMNS
        )
        return _line(ask["at"], look.paint(style, mark), f"{call}  {words}", event)

    def approval_line(self, event: Record, look: Look) -> str:
        """Say how an approval stands, with the call that asked where it is known."""
        call, ask = self.asked.get(event["approval_id"], (None, None))
        if call is not None and ask is not None:
            return self.ask_line(call, ask, look)
        mark, style = MARKS[event.get("decision", "pending")]
        is_final = event["approval_kind"] == "final-response"
        kind = "final response" if is_final else cut(event["approval_title"], _CALL_COLUMNS)
        return _line(event["occurred_at"], look.paint(style, mark), f"{kind}  asked: {_standing(event)}", event)

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
        return mark, style, f"asked {reason}: {_standing(approval)}"


class Live:
    """A run while it happens: takes the events of `follow_run`, returns what is new as lines."""

    def __init__(self, look: Look = PLAIN) -> None:
        self.waiting: dict[str, Record] = {}
        """Approvals that wait now, oldest first: their timeline event, or the brief."""
        self.run: Record | None = None
        self.events: dict[str, Record] = {}
        self._look = look
        self._told = Told()
        self._said: set[str] = set()

    @property
    def ended(self) -> bool:
        """Whether the run is known to have ended."""
        return self.run is not None and self.run["status"] != "running"

    def take(self, event: Record) -> list[str]:
        """Return what one event adds."""
        if "run" in event:
            self.run = event["run"]
        if event["type"] == "approval-requested":
            self.waiting.setdefault(event["approval"]["id"], event["approval"])
        if event["type"] == "approval-resolved":
            self.waiting.pop(event["approval"]["id"], None)
        if "refusal" in event:
            return [self._look.paint("red", refused(event["refusal"]))]
        record = event.get("timeline_event")
        return list(self._take(record)) if record else []

    def _take(self, record: Record) -> Iterator[str]:
        self.events[record["id"]] = record
        self._told.take(record)
        match record["kind"]:
            case "tool-call":
                yield from self._call(record)
            case "approval":
                yield from self._approval(record)
            case "run-started" | "run-completed" | "run-failed" | "run-cancelled":
                return
            case _:
                if record["status"] != "running" and self._first(record["id"]):
                    yield from plain_event(record, self._look)

    def _call(self, record: Record) -> Iterator[str]:
        for index, ask in enumerate(record.get("asks", ())):
            approval = self._told.approvals.get(ask.get("approval_id", ""))
            open_ask = (
                ask["decision"]["verdict"] == "ask"
                and "refused" not in ask
                and (approval is None or "decision" not in approval)
            )
            if not open_ask and self._first(ask.get("approval_id") or f"{record['id']} {index}"):
                yield self._told.ask_line(record, ask, self._look)
        if record["status"] != "running" and self._first(f"{record['id']} outcome"):
            yield from outcome(record, self._look)

    def _approval(self, record: Record) -> Iterator[str]:
        id = record["approval_id"]
        if "decision" not in record:
            self.waiting.setdefault(id, record)
            return
        self.waiting.pop(id, None)
        if self._first(id):
            yield self._told.approval_line(record, self._look)

    def _first(self, key: str) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def closing(self) -> list[str]:
        """Say what ran without asking, and how the run ended."""
        ordered = sorted(self.events.values(), key=lambda event: event["number"])
        return [*summary(ordered), *ending(self.run or {}, self._look)]


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


def outcome(event: Record, look: Look) -> list[str]:
    """Say in one line how a call ended, if it has."""
    if event["status"] == "running" or "result" not in event:
        return []
    first, _, rest = str(event["result"]).strip("\n").partition("\n")
    more = f"  (+{plural(rest.count(chr(10)) + 1, 'line')})" if rest else ""
    missing = f"  ({plural(event['result_truncated'], 'byte')} cut)" if event.get("result_truncated") else ""
    mark = look.paint("red", f"{REJECTED} failed: ") if event["status"] == "error" else "↳ "
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


def _author(event: Record) -> str:
    return cut(event.get("agent_name", ""), _NAME_COLUMNS) or "agent"


def _text(text: str, look: Look) -> list[str]:
    return block(text, look, rule=f"{_INDENT}│ ") if text else []


def _line(when: str, mark: str, words: str, event: Record | None = None) -> str:
    agent = cut((event or {}).get("agent_name", ""), _NAME_COLUMNS)
    return f"{clock(when)}  {mark} {words}" + (f"  · {agent}" if agent else "")
