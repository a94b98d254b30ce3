"""The modes that run in this release."""

from collections.abc import Mapping
from typing import Final

from eryxd.domain.pattern import Mode
from eryxd.orchestration import sequential, single
from eryxd.orchestration.turns import Play

PLAY: Final[Mapping[Mode, Play]] = {Mode.SINGLE: single.play, Mode.SEQUENTIAL: sequential.play}
"""How each mode is played; a mode that is not here is refused before a run starts."""
