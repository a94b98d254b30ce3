"""A world in which use cases are computed one by one, without a disk, a loop or a clock that moves by itself.

What a use case changes is durable at once, unless a test wants it in flight: then `start` it, and `land` or `lose` it.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, TypeVar

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.replies import BackendState, RunStarted, SourceState
from eryxd.core import approvals, runs, saying as saying_rules
from eryxd.core.change import Change, Context, Tx
from eryxd.core.settle import call_key
from eryxd.core.state import TABLES, Key, R, State
from eryxd.domain.approval import Approval, ApprovalStatus, Decider
from eryxd.domain.catalog import SourceId
from eryxd.domain.errors import EryxError
from eryxd.domain.ids import ID_LETTERS, AgentId, ApprovalId, BackendName, CallId, Record, RunId, TimelineId, Timestamp
from eryxd.domain.pattern import Mode, Pattern
from eryxd.domain.policy import ASK_POLICY, ApprovalPolicy
from eryxd.domain.session import Offers, Project, Run, SessionHead, WithheldKind
from eryxd.domain.tools import Catalog, ToolDefinition
from eryxd.plugin.types import Answer, ToolCall
from tests.builders import (
    NOON,
    after,
    agent,
    backend_state,
    decider,
    offers,
    pattern,
    permission,
    policy,
    project,
    run_agent,
    session,
    settings,
    tool,
)

T = TypeVar("T")
E = TypeVar("E", bound=EryxError)

TOOLS: Final = (tool("view"), tool("edit"), tool("shell"))
"""The catalog, unless a test brings its own."""

Rows = dict[tuple[type[Record], Key], Record]


class World:
    """Both views, everything that was ever stored, and the facts that a use case is told.

    A test may assign `now`, `catalog`, `backends` and the other facts between two use cases.
    """

    def __init__(self, *records: Record) -> None:
        self.head = State()
        self.committed = State()
        self.rows: Rows = {}
        self.departed: dict[tuple[type[Record], Key], Record | None] = {}
        self.now = NOON
        self.caller: Decider = decider()
        self.catalog = Catalog(TOOLS)
        self.backends: Mapping[BackendName, BackendState] = {BackendName("replay"): backend_state()}
        self.default_policy: ApprovalPolicy = ASK_POLICY
        self.own_folders: tuple[str, ...] = ("/home/ada/.config/eryx", "/home/ada/.local/state/eryx")
        self.sources: Mapping[SourceId, SourceState] = {}
        self.store_reads = 0
        self._ids = count(1)
        self._numbers = count(100)
        self._calls: set[str] = set()
        for record in records:
            self.head.put(record)
            self._keep(record)

    def offers(self, *tools: ToolDefinition) -> None:
        """Let the catalog be these tools from now on."""
        self.catalog = Catalog(tools, self.catalog.generation + 1)

    def tx(self) -> Tx:
        """Return a transaction over head."""
        return Tx(self.head, self.committed, self.departed, self._stored, self.context())

    def context(self) -> Context:
        """Return the facts as they are now."""
        return Context(
            now=self.now,
            caller=self.caller,
            new_id=lambda noun: f"{ID_LETTERS[noun]}{next(self._ids):02}",
            number=lambda: next(self._numbers),
            later=_later,
            catalog=self.catalog,
            backends=self.backends,
            default_policy=self.default_policy,
            own_folders=self.own_folders,
            sources=self.sources,
        )

    def _stored(self, kind: type[R], key: Key) -> R | None:
        self.store_reads += 1
        return self.rows.get((kind, key))  # type: ignore[return-value]

    def _keep(self, record: Record) -> None:
        self.committed.put(record)
        self.rows[type(record), TABLES[type(record)].key(record)] = record

    def start(self, use_case: Callable[[Tx, Any], Any], request: Any) -> Change:
        """Compute a use case on head and leave its change in flight."""
        tx = self.tx()
        try:
            change = tx.finish(use_case(tx, request))
        except BaseException:
            tx.rollback()
            raise
        for record in change.puts:
            if not TABLES[type(record)].keep(record):
                self.departed[type(record), TABLES[type(record)].key(record)] = record
        self.departed.update(dict.fromkeys(change.deletes))
        return change

    def land(self, change: Change) -> None:
        """Make what is in flight durable.  One change at a time, in order, is enough here."""
        for record in change.puts:
            self._keep(record)
        for kind, key in change.deletes:
            self.committed.delete(kind, key)
            self.rows.pop((kind, key), None)
        self.departed.clear()

    def restarts(self) -> None:
        """Forget everything that is not durable, as a daemon that is killed and started again."""
        self.head, self.departed = State(), {}
        for row in self.rows.values():
            self.head.put(row)

    def do(self, use_case: Callable[[Tx, Any], Any], request: Any) -> Change:
        """Compute a use case and make it durable."""
        change = self.start(use_case, request)
        self.land(change)
        return change

    def refuses(self, use_case: Callable[[Tx, Any], Any], request: Any, error: type[E]) -> E:
        """Return the error with which a use case is refused, having changed nothing."""
        before = kept(self.head), kept(self.committed), dict(self.rows)
        with pytest.raises(error) as caught:
            self.start(use_case, request)
        assert (kept(self.head), kept(self.committed), self.rows) == before
        return caught.value

    def row(self, kind: type[R], key: str) -> R:
        """Return a row that must be there, ended or not."""
        found = self.tx().get(kind, key)
        assert found is not None, f"no {kind.__name__} {key!r}"
        return found

    def every(self, kind: type[R]) -> list[R]:
        """Return everything of a kind that was stored and not deleted, ended or not, in order of first storing."""
        return [record for record in self.rows.values() if isinstance(record, kind)]

    def send(self, content: str = "Mend the parser.", session_id: str = "s1") -> Run:
        """Send a message to an idle session and return the run."""
        started: RunStarted = self.do(runs.send, self.sending(content, session_id)).reply
        return self.row(Run, started.run_id)

    def sending(self, content: str = "Mend the parser.", session_id: str = "s1") -> runs.Send:
        """Return what `send` is given for a session, with its pattern's agents on `replay`."""
        head = self.row(SessionHead, session_id)
        team = self.row(Pattern, head.pattern_id)
        agents = tuple(run_agent(one.id, name=one.name, instructions=one.instructions) for one in team.agents)
        return runs.Send(
            request=wanted(ask.MessagesSend, session_id=session_id, content=content),
            pattern=team,
            agents=agents,
            inputs={},
            project_path=self.row(Project, head.project_id).path,
        )

    def asking(self, run: Run, call: ToolCall, agent: str | None = "coder", infra: Iterable[str] = ()) -> Any:
        """Return a backend's question, with the facts that the gate adds."""
        agent_id = UNSET if agent is None else AgentId(agent)
        key = call_key(run.id, agent_id, call.call_id)
        seen = key in self._calls
        self._calls.add(key)
        return approvals.Asking(run.id, agent_id, call, frozenset(infra), event_of(run, call, agent), seen, "replay")

    def asks(self, run: Run, call: ToolCall, agent: str | None = "coder", infra: Iterable[str] = ()) -> Any:
        """Let an agent ask; return the answer, or the approval that waits."""
        reply = self.do(approvals.ask_tool_call, self.asking(run, call, agent, infra)).reply
        return reply if isinstance(reply, Answer) else self.row(Approval, reply)

    def says(self, run: Run, content: str, agent: str = "coder", kind: str = "message") -> Change:
        """Let an agent say something whole."""
        return self.do(saying_rules.say, saying(run, content, agent, kind))

    def finishes(self, run: Run) -> Any:
        """Let the last agent finish; return the approval that this leaves, if any."""
        reply: ApprovalId | None = self.do(runs.finish, run.id).reply
        return None if reply is None else self.row(Approval, reply)

    def resolves(self, approval: Approval, decision: str = "approved", **more: Any) -> Change:
        """Decide an approval as a person."""
        return self.do(approvals.resolve, resolving(approval, decision, **more))


def _later(seconds: float) -> Timestamp:
    return after(int(seconds))


def kept(state: State) -> dict[type[Record], Any]:
    """Return everything that a view holds, by kind and key, and again by group."""
    return {kind: ({TABLES[kind].key(row): row for row in state.all(kind)}, _grouped(state, kind)) for kind in TABLES}


def _grouped(state: State, kind: type[Record]) -> dict[Any, dict[Key, Record]]:
    table = TABLES[kind]
    groups = {table.group(row) for row in state.all(kind)}
    return {group: {table.key(row): row for row in state.of(kind, group)} for group in groups}


def wanted(kind: type[R], **fields: Any) -> R:
    """Return a request; plain strings stand for identifiers."""
    return kind(**fields)


def resolving(approval: Approval, decision: str = "approved", **more: Any) -> ask.ApprovalsResolve:
    """Return a person's decision."""
    fields = {"session_id": approval.session_id, "approval_id": approval.id, **more}
    return wanted(ask.ApprovalsResolve, decision=ApprovalStatus(decision), **fields)


def saying(
    run: Run, content: str, agent: str = "coder", kind: str = "message", message_id: Any = UNSET
) -> saying_rules.Saying:
    """Return something that an agent says."""
    return saying_rules.Saying(run.id, AgentId(agent), WithheldKind(kind), content, message_id)


def call(tool_id: str | None = "shell", call_id: str = "c1", **changes: Any) -> ToolCall:
    """Return a tool call as a backend describes it; its one provider is the tool's own, unless it is given."""
    plain: dict[str, Any] = {"permission": permission(), "arguments": {"command": "make test"}}
    provider: Any = UNSET if tool_id is None else f"builtin:{tool_id}"
    made = ToolCall(call_id=CallId(call_id), tool_id=UNSET if tool_id is None else tool_id, provider=provider, **plain)  # type: ignore[arg-type]
    return replace(made, **{name: UNSET if value is None else value for name, value in changes.items()})


def event_of(run: Run | RunId, call: ToolCall, agent: str | None = "coder") -> TimelineId:
    """Return the id of a call's timeline event, as a gate would derive it."""
    run_id = run if isinstance(run, str) else run.id
    return TimelineId(f"t:{run_id}:{agent}:{call.call_id}")


def world(
    *more: Record,
    rules: Any = None,
    listed: Iterable[str] = (),
    own: Iterable[str] | None = None,
    agents: Iterable[str] = ("coder",),
    expires_after_s: float | UnsetType = UNSET,
    **changes: Any,
) -> World:
    """Return a world with project j1, pattern p1 and its idle session s1.

    `listed` is the pattern's list, `own` the session's override; each id on them was offered by its own provider
    when it was listed.  `rules` are the pattern's; every other change is made to the session.
    """
    team = team_of(*agents, rules=rules, listed=listed, expires_after_s=expires_after_s)
    head = session(approval_settings=None if own is None else settings(own), **changes)
    lists = [offers(*listed)] if listed else []
    if own:
        lists.append(offers(*own, owner="session", owner_id="s1"))
    return World(project(), team, head, *lists, *more)


def team_of(*agents: str, rules: Any = None, listed: Iterable[str] = (), **limits: Any) -> Pattern:
    """Return pattern p1 with these agents in sequence, or with one alone."""
    checkpoints: dict[str, Any] = {} if rules is None else {"rules": rules}
    return pattern(
        agents=tuple(agent(name) for name in agents),
        mode=Mode.SINGLE if len(agents) == 1 else Mode.SEQUENTIAL,
        approval_policy=policy(auto_approved=tuple(listed) or None, **limits, **checkpoints),
    )


def types(change: Change) -> list[str]:
    """Return the types of a change's events, in order."""
    return [event.type.value for event in change.events]


def put(change: Change, kind: type[R]) -> R:
    """Return the one row of a kind that a change puts."""
    (found,) = [row for row in change.puts if isinstance(row, kind)]
    return found


def listed(change: Change) -> Offers:
    """Return who is trusted for the one list that a change writes, without the change's number."""
    return replace(put(change, Offers), number=0)
