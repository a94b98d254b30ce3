"""How a bench is measured: blocks of both sides in turn, a ratio for each pair of blocks.

Law: a pair's blocks run one right after the other, in an order drawn for that pair; the first pair warms up and does
not count.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from bench.stats import Summary, meets, quantity, ratios, summary

Block = Callable[[], float]
"""Runs one block of calls, checks the answers, and returns the median cost of a call, in the bench's unit."""


class Unavailable(Exception):
    """The bench cannot be measured here; says why."""


def no_notes() -> list[str]:
    """Add nothing."""
    return []


class Pair(NamedTuple):
    """Both sides, ready to run, and what else there is to say when they have."""

    subject: Block
    baseline: Block
    notes: Callable[[], list[str]] = no_notes


class Place(NamedTuple):
    """Where a bench may work: a folder of its own, and the cache that outlives it, on one file system."""

    folder: Path
    cache: Path


class Bench(NamedTuple):
    """A named comparison.  `goal` is the largest ratio that is good enough; None only shows it.

    `unit` is `s` or `B`; `open` makes both sides ready and takes them down.  With `one_core` everything shares one
    processor: where the scheduler puts two processes that talk all the time moves a round trip more than code does.
    """

    name: str
    subject: str
    baseline: str
    goal: float | None
    pairs: int
    open: Callable[[Place], AbstractContextManager[Pair]]
    unit: str = "s"
    one_core: bool = False


class Result(NamedTuple):
    """What a bench found."""

    bench: Bench
    subject: float
    baseline: float
    ratios: Summary
    notes: list[str]

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return meets(self.ratios, self.bench.goal)

    def plain(self) -> dict[str, Any]:
        """Return it for a machine to read."""
        shown = {field: value for field, value in self.bench._asdict().items() if field != "open"}
        measured = {"subject_median": self.subject, "baseline_median": self.baseline, **self.ratios._asdict()}
        return {**shown, **measured, "met": self.met, "notes": self.notes}

    def text(self) -> str:
        """Return it for a person to read."""
        bench, found = self.bench, self.ratios
        goal = "shown only" if bench.goal is None else f"goal {bench.goal:.2f}, {'met' if self.met else 'MISSED'}"
        quartiles = f"quartiles {found.q1:.2f} to {found.q3:.2f}"
        lines = [
            f"{bench.name}: {bench.subject} / {bench.baseline}",
            f"    ratio {found.median:.2f}, {quartiles}, worst {found.worst:.2f}; {goal}",
            f"    {quantity(self.subject, bench.unit)} against {quantity(self.baseline, bench.unit)},"
            f" {bench.pairs} pairs of blocks{', on one processor' if bench.one_core else ''}",
            *(f"    {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def measure(bench: Bench, place: Place, random: Random) -> Result:
    """Run a bench.

    Raises: Unavailable.
    """
    with placed(bench.one_core), bench.open(place) as pair:
        _run_pair(pair, random)
        costs = [_run_pair(pair, random) for _ in range(bench.pairs)]
        notes = pair.notes()
    subject, baseline = zip(*costs, strict=True)
    return Result(bench, median(subject), median(baseline), summary(ratios(subject, baseline)), notes)


@contextmanager
def placed(one_core: bool) -> Iterator[None]:
    """Keep this process, and what it starts, on one processor, or let it be."""
    allowed = os.sched_getaffinity(0)
    try:
        if one_core:
            os.sched_setaffinity(0, {min(allowed)})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _run_pair(pair: Pair, random: Random) -> tuple[float, float]:
    if random.random() < 0.5:
        subject = pair.subject()
        return subject, pair.baseline()
    baseline = pair.baseline()
    return pair.subject(), baseline
