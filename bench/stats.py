"""Ratios and what is said of them.  Pure."""

from collections.abc import Sequence
from statistics import quantiles
from typing import NamedTuple


class Summary(NamedTuple):
    """The lower quartile, the median, the upper quartile and the largest of some numbers."""

    q1: float
    median: float
    q3: float
    worst: float


def summary(values: Sequence[float]) -> Summary:
    """Summarise at least two numbers."""
    q1, median, q3 = quantiles(values, n=4, method="inclusive")
    return Summary(q1, median, q3, max(values))


def ratios(subject: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Return each block's ratio.  Only blocks that ran side by side are compared, so that drift cancels out."""
    return [ours / theirs for ours, theirs in zip(subject, baseline, strict=True)]


def meets(found: Summary, goal: float | None) -> bool:
    """Say whether a goal is met by the lower quartile: a busy machine spoils blocks, but hardly three in four."""
    return goal is None or found.q1 <= goal


def quantity(value: float, unit: str) -> str:
    """Write seconds or bytes with three digits and a fitting prefix."""
    steps = {"s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")), "B": ((2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))}[unit]
    size, name = next((step for step in steps if value >= step[0]), steps[-1])
    return f"{value / size:.3g} {name}"
