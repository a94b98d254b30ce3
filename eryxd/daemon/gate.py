"""The gate: how a backend's turn asks, and says.  Every doubt is a refusal.

Laws: `tool_call` answers `Allow` only for a decision that is durable, of a run that is still open; an error of any
kind denies; what is said is committed before the backend goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api.events import Delta, Event, EventType
from eryxd.core import approvals, saying as saying_rules
from eryxd.core.change import Tx
from eryxd.core.live import open_run
from eryxd.core.settle import call_key
from eryxd.daemon import clock
from eryxd.daemon.bus import Bus
from eryxd.daemon.engine import Engine
from eryxd.domain.errors import EryxError, StoreUnavailable
from eryxd.domain.ids import ApprovalId, CallId, MessageId, RunId, SessionId
from eryxd.domain.session import Run, RunAgent, WithheldKind
from eryxd.plugin.types import Allow, Answer, DeniedBy, Deny, ToolCall, ToolOutcome

log = logging.getLogger("eryxd.gate")

T = TypeVar("T")


MAX_NAME: Final = 256
"""Longest tool id, call id, provider or session name that a backend may come with."""


class RunHandle:
    """What the daemon keeps of a running run besides its record."""

    def __init__(self, run: Run) -> None:
        self.run_id: RunId = run.id
        self.session_id: SessionId = run.session_id
        self.task: asyncio.Task[None] | None = None
        self.partial: dict[MessageId, str] = {}
        self.seen_calls: set[str] = set()
        self.said: list[tuple[RunAgent, str]] = []
        self.ended: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._answers: dict[ApprovalId, asyncio.Future[Answer]] = {}

    def answer(self, approval: ApprovalId) -> "asyncio.Future[Answer]":
        """Return where the answer to an approval arrives; whoever comes first, gate or decision, makes it."""
        if approval not in self._answers:
            self._answers[approval] = asyncio.get_running_loop().create_future()
        return self._answers[approval]

    def release(self, approval: ApprovalId, answer: Answer) -> None:
        """Give the answer, once."""
        future = self.answer(approval)
        if not future.done():
            future.set_result(answer)

    def deny_all(self, by: DeniedBy) -> None:
        """Deny everything that waits."""
        for future in self._answers.values():
            if not future.done():
                future.set_result(Deny(by=by))


class TurnGate:
    """The gate of one agent's turn."""

    def __init__(
        self, engine: Engine, bus: Bus, handle: RunHandle, agent: RunAgent, infrastructure: frozenset[str]
    ) -> None:
        self._engine = engine
        self._bus = bus
        self._handle = handle
        self._agent = agent
        self._infrastructure = infrastructure
        self._message: MessageId | None = None
        self._streamed = ""
        self._is_streaming = False

    async def tool_call(self, call: ToolCall) -> Answer:
        """Ask before a tool runs; waits for a person where the policy says so."""
        try:
            answer = await self._ask(_bounded(call))
        except StoreUnavailable:
            return Deny(by=DeniedBy.STORE)
        except EryxError as error:
            log.error("a tool call could not be decided: %s", error.code)
            return Deny(by=DeniedBy.RULE)
        # The run may have been closed while the decision was on its way to the disk.
        if isinstance(answer, Allow) and not self._is_open():
            return Deny(by=DeniedBy.CANCELLED)
        return answer

    async def _ask(self, call: ToolCall) -> Answer:
        seed = call_key(self._handle.run_id, self._agent.id, call.call_id)
        asking = approvals.Asking(
            run_id=self._handle.run_id,
            agent_id=self._agent.id,
            call=call,
            infrastructure=self._infrastructure,
            event_id=clock.call_event_id(seed),
            seen=seed in self._handle.seen_calls,
            backend=self._agent.backend,
        )
        self._handle.seen_calls.add(seed)
        answer = await self._engine.persist(approvals.ask_tool_call, asking)
        if isinstance(answer, Allow | Deny):
            return answer
        return await asyncio.shield(self._handle.answer(answer))

    def _is_open(self) -> bool:
        return self._engine.problem is None and open_run(self._engine.head, self._handle.run_id) is not None

    async def tool_done(self, call_id: CallId, outcome: ToolOutcome) -> None:
        """Record how a call ended."""
        seed = call_key(self._handle.run_id, self._agent.id, _bounded_id(call_id))
        await self._record(
            approvals.tool_done, approvals.CallDone(self._handle.run_id, clock.call_event_id(seed), outcome)
        )

    async def thinking(self, text: str) -> None:
        """Record finished reasoning."""
        await self._record(saying_rules.say, self._saying(WithheldKind.THINKING, text))

    async def delta(self, text: str) -> None:
        """Stream a piece of a message to whoever listens; what is held back is streamed to nobody."""
        if not self._is_streaming:
            self._is_streaming = True
            self._message = await self._record(saying_rules.begin_message, self._saying(WithheldKind.MESSAGE, ""))
        if self._message is None:
            return
        delta = Delta(message_id=self._message, run_id=self._handle.run_id, offset=len(self._streamed), text=text)
        self._streamed += text
        self._handle.partial[self._message] = self._streamed
        session = self._handle.session_id
        self._bus.transient(Event(at=clock.now(), type=EventType.MESSAGE_DELTA, session_id=session, delta=delta))

    async def message(self, content: str) -> None:
        """Record a finished message."""
        saying = self._saying(WithheldKind.MESSAGE, content)
        begun = self._message
        if begun is not None:
            saying = saying._replace(message_id=begun)
        self._message, self._streamed, self._is_streaming = None, "", False
        self._handle.said.append((self._agent, content))
        await self._record(saying_rules.say, saying)
        if begun is not None:
            # Not earlier: a cancel that comes before the commit settles the run with what was streamed.
            self._handle.partial.pop(begun, None)

    def _saying(self, kind: WithheldKind, content: str) -> saying_rules.Saying:
        return saying_rules.Saying(run_id=self._handle.run_id, agent_id=self._agent.id, kind=kind, content=content)

    async def _record(self, use_case: Callable[[Tx, Any], T], request: Any) -> T | None:
        """Commit what was reported.  A store that refuses ends the run anyway, so there is nobody to tell here."""
        try:
            return await self._engine.persist(use_case, request)
        except StoreUnavailable:
            return None


def _bounded(call: ToolCall) -> ToolCall:
    """Return a call whose names everything that shows it can carry.

    A tool or provider of such a name cannot be in the catalog: the call becomes one of an unknown tool, which asks.
    """
    if max(len(call.tool_id or ""), len(call.provider or "")) > MAX_NAME:
        call = replace(call, tool_id=UNSET, provider=UNSET)
    session = call.backend_session and call.backend_session[:MAX_NAME]
    return replace(call, call_id=_bounded_id(call.call_id), backend_session=session)


def _bounded_id(call_id: CallId) -> CallId:
    if len(call_id) <= MAX_NAME:
        return call_id
    return CallId("sha256:" + sha256(call_id.encode(errors="surrogatepass")).hexdigest())
