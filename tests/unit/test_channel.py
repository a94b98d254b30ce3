"""Frames as they come over the socket: replies and events, whole and broken."""

import os
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, strategies as st

from eryxd.client.channel import MAX_REPLY_BYTES, Channel
from eryxd.client.client import (
    BadReply,
    Client,
    ConnectionLost,
    RemoteError,
    TimedOut,
)
from tests.requirements import requirement
from tests.unit.fake_daemon import FakeDaemon, HangUp, NoAnswer, Peer, Refuse


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A runtime folder as the daemon makes it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


STREAM = b"".join(
    msgpack.packb(frame)
    for frame in (
        [2, "event", [{"type": "a"}]],
        [1, 77, None, "the reply of nobody"],
        [2, "other", [{"type": "ignored"}]],
        [2, "event", [{"type": "b"}]],
        [1, 0, None, {"text": "ß" * 40, "more": [1.5, b"\x00", {"deep": [[]]}]}],
        [2, "event", [{"type": "c"}]],
    )
)


@requirement("WIR-21")
@given(cuts=st.sets(st.integers(1, len(STREAM) - 1)))
def test_any_chunking_gives_the_same_reply_and_events(cuts: set[int]) -> None:
    """A socket that keeps message boundaries makes every cut a read of its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    edges = [0, *sorted(cuts), len(STREAM)]
    with ours, theirs:
        for start, end in pairwise(edges):
            theirs.sendall(STREAM[start:end])
        channel = Channel(ours)
        reply = channel.request("do", {}, 10.0)
        events = [channel.next_event(10.0)["type"] for _ in range(3)]

    assert (reply, events) == (
        {"text": "ß" * 40, "more": [1.5, b"\x00", {"deep": [[]]}]},
        ["a", "b", "c"],
    )


OVERHEAD = len(msgpack.packb([1, 1, None, b"x" * 70000])) - 70000


@requirement("WIR-21")
def test_reply_of_the_largest_size_is_taken(run: Path) -> None:
    """8 MiB, counted over the whole frame."""
    body = b"x" * (MAX_REPLY_BYTES - OVERHEAD)
    with (
        FakeDaemon(run, {"do": lambda _peer, _params: body}) as daemon,
        Client.connect(daemon.path) as client,
    ):
        assert client.call("do") == body


@requirement("WIR-21")
@pytest.mark.parametrize(
    "body",
    [b"x" * (MAX_REPLY_BYTES - OVERHEAD + 1), ["x" * 1000] * (MAX_REPLY_BYTES // 1000)],
    ids=["one value", "many values"],
)
def test_reply_over_the_largest_size_is_an_error(run: Path, body: Any) -> None:
    """A daemon that sends it is broken, or is none."""
    with (
        FakeDaemon(run, {"do": lambda _peer, _params: body}) as daemon,
        Client.connect(daemon.path) as client,
        pytest.raises(BadReply, match="larger"),
    ):
        client.call("do")


@requirement("WIR-21")
def test_oversize_is_noticed_before_its_end_comes(run: Path) -> None:
    """Or a stream without end would fill the memory."""

    def flood(peer: Peer, _params: dict[str, Any]) -> None:
        endless = b"\x94\x01\x01\xc0\xdd\x00\x40\x00\x00"
        peer.socket.sendall(endless + msgpack.packb("x" * 997) * (MAX_REPLY_BYTES // 1000 + 1))
        raise NoAnswer

    with (
        FakeDaemon(run, {"do": flood}) as daemon,
        Client.connect(daemon.path) as client,
        pytest.raises(BadReply, match="larger"),
    ):
        client.call("do")


@requirement("WIR-21")
@pytest.mark.parametrize(
    "raw",
    [
        b"\xc1",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        msgpack.packb({"id": 1}),
        msgpack.packb([1, 1, None]),
        msgpack.packb([0, 1, "request", []]),
        msgpack.packb([2, "event", None]),
        msgpack.packb([1, "1", None, {}]),
        b"\x94\x01\x01\xc0\xa2\xff\xfe",
        b"\x94\x01\x01\xc0" + b"\x91" * 5000,
        b"\x94\x01\x01\xc0\x81\x01\x02",
    ],
)
def test_what_is_no_reply_is_an_error(run: Path, raw: bytes) -> None:
    """Something else may be listening there."""

    def send(peer: Peer, _params: dict[str, Any]) -> None:
        peer.socket.sendall(raw)
        raise NoAnswer

    with (
        FakeDaemon(run, {"do": send}) as daemon,
        Client.connect(daemon.path) as client,
        pytest.raises(BadReply),
    ):
        client.call("do")


@requirement("WIR-21")
def test_events_before_and_after_the_subscription_reply_come_in_order(run: Path) -> None:
    """Replay starts at once; the reply may come between two events."""

    def subscribe(peer: Peer, _params: dict[str, Any]) -> None:
        peer.event(seq=8, type="run-updated")
        peer.send([1, peer.msgid, None, {"epoch": "e1", "seq": 9}])
        peer.event(seq=9, type="run-updated")
        peer.send([2, "event", [{"seq": 10, "type": "run-updated"}, {"type": "lagged", "seq": 10}]])
        raise NoAnswer

    with (
        FakeDaemon(run, {"events.subscribe": subscribe}) as daemon,
        Client.connect(daemon.path) as client,
        client.events(["runs"], since=7, epoch="e1") as stream,
    ):
        assert (stream.epoch, stream.seq) == ("e1", 9)
        assert [event["seq"] for event in stream] == [8, 9, 10, 10]
        assert client.call("ping")

    assert daemon.asked[2] == ("events.subscribe", {"topics": ["runs"], "since": 7, "epoch": "e1"})
    assert daemon.connections == 2


@requirement("WIR-21")
def test_lost_event_connection_is_an_error(run: Path) -> None:
    """A stream that just ended would look complete."""

    def subscribe(peer: Peer, _params: dict[str, Any]) -> None:
        peer.send([1, peer.msgid, None, {"epoch": "e1", "seq": 1}])
        peer.event(seq=2, type="session-updated")
        raise HangUp

    with (
        FakeDaemon(run, {"events.subscribe": subscribe}) as daemon,
        Client.connect(daemon.path) as client,
        client.events() as stream,
    ):
        assert next(stream)["seq"] == 2
        with pytest.raises(ConnectionLost):
            next(stream)


def test_refused_subscription_leaves_nothing_open(run: Path) -> None:
    """The caller takes a snapshot and subscribes again."""

    def gap(_peer: Peer, _params: dict[str, Any]) -> None:
        raise Refuse({"code": "journal_gap", "message": "Too old.", "data": {"first": 9}})

    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        FakeDaemon(run, {"events.subscribe": gap}) as daemon,
        Client.connect(daemon.path) as client,
        pytest.raises(RemoteError, match="journal_gap"),
    ):
        client.events(since=1)

    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_waiting_for_an_event_can_be_bounded(run: Path) -> None:
    """For a caller that looks after something else meanwhile."""
    with (
        FakeDaemon(run, {"events.subscribe": lambda _peer, _params: {"epoch": "e1", "seq": 1}}) as daemon,
        Client.connect(daemon.path) as client,
        client.events(timeout_s=0.01) as stream,
        pytest.raises(TimedOut),
    ):
        next(stream)
