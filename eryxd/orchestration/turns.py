"""What every mode is made of."""

from collections.abc import Awaitable, Callable, Sequence

from eryxd.domain.session import RunAgent

TakeTurn = Callable[[RunAgent], Awaitable[None]]
"""Runs one agent's turn to its end, with everything that was said so far."""

Play = Callable[[Sequence[RunAgent], TakeTurn], Awaitable[None]]
"""One mode: which agents take turns, and when."""
