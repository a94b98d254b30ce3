"""Any interleaving of people, agents, disks and crashes does what a small model of the rules says.

The engine, the use cases and the store are the real ones; the disk obeys orders, one batch at a time.
"""

import logging
from random import Random
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, builds, integers, sampled_from

from eryxd.domain.ids import RunId
from eryxd.domain.session import WithheldKind
from tests.property.beside import ROOMS
from tests.property.moves import (
    DECISIONS,
    ENDS,
    LISTS,
    OFFERS,
    PROVIDERS,
    SPEAKERS,
    TOOLS,
    Call,
    Moves,
    Verdict,
    Words,
)
from tests.requirements import requirement

anything: Final = integers(0, 99)
"""Picks one of what there is."""

rooms: Final = sampled_from(ROOMS)
orders: Final = sampled_from(("happens", "happens", "happens, and says no", "fails"))
scopes: Final = sampled_from(((), None, ("planner",), ("coder",)))
calls: Final = builds(
    Call,
    anything,
    booleans(),
    sampled_from(SPEAKERS),
    sampled_from(TOOLS),
    sampled_from(PROVIDERS),
    sampled_from(("c1", "c2")),
)
words: Final = builds(Words, anything, sampled_from(SPEAKERS), sampled_from(WithheldKind))
verdicts: Final = builds(
    Verdict, anything, sampled_from(DECISIONS), sampled_from(("", "", "", *ROOMS)), booleans(), booleans()
)


class Interleaving(Moves):
    """What may happen next, whatever happened before."""

    @initialize(calls=scopes, final=scopes)
    def begins(self, calls: Any, final: Any) -> None:
        """With some checkpoints."""
        self.begin(calls, final)

    @rule(seed=integers(0, 2**32), moves=integers(1, 30))
    def a_while_passes(self, seed: int, moves: int) -> None:
        """Many moves; singly, too few of them would meet."""
        luck = Random(seed)  # noqa: S311 -- nothing here is secret
        for _ in range(moves):
            self.anything(luck)
            self.agrees()

    @rule(room=rooms)
    def somebody_sends(self, room: str) -> None:
        """A message."""
        self.send(room)

    @precondition(lambda self: self.runs)
    @rule(one=calls)
    def an_agent_asks(self, one: Call) -> None:
        """To run a tool."""
        self.ask(one)

    @precondition(lambda self: self.runs)
    @rule(one=words)
    def an_agent_says(self, one: Words) -> None:
        """A message, or reasoning."""
        self.say(one)

    @precondition(lambda self: self.asked)
    @rule(one=verdicts)
    def somebody_decides(self, one: Verdict) -> None:
        """Mostly in the right session, and on what was shown."""
        self.decide(one)

    @rule(tool=sampled_from(("view", "edit", "shell")), who=sampled_from(OFFERS))
    def a_source_offers(self, tool: str, who: tuple[str, ...]) -> None:
        """Something else than before."""
        self.offer(tool, who)

    @rule(room=rooms, names=sampled_from(LISTS), is_revoked=booleans())
    def somebody_changes_a_list(self, room: str, names: Any, is_revoked: bool) -> None:
        """Or takes everything back, which a running session lets happen too."""
        if is_revoked:
            self.revoke(room)
        else:
            self.change_list(room, names)

    @precondition(lambda self: self.runs)
    @rule(n=anything, how=sampled_from(ENDS))
    def a_run_is_ended(self, n: int, how: str) -> None:
        """In one way or another."""
        self.end(n, how)

    @precondition(lambda self: any(life.held for life in self.head.lives.values()))
    @rule(n=anything)
    def a_response_is_complete(self, n: int) -> None:
        """And a person has to read it."""
        holding = [run for run, life in self.head.lives.items() if life.held]
        self.finish(RunId(holding[n % len(holding)]))

    @precondition(lambda self: self.asked)
    @rule(n=anything)
    def time_runs_out(self, n: int) -> None:
        """For an approval."""
        self.expire(n)

    @precondition(lambda self: self.machine.engine._writing)
    @rule(order=orders)
    def the_disk_answers(self, order: str) -> None:
        """For the batch that is being written; what came since is the next one."""
        self.disk_goes(order)

    @precondition(lambda self: self.machine.engine.problem is not None)
    @rule()
    def there_is_room_again(self) -> None:
        """And somebody looks."""
        self.machine.probes()

    @precondition(lambda self: self.machine.outcomes > 25)
    @rule(order=orders, is_killed_again=booleans())
    def it_is_killed(self, order: str, is_killed_again: bool) -> None:
        """And started; perhaps killed while it recovers.  Afterwards nothing waits and nothing runs."""
        self.dies(order)
        if is_killed_again:
            self.dies(order)
        self.everything_lands()
        assert (self.head.waits, self.head.lives) == ({}, {})


def play(examples: int, steps: int, **more: Any) -> None:
    """Try so many interleavings of so many steps."""
    run_state_machine_as_test(Interleaving, settings=settings(max_examples=examples, stateful_step_count=steps, **more))


@requirement("POL-6", "POL-7", "POL-11", "APR-3", "APR-4", "APR-6", "APR-7", "APR-10", "APR-11", "RUN-4", "SES-3")
@pytest.mark.timeout(300)
def test_any_interleaving_does_what_the_model_says(caplog: pytest.LogCaptureFixture) -> None:
    """The same interleavings in every run."""
    caplog.set_level(logging.CRITICAL)
    play(150, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_great_many_interleavings_do_what_the_model_says(caplog: pytest.LogCaptureFixture) -> None:
    """Other ones in every run, in portions: what was tried is kept in memory."""
    caplog.set_level(logging.CRITICAL)
    for _ in range(20):
        play(1000, 60, derandomize=False)
