"""What people, agents and sources may do, each done to the engine and to the model."""

from random import Random
from typing import Any, Final, NamedTuple

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

TOOLS: Final = ("edit", "view", "edit", "edit", "shell", "gone", "")
PROVIDERS: Final = ("own", "own", "newcomer", "")
SPEAKERS: Final = (*AGENTS, "")
LISTS: Final = (None, (), ("edit",), ("view", "shell"), ("gone",))
OFFERS: Final = (("own",), ("own", "newcomer"), ())
ENDS: Final = ("finished", "cancelled", "stopped", "failed")
DECISIONS: Final = ("approved", "approved", "rejected")


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


class Moves(Beside):
    """Every move is allowed at every moment; what comes of it is the model's to say."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self.asked: list[str] = []
        self.seen: set[str] = set()
        self.texts = 0

    def begin(self, calls: Any, final: Any) -> None:
        """A pattern with these checkpoints, a session of a project and one in the scratchpad."""
        scoped = [("tool-call", calls), ("final-response", final)]
        checkpoints = [builders.rule(kind, scope or None) for kind, scope in scoped if scope is not None]
        self.team = team_of(*AGENTS, rules=checkpoints, listed=["view"])
        self.committed = self.head = Model(Rules(calls, final), {"s1": Room(), "s2": Room(is_scratch=True)})
        self.starts()
        self.everything_lands()
        places = (builders.session("s1"), builders.session("s2", project_id=SCRATCHPAD))
        for row in (builders.project(), self.team, builders.offers(), *places):
            self.does(put, row, self.head, "ok")
        self.everything_lands()

    @property
    def catalog(self) -> dict[str, tuple[str, ...]]:
        """Who offers what now."""
        return {str(tool): tuple(offered) for tool, offered in self.world.catalog.items()}

    def _waiting(self) -> set[str]:
        return {one.id for one in self.machine.engine.head.all(Approval)}

    def a_run(self, n: int) -> RunId:
        """Return one that has not ended; now and then any other."""
        live = [one for one in self.runs if one in self.head.lives]
        some = live if live and n % 5 else self.runs
        return RunId(some[n % len(some)])

    def an_approval(self, n: int) -> str:
        """Return one of those that wait; now and then any other."""
        waiting = [one for one in self.asked if one in self.head.waits]
        some = waiting if waiting and n % 4 else self.asked
        return some[n % len(some)]

    def send(self, room: str) -> None:
        """Somebody sends a message, which starts a run where none runs."""
        members = tuple(builders.run_agent(name) for name in AGENTS)
        message = wanted(ask.MessagesSend, session_id=room, content="Mend it.")
        self.machine.executes(runs.send, runs.Send(message, self.team, members, {}, "/work"))
        made = live_run(self.machine.engine.head, SessionId(room))
        if made is not None and made.id not in self.runs:
            self.runs.append(made.id)
        self.expects(*small.send(self.head, room, "" if made is None else made.id))

    def ask(self, one: Call) -> None:
        """An agent asks, of a run that may have ended."""
        run = self.a_run(one.run)
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

    def say(self, one: Words) -> None:
        """An agent says something."""
        self.texts += 1
        run, text = self.a_run(one.run), f"~{self.texts}~"
        saying = saying_rules.Saying(run, AgentId(one.agent), one.kind, text)
        self.does(saying_rules.say, saying, *small.say(self.head, run, one.agent, one.kind.value, text))

    def decide(self, one: Verdict) -> None:
        """Somebody decides, perhaps for the second time."""
        approval = self.an_approval(one.approval)
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

    def offer(self, tool: str, who: tuple[str, ...]) -> None:
        """A source offers less, the same, or with somebody new."""
        rest = [one for one in self.world.catalog.tools if one.id != tool]
        offered = [f"builtin:{tool}" if one == "own" else one for one in who]
        self.world.offers(*rest, *([builders.tool(tool, providers=offered)] if offered else []))

    def revoke(self, room: str) -> None:
        """Somebody takes everything back."""
        self.does(sessions.revoke, wanted(ask.SessionsGet, session_id=room), *small.revoke(self.head, room))

    def change_list(self, room: str, names: Any) -> None:
        """Somebody sets, empties or clears a session's list."""
        fields = {} if names is None else {"auto_approved_tool_names": names}
        request = wanted(ask.SessionsUpdateApprovalSettings, session_id=room, **fields)
        self.does(sessions.update_approval_settings, request, *small.update(self.head, room, names, self.catalog))

    def end(self, n: int, how: str) -> None:
        """A run's agents finish, somebody cancels it, what it had started has ended, or its backend broke down."""
        run = self.a_run(n)
        if how == "finished":
            self.finish(run)
        elif how == "cancelled":
            self.does(runs.cancel, run, *small.cancel(self.head, run))
        elif how == "stopped":
            stopped = small.end(self.head, run, "idle", "cancelled")
            self.does(runs.end, runs.EndRun(run, CANCELLED), stopped, "ok")
        else:
            failed = small.end(self.head, run, "error", "run-failed")
            self.does(runs.end, runs.EndRun(run, FAILED, "It broke."), failed, "ok")

    def finish(self, run: RunId) -> None:
        """The last agent of a run has finished, perhaps not for the first time."""
        before = self._waiting()
        self.machine.executes(runs.finish, run)
        new = "".join(self._waiting() - before)
        self.asked += [new] if new else []
        self.expects(*small.finish(self.head, run, new))

    def expire(self, n: int) -> None:
        """Time runs out for something that waits, or waited."""
        approval = self.an_approval(n)
        self.does(approvals.expire, approval, *small.expire(self.head, approval))

    def anything(self, luck: Random) -> None:
        """Make one move, the likelier ones more often."""
        n, pick = luck.randrange(100), luck.choice
        does = luck.choices(range(10), (9, 5, 4, 2, 2, 1, 1, 1, 1, 2))[0]
        if does == 0 and self.runs:
            agent, tool, provider = pick(SPEAKERS), pick(TOOLS), pick(PROVIDERS)
            self.ask(Call(n, luck.random() < 0.4, agent, tool, provider, pick(("c1", "c2", "c3", "c4"))))
        elif does == 1 and self.asked:
            room = pick(ROOMS) if luck.random() < 0.1 else ""
            self.decide(Verdict(n, pick(DECISIONS), room, luck.random() < 0.9, luck.random() < 0.5))
        elif does == 2 and self.runs:
            self.say(Words(n, pick(SPEAKERS), pick(list(WithheldKind))))
        elif does == 3:
            self.send(pick(ROOMS))
        elif does == 4 and self.runs:
            self.end(n, pick((*ENDS, "finished", "finished")))
        elif does == 5:
            self.offer(pick(("view", "edit", "shell")), pick((*OFFERS, ("own",))))
        elif does == 6:
            self.change_list(pick(ROOMS), pick(LISTS))
        elif does == 7:
            self.revoke(pick(ROOMS)) if luck.random() < 0.3 else None
        elif does == 8 and self.asked:
            self.expire(n)
        elif does == 9 and self.machine.engine._writing:
            self.disk_goes(pick(("happens", "happens", "happens", "fails")))
        elif does == 9 and self.machine.engine.problem is not None:
            self.machine.probes()
