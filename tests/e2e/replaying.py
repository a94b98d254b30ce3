"""A plan, a repository to play it in, and a gate that a test answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from eryxd.backends.replay import Replay
from eryxd.daemon.children import Children
from eryxd.domain.approval import PermissionKind
from eryxd.domain.ids import AgentId, BackendName, CallId, ProviderId, RunId, SessionId, Timestamp, ToolId
from eryxd.domain.policy import EffectivePolicy, ListFrom
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import (
    Allow,
    Answer,
    Backend,
    DeniedBy,
    Deny,
    Gate,
    ProvidedTool,
    ProviderCall,
    SessionTool,
    ToolCall,
    ToolOutcome,
    Turn,
)

NOW = Timestamp("2026-11-30T12:00:00.000Z")
ALLOW = Allow()

Answerer = Callable[[ToolCall], Awaitable[Answer]]


class FakeGate:
    """Answers calls as a test says, and remembers everything in order."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self.seen: list[tuple[str, Any]] = []

    async def tool_call(self, call: ToolCall) -> Answer:
        self.seen.append(("ask", call))
        return await self._answer(call)

    async def tool_done(self, call_id: CallId, outcome: ToolOutcome) -> None:
        self.seen.append(("done", (call_id, outcome)))

    async def thinking(self, text: str) -> None:
        self.seen.append(("thinking", text))

    async def delta(self, text: str) -> None:
        self.seen.append(("delta", text))

    async def message(self, content: str) -> None:
        self.seen.append(("message", content))

    def only(self, kind: str) -> list[Any]:
        return [value for seen, value in self.seen if seen == kind]


class FakeTools:
    """One provider's tool, which says what it was called with."""

    def offered(self) -> tuple[SessionTool, ...]:
        tool = ProvidedTool(id=ToolId("build"))
        return (SessionTool(tool=tool, provider=ProviderId("make"), kind=PermissionKind.CUSTOM_TOOL),)

    async def call(self, provider: ProviderId, call: ProviderCall) -> ToolOutcome:
        return ToolOutcome(
            ok=True, text=f"{provider} {call.tool_id} {call.arguments} in {Path(call.project_path).name}"
        )


async def allow(call: ToolCall) -> Answer:
    return ALLOW


def deny(by: DeniedBy, note: str | UnsetType = UNSET) -> Answerer:
    async def answer(call: ToolCall) -> Answer:
        return Deny(by=by, note=note)

    return answer


class Stage:
    """A backend with its processes and one repository to play in."""

    def __init__(self, repository: Path, tmp_path: Path) -> None:
        self.backend: Backend = Replay(tmp_path / "plans", lambda: NOW)
        self.children = Children(tmp_path / "records")
        self.tools = FakeTools()
        self._repository = repository

    def turn(self, plan: str, agent: RunAgent) -> Turn:
        return Turn(
            run_id=RunId("r"),
            session_id=SessionId("s"),
            agent=agent,
            project_path=str(self._repository),
            policy=EffectivePolicy(rules=(), auto_approved_tool_names=(), list_from=ListFrom.PATTERN),
            messages=(),
            processes=self.children,
            tools=self.tools,
            input='title = "t"\n' + plan,
        )

    def play(self, plan: str, answer: Answerer = allow, id: str = "a") -> FakeGate:
        gate = FakeGate(answer)
        checked: Gate = gate
        asyncio.run(self.backend.run_turn(self.turn(plan, agent(id)), checked))
        return gate


def agent(id: str = "a", model: str | UnsetType = UNSET) -> RunAgent:
    return RunAgent(id=AgentId(id), name=f"Agent {id}", backend=BackendName("replay"), model=model)
