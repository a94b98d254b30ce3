"""Follow one run from where it stands to its end.

Laws: of what is committed after the call nothing is left out and nothing told twice, however often the
subscription is lost to `lagged` (where the journal no longer reaches back, the timeline stands for what it
held); the states of one record come in the order of the journal; the deltas yielded for a message, joined,
are a prefix of its text.
"""

from collections.abc import Iterator
from typing import Any, Final

from eryxd.client.client import Client, Event, EventStream, RemoteError
from eryxd.domain.errors import ErrorCode

TOPICS: Final = ("runs", "timeline", "messages", "approvals")
"""What can concern a run."""


def follow_run(client: Client, run_id: str, session_id: str | None = None) -> Iterator[Event]:
    """Yield the events of one run until a `run-updated` says that it is no longer running.

    First comes what is there: `run-updated` with the run, and a `timeline-event` for each of its timeline
    events, with the `seq` of the snapshot; a pending approval shows in one of kind `approval` and status
    `running`.  Of a run that has ended, `run-updated` comes last.  `session_id`, where known, spares the
    daemon from sending what other sessions do.  A `peer-refused` is told too: who follows must hear of it.
    Raises: RemoteError `not_found` -- no such run; ConnectionLost, BadReply, TimedOut.
    """
    view = _RunView(run_id)
    epoch: str | None = None
    while not view.ended:
        resumed = _resume(client, session_id, view.seq, epoch)
        # Subscribe before looking: what changes in between is then in the stream, and told apart by its seq.
        with resumed or client.events(TOPICS, session_id) as stream:
            epoch = stream.epoch
            if resumed is None:
                yield from view.catch_up(client)
            if not view.ended:
                yield from view.live(stream)


def _resume(client: Client, session_id: str | None, since: int | None, epoch: str | None) -> EventStream | None:
    """Return a stream that goes on after `since`, or None where a snapshot is needed first."""
    if since is None:
        return None
    try:
        return client.events(TOPICS, session_id, since, epoch=epoch)
    except RemoteError as refusal:
        if refusal.code == ErrorCode.JOURNAL_GAP:
            return None
        raise


class _RunView:
    """What has been told of a run: enough to tell nothing twice and to leave nothing out."""

    def __init__(self, run_id: str) -> None:
        self.ended = False
        self.seq: int | None = None
        self._run_id = run_id
        self._snapshot_seq = 0
        self._page_seq: dict[str, int] = {}
        self._told: dict[str, Any] = {}
        self._streamed: dict[str, int] = {}

    def catch_up(self, client: Client) -> Iterator[Event]:
        """Yield the run as it stands, without the timeline events that were told before and are the same."""
        page = client.call("timeline.get", run_id=self._run_id)
        run = page["run"]
        # As of the first page: what comes after it, the run's end among them, is still to come in the stream.
        self.seq = self._snapshot_seq = page["seq"]
        self.ended = run["status"] != "running"
        state = {"type": "run-updated", "seq": self.seq, "session_id": run["session_id"], "run": run}
        if not self.ended:
            yield state
        for each in _pages(client, self._run_id, page):
            yield from self._news(each)
        if self.ended:
            yield state

    def live(self, stream: EventStream) -> Iterator[Event]:
        """Yield what is new about the run until it ends or the stream does."""
        for event in stream:
            if event["type"] == "message-delta":
                yield from self._joined(event)
            elif self._is_news(event):
                yield event
            if self.ended:
                return

    def _news(self, page: dict[str, Any]) -> Iterator[Event]:
        for record in page["events"]:
            self._page_seq[record["id"]] = page["seq"]
            if self._told.get(record["id"]) != record:
                self._told[record["id"]] = record
                yield {
                    "type": "timeline-event",
                    "seq": page["seq"],
                    "session_id": record["session_id"],
                    "timeline_event": record,
                }

    def _is_news(self, event: Event) -> bool:
        """Take note of a durable event and return whether it is to be told."""
        seq = event.get("seq")
        if seq is None or event["type"] == "lagged":
            return False
        self.seq = max(self.seq or 0, seq)
        record = event.get("timeline_event", {})
        # A later page of the snapshot may have shown this record newer than the first one's seq says.
        if seq <= max(self._snapshot_seq, self._page_seq.get(record.get("id"), 0)):
            return False
        if event["type"] == "peer-refused":
            return True
        if _run_of(event) != self._run_id:
            return False
        if record:
            self._told[record["id"]] = record
        self.ended = event["type"] == "run-updated" and event["run"]["status"] != "running"
        return True

    def _joined(self, event: Event) -> Iterator[Event]:
        """Yield the part of a delta that goes on where the last one ended.

        After a gap nothing more is streamed of that message: its own event brings the whole text.
        """
        delta = event["delta"]
        told = self._streamed.get(delta["message_id"], 0)
        text = delta["text"][told - delta["offset"] :] if delta["offset"] <= told else ""
        if text and delta["run_id"] == self._run_id:
            self._streamed[delta["message_id"]] = told + len(text)
            yield {**event, "delta": {**delta, "offset": told, "text": text}}


def _pages(client: Client, run_id: str, page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the first page and all that follow it."""
    yield page
    while (cursor := page.get("cursor")) is not None:
        page = client.call("timeline.get", run_id=run_id, cursor=cursor)
        yield page


def _run_of(event: Event) -> str | None:
    """Return the id of the run that an event speaks of."""
    if "run" in event:
        return str(event["run"]["id"])
    for name in ("timeline_event", "message", "approval"):
        if name in event:
            return str(event[name].get("run_id"))
    return None
