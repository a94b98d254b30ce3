"""One agent, one turn."""

from collections.abc import Sequence

from eryxd.domain.session import RunAgent
from eryxd.orchestration.turns import TakeTurn


async def play(agents: Sequence[RunAgent], take_turn: TakeTurn) -> None:
    """Let the pattern's agent take its turn."""
    await take_turn(agents[0])
