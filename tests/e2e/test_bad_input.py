"""Whatever is wrong with what a client sends: a coded error that names the thing, and nothing changes."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pytest
from msgspec.structs import FieldInfo, fields

from eryxd.api.access import Access
from eryxd.api.methods import METHODS, Method
from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.serving import frame
from tests.e2e.stage import Json, Stage
from tests.requirements import requirement

UNKNOWN: Final = "x" * 17
"""An id that nothing has."""

DRAFT: Final[Json] = {"name": "P", "mode": "single", "agents": [{"id": "a", "name": "A"}]}

VALID: Final[Mapping[str, Any]] = {
    "title": "A title",
    "is_pinned": True,
    "is_archived": True,
    "is_favorite": True,
    "tooling": {},
    "content": "Hello.",
    "decision": "approved",
    "query": "word",
    "path": "/no/such/folder",
    "pattern": {**DRAFT, "id": UNKNOWN},
}
"""A value for each argument that is required and no id."""

WRONG: Final[Mapping[str, Any]] = {
    "nil": None,
    "bin": b"x",
    "float": 1.5,
    "boolean": True,
    "list": [[]],
    "map": {"": {}},
    "blank": "",
    "nul": "\0",
    "negative": -1,
    "huge": 2**64 - 1,
    "long": "x" * 500_000,
}
"""Values that fit hardly anywhere."""

IDS: Final = {"session_id", "run_id", "approval_id", "pattern_id", "project_id", "backend"}

REFUSALS: Final = {
    *("invalid_params", "invalid", "bad_frame", "not_found", "read_only", "conflict"),
    "journal_gap",
}
"""What a request can be told that is at fault itself."""

NAMED: Final = [
    (method, field.encode_name) for method in METHODS.values() for field in fields(method.params) if field.name in IDS
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for all of them: whatever they send, it goes on."""
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process.start()


@pytest.fixture
def stage(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Stage]:
    """A project of the test's own."""
    with Stage(daemon, tmp_path / "project") as ready:
        yield ready


def required(method: Method) -> Json:
    """Return the least that a method can be called with; every id in it is unknown."""
    needed: list[FieldInfo] = [field for field in fields(method.params) if field.required]
    return {field.encode_name: VALID.get(field.encode_name, UNKNOWN) for field in needed}


@contextmanager
def nothing_changes(daemon: DaemonProcess) -> Iterator[Client]:
    """Lend a client; hold what the block left against what was there before, and look for cries in the log."""
    with daemon.client() as client:
        before, said = everything(client), len(daemon.log())
        yield client
        assert everything(client) == before
    assert "Traceback" not in daemon.log()[said:]


def everything(client: Client) -> Json:
    """Return all that a client can see of the state, with the number of the last event."""
    sessions = client.call("sessions.list", archived=True)["sessions"]
    return {
        "workspace": client.call("workspace.get"),
        "sessions": sessions,
        "messages": [client.call("messages.list", session_id=one["id"]) for one in sessions],
        "runs": client.call("runs.list"),
        "approvals": client.call("approvals.list", resolved=True),
    }


@requirement("WIR-35")
@pytest.mark.parametrize(("method", "name"), NAMED, ids=lambda value: getattr(value, "name", value))
def test_an_unknown_id_is_not_found_and_named(stage: Stage, daemon: DaemonProcess, method: Method, name: str) -> None:
    """For every argument of every method that is an id."""
    known = {"pattern_id": stage.pattern(), "project_id": stage.project_id, "session_id": stage.session()}
    arguments = {key: known.get(key, value) for key, value in required(method).items()}

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call(method.name, **{**arguments, name: UNKNOWN})

    assert (refused.value.code, refused.value.data["id"]) == ("not_found", UNKNOWN)
    assert UNKNOWN in refused.value.message


@requirement("WIR-35")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_an_argument_of_the_wrong_kind_is_refused(stage: Stage, daemon: DaemonProcess, method: Method) -> None:
    """For every argument of every method; never with `internal`, and never with what was sent."""
    names = [field.encode_name for field in fields(method.params)]
    with nothing_changes(daemon):
        for name in [*names, "no_such_argument"]:
            for kind, value in WRONG.items():
                if not _may_fit(method, name, kind):
                    _refused(daemon, method, {**required(method), name: value}, name, kind)
        for name in required(method):
            _refused(daemon, method, {key: value for key, value in required(method).items() if key != name}, name, "")


def _may_fit(method: Method, name: str, kind: str) -> bool:
    """Say whether a value can be right where it stands, or leads to what `daemon.shutdown` is meant to do."""
    fits = {
        "boolean": {"when_idle", "archived", "resolved", "remove_folder", "is_pinned", "is_archived", "is_favorite"},
        "float": {"timeout_s"},
        "huge": {"since", "protocol", "confirm", "offset"},
        "blank": {"backend", "topics", "cursor", "epoch", "session_id", "project_id", "path", "client"},
    }
    return name in fits.get(kind, ())


def _refused(daemon: DaemonProcess, method: Method, arguments: Json, name: str, kind: str) -> None:
    with daemon.raw() as raw:
        _, _, error, result = raw.ask(method.name, **arguments)
    told = f"{method.name} {name} {kind}: {str(error)[:500]} {str(result)[:500]}"
    if method.access not in (Access.OPEN, Access.READ):
        assert error is not None, told
    if error is not None:
        assert error["code"] in REFUSALS, told
        assert name in IDS or len(error["message"]) < 2000, told


def request(*items: Any) -> bytes:
    """Return any array as a frame."""
    return bytes(msgpack.packb(list(items)))


def nested(depth: int) -> Any:
    """Return a list in a list and so on."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


BAD_FRAMES: Final[Mapping[str, tuple[bytes, str]]] = {
    "no MessagePack": (b"\xc1", "bad_frame"),
    "a number": (b"\x07", "bad_frame"),
    "a map": (request()[:0] + msgpack.packb({"method": "ping"}), "bad_frame"),
    "text": (b"GET / HTTP/1.1\r\n\r\n", "bad_frame"),
    "nothing in it": (request(), "bad_frame"),
    "too short": (request(0, 1, "ping"), "bad_frame"),
    "too long": (request(0, 1, "ping", [], 5), "bad_frame"),
    "a response": (request(1, 1, None, "ok"), "bad_frame"),
    "a notification": (request(2, "ping", []), "bad_frame"),
    "a negative id": (request(0, -1, "ping", []), "bad_frame"),
    "an id that is text": (request(0, "1", "ping", []), "bad_frame"),
    "an id over 32 bits": (request(0, 2**32, "ping", []), "bad_frame"),
    "a method that is a number": (request(0, 1, 5, []), "bad_frame"),
    "a method that is nil": (request(0, 1, None, []), "bad_frame"),
    "parameters that are a map": (request(0, 1, "ping", {}), "bad_frame"),
    "a key that is a number": (request(0, 1, "ping", [{1: 2}]), "bad_frame"),
    "an ext type": (request(0, 1, "ping", [{"a": msgpack.ExtType(5, b"x")}]), "bad_frame"),
    "a timestamp": (request(0, 1, "ping", [{"a": msgpack.Timestamp(0)}]), "bad_frame"),
    "nil": (request(0, 1, "sessions.list", [{"cursor": None}]), "bad_frame"),
    "bin": (request(0, 1, "sessions.list", [{"cursor": b"x"}]), "bad_frame"),
    "text that is not UTF-8": (
        request(0, 1, "sessions.list", [{"cursor": "AAAA"}]).replace(b"AAAA", b"\xff\xfeAA"),
        "bad_frame",
    ),
    "too deep": (request(0, 1, "ping", [{"a": nested(40)}]), "bad_frame"),
    "far too deep": (request(0, 1, "ping")[:-1] + b"\x91" * 100_000, "bad_frame"),
    "a million arrays": (b"\x94\x00\x01\xa4ping\xdd\x00\x0f\x00\x00" + b"\x90" * 0x0F0000, "bad_frame"),
    "an endless announcement": (b"\xdd\xff\xff\xff\xff", "frame_too_large"),
    "over the limit": (request(0, 1, "ping", [{"a": "x" * 2**20}]), "frame_too_large"),
    "two maps": (request(0, 1, "ping", [{}, {}]), "invalid_params"),
    "a parameter that is text": (request(0, 1, "ping", ["x"]), "invalid_params"),
    "an unknown argument": (request(0, 1, "ping", [{"a": 1}]), "invalid_params"),
    "an unknown method": (request(0, 1, "ping.pong", []), "unknown_method"),
    "a blank method": (request(0, 1, "", []), "unknown_method"),
}

QUERIES: Final = ('"', "*", "AND", "NOT (", "a:b", "^", "é𝄞", "-", "\0zq", "x" * 500)
"""Text that means something, or too much, to a search engine."""

FATAL: Final = ("bad_frame", "frame_too_large")


@requirement("WIR-35")
@pytest.mark.parametrize(("sent", "code"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_malformed_frame_is_refused_and_harms_nobody_else(daemon: DaemonProcess, sent: bytes, code: str) -> None:
    """A broken one ends its connection, after the reason; any other leaves it as it was."""
    with nothing_changes(daemon) as client, daemon.raw() as raw:
        # The daemon may hang up before all of it was sent; its reason can be read all the same.
        with suppress(BrokenPipeError):
            raw.send(sent)
        _, _, error, _ = raw.read()
        if code in FATAL:
            assert raw.rest() == []
        else:
            assert raw.ask("ping")[2] is None
        assert client.call("ping")

    assert error["code"] == code


@requirement("WIR-35")
def test_requests_before_a_broken_frame_are_answered(daemon: DaemonProcess) -> None:
    """Even when all of it came in one piece."""
    with daemon.raw() as raw:
        raw.send(frame("ping", 7), b"\xc1", frame("ping", 8))

        first, second = raw.rest()

    assert (first[1], first[2]) == (7, None)
    assert second[2]["code"] == "bad_frame"


@requirement("RUN-1")
@pytest.mark.parametrize("content", ["", " ", "\n\t  "], ids=repr)
def test_a_blank_message_is_refused(stage: Stage, daemon: DaemonProcess, content: str) -> None:
    """No run, no message."""
    session_id = stage.session()

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content=content, plan=stage.plan({"say": "x"}))

    assert (refused.value.code, refused.value.data["problems"]) == ("invalid", ["content: is blank"])


@requirement("BKD-4")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = = 1", "line 1"),
        ('title = "x"', "step: a plan needs at least one"),
        ("[[step]]\nsay = 'x'", "title: a plan needs one"),
        ("title = 'x'\n[[step]]\nsay = 'a'\ncall = 'b'", "step 1: needs exactly one"),
        ("title = 'x'\n[[step]]\nshout = 'a'", "step 1"),
        ("title = 'x'\nagents = 2\n[[step]]\nsay = 'a'", "agents: a plan has only"),
        ("title = 'x'\n[[step]]\nagent = 'nobody'\nsay = 'a'", "no step for the agent"),
    ],
    ids=["not TOML", "no step", "no title", "two actions", "unknown action", "unknown key", "nobody's step"],
)
def test_a_plan_that_cannot_be_played_is_refused(
    stage: Stage, daemon: DaemonProcess, tmp_path: Path, text: str, problem: str
) -> None:
    """Naming the file and what is wrong with it."""
    session_id, plan = stage.session(), tmp_path / "plan.toml"
    plan.write_text(text)

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content="Go.", plan=str(plan))

    assert refused.value.code == "backend_failed"
    assert str(plan) in refused.value.message
    assert problem in refused.value.message


@requirement("BKD-4")
def test_a_missing_plan_names_the_places_looked_at(stage: Stage, daemon: DaemonProcess) -> None:
    """An absolute path, or a name among the plans of the configuration."""
    session_id = stage.session()
    named = {"/no/such/plan.toml": "/no/such/plan.toml", "absent": str(daemon.config / "plans" / "absent.toml")}

    for plan, place in named.items():
        with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
            client.call("messages.send", session_id=session_id, content="Go.", plan=plan)
        assert (refused.value.code, refused.value.data) == ("backend_failed", {"places": [place]})
        assert place in refused.value.message


@requirement("BKD-3")
def test_a_message_that_no_backend_can_answer_is_refused(stage: Stage, daemon: DaemonProcess) -> None:
    """Naming the setting; `replay` is never chosen by itself."""
    session_id = stage.session()

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content="Go.")

    assert (refused.value.code, refused.value.data["setting"]) == ("backend_unavailable", "defaults.backend")


@requirement("PRJ-1")
def test_a_project_whose_folder_vanished_is_refused(stage: Stage, daemon: DaemonProcess) -> None:
    """Naming the folder and what to type; when it is back, it works."""
    session_id, plan = stage.session(), stage.plan({"say": "Here."})
    shutil.rmtree(stage.folder)

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content="Go.", plan=plan)

    assert refused.value.code == "invalid"
    assert str(stage.folder) in refused.value.message
    assert refused.value.data["next"] == f"eryx projects remove {stage.project_id}"
    stage.folder.mkdir()
    started = stage.client.call("messages.send", session_id=session_id, content="Go.", plan=plan)
    assert stage.ended(started["run_id"])["status"] == "completed"


@requirement("PRJ-1")
def test_folders_that_cannot_be_projects_are_refused(stage: Stage, daemon: DaemonProcess, tmp_path: Path) -> None:
    """Missing, no folder, not absolute, or eryx's own, also by way of a link."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(daemon.state)
    own = [daemon.state, daemon.home, daemon.state / "scratch", tmp_path / "link", daemon.socket_path.parent]

    for path in map(str, [tmp_path / "missing", tmp_path / "file", "relative", "/", "/\0", "/" + "x" * 4000, *own]):
        with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
            client.call("projects.add", path=path)
        assert refused.value.code == "invalid", path


@pytest.mark.parametrize("path", ["relative", "/\0", "/no/such/folder/backup.db", "/" + "x" * 4000, "/"])
def test_a_backup_that_cannot_be_written_is_refused(daemon: DaemonProcess, path: str) -> None:
    """Where it was to go is at fault, not the daemon."""
    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("store.backup", path=path)

    assert refused.value.code == "invalid"


def test_a_backup_never_replaces_a_file(daemon: DaemonProcess) -> None:
    """Least of all the store."""
    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("store.backup", path=str(daemon.store_path))

    assert refused.value.code == "invalid"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: repr(query[:9]))
def test_any_text_can_be_searched_for(stage: Stage, daemon: DaemonProcess, query: str) -> None:
    """Nothing in it is an operator."""
    stage.session()

    with nothing_changes(daemon) as client:
        assert client.call("sessions.search", query=query)["sessions"] == []


@requirement("PAT-2")
def test_a_session_whose_pattern_was_deleted_is_told_so(stage: Stage, daemon: DaemonProcess) -> None:
    """It stays, and cannot run."""
    pattern_id = stage.pattern()
    session_id, plan = stage.session(pattern_id), stage.plan({"say": "x"})
    stage.client.call("patterns.delete", pattern_id=pattern_id)

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content="Go.", plan=plan)

    assert (refused.value.code, refused.value.data["id"]) == ("not_found", pattern_id)


@requirement("PAT-2")
@pytest.mark.parametrize("mode", ["concurrent", "handoff", "group-chat", "magentic"])
def test_a_pattern_of_a_mode_that_cannot_run_is_refused_with_the_reason(
    stage: Stage, daemon: DaemonProcess, mode: str
) -> None:
    """It exists and can be looked at."""
    session_id, plan = stage.session(mode), stage.plan({"say": "x"})

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call("messages.send", session_id=session_id, content="Go.", plan=plan)

    assert refused.value.code == "invalid"
    assert f"the mode '{mode}' is not part of this release" in refused.value.message


@requirement("VAL-1", "PAT-1")
def test_all_problems_of_a_pattern_are_told_at_once(stage: Stage, daemon: DaemonProcess) -> None:
    """Each with its place; a near match is named."""
    agents = [{"id": "a", "name": ""}, {"id": "a", "name": "B", "backend": "nowhere"}]
    policy = {"rules": [{"kind": "tool-call", "agent_ids": ["c"]}], "auto_approved_tool_names": ["creat", "zzz"]}

    with nothing_changes(daemon) as client, pytest.raises(RemoteError) as refused:
        client.call(
            "patterns.save", pattern={"name": " ", "mode": "single", "agents": agents, "approval_policy": policy}
        )

    problems = refused.value.data["problems"]
    places = [problem.partition(":")[0] for problem in problems]
    assert places == [
        "name",
        "agents",
        "agents[0].name",
        "agents[1].id",
        "approval_policy.rules[0].agent_ids",
        "agents[1].backend",
        "approval_policy.auto_approved_tool_names",
        "approval_policy.auto_approved_tool_names",
    ]
    assert "did you mean 'create'?" in problems[6]
