"""A run told while it happens, event by event.

Laws: nothing is said twice; what a call was told comes before what became of it; a result that does not stand right
below its call, or that one of several open calls has, says of which it is.

Source: TLN-1 to TLN-4.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eryxd.cli.narrate import Told, ending, outcome, plain_event, summary
from eryxd.cli.render_status import refused
from eryxd.cli.text import PLAIN, Look

Record = Mapping[str, Any]


class Live:
    """A run while it happens: takes the events of `follow_run`, returns what is new as lines."""

    def __init__(self, look: Look = PLAIN, *, joins: bool = False) -> None:
        self.waiting: dict[str, Record] = {}
        """Approvals that wait now, oldest first: their timeline event, or the brief."""
        self.run: Record | None = None
        self.events: dict[str, Record] = {}
        self._look = look
        self._told = Told()
        self._joins = joins
        self._said: set[str] = set()
        self._open: set[str] = set()
        self._above: str | None = None
        """The call that the last line told of."""

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
            case "run-started" if self._joins and self._first(record["id"]):
                yield from plain_event(record, self._look)
            case "run-started" | "run-completed" | "run-failed" | "run-cancelled":
                return
            case _:
                if record["status"] != "running" and self._first(record["id"]):
                    self._above = None
                    yield from plain_event(record, self._look)

    def _call(self, record: Record) -> Iterator[str]:
        (self._open.add if record["status"] == "running" else self._open.discard)(record["id"])
        for index, ask in enumerate(record.get("asks", ())):
            if not self._is_open(ask) and self._first(ask.get("approval_id") or f"{record['id']} {index}"):
                self._above = record["id"]
                yield self._told.ask_line(record, ask, self._look)
        yield from self._outcome(record)

    def _is_open(self, ask: Record) -> bool:
        """Whether it is not known yet what an ask was told."""
        approval = self._told.approvals.get(ask.get("approval_id", ""))
        is_answered = ask["decision"]["verdict"] != "ask" or "refused" in ask
        return not is_answered and (approval is None or "decision" not in approval)

    def _outcome(self, record: Record) -> Iterator[str]:
        """Tell how a call ended, never before the decision: of a run that is joined, that comes later."""
        if record["status"] == "running" or any(map(self._is_open, record.get("asks", ()))):
            return
        if self._first(f"{record['id']} outcome"):
            named = self._above != record["id"] or bool(self._open)
            self._above = None
            yield from outcome(record, self._look, named=named)

    def _approval(self, record: Record) -> Iterator[str]:
        id = record["approval_id"]
        if "decision" not in record:
            self.waiting.setdefault(id, record)
            return
        self.waiting.pop(id, None)
        call, _ = self._told.asked.get(id, (None, None))
        if self._first(id):
            self._above = call["id"] if call else None
            yield self._told.approval_line(record, self._look)
        if call:
            yield from self._outcome(call)

    def _first(self, key: str) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def closing(self) -> list[str]:
        """Say what ran without asking, and how the run ended."""
        ordered = sorted(self.events.values(), key=lambda event: event["number"])
        return [*summary(ordered), *ending(self.run or {}, self._look)]
