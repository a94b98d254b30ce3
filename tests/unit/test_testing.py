"""What authors of plugins test with: real, and quick to notice what is broken."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eryxd import testing
from eryxd.domain.ids import CallId, ProviderId, ToolId
from eryxd.plugin import hookimpl
from eryxd.plugin.installed import discover
from eryxd.plugin.types import (
    Allow,
    Entry,
    Gate,
    Processes,
    ProvidedTool,
    ProviderCall,
    ProviderDescriptor,
    ToolCall,
    ToolOutcome,
    Turn,
)
from tests.requirements import requirement


class Sayer:
    """A provider without entries."""

    descriptor = ProviderDescriptor(name="say", label="Say")

    def __init__(self) -> None:
        self.names = ["say"]
        self.asked = 0
        self.changes = False

    def problems(self, entry: Entry, others: Sequence[Entry]) -> Sequence[str]:
        return []

    def fingerprint(self, entry: Entry | None) -> str:
        self.asked += 1
        return str(self.asked) if self.changes else ""

    def declared(self, entry: Entry | None) -> Sequence[ProvidedTool] | None:
        return [ProvidedTool(id=ToolId(name)) for name in self.names]

    async def tools(self, entry: Entry | None, processes: Processes) -> Sequence[ProvidedTool]:
        return []

    async def call(self, entry: Entry | None, call: ProviderCall, processes: Processes) -> ToolOutcome:
        return ToolOutcome(ok=True, text=f"said {call.arguments['what']}")


def plugin(provider: Any) -> Any:
    """Return a module that contributes this provider."""

    @hookimpl
    def eryxd_tool_providers() -> list[Any]:
        return [provider]

    return SimpleNamespace(eryxd_tool_providers=eryxd_tool_providers)


@requirement("PLG-9")
@pytest.mark.parametrize("name", sorted(discover()))
def test_every_plugin_that_is_installed_keeps_the_contract(name: str) -> None:
    testing.check_plugin(name)


BROKEN: dict[str, tuple[Any, str]] = {
    "changing": (lambda one: setattr(one, "changes", True), "fingerprint changes"),
    "twice": (lambda one: setattr(one, "names", ["say", "say"]), "one id"),
    "white space": (lambda one: setattr(one, "names", [" say"]), "plain name"),
    "no descriptor": (lambda one: setattr(one, "descriptor", "say"), "ProviderDescriptor"),
    "no method": (lambda one: setattr(one, "call", None), "has no call"),
}


@requirement("PLG-9")
@pytest.mark.parametrize(("breaks", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_promise_is_named(breaks: Any, why: str) -> None:
    provider = Sayer()
    testing.check_plugin("say", module=plugin(provider))
    breaks(provider)
    with pytest.raises(AssertionError, match=why):
        testing.check_plugin("say", module=plugin(provider))


@requirement("PLG-9")
def test_a_fake_backend_calls_a_providers_tool_through_a_real_gate(tmp_path: Path) -> None:
    """It asks, a person approves, the tool runs, and the timeline has it."""

    async def script(turn: Turn, gate: Gate) -> None:
        (offered,) = turn.tools.offered()
        asked = ToolCall(call_id=CallId("c1"), tool_id=offered.tool.id, provider=offered.provider)
        assert await gate.tool_call(asked) == Allow()
        call = ProviderCall(tool_id=offered.tool.id, arguments={"what": "hello"}, project_path=turn.project_path)
        await gate.tool_done(CallId("c1"), await turn.tools.call(ProviderId("say"), call))
        await gate.message("Done.")

    backend = testing.FakeBackend(script)
    with testing.Daemon(tmp_path, plugins={"say": plugin(Sayer())}, backends=[backend]) as daemon:
        daemon.settle()
        assert daemon.tools() >= {"say"}
        session = daemon.call("sessions.create", pattern_id="single")["session"]["id"]
        run = daemon.call("messages.send", session_id=session, content="Say it.")["run_id"]
        waiting = daemon.until(lambda: daemon.call("approvals.list", session_id=session)["approvals"])
        daemon.call("approvals.resolve", session_id=session, approval_id=waiting[0]["id"], decision="approved")
        assert daemon.call("runs.wait", run_id=run, timeout_s=20)["run"]["status"] == "completed"
        (called,) = [one for one in daemon.call("timeline.get", run_id=run)["events"] if one["kind"] == "tool-call"]
        assert (called["result"], called["provider"]) == ("said hello", "say")
        with pytest.raises(testing.Refused, match="not_found"):
            daemon.call("runs.get", run_id="r" * 17)


@requirement("PLG-9")
def test_a_folder_can_be_opened_again(tmp_path: Path) -> None:
    for number in range(2):
        with testing.Daemon(tmp_path, plugins={"say": plugin(Sayer())}) as daemon:
            daemon.call("patterns.copy", pattern_id="single", name="Mine")
            mine = [one for one in daemon.call("patterns.list")["patterns"] if one["name"] == "Mine"]
            assert len(mine) == number + 1
