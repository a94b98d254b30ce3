"""Subscriptions: everything once and in order, or a plain word that it is not so."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess
from tests.e2e.serving import Client as RawClient, frame
from tests.e2e.stage import Json, Stage, Watch, create, is_a
from tests.requirements import requirement

SUBSCRIBERS: Final = 8
LOAD_CLIENTS: Final = 3
CHANGES: Final = 150
"""Changes that each of the load's clients makes: several pages of the journal in all."""


def up_to(last: int) -> Any:
    """Return what is true of the event with that number, and of every later one."""
    return lambda event: bool(event.get("seq", 0) >= last)


def numbers(watch: Watch) -> list[int]:
    """Return the numbers of the durable events in the order in which they came."""
    return [event["seq"] for event in watch.heard if "seq" in event]


def newest(client: Client) -> int:
    """Return the number of the last event."""
    return int(client.call("workspace.get")["seq"])


@contextmanager
def load(stage: Stage, daemon: DaemonProcess) -> Iterator[None]:
    """Change things from several clients while the block runs; returns when all changes have been acknowledged."""
    session_id = stage.session()

    def work(client: Client) -> None:
        for number in range(CHANGES):
            client.call("sessions.rename", session_id=session_id, title=f"Title {number}")

    clients = [daemon.client(f"load {number}") for number in range(LOAD_CLIENTS)]
    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(WAIT_S)


@requirement("WIR-30")
def test_subscribers_that_join_under_load_hear_everything_once_and_in_order(
    stage: Stage, daemon: DaemonProcess
) -> None:
    """From the beginning, through the journal, into the live stream: no gap and no double."""
    watches: list[Watch] = []
    with load(stage, daemon):
        watches += [stage.watch(since=0) for _ in range(SUBSCRIBERS)]
    last = newest(stage.client)

    for watch in watches:
        watch.until(up_to(last))

    assert last > LOAD_CLIENTS * CHANGES
    assert [numbers(watch) for watch in watches] == [list(range(1, last + 1))] * SUBSCRIBERS


@requirement("WIR-30")
def test_a_snapshot_and_what_comes_after_it_make_the_present(stage: Stage, daemon: DaemonProcess) -> None:
    """Replaying the events since a snapshot's number on top of it gives the next snapshot."""
    with load(stage, daemon):
        snapshot = stage.client.call("workspace.get")
        watch = stage.watch(since=snapshot["seq"], epoch=snapshot["epoch"])
    now = stage.client.call("workspace.get")

    watch.until(up_to(now["seq"]))

    assert numbers(watch) == list(range(snapshot["seq"] + 1, now["seq"] + 1))
    sessions = {session["id"]: session for session in snapshot["sessions"]}
    sessions |= {event["session"]["id"]: event["session"] for event in watch.heard if "session" in event}
    assert sorted(sessions.values(), key=str) == sorted(now["sessions"], key=str)


@requirement("WIR-30")
def test_a_subscription_without_since_begins_now(stage: Stage) -> None:
    """What has happened is not told again."""
    before = newest(stage.client)
    watch = stage.watch()

    stage.session()

    assert watch.stream.seq == before
    assert watch.until(is_a("session-updated"))["seq"] > before
    assert min(numbers(watch)) == before + 1


@requirement("WIR-31")
def test_a_journal_that_does_not_reach_back_is_a_gap(stage: Stage, daemon: DaemonProcess) -> None:
    """From its oldest event on everything is there."""
    stage.session()
    daemon.stop()
    with closing(sqlite3.connect(daemon.store_path)) as store:
        store.execute("DELETE FROM journal WHERE seq <= 3")
        store.commit()
    client = daemon.start().client()
    last = newest(client)

    gaps = []
    for since in (0, 2, last + 1):
        with pytest.raises(RemoteError) as refused:
            client.events(since=since)
        gaps.append((refused.value.code, refused.value.data["newest"]))

    assert gaps == [("journal_gap", last)] * 3
    with Watch(client, since=3) as watch:
        watch.until(up_to(last))
        assert numbers(watch) == list(range(4, last + 1))


@requirement("WIR-31")
def test_another_epoch_is_a_gap(daemon: DaemonProcess) -> None:
    """Numbers of one store mean nothing in another; hello, snapshot and subscription agree on which it is."""
    client = daemon.client()
    with client.events() as stream:
        epochs = {client.call("hello")["epoch"], client.call("workspace.get")["epoch"], stream.epoch}

    with pytest.raises(RemoteError) as refused:
        client.events(since=0, epoch="another")

    assert epochs == {refused.value.data["epoch"]}
    assert refused.value.code == "journal_gap"


@requirement("WIR-31")
def test_a_restored_store_has_another_epoch(stage: Stage, daemon: DaemonProcess) -> None:
    """Whoever saw what was undone starts over."""
    backup = stage.client.call("store.backup", path=str(stage.folder / "backup.db"))["path"]
    lost = stage.session()
    epoch = stage.client.call("workspace.get")["epoch"]
    daemon.stop()

    restored = subprocess.run(
        [sys.executable, "-m", "eryxd.daemon.app", "--restore", backup],
        env=daemon.environ,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert restored.returncode == 0, restored.stderr
    client = daemon.start().client()
    assert client.call("workspace.get")["epoch"] != epoch
    assert lost not in {session["id"] for session in client.call("sessions.list")["sessions"]}
    with pytest.raises(RemoteError) as refused:
        client.events(since=0, epoch=epoch)
    assert refused.value.code == "journal_gap"


@requirement("WIR-32")
def test_a_subscriber_that_does_not_read_is_told_where_it_stopped(stage: Stage, raw: RawClient) -> None:
    """It hears all up to there in order; the subscription ends, the connection lives, and nobody else waited."""
    slow, prompt = raw, stage.watch()
    first = slow.ask("events.subscribe")[3]["seq"] + 1
    for _ in range(20):
        save_much(stage)
        prompt.until(is_a("pattern-saved"))
    last = newest(stage.client)

    heard = [read_event(slow)]
    while heard[-1]["type"] != "lagged":
        heard.append(read_event(slow))

    stopped_at = heard[-1]["seq"]
    assert [event["seq"] for event in heard[:-1]] == list(range(first, stopped_at + 1))
    assert stopped_at < last
    assert numbers(prompt) == list(range(first, last + 1))
    assert slow.ask("events.subscribe", since=stopped_at)[3]["seq"] == last
    rest = [read_event(slow)["seq"] for _ in range(last - stopped_at)]
    assert rest == list(range(stopped_at + 1, last + 1))


def save_much(stage: Stage) -> None:
    """Make an event of which a subscriber may leave only a few unread."""
    agent = {"id": "a", "name": "A", "instructions": "x" * 200_000}
    stage.client.call("patterns.save", pattern={"name": "Big", "mode": "single", "agents": [agent]})


def read_event(client: RawClient) -> Json:
    """Return the next event of a client that reads by hand."""
    kind, name, (event,) = client.read()
    assert (kind, name) == (2, "event")
    return dict(event)


@requirement("WIR-33")
def test_topics_and_a_session_narrow_what_is_heard(stage: Stage) -> None:
    """Events of no session, as the daemon's own, reach everybody who asked for their topic."""
    pattern_id = stage.pattern()
    mine, other = stage.session(pattern_id), stage.session(pattern_id)
    of_mine = stage.watch(session_id=mine)
    of_runs = stage.watch(topics=["runs", "approvals"])
    everything = stage.watch()
    for session_id in (other, mine):
        run_id = stage.play(session_id, {"say": "Hello there."})
        everything.run_ended(run_id)
    stage.pattern()
    everything.until(is_a("pattern-saved"))

    for watch in (of_mine, of_runs):
        watch.run_ended(run_id)
    of_mine.until(is_a("pattern-saved"))

    assert {event.get("session_id") for event in of_mine.heard} == {mine, None}
    assert {event["type"] for event in of_runs.heard} == {"run-updated"}
    durable = [event for event in everything.heard if "seq" in event]
    assert [event for event in of_mine.heard if "seq" in event] == [
        event for event in durable if event.get("session_id") in (mine, None)
    ]
    assert of_runs.heard == [event for event in durable if event["type"] == "run-updated"]


@requirement("WIR-33")
def test_the_narrowed_journal_is_what_would_have_been_heard(stage: Stage) -> None:
    """Replay and live stream choose alike."""
    session_id = stage.session()
    live = stage.watch(session_id=session_id, topics=["timeline", "messages"])
    run_id = stage.play(session_id, {"think": "Hm."}, {"say": "Hello there."})
    everything = stage.watch(since=0)
    everything.run_ended(run_id)
    last = [event for event in everything.heard if "timeline_event" in event][-1]["seq"]
    live.until(up_to(last))

    replay = stage.watch(since=0, session_id=session_id, topics=["timeline", "messages"])
    replay.until(up_to(last))

    assert replay.heard == [event for event in live.heard if "seq" in event]


def test_an_unknown_topic_is_refused_with_those_that_exist(daemon: DaemonProcess) -> None:
    """Rather than heard in silence."""
    with pytest.raises(RemoteError) as refused:
        daemon.client().events(topics=["session"])

    assert (refused.value.code, refused.value.data["problems"]) == ("invalid", ["session"])
    assert "sessions" in refused.value.data["known"]


def test_deltas_have_no_number_and_their_offsets_join(stage: Stage) -> None:
    """Joined they are the message; the journal has its beginning and its end."""
    watch = stage.watch()
    text = "Grüße — a message of more than a few words, streamed piece by piece. " * 3
    run_id = stage.play(stage.session(), {"say": text})
    watch.run_ended(run_id)

    deltas = [event["delta"] for event in watch.heard if event["type"] == "message-delta"]

    joined = ""
    for delta in deltas:
        assert delta["offset"] == len(joined)
        joined += delta["text"]
    assert joined == text
    assert len(deltas) > 1
    assert not any("seq" in event for event in watch.heard if event["type"] == "message-delta")
    published = [event["message"] for event in watch.heard if event["type"] == "message-published"]
    said = [(each["content"], each.get("streaming", False)) for each in published if each["role"] == "assistant"]
    assert said == [("", True), (text, False)]


def test_a_second_subscription_replaces_the_first_and_unsubscribing_ends_it(stage: Stage, raw: RawClient) -> None:
    """One for each connection."""
    raw.ask("events.subscribe")
    raw.ask("events.subscribe", topics=["patterns"])
    stage.session()
    only = read_event(raw)
    raw.ask("events.unsubscribe")
    stage.session()

    reply = raw.ask("ping")

    assert only["type"] == "pattern-saved"
    assert reply[:3] == [1, 1, None]


def test_who_unsubscribes_during_the_replay_hears_no_more(stage: Stage, raw: RawClient) -> None:
    """Also when both requests came in one piece, and there is much to replay."""
    session_id = stage.session()
    for number in range(600):
        stage.client.call("sessions.rename", session_id=session_id, title=f"Title {number}")
    raw.send(frame("events.subscribe", 1, since=0), frame("events.unsubscribe", 2))
    while raw.read()[:2] != [1, 1]:
        pass

    stage.session()

    assert raw.ask("ping")[:3] == [1, 1, None]


def test_the_later_of_two_subscriptions_stays_however_long_the_earlier_takes(stage: Stage, raw: RawClient) -> None:
    """The first has to read the journal; the second has joined by then."""
    raw.send(frame("events.subscribe", 1, since=0), frame("events.subscribe", 2, topics=["patterns"]))
    answered = {raw.read()[1], raw.read()[1]}

    stage.pattern()

    assert answered == {1, 2}
    assert read_event(raw)["type"] == "pattern-saved"


def test_a_subscription_that_is_refused_leaves_the_one_before(stage: Stage, raw: RawClient) -> None:
    """A refusal changes nothing."""
    raw.ask("events.subscribe", topics=["patterns"])

    refused = raw.ask("events.subscribe", since=10**6)

    assert refused[2]["code"] == "journal_gap"
    stage.pattern()
    assert read_event(raw)["type"] == "pattern-saved"


def test_a_decision_is_heard_before_its_client_is_answered(stage: Stage, raw: RawClient) -> None:
    """On one connection events of a commit come before its reply."""
    session_id, watch = stage.session(), stage.watch()
    stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]
    raw.ask("events.subscribe", topics=["approvals"])

    first = raw.ask("approvals.resolve", session_id=session_id, approval_id=asked["id"], decision="approved")

    assert first[:2] == [2, "event"]
    assert first[2][0]["type"] == "approval-resolved"
    assert raw.read()[3]["approval"]["status"] == "approved"
