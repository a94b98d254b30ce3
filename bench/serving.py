"""The socket and the process behind it, against the least that asyncio can do."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from statistics import median
from typing import Final

import msgpack  # type: ignore[import-untyped]

from bench.harness import Bench, Pair, Place
from bench.process import DAEMON, ECHO, PING, Child, Home, exchange, serving
from bench.stats import quantity

CALLS: Final = 300
CONNECTIONS: Final = 50

STATUS: Final[bytes] = msgpack.packb([0, 1, "daemon.status", []])


@contextmanager
def _servers(place: Place, block: Callable[[Home], float], calls: int) -> Iterator[Pair]:
    """Run a block against the daemon and against the echo; note how much processor time each call took there."""
    with ExitStack() as stack:
        ours, echo = Home(place.folder / "eryxd"), Home(place.folder / "echo")
        sides = [(stack.enter_context(serving(argv, home)), home) for argv, home in ((DAEMON, ours), (ECHO, echo))]
        used: list[list[float]] = [[], []]

        def side(number: int) -> float:
            child, home = sides[number]
            before = child.cpu_s()
            cost = block(home)
            used[number].append((child.cpu_s() - before) / calls)
            return cost

        def notes() -> list[str]:
            subject, baseline = median(used[0]), median(used[1])
            return [
                f"processor time of the server: {quantity(subject, 's')} against {quantity(baseline, 's')},"
                f" ratio {subject / baseline:.2f}"
            ]

        yield Pair(lambda: side(0), lambda: side(1), notes)


@contextmanager
def _round_trips(place: Place, frame: bytes) -> Iterator[Pair]:
    connections: dict[Home, socket.socket] = {}

    def block(home: Home) -> float:
        connected = connections.get(home) or connections.setdefault(home, home.connect())
        took = []
        for _ in range(CALLS):
            before = time.perf_counter()
            answer = exchange(connected, frame)
            took.append(time.perf_counter() - before)
        _check(answer)
        return median(took)

    with _servers(place, block, CALLS) as pair:
        try:
            yield pair
        finally:
            for connected in connections.values():
                connected.close()


def _connections(place: Place) -> AbstractContextManager[Pair]:
    return _servers(place, _connect, CONNECTIONS)


def _connect(home: Home) -> float:
    took = []
    for _ in range(CONNECTIONS):
        before = time.perf_counter()
        with home.connect() as connected:
            answer = exchange(connected, PING)
        took.append(time.perf_counter() - before)
    _check(answer)
    return median(took)


def _check(answer: bytes) -> None:
    """A fast refusal is no result.  An echo is a request, and fine."""
    frame = msgpack.unpackb(answer)
    if frame[0] == 1 and frame[2] is not None:
        raise RuntimeError(f"the daemon refused: {frame[2]}")


@contextmanager
def _starts(place: Place, cost: Callable[[Child], float]) -> Iterator[Pair]:
    numbers = iter(range(1_000_000))

    def side(argv: Sequence[str]) -> float:
        child = Child(argv, Home(place.folder / str(next(numbers))))
        try:
            return cost(child)
        finally:
            child.stop()

    yield Pair(lambda: side(DAEMON), lambda: side(ECHO))


def _resident(child: Child) -> float:
    child.wait_ready()
    return child.rss_bytes()


BENCHES: Final = (
    Bench("roundtrip", "ping", "echo of asyncio", 2.0, 25, lambda at: _round_trips(at, PING), one_core=True),
    Bench(
        "roundtrip-read",
        "daemon.status",
        "echo of asyncio",
        2.2,
        15,
        lambda at: _round_trips(at, STATUS),
        one_core=True,
    ),
    Bench("connect", "connect, be identified, ping", "connect, echo", 4.0, 15, _connections, one_core=True),
    Bench("start", "empty start to first reply", "echo of asyncio", 3.2, 11, lambda at: _starts(at, Child.wait_ready)),
    Bench("rss", "resident after an empty start", "echo of asyncio", 1.6, 5, lambda at: _starts(at, _resident), "B"),
)
