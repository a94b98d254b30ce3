"""What is listed all at once, or told in one error, has an end: a reply has to fit into its frame."""

from types import SimpleNamespace
from typing import Any

import msgspec

from eryxd.api import requests as ask
from eryxd.core import patterns, projects
from eryxd.core.patterns import MAX_PATTERN_BYTES, MAX_PATTERNS_BYTES
from eryxd.core.projects import MAX_PROJECTS, FoundFolder
from eryxd.daemon import reads
from eryxd.domain.errors import MAX_PROBLEMS, MAX_TEXT, Invalid
from eryxd.wire.framing import MAX_REPLY_BYTES
from tests.builders import agent, pattern, project, session
from tests.core_builders import World
from tests.requirements import requirement


@requirement("PAT-1", "WIR-6")
def test_a_pattern_that_is_too_large_is_refused() -> None:
    there = World()
    heavy = pattern(agents=[agent(instructions="x" * MAX_PATTERN_BYTES)])

    wanted = ask.PatternDraft(name="Heavy", mode=heavy.mode, agents=heavy.agents)
    there.refuses(patterns.save, ask.PatternsSave(pattern=wanted), Invalid)


@requirement("PAT-1", "WIR-6")
def test_all_patterns_together_stay_within_a_reply() -> None:
    """Copies count as well."""
    size = MAX_PATTERN_BYTES - 10_000
    full = [pattern(f"p{n}", agents=[agent(instructions="x" * size)]) for n in range(MAX_PATTERNS_BYTES // size)]
    there = World(*full)

    error = there.refuses(patterns.copy, ask.PatternsCopy(pattern_id=full[0].id), Invalid)

    assert "together" in error.message


@requirement("PRJ-1", "WIR-6")
def test_there_is_an_end_to_projects() -> None:
    there = World(*(project(f"j{n}", path=f"/home/ada/{n}") for n in range(MAX_PROJECTS)))

    there.refuses(projects.add, FoundFolder("/home/ada/more", "more"), Invalid)


@requirement("WIR-6")
def test_a_snapshot_fits_into_its_frame() -> None:
    """However much there is of everything at once."""
    size = MAX_PATTERN_BYTES - 10_000
    there = World(
        *(pattern(f"p{n}", agents=[agent(instructions="x" * size)]) for n in range(MAX_PATTERNS_BYTES // size)),
        *(project(f"j{n}", name="x" * 255, path=f"/{n}/" + "x" * 4000) for n in range(MAX_PROJECTS)),
        *(session(f"s{n}", title="x" * 1000, last_error="x" * 60_000) for n in range(100)),
    )
    engine = SimpleNamespace(committed=there.committed, seq=1)
    daemon: Any = SimpleNamespace(engine=engine, epoch="e", shown_settings=dict)

    reply = reads.workspace(daemon, ask.Nothing())

    assert len(msgspec.msgpack.encode(reply)) < MAX_REPLY_BYTES
    assert reply.cursor


@requirement("WIR-6")
def test_an_error_tells_no_more_than_anybody_mends_at_once() -> None:
    error = Invalid("x" * 10 * MAX_TEXT, problems=["y" * 10 * MAX_TEXT] * (MAX_PROBLEMS + 5))

    assert len(error.message) == MAX_TEXT
    assert len(error.data["problems"]) == MAX_PROBLEMS + 1  # type: ignore[arg-type]
    assert error.data["problems"][-1] == "and 5 more"  # type: ignore[index]
    assert len(msgspec.msgpack.encode(error.data)) < 1024 * 1024
