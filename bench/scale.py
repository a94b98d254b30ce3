"""Whether anything grows with what lies in the store: the same work beside a million runs and beside a thousand."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final

from bench.asking import Asking, asking
from bench.harness import Bench, Pair, Place
from bench.process import DAEMON, Child, Home
from bench.stats import quantity
from bench.stores import LARGE, SMALL, cached, install

DECISIONS: Final = 100
APPROVALS: Final = 20

READY_GOAL_S: Final = 2.0
"""How soon a person should have an answer from a daemon that was just started, whatever is in the store."""


@contextmanager
def _both(place: Place, block: Callable[[Asking], float]) -> Iterator[Pair]:
    with ExitStack() as stack:
        small = stack.enter_context(asking(SMALL, place.cache, place.folder / "small"))
        large = stack.enter_context(asking(LARGE, place.cache, place.folder / "large"))
        yield Pair(lambda: block(large), lambda: block(small), lambda: _memory(large.child, small.child))


def _memory(large: Child, small: Child) -> list[str]:
    return [f"resident {quantity(large.rss_bytes(), 'B')} against {quantity(small.rss_bytes(), 'B')}"]


def _decide(asking: Asking) -> float:
    return median(asking.decide(DECISIONS))


def _resolve(asking: Asking) -> float:
    return median(asking.ask().resolve_s for _ in range(APPROVALS))


@contextmanager
def _starts(place: Place) -> Iterator[Pair]:
    homes = {}
    for size in (SMALL, LARGE):
        homes[size] = Home(place.folder / str(size.sessions))
        install(cached(size, place.cache), homes[size].state)
    took: list[float] = []

    def start_large() -> float:
        took.append(start(homes[LARGE]))
        return took[-1]

    def notes() -> list[str]:
        within = "within" if median(took) <= READY_GOAL_S else "OVER"
        return [f"ready after {quantity(median(took), 's')}, {within} the {READY_GOAL_S:.0f} s that a person may wait"]

    yield Pair(start_large, lambda: start(homes[SMALL]), notes)


def start(home: Home) -> float:
    """Start the daemon, and stop it; return the seconds to its first reply."""
    child = Child(DAEMON, home)
    try:
        return child.wait_ready()
    finally:
        child.stop()


BENCHES: Final = (
    Bench(
        "scale-decision",
        f"an automatic decision beside {LARGE}",
        f"beside {SMALL}",
        1.2,
        12,
        lambda place: _both(place, _decide),
    ),
    Bench(
        "scale-approval",
        f"approvals.resolve over the socket beside {LARGE}",
        f"beside {SMALL}",
        1.2,
        12,
        lambda place: _both(place, _resolve),
    ),
    Bench("scale-start", f"start to first reply with {LARGE}", f"with {SMALL}", None, 7, _starts),
)
