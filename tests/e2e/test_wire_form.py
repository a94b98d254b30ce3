"""What the daemon sends: of the declared shape, without nil, and as the public convention has it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from eryxd.api.access import Access
from eryxd.api.events import Event, EventType
from eryxd.api.methods import METHODS
from eryxd.domain.errors import ErrorCode
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.distributions import provided
from tests.e2e.serving import Client as RawClient, frame
from tests.e2e.stage import ASK, HOLD, Json, Stage, create, shell
from tests.requirements import requirement

ID: Final = re.compile(r"[srmapjt][a-z2-7]{16}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

CHANGING: Final = {name for name, method in METHODS.items() if method.access in (Access.STEER, Access.WIDEN)}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with a provider of tools."""
    with provided(tmp_path) as running:
        yield running


ASKING: Final = ("capabilities.refresh", "providers.check")
"""What only asks somebody else; the change, if there is one, is a commit of its own."""


def nils(value: Any, path: str = "$") -> Iterator[str]:
    """Yield where a value holds nil."""
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from nils(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from nils(inner, f"{path}[{index}]")


def calls(stage: Stage) -> Iterator[tuple[str, Json]]:
    """Yield calls that together use every method but those on the connection, each of which succeeds in its turn."""
    ask = stage.client.call
    pattern_id, watch = stage.pattern([*ASK, *HOLD]), stage.watch()
    pattern = ask("patterns.get", pattern_id=pattern_id)["pattern"]
    session = {"session_id": stage.session(pattern_id)}
    plan = stage.plan({"think": "Hm."}, create("made"), {"say": "Read me."})
    yield "messages.send", {**session, "content": "Go.", "plan": plan}
    first = watch.approvals(1)[0]
    run = {"run_id": first["run_id"]}
    decided = {**session, "approval_id": first["id"], "decision": "approved"}
    for method in ("daemon.status", "sessions.list", "workspace.get"):
        yield method, {}
    yield "approvals.get", {"approval_id": first["id"]}
    yield "approvals.content", {"approval_id": first["id"]}
    yield "approvals.resolve", {**decided, "remember": "session", "note": "fine"}
    second = watch.approvals(1)[0]
    yield "approvals.list", {}
    yield "approvals.get", {"approval_id": second["id"]}
    yield "sessions.get", session
    yield "sessions.revoke", session
    yield "runs.cancel", run
    yield "runs.wait", run
    yield "runs.get", run
    yield "runs.list", session
    yield "timeline.get", run
    yield "messages.list", session
    yield "approvals.list", {"resolved": True}
    for method in ("ping", "api.describe", "capabilities.describe", "capabilities.refresh", "store.check"):
        yield method, {}
    for method in ("projects.list", "patterns.list", "tools.list", "tools.stale", "providers.list", "plugins.list"):
        yield method, {}
    yield from provider_calls(pattern_id)
    draft = {key: value for key, value in pattern.items() if key not in ("id", "created_at", "updated_at")}
    yield "patterns.validate", {"pattern": {**draft, "name": ""}}
    yield "patterns.save", {"pattern": {key: draft[key] for key in ("name", "mode", "agents")}}
    yield "patterns.get", {"pattern_id": "handoff"}
    yield "patterns.copy", {"pattern_id": "handoff"}
    yield "patterns.favorite", {"pattern_id": "handoff", "is_favorite": True}
    yield "patterns.delete", {"pattern_id": stage.pattern()}
    yield "sessions.create", {"pattern_id": pattern_id, "title": "Mine"}
    yield "sessions.duplicate", session
    yield "sessions.rename", {**session, "title": "Yours"}
    yield "sessions.pin", {**session, "is_pinned": True}
    yield "sessions.archive", {**session, "is_archived": True}
    yield "sessions.update_tooling", {**session, "tooling": {}}
    yield "sessions.update_approval_settings", {**session, "auto_approved_tool_names": []}
    yield "sessions.update_approval_settings", session
    yield "sessions.search", {"query": "go", "archived": True}
    yield "sessions.delete", session
    another = stage.folder.with_name("another")
    another.mkdir()
    yield "projects.add", {"path": str(another)}
    yield "projects.remove", {"project_id": stage.project_id, "confirm": len(stage_sessions(stage))}
    yield "store.backup", {}
    yield "daemon.reload", {}
    yield "daemon.shutdown", {}


def provider_calls(pattern_id: str) -> Iterator[tuple[str, Json]]:
    """Yield calls about tools, providers and plugins."""
    mine = {"provider": "say", "id": "mine"}
    yield "providers.get", mine
    listed = {"rules": [{"kind": "tool-call"}], "auto_approved_tool_names": ["say_hello"]}
    draft = {"name": "Listed", "mode": "single", "agents": [{"id": "a", "name": "A"}], "approval_policy": listed}
    yield "patterns.save", {"pattern": draft}
    yield "tools.explain", {"pattern_id": pattern_id}
    yield "providers.save", {**mine, "record": {"tools": ["say_bye"], "token": "t0psecret"}, "revision": 1}
    yield "providers.check", mine
    yield "tools.prune", {}
    yield "providers.delete", mine
    for method in ("plugins.disable", "plugins.enable", "plugins.forget"):
        yield method, {"name": "say"}


def stage_sessions(stage: Stage) -> list[Json]:
    """Return the sessions of the stage's project."""
    found: list[Json] = stage.client.call("sessions.list", project_id=stage.project_id, archived=True)["sessions"]
    return found


@requirement("WIR-36")
def test_every_reply_and_event_has_its_declared_shape_and_holds_no_nil(stage: Stage, raw: RawClient) -> None:
    """Unknown fields would be refused by the declared types; a changing method says the number of its commit."""
    everything = stage.watch(since=0)
    used = set()
    for method, params in calls(stage):
        _, _, error, result = raw.ask(method, **params)
        assert error is None, (method, error)
        assert list(nils(result)) == [], method
        msgspec.msgpack.decode(msgpack.packb(result), type=METHODS[method].result, strict=True)
        assert method not in CHANGING or "seq" in result or method in ASKING, method
        used.add(method)
    everything.until(lambda event: bool(event["type"] == "daemon-stopping"))

    on_connection = {"hello", "events.subscribe", "events.unsubscribe"}
    assert used == set(METHODS) - on_connection
    for event in everything.heard:
        assert list(nils(event)) == [], event["type"]
        msgspec.msgpack.decode(msgpack.packb(event), type=Event, strict=True)
        assert TIME.fullmatch(event["at"])
    told = {event["type"] for event in everything.heard}
    elsewhere = {"lagged", "peer-refused", "message-delta", "config-rejected"}
    assert told == {kind.value for kind in EventType} - elsewhere


@requirement("WIR-36")
def test_a_changing_reply_carries_the_number_of_its_own_commit(stage: Stage) -> None:
    """Whoever subscribes from there hears what came after it, and nothing of it again."""
    session_id, watch = stage.session(), stage.watch()

    reply = stage.client.call("sessions.rename", session_id=session_id, title="New")

    event = watch.until(lambda heard: bool(heard["type"] == "session-updated"))
    assert (event["seq"], event["session"]) == (reply["seq"], reply["session"])
    assert stage.client.call("workspace.get")["seq"] == reply["seq"]


@requirement("APR-9")
def test_ids_are_a_kind_letter_and_sixteen_characters(stage: Stage) -> None:
    """Of every record that eryx names."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, create("made"))
    asked = watch.approvals(1)[0]
    message_id = stage.client.call("messages.list", session_id=session_id)["messages"][0]["id"]
    event_ids = [event["id"] for event in stage.timeline(run_id)]

    ids = [session_id, run_id, asked["id"], message_id, asked["session_id"], stage.project_id, *event_ids]

    assert [one for one in ids if not ID.fullmatch(one)] == []
    assert [one[0] for one in ids[:6]] == list("sramsj")


@requirement("WIR-37")
@pytest.mark.parametrize("params", [[], [{}], [[]]], ids=repr)
def test_no_arguments_can_be_written_in_three_ways(raw: RawClient, params: list[Any]) -> None:
    """Clients differ in how they send an empty map."""
    raw.send(bytes(msgpack.packb([0, 5, "projects.list", params])))

    assert raw.read()[:3] == [1, 5, None]


@requirement("WIR-37")
def test_hello_is_optional_and_can_be_repeated(raw: RawClient) -> None:
    """It names the client, and answers who serves."""
    without = raw.ask("projects.list")
    first, second = raw.ask("hello", client="editor", protocol=1), raw.ask("hello")

    assert without[2] is None
    assert first == second
    assert set(first[3]) == {"protocol", "version", "epoch", "plugins", "catalog_generation"}


@requirement("WIR-37")
@pytest.mark.parametrize(("protocol", "cure"), [(0, "update the client"), (2, "restart the daemon")])
def test_a_protocol_that_does_not_fit_says_which_side_to_restart(raw: RawClient, protocol: int, cure: str) -> None:
    """By comparing the two."""
    _, _, error, _ = raw.ask("hello", protocol=protocol)

    assert (error["code"], cure in error["message"]) == ("invalid", True)


@requirement("WIR-37")
def test_errors_come_as_text_for_clients_that_cannot_show_a_map(raw: RawClient) -> None:
    """From then on, on that connection."""
    raw.ask("hello", errors="text")

    _, _, error, _ = raw.ask("sessions.get", session_id="nothing")

    assert error == "not_found: There is no session 'nothing'."
    assert raw.ask("hello", errors="map")[2] is None
    assert raw.ask("sessions.get", session_id="nothing")[2]["code"] == "not_found"


def test_replies_come_when_they_are_ready(stage: Stage, raw: RawClient) -> None:
    """A call that waits holds up no other on its connection."""
    watch = stage.watch()
    run_id = stage.play(stage.session(), create("made"))
    asked = watch.approvals(1)[0]
    raw.send(frame("runs.wait", 1, run_id=run_id), frame("ping", 2))
    first = raw.read()

    stage.resolve(asked)

    assert first[:3] == [1, 2, None]
    assert raw.read()[3]["run"]["status"] == "completed"


def test_too_many_requests_at_once_are_busy_and_not_lost(stage: Stage, raw: RawClient) -> None:
    """With when to ask again; those in flight are answered."""
    watch = stage.watch()
    run_id = stage.play(stage.session(), create("made"))
    asked = watch.approvals(1)[0]
    raw.send(*(frame("runs.wait", number, run_id=run_id) for number in range(64)))

    raw.send(frame("ping", 99))
    refused = raw.read()
    stage.resolve(asked)
    answered = {raw.read()[1] for _ in range(64)}

    assert (refused[1], refused[2]["code"], refused[2]["data"]["retry_ms"] > 0) == (99, "busy", True)
    assert answered == set(range(64))


def test_a_number_that_is_in_flight_cannot_be_used_again(stage: Stage, raw: RawClient) -> None:
    """Nobody could tell the two answers apart."""
    watch = stage.watch()
    run_id = stage.play(stage.session(), create("made"))
    watch.approvals(1)
    raw.send(frame("runs.wait", 7, run_id=run_id))

    raw.send(frame("ping", 7))

    (refused,) = raw.rest()
    assert (refused[1], refused[2]["code"]) == (7, "bad_frame")


def test_the_interface_describes_itself(daemon: DaemonProcess) -> None:
    """Every method, event and error code."""
    described = daemon.client().call("api.describe")

    assert {method["name"] for method in described["methods"]} == set(METHODS)
    assert {error["code"] for error in described["errors"]} == set(ErrorCode)
    assert {event["type"] for event in described["events"]} == set(EventType)


@requirement("APR-2")
def test_every_event_of_a_session_carries_what_waits_in_it_as_briefs(stage: Stage) -> None:
    """Head and queue as they were at that moment; never what a call holds."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, {"calls": [create("a"), shell("echo distinct-words")]})
    for approval in watch.approvals(2):
        stage.resolve(approval)
    watch.run_ended(run_id)
    watch.until(lambda event: bool(event["type"] == "session-updated"))

    sessions = [event["session"] for event in watch.heard if event["type"] == "session-updated"]

    waiting = [("pending_approval" in one) + len(one["pending_approval_queue"]) for one in sessions]
    assert max(waiting) in (1, 2)
    assert (waiting[0], waiting[-1]) == (0, 0)
    of_sessions = [str(one.get("pending_approval")) + str(one["pending_approval_queue"]) for one in sessions]
    assert "distinct-words" not in "".join(of_sessions)
