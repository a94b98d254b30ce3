"""Following a run: over a real socket once, and as a law over every history that can be made up."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pytest
from hypothesis import given, strategies as st

from eryxd.client.client import Client, Event, RemoteError
from eryxd.client.follow import follow_run
from tests.requirements import requirement
from tests.unit.fake_daemon import FakeDaemon, NoAnswer, Peer, Refuse

RUN, OTHER = "r-1", "r-2"


def run_event(seq: int, status: str, run_id: str = RUN) -> Event:
    return {
        "seq": seq,
        "at": "t",
        "type": "run-updated",
        "session_id": "s",
        "run": {"id": run_id, "session_id": "s", "status": status},
    }


def timeline_record(record_id: str, version: int, run_id: str = RUN) -> dict[str, Any]:
    return {"id": record_id, "run_id": run_id, "session_id": "s", "version": version}


def timeline_event(seq: int, record_id: str, run_id: str = RUN) -> Event:
    """A change of a record; its version is the seq of the change."""
    return {
        "seq": seq,
        "at": "t",
        "type": "timeline-event",
        "session_id": "s",
        "timeline_event": timeline_record(record_id, seq, run_id),
    }


def delta(message: str, offset: int, text: str, run_id: str = RUN) -> Event:
    body = {"message_id": message, "run_id": run_id, "offset": offset, "text": text}
    return {"at": "t", "type": "message-delta", "session_id": "s", "delta": body}


def lagged(seq: int) -> Event:
    return {"at": "t", "type": "lagged", "seq": seq}


def told(events: Iterator[Event]) -> list[tuple[Any, ...]]:
    """The events as short tuples: type, then what tells them apart."""
    return [_short(event) for event in events]


def _short(event: Event) -> tuple[Any, ...]:
    match event:
        case {"type": "run-updated", "run": run}:
            return ("run", run["status"])
        case {"type": "timeline-event", "timeline_event": record}:
            return ("timeline", record["id"], record["version"])
        case {"type": "message-delta", "delta": piece}:
            return ("delta", piece["message_id"], piece["offset"], piece["text"])
        case _:
            return (event["type"],)


class Script:
    """A daemon that plays prepared subscriptions and snapshots, in the order in which they are asked for."""

    def __init__(self, subscriptions: list[list[Event] | str], pages: list[dict[str, Any]]) -> None:
        self._subscriptions = iter(subscriptions)
        self._pages = iter(pages)

    def subscribe(self, peer: Peer, _params: dict[str, Any]) -> None:
        events = next(self._subscriptions)
        if isinstance(events, str):
            raise Refuse({"code": events, "message": "M", "data": {}})
        for event in events[:1]:
            peer.event(**event)
        peer.send([1, peer.msgid, None, {"epoch": "e1", "seq": 0}])
        for event in events[1:]:
            peer.event(**event)
        raise NoAnswer

    def timeline(self, _peer: Peer, _params: dict[str, Any]) -> dict[str, Any]:
        return next(self._pages)


def page(seq: int, *records: dict[str, Any], status: str = "running", **more: Any) -> dict[str, Any]:
    run = {"id": RUN, "session_id": "s", "status": status}
    return {"run": run, "events": list(records), "seq": seq, **more}


def followed(
    folder: Path, subscriptions: list[list[Event] | str], pages: list[dict[str, Any]]
) -> tuple[list[tuple[Any, ...]], list[tuple[str, dict[str, Any]]]]:
    """Follow a scripted run; return what was told and what the daemon was asked after the greetings."""
    folder.chmod(0o700)
    script = Script(subscriptions, pages)
    handlers = {"events.subscribe": script.subscribe, "timeline.get": script.timeline}
    with FakeDaemon(folder, handlers) as daemon, Client.connect(daemon.path) as client:
        events = told(follow_run(client, RUN, "s"))
    return events, [asked for asked in daemon.asked if asked[0] != "hello"]


SUBSCRIBED = {"topics": ["runs", "timeline", "messages", "approvals"], "session_id": "s"}


@requirement("WIR-25")
def test_run_is_told_from_where_it_stands_to_its_end(tmp_path: Path) -> None:
    """Subscribed first; what the snapshot already shows is not told again, nor what other runs do."""
    live = [
        timeline_event(3, "a"),
        {"seq": 4, "type": "approval-resolved", "session_id": "s", "approval": {"id": "o", "run_id": RUN}},
        timeline_event(6, "b"),
        timeline_event(7, "x", OTHER),
        run_event(8, "completed", OTHER),
        {"seq": 9, "type": "approval-requested", "session_id": "s", "approval": {"id": "p", "run_id": RUN}},
        {"seq": 10, "type": "approval-requested", "session_id": "s", "approval": {"id": "q", "run_id": OTHER}},
        {"seq": 11, "type": "message-published", "session_id": "s", "message": {"id": "m", "run_id": RUN}},
        {"seq": 12, "type": "session-updated", "session_id": "s", "session": {"id": "s"}},
        run_event(13, "completed"),
        timeline_event(14, "late"),
    ]
    events, asked = followed(tmp_path, [live], [page(5, timeline_record("a", 3))])

    assert events == [
        ("run", "running"),
        ("timeline", "a", 3),
        ("timeline", "b", 6),
        ("approval-requested",),
        ("message-published",),
        ("run", "completed"),
    ]
    assert asked == [("events.subscribe", SUBSCRIBED), ("timeline.get", {"run_id": RUN})]


@requirement("WIR-25")
@pytest.mark.parametrize("status", ["completed", "error", "cancelled"])
def test_ended_run_is_told_and_ends(tmp_path: Path, status: str) -> None:
    """Nothing more will come, so nothing is waited for."""
    events, _ = followed(tmp_path, [[]], [page(5, timeline_record("a", 3), status=status)])

    assert events == [("timeline", "a", 3), ("run", status)]


@requirement("WIR-25")
def test_lost_subscription_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """`since` is the last seq that arrived, whichever run it was of."""
    events, asked = followed(
        tmp_path,
        [
            [timeline_event(6, "a"), timeline_event(7, "x", OTHER), lagged(9)],
            [lagged(9)],
            [timeline_event(8, "b"), run_event(9, "error")],
        ],
        [page(5)],
    )

    assert events == [("run", "running"), ("timeline", "a", 6), ("timeline", "b", 8), ("run", "error")]
    resumed = ("events.subscribe", SUBSCRIBED | {"since": 7, "epoch": "e1"})
    assert asked[2:] == [resumed, resumed]


@requirement("WIR-25")
def test_journal_that_no_longer_reaches_back_gives_a_new_snapshot(tmp_path: Path) -> None:
    """Only what the first telling did not have is told from it."""
    events, _ = followed(
        tmp_path,
        [[timeline_event(6, "a"), lagged(6)], "journal_gap", [run_event(21, "completed")]],
        [
            page(5, timeline_record("z", 1)),
            page(20, timeline_record("z", 1), timeline_record("a", 15), timeline_record("b", 16)),
        ],
    )

    assert events == [
        ("run", "running"),
        ("timeline", "z", 1),
        ("timeline", "a", 6),
        ("run", "running"),
        ("timeline", "a", 15),
        ("timeline", "b", 16),
        ("run", "completed"),
    ]


@requirement("WIR-25")
def test_other_refusals_of_a_subscription_reach_the_caller(tmp_path: Path) -> None:
    """Only a gap has a remedy here."""
    with pytest.raises(RemoteError, match="shutting_down"):
        followed(tmp_path, [[lagged(5)], "shutting_down"], [page(5)])


@requirement("WIR-25")
def test_deltas_join_without_overlap_and_stop_at_a_gap(tmp_path: Path) -> None:
    """What streamed is a prefix of the text; the message's own event brings the rest."""
    live = [
        delta("m", 0, "he"),
        delta("n", 3, "missed its start"),
        delta("m", 0, "he"),
        delta("o", 0, "not ours", OTHER),
        delta("m", 1, "ell"),
        delta("m", 5, "gap"),
        delta("m", 8, "still a gap"),
        run_event(6, "completed"),
    ]
    events, _ = followed(tmp_path, [live], [page(5)])

    assert events == [
        ("run", "running"),
        ("delta", "m", 0, "he"),
        ("delta", "m", 2, "ll"),
        ("run", "completed"),
    ]


class Journal:
    """A client of a daemon that goes on committing: `steps[i]` changes before it answers the i-th question.

    Subscriptions are cut by `lagged` after each of `cuts`, counted in events.
    """

    def __init__(self, history: list[Event], steps: list[int], page_size: int, cuts: list[int]) -> None:
        self._history = history
        self._steps = iter(steps)
        self._page_size = page_size
        self._cuts = iter(cuts)
        self._now = 0

    def events(self, _topics: Any, _session: Any, since: int | None = None, *, epoch: str = "e1") -> "Replay":
        start = self._pass_time() if since is None else since
        return Replay(epoch, self._history[start:], next(self._cuts, None))

    def call(self, _method: str, *, run_id: str, cursor: int = 0) -> dict[str, Any]:
        past = self._history[: self._pass_time()]
        records: dict[str, Any] = {}
        for event in past:
            record = event.get("timeline_event")
            if record and record["run_id"] == run_id:
                records[record["id"]] = record
        shown = list(records.values())[cursor : cursor + self._page_size]
        ended = bool(past) and past[-1]["seq"] == len(self._history)
        more = {"cursor": cursor + self._page_size} if cursor + self._page_size < len(records) else {}
        return page(self._now, *shown, status="completed" if ended else "running", **more)

    def _pass_time(self) -> int:
        self._now = min(self._now + next(self._steps, 0), len(self._history))
        return self._now


class Replay:
    """A subscription to what is left of a history."""

    def __init__(self, epoch: str, events: list[Event], cut: int | None) -> None:
        self.epoch = epoch
        self._events = events if cut is None else [*events[:cut], lagged(events[-1]["seq"] if events else 0)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: Any, _trace: TracebackType | None) -> None:
        return None

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)


CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([RUN, RUN, RUN, OTHER])), max_size=14)


@requirement("WIR-25")
@given(
    changes=CHANGES,
    steps=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    page_size=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 6), max_size=5),
)
def test_following_tells_each_state_once_in_order_to_the_last(
    changes: list[tuple[str, str]], steps: list[int], page_size: int, cuts: list[int]
) -> None:
    """Whenever the snapshot's pages are taken, and wherever the subscription is lost."""
    history = [timeline_event(seq, f"{name}@{run}", run) for seq, (name, run) in enumerate(changes, start=1)]
    history.append(run_event(len(history) + 1, "completed"))
    client = cast(Client, Journal(history, steps, page_size, cuts))

    events = told(follow_run(client, RUN))

    versions: dict[str, list[int]] = {}
    for _, name, version in (event for event in events if event[0] == "timeline"):
        versions.setdefault(name, []).append(version)
    last = {f"{name}@{run}": seq for seq, (name, run) in enumerate(changes, start=1) if run == RUN}
    assert events[-1] == ("run", "completed")
    assert all(seen == sorted(set(seen)) for seen in versions.values())
    assert {name: seen[-1] for name, seen in versions.items()} == last
