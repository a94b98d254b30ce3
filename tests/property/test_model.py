"""Any interleaving of people, agents, disks and crashes does what a small model of the rules says.

The engine, the use cases and the store are the real ones; the disk obeys orders, one batch at a time.
"""

from typing import Any, Final, NamedTuple

import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import (
    DrawFn,
    SearchStrategy,
    booleans,
    builds,
    composite,
    integers,
    lists as several,
    sampled_from,
)
from msgspec import UNSET

from eryxd.api import requests as ask
from eryxd.core import approvals, runs, saying as saying_rules, sessions
from eryxd.core.settle import CANCELLED, FAILED
from eryxd.core.views import live_run
from eryxd.domain.approval import Approval, ApprovalStatus
from eryxd.domain.ids import AgentId, RunId, SessionId
from eryxd.domain.session import SCRATCHPAD, WithheldKind
from tests import builders
from tests.core_builders import call, event_of, team_of, wanted
from tests.engine_builders import put
from tests.property import model as small
from tests.property.beside import ROOMS, Beside
from tests.property.model import AGENTS, Model, Room, Rules, Wait
from tests.requirements import requirement

anything: Final = integers(0, 99)
"""Picks one of what there is."""

rooms: Final = sampled_from(("s1", "s1", "s2"))
agents: Final = sampled_from((*AGENTS, ""))
lists: Final = sampled_from((None, (), ("edit",), ("view", "shell"), ("gone",)))
orders: Final = sampled_from(("happens", "happens", "happens, and says no", "fails"))
scopes: Final = sampled_from(((), None, ("planner",), ("coder",)))


class Call(NamedTuple):
    """What an agent asks for; an empty word is unknown.  `run` picks one; `is_like_last` asks for the same tool."""

    run: int
    is_like_last: bool
    agent: str
    tool: str
    provider: str
    id: str


class Words(NamedTuple):
    """What an agent says.  `run` picks one."""

    run: int
    agent: str
    kind: WithheldKind


class Verdict(NamedTuple):
    """What a person decides.  `approval` picks one; `room` is empty for the right one."""

    approval: int
    decision: str
    room: str
    is_as_shown: bool
    is_kept: bool


@composite
def questions(draw: DrawFn) -> Call:
    """One call, mostly of a tool that is there, by the provider that has always had it."""
    tool = draw(sampled_from(("edit", "view", "edit", "shell", "gone", "")))
    provider = draw(sampled_from(("own", "own", "newcomer", "")))
    return Call(draw(anything), draw(booleans()), draw(agents), tool, provider, draw(sampled_from(("c1", "c2", "c3"))))


words: Final = builds(Words, anything, agents, sampled_from(WithheldKind))


def verdicts() -> SearchStrategy[Verdict]:
    """One decision, mostly in the right session and on what was shown."""
    place, shown = sampled_from(("",) * 6 + ROOMS), sampled_from((True,) * 5 + (False,))
    return builds(Verdict, anything, sampled_from(("approved", "approved", "rejected")), place, shown, booleans())


class Interleaving(Beside):
    """What may happen next, whatever happened before."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self.asked: list[str] = []
        self.seen: set[str] = set()
        self.texts = 0

    @initialize(calls=scopes, final=scopes)
    def begins(self, calls: Any, final: Any) -> None:
        """A pattern with these checkpoints, a session of a project and one in the scratchpad."""
        scoped = [("tool-call", calls), ("final-response", final)]
        checkpoints = [builders.rule(kind, scope or None) for kind, scope in scoped if scope is not None]
        self.team = team_of(*AGENTS, rules=checkpoints, listed=["view"])
        self.committed = self.head = Model(Rules(calls, final), {"s1": Room(), "s2": Room(is_scratch=True)})
        self.starts()
        self.everything_lands()
        places = (builders.session("s1"), builders.session("s2", project_id=SCRATCHPAD))
        for row in (builders.project(), self.team, builders.offer(), *places):
            self.does(put, row, self.head, "ok")
        self.everything_lands()

    @property
    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Who offers what now."""
        return {str(tool): tuple(offered) for tool, offered in self.world.catalog.items()}

    def _waiting(self) -> set[str]:
        return {one.id for one in self.machine.engine.head.all(Approval)}

    def _a_run(self, n: int) -> RunId:
        """Return one that has not ended; now and then any other."""
        live = [one for one in self.runs if one in self.head.lives]
        some = live if live and n % 5 else self.runs
        return RunId(some[n % len(some)])

    def _an_approval(self, n: int) -> str:
        """Return one of those that wait; now and then any other."""
        waiting = [one for one in self.asked if one in self.head.waits]
        some = waiting if waiting and n % 4 else self.asked
        return some[n % len(some)]

    @precondition(lambda self: len(self.head.lives) < len(ROOMS))
    @rule(room=rooms)
    def somebody_sends(self, room: str) -> None:
        """A message, which starts a run where none runs."""
        members = tuple(builders.run_agent(name) for name in AGENTS)
        message = wanted(ask.MessagesSend, session_id=room, content="Mend it.")
        self.machine.executes(runs.send, runs.Send(message, self.team, members, {}, "/work"))
        made = live_run(self.machine.engine.head, SessionId(room))
        if made is not None and made.id not in self.runs:
            self.runs.append(made.id)
        self.expects(*small.send(self.head, room, "" if made is None else made.id))

    @precondition(lambda self: self.runs)
    @rule(moves=several(questions() | verdicts() | words, min_size=1, max_size=9))
    def agents_speak_and_ask_and_people_decide(self, moves: list[Call | Words | Verdict]) -> None:
        """In a run that may have ended; about an approval that may have been decided."""
        for move in moves:
            if isinstance(move, Call):
                self._asks(self._a_run(move.run), move)
            elif isinstance(move, Words):
                self._says(self._a_run(move.run), move)
            elif self.asked:
                self._decides(self._an_approval(move.approval), move)

    def _asks(self, run: RunId, one: Call) -> None:
        last = next((wait.tool for wait in reversed(self.head.waits.values()) if wait.call), one.tool)
        tool = last if one.is_like_last else one.tool
        provider = f"builtin:{tool}" if one.provider == "own" else one.provider
        wants = call(tool or None, one.id, provider=provider or None)
        event, before = event_of(run, wants, one.agent), self._waiting()
        who = AgentId(one.agent) if one.agent else UNSET
        asking = approvals.Asking(run, who, wants, frozenset(), event, event in self.seen, "replay")
        self.seen.add(event)
        self.machine.executes(approvals.ask_tool_call, asking)
        new = "".join(self._waiting() - before)
        self.asked += [new] if new else []
        room = self.head.lives[run].room if run in self.head.lives else ""
        wait = Wait(run, room, one.agent, tool, provider, one.id)
        self.expects(*small.ask(self.head, self.committed, wait, self.catalog, new))

    def _says(self, run: RunId, one: Words) -> None:
        self.texts += 1
        saying = saying_rules.Saying(run, AgentId(one.agent), one.kind, f"~{self.texts}~")
        self.does(saying_rules.say, saying, *small.say(self.head, run, one.agent, one.kind.value, saying.content))

    def _decides(self, approval: str, one: Verdict) -> None:
        wait, done = self.head.waits.get(approval), self.head.done.get(approval)
        room = one.room or (wait.room if wait else done[0] if done else "s1")
        request = wanted(
            ask.ApprovalsResolve,
            session_id=room,
            approval_id=approval,
            decision=ApprovalStatus(one.decision),
            digest=UNSET if one.is_as_shown else "f" * 64,
            remember="session" if one.is_kept else UNSET,
        )
        facts = (room, one.decision, one.is_as_shown, one.is_kept, self.catalog)
        self.does(approvals.resolve, request, *small.resolve(self.head, approval, *facts))

    @rule(tool=sampled_from(("view", "edit", "shell")), who=sampled_from((("own",), ("own", "newcomer"), ())))
    def a_source_offers(self, tool: str, who: tuple[str, ...]) -> None:
        """Less, the same, or with somebody new."""
        rest = [one for one in self.world.catalog.tools if one.id != tool]
        offered = [f"builtin:{tool}" if one == "own" else one for one in who]
        self.world.offers(*rest, *([builders.tool(tool, providers=offered)] if offered else []))

    @rule(room=rooms, names=lists, is_revoked=booleans())
    def somebody_changes_a_list(self, room: str, names: Any, is_revoked: bool) -> None:
        """Sets it, empties it, clears it; or revokes everything, which a running session lets happen too."""
        if is_revoked:
            self.does(sessions.revoke, wanted(ask.SessionsGet, session_id=room), *small.revoke(self.head, room))
            return
        fields = {} if names is None else {"auto_approved_tool_names": names}
        request = wanted(ask.SessionsUpdateApprovalSettings, session_id=room, **fields)
        self.does(sessions.update_approval_settings, request, *small.update(self.head, room, names, self.catalog))

    @precondition(lambda self: self.runs)
    @rule(n=anything, how=sampled_from(("finished", "cancelled", "stopped", "failed")))
    def a_run_is_ended(self, n: int, how: str) -> None:
        """Its agents finish, somebody cancels it, what it had started has ended, or its backend broke down."""
        run = self._a_run(n)
        if how == "finished":
            self._finishes(run)
        elif how == "cancelled":
            self.does(runs.cancel, run, *small.cancel(self.head, run))
        elif how == "stopped":
            stopped = small.end(self.head, run, "idle", "cancelled")
            self.does(runs.end, runs.EndRun(run, CANCELLED), stopped, "ok")
        else:
            failed = small.end(self.head, run, "error", "run-failed")
            self.does(runs.end, runs.EndRun(run, FAILED, "It broke."), failed, "ok")

    @precondition(lambda self: any(life.held for life in self.head.lives.values()))
    @rule(n=anything)
    def a_response_is_complete(self, n: int) -> None:
        """Perhaps not for the first time."""
        holding = [run for run, life in self.head.lives.items() if life.held]
        self._finishes(RunId(holding[n % len(holding)]))

    def _finishes(self, run: RunId) -> None:
        before = self._waiting()
        self.machine.executes(runs.finish, run)
        new = "".join(self._waiting() - before)
        self.asked += [new] if new else []
        self.expects(*small.finish(self.head, run, new))

    @precondition(lambda self: self.asked)
    @rule(n=anything)
    def time_runs_out(self, n: int) -> None:
        """For something that waits, or waited."""
        approval = self._an_approval(n)
        self.does(approvals.expire, approval, *small.expire(self.head, approval))

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
def test_any_interleaving_does_what_the_model_says() -> None:
    """The same interleavings in every run."""
    play(150, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_great_many_interleavings_do_what_the_model_says() -> None:
    """Other ones in every run, in portions: what was tried is kept in memory."""
    for _ in range(20):
        play(1000, 80, derandomize=False)
