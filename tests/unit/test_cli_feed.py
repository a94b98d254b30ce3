"""Waiting for several things at once: events, Ctrl-C."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from eryxd.cli.ctrl_c import CtrlC
from eryxd.cli.feed import Feed
from eryxd.client.errors import ClientError
from tests.requirements import requirement


def events(*given: Any) -> Iterator[dict[str, Any]]:
    """Yield events; an error among them is raised."""
    for each in given:
        if isinstance(each, ClientError):
            raise each
        yield each


def take_all(feed: Feed, count: int) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    while len(taken) < count and feed.wait(timeout_s=10):
        taken += feed.take()
    return taken


def test_events_come_out_in_order_and_then_the_error_once() -> None:
    broken = ClientError("gone")
    with Feed(events({"n": 1}, {"n": 2}, broken)) as feed:
        assert take_all(feed, 2) == [{"n": 1}, {"n": 2}]
        assert feed.wait(timeout_s=10)
        with pytest.raises(ClientError, match="gone"):
            feed.take()
        assert feed.take() == []
        assert not feed.wait(timeout_s=0)


def test_an_event_that_comes_after_the_end_is_dropped_quietly() -> None:
    late, ended = threading.Event(), threading.Event()

    def slow() -> Iterator[dict[str, Any]]:
        late.wait(10)
        yield {"n": 1}
        ended.set()

    with Feed(slow()):
        pass
    late.set()

    assert ended.wait(10)


def test_a_wait_ends_without_events_when_something_else_is_readable() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    with Feed(events()) as silent:
        is_event = silent.wait(also=reader, timeout_s=10)
    os.close(reader)
    os.close(writer)

    assert not is_event


@requirement("CLI-11")
def test_ctrl_c_between_two_waits_is_heard_in_the_next_one_and_only_once() -> None:
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), ctrl_c.waiting():
            pass
        with ctrl_c.waiting():
            pass


@requirement("CLI-11")
def test_ctrl_c_in_a_wait_interrupts_it() -> None:
    with CtrlC() as ctrl_c, pytest.raises(KeyboardInterrupt), ctrl_c.waiting():
        signal.raise_signal(signal.SIGINT)


def test_what_ctrl_c_did_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with CtrlC():
        assert signal.getsignal(signal.SIGINT) != before

    assert signal.getsignal(signal.SIGINT) == before
