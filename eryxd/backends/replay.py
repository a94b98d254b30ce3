"""The backend `replay`: plays a plan, needs no login, and really executes the tools.

Law: a call runs only after the gate allowed it, with the very arguments that it was asked with.

Source: BKD-2, BKD-4.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.backends import plan as plans
from eryxd.backends.plan import Call, Ending, Step
from eryxd.backends.tools import RUNTIME_TOOLS, available_tools, permission_for, run_tool
from eryxd.domain.approval import Permission
from eryxd.domain.errors import BackendFailed
from eryxd.domain.ids import BackendName, CallId, ProviderId, Timestamp, ToolId
from eryxd.domain.session import RunAgent
from eryxd.plugin.types import (
    BackendDescriptor,
    Capabilities,
    Connection,
    ConnectionState,
    DeniedBy,
    Deny,
    Gate,
    ProviderCall,
    SessionTool,
    ToolCall,
    ToolOutcome,
    Turn,
)

INTENT: Final = "report_intent"
"""The tool of ours that only moves the conversation: it says what comes next and does nothing."""

PIECE_CHARACTERS: Final = 24
"""About how much of a message comes at once: a few words, as models stream them."""

SEEN_CHARACTERS: Final = 200
"""How much of a call's output an error quotes."""

DENIAL: Final = {
    DeniedBy.PERSON: "Rejected by the user",
    DeniedBy.CANCELLED: "Denied: the run was cancelled",
    DeniedBy.INTERRUPTED: "Denied: the run was interrupted",
    DeniedBy.EXPIRED: "Denied: nobody answered in time",
    DeniedBy.STORE: "Denied: the decision could not be recorded",
    DeniedBy.RULE: "Denied by a rule",
}
"""What the agent is told of each kind of denial."""


class Replay:
    """Plays plans.  Implements `plugin.types.Backend`; keeps nothing between turns."""

    def __init__(self, plans_dir: Path, now: Callable[[], Timestamp]) -> None:
        self._plans_dir = plans_dir
        self._now = now
        self.descriptor = BackendDescriptor(
            name=BackendName("replay"),
            label="Replay",
            infrastructure=(INTENT,),
            needs_model=True,
            by_default=False,
        )

    async def describe(self) -> Capabilities:
        """Always ready; the models are the plans."""
        state = ConnectionState(status=Connection.READY, summary="Plays plans; needs no login.", checked_at=self._now())
        models = await asyncio.to_thread(plans.list_plans, self._plans_dir)
        return Capabilities(connection=state, models=models, runtime_tools=available_tools())

    async def prepare(self, agent: RunAgent) -> str:
        """Return the text of the agent's plan, which plays at least one step for it.

        Raises: BackendFailed -- the agent names no plan, or one that is missing or cannot be played.
        """
        if agent.model is UNSET or not agent.model.strip():
            raise BackendFailed(
                f"The agent {agent.name} names no plan.  Set its model to the name of a plan in {self._plans_dir}, "
                "or use `eryx run --plan FILE`.",
                places=[str(self._plans_dir)],
            )
        path = await asyncio.to_thread(plans.find, agent.model, self._plans_dir)
        text = await asyncio.to_thread(plans.read, path)
        plan = await asyncio.to_thread(plans.parse, text, str(path))
        if not any(plan.steps_of(agent)):
            raise BackendFailed(f"The plan {path} has no step for the agent {agent.name}.", place=str(path))
        return text

    async def run_turn(self, turn: Turn, gate: Gate) -> None:
        """Play the agent's steps in order.

        Raises: BackendFailed -- a call did not come out as the plan expects; the message names the step.
        """
        if turn.input is UNSET:
            raise BackendFailed("The plan's text was not kept with the run.")
        # In a thread, as every parsing: a plan can be made that takes the parser seconds.
        plan = await asyncio.to_thread(plans.parse, turn.input, str(turn.agent.model or ""))
        player = _Player(turn, gate)
        for number, step in plan.steps_of(turn.agent):
            await player.play(number, step)


OWN: Final = frozenset({INTENT, *(tool.id for tool in RUNTIME_TOOLS)})
"""Tools that the backend runs itself, whoever else offers them."""


class _Player:
    """Plays steps of one turn; numbers its calls `c1`, `c2` and so on."""

    def __init__(self, turn: Turn, gate: Gate) -> None:
        self._turn = turn
        self._gate = gate
        self._call_numbers = itertools.count(1)

    async def play(self, number: int, step: Step) -> None:
        """Play one step to its end."""
        if step.say is not UNSET:
            await self._say(step.say)
        elif step.think is not UNSET:
            await self._gate.thinking(step.think)
        else:
            await self._make_calls(number, step.all_calls())

    async def _say(self, text: str) -> None:
        for piece in pieces(text):
            await self._gate.delta(piece)
        await self._gate.message(text)

    async def _make_calls(self, number: int, calls: tuple[Call, ...]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._make_call(call)) for call in calls]
        # Not earlier: the other calls of the step ran as well, and have been reported.
        for call, task in zip(calls, tasks, strict=True):
            _check(number, call, *task.result())

    async def _make_call(self, call: Call) -> tuple[Ending, ToolOutcome]:
        frozen = msgspec.msgpack.encode(call.arguments)
        call_id = CallId(f"c{next(self._call_numbers)}")
        asked = await self._describe(call_id, call.call, frozen)
        # A copy: whoever holds the question must not change what it is held against.
        shown = replace(asked.permission)
        answer = await self._gate.tool_call(asked)
        if isinstance(answer, Deny):
            ending, outcome = Ending.DENIED, ToolOutcome(ok=False, text=_denial(answer))
        else:
            outcome = await self._run(asked, _thaw(frozen), shown)
            ending = Ending.OK if outcome.ok else Ending.ERROR
        await self._gate.tool_done(call_id, outcome)
        return ending, outcome

    async def _describe(self, call_id: CallId, tool: str, frozen: bytes) -> ToolCall:
        provided = None if tool in OWN else self._provided(tool)
        if provided is None:
            provider = ProviderId(f"builtin:{tool}")
            permission = await asyncio.to_thread(permission_for, tool, _thaw(frozen), self._turn.project_path)
        else:
            provider = provided.provider
            permission = Permission(kind=provided.kind, server=provider, arguments=_thaw(frozen))
        return ToolCall(
            call_id=call_id,
            tool_id=ToolId(tool),
            provider=provider,
            permission=permission,
            arguments=_thaw(frozen),
        )

    def _provided(self, tool: str) -> SessionTool | None:
        """Return the first of what the session's providers offer under that id."""
        return next((one for one in self._turn.tools.offered() if one.tool.id == tool), None)

    async def _run(self, asked: ToolCall, arguments: dict[str, Any], shown: Permission) -> ToolOutcome:
        tool, provider = str(asked.tool_id), ProviderId(str(asked.provider))
        if tool == INTENT:
            return ToolOutcome(ok=True, text=str(arguments.get("intent", "")))
        if provider.startswith("builtin:"):
            return await run_tool(tool, arguments, self._turn.project_path, self._turn.processes, shown)
        call = ProviderCall(tool_id=ToolId(tool), arguments=arguments, project_path=self._turn.project_path)
        return await self._turn.tools.call(provider, call)


def _thaw(frozen: bytes) -> dict[str, Any]:
    """Return arguments of one's own: what others do to theirs does not change what runs."""
    return msgspec.msgpack.decode(frozen, type=dict[str, Any])


def _denial(answer: Deny) -> str:
    return f"{DENIAL[answer.by]}: {answer.note}" if answer.note else f"{DENIAL[answer.by]}."


def _check(number: int, call: Call, ending: Ending, outcome: ToolOutcome) -> None:
    """Hold what came of a call against what its plan expects."""
    expect = call.expect
    if expect is UNSET:
        return
    seen = f"it ended as {ending} with {outcome.text[:SEEN_CHARACTERS]!r}"
    if expect.outcome is not UNSET and expect.outcome is not ending:
        raise _unexpected(number, call, f"to end as {expect.outcome}, but {seen}", ending)
    if expect.contains is not UNSET and expect.contains not in outcome.text:
        raise _unexpected(number, call, f"an output that contains {expect.contains!r}, but {seen}", ending)


def _unexpected(number: int, call: Call, what: str, ending: Ending) -> BackendFailed:
    return BackendFailed(
        f"Step {number} of the plan expects of {call.call} {what}.", step=number, tool=call.call, ended=ending.value
    )


def pieces(text: str) -> Iterator[str]:
    """Cut a message after words, as it would be streamed; joined, the pieces are the message."""
    piece = ""
    for word in re.findall(r"\s*\S+|\s+$", text):
        piece += word
        if len(piece) >= PIECE_CHARACTERS:
            yield piece
            piece = ""
    if piece:
        yield piece
