"""One agent after another, each reading what was said before."""

from collections.abc import Sequence

from eryxd.domain.session import RunAgent
from eryxd.orchestration.turns import TakeTurn


async def play(agents: Sequence[RunAgent], take_turn: TakeTurn) -> None:
    """Let every agent take one turn, in the pattern's order."""
    for agent in agents:
        await take_turn(agent)
