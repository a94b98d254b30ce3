"""What it costs to keep a promise: an approval that a person sees, and a decision that cannot be lost."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from bench.asking import Decided, asking
from bench.harness import Bench, Pair, Place
from bench.stats import quantity
from bench.stores import SMALL

CALLS: Final = 20
ROW: Final = b"x" * 256
"""About as much as an approval adds to a file that is only appended to."""


@contextmanager
def _pending(place: Place) -> Iterator[Pair]:
    seen: list[Decided] = []
    with asking(SMALL, place.cache, place.folder / "home") as daemon:
        file = os.open(place.folder / "home" / "state" / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def subject() -> float:
            block = [daemon.ask() for _ in range(CALLS)]
            seen.extend(block)
            return median(one.pending_s + one.resolve_s for one in block)

        def notes() -> list[str]:
            pending = median(one.pending_s for one in seen)
            resolve = median(one.resolve_s for one in seen)
            return [f"{quantity(pending, 's')} until a client has it, {quantity(resolve, 's')} to resolve it"]

        try:
            yield Pair(subject, lambda: median(_append(file) for _ in range(CALLS)), notes)
        finally:
            os.close(file)


def _append(file: int) -> float:
    before = time.perf_counter()
    os.write(file, ROW)
    os.fdatasync(file)
    return time.perf_counter() - before


BENCHES: Final = (
    Bench(
        "pending",
        "a call asks, a client sees it and resolves it, over the socket",
        "append of 256 B and fdatasync in the same folder",
        8.0,
        15,
        _pending,
    ),
)
