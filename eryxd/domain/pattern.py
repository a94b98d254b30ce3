"""Patterns: named teams of agents, and the problems that keep one from being saved.

Source: PAT-1, PAT-2, POL-4.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import UNSET, UnsetType

from eryxd.domain.ids import AgentId, BackendName, PatternId, Record, Timestamp
from eryxd.domain.origin import FileOrigin
from eryxd.domain.policy import ApprovalPolicy, problems as policy_problems


class Mode(StrEnum):
    """How the agents of a pattern take turns."""

    SINGLE = "single"
    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"
    HANDOFF = "handoff"
    GROUP_CHAT = "group-chat"
    MAGENTIC = "magentic"


RUNNABLE_MODES: Final = frozenset({Mode.SINGLE, Mode.SEQUENTIAL})
"""The modes that this release runs; the others exist, validate, and are reported unavailable."""


class Availability(StrEnum):
    """Whether sessions may run with a pattern."""

    AVAILABLE = "available"
    PREVIEW = "preview"
    UNAVAILABLE = "unavailable"


class Effort(StrEnum):
    """How hard a model is asked to think."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"


class Agent(Record, frozen=True, kw_only=True):
    """One AI worker of a pattern."""

    id: AgentId
    name: str
    description: str = ""
    instructions: str = ""
    model: str | UnsetType = UNSET
    reasoning_effort: Effort | UnsetType = UNSET
    backend: BackendName | UnsetType = UNSET


class Pattern(Record, frozen=True, kw_only=True):
    """A named team.  In the store every pattern has a policy; one that is missing there asks (POL-9)."""

    id: PatternId
    name: str
    mode: Mode
    agents: tuple[Agent, ...]
    created_at: Timestamp
    updated_at: Timestamp
    revision: int
    description: str = ""
    approval_policy: ApprovalPolicy | UnsetType = UNSET
    max_iterations: int = 5
    availability: Availability = Availability.AVAILABLE
    unavailability_reason: str | UnsetType = UNSET
    is_favorite: bool = False
    is_builtin: bool = False
    origin: FileOrigin | UnsetType = UNSET


MODE_UNAVAILABLE: Final[Mapping[Mode, str]] = {
    mode: f"the mode {mode.value!r} is not part of this release; {', '.join(sorted(RUNNABLE_MODES))} are"
    for mode in Mode
    if mode not in RUNNABLE_MODES
}
"""Why a mode cannot run."""

_AGENT_COUNTS: Final[Mapping[Mode, tuple[int, int | None]]] = {
    Mode.SINGLE: (1, 1),
    Mode.SEQUENTIAL: (1, None),
    Mode.CONCURRENT: (1, None),
    Mode.HANDOFF: (2, None),
    Mode.GROUP_CHAT: (2, None),
    Mode.MAGENTIC: (1, None),
}


def pattern_problems(pattern: Pattern) -> list[str]:
    """Name everything that keeps a pattern from being saved, all at once (PAT-1)."""
    found = []
    if not pattern.name.strip():
        found.append("name: is blank")
    if pattern.max_iterations < 1:
        found.append("max_iterations: must be at least 1")
    found += _count_problems(pattern)
    found += _agent_problems(pattern)
    if pattern.approval_policy is not UNSET:
        found += policy_problems(pattern.approval_policy, [agent.id for agent in pattern.agents])
    return found


def _count_problems(pattern: Pattern) -> list[str]:
    least, most = _AGENT_COUNTS[pattern.mode]
    count = len(pattern.agents)
    if count < least:
        return [f"agents: mode {pattern.mode.value!r} needs at least {least}, there are {count}"]
    if most is not None and count > most:
        return [f"agents: mode {pattern.mode.value!r} takes exactly {most}, there are {count}"]
    return []


def _agent_problems(pattern: Pattern) -> list[str]:
    found = []
    seen: set[str] = set()
    for index, agent in enumerate(pattern.agents):
        if not agent.id.strip():
            found.append(f"agents[{index}].id: is blank")
        elif agent.id != agent.id.strip():
            found.append(f"agents[{index}].id: {agent.id!r} has outer white space")
        elif agent.id in seen:
            found.append(f"agents[{index}].id: {agent.id!r} is used twice")
        seen.add(agent.id)
        if not agent.name.strip():
            found.append(f"agents[{index}].name: is blank")
    return found


def pattern_warnings(pattern: Pattern) -> list[str]:
    """Name what is allowed and probably not meant."""
    return [
        f"agents[{index}].instructions: {agent.name!r} has none"
        for index, agent in enumerate(pattern.agents)
        if not agent.instructions.strip()
    ]


_BUILTIN_AGENTS: Final[Mapping[Mode, tuple[tuple[str, str, str], ...]]] = {
    Mode.SINGLE: (("primary", "Primary", "Do the task. Say what you changed and how you checked it."),),
    Mode.SEQUENTIAL: (
        ("planner", "Planner", "Read what matters and write a short plan. Change nothing."),
        (
            "builder",
            "Builder",
            "Carry out the plan you were given. Say what you changed and how you checked it.",
        ),
    ),
    Mode.CONCURRENT: (
        ("first", "First", "Answer on your own, without waiting for the others."),
        ("second", "Second", "Answer on your own, from another angle."),
    ),
    Mode.HANDOFF: (
        ("triage", "Triage", "Find out what is asked and hand it to the right agent."),
        ("specialist", "Specialist", "Solve what you are handed."),
    ),
    Mode.GROUP_CHAT: (
        ("writer", "Writer", "Propose a solution."),
        ("reviewer", "Reviewer", "Criticise what was proposed, precisely."),
    ),
    Mode.MAGENTIC: (("manager", "Manager", "Split the task, follow the parts, and put the answer together."),),
}


def builtin_patterns(default_policy: ApprovalPolicy, now: Timestamp) -> tuple[Pattern, ...]:
    """Return one pattern for each mode.

    Everything but policy and favourite is the code's at each load; those two are the user's (PAT-2).
    """
    return tuple(
        Pattern(
            id=PatternId(mode.value),
            name=mode.value.replace("-", " ").capitalize(),
            mode=mode,
            agents=tuple(
                Agent(id=AgentId(key), name=name, instructions=text) for key, name, text in _BUILTIN_AGENTS[mode]
            ),
            created_at=now,
            updated_at=now,
            revision=1,
            approval_policy=default_policy,
            availability=Availability.UNAVAILABLE if mode in MODE_UNAVAILABLE else Availability.AVAILABLE,
            unavailability_reason=MODE_UNAVAILABLE.get(mode, UNSET),
            is_builtin=True,
        )
        for mode in Mode
    )
