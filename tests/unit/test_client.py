"""The blocking client against a small daemon that works: calls, a busy daemon, and what it costs."""

import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eryxd.api.errors import EXIT_STATUS
from eryxd.api.methods import PROTOCOL as DAEMON_PROTOCOL
from eryxd.client.channel import MAX_REQUEST_BYTES
from eryxd.client.client import (
    PROTOCOL,
    Client,
    ConnectionLost,
    RemoteError,
    TimedOut,
)
from eryxd.domain.errors import ErrorCode
from tests.requirements import requirement
from tests.unit.fake_daemon import FakeDaemon, HangUp, NoAnswer, Peer, Refuse


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A runtime folder as the daemon makes it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


def echo(_peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
    return params


def silence(_peer: Peer, _params: dict[str, Any]) -> None:
    raise NoAnswer


def test_client_greets_with_its_name_and_protocol(run: Path) -> None:
    """`resolved_by` shows the name; a protocol that does not fit is the daemon's to refuse."""
    with FakeDaemon(run) as daemon, Client.connect(daemon.path, name="probe"):
        pass

    (hello,) = daemon.asked
    assert hello == ("hello", {"client": "probe", "version": hello[1]["version"], "protocol": DAEMON_PROTOCOL})
    assert PROTOCOL == DAEMON_PROTOCOL


def test_calls_share_one_connection(run: Path) -> None:
    """Connecting is the dear part of a call."""
    with FakeDaemon(run) as daemon, Client.connect(daemon.path) as client:
        assert client.call("ping") == client.call("ping")

    assert (daemon.methods(), daemon.connections) == (["hello", "ping", "ping"], 1)


@requirement("POL-5")
def test_none_is_left_out_and_empty_is_not(run: Path) -> None:
    """Absent and empty are two decisions; nil is none."""
    with FakeDaemon(run, {"echo": echo}) as daemon, Client.connect(daemon.path) as client:
        assert client.call("echo", absent=None, empty=[], text="", no=False, method="m") == {
            "empty": [],
            "text": "",
            "no": False,
            "method": "m",
        }


@requirement("WIR-22")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"code": "conflict", "message": "Too late.", "data": {"revision": 3}},
            ("conflict", "Too late.", {"revision": 3}, EXIT_STATUS[ErrorCode.CONFLICT]),
        ),
        ({"code": "brand_new", "message": "M"}, ("brand_new", "M", {}, EXIT_STATUS[ErrorCode.INTERNAL])),
        ({"code": "invalid", "message": "M", "data": None}, ("invalid", "M", {}, EXIT_STATUS[ErrorCode.INVALID])),
        ({}, ("internal", "", {}, EXIT_STATUS[ErrorCode.INTERNAL])),
        ("not_found: No: none.", ("not_found", "No: none.", {}, EXIT_STATUS[ErrorCode.NOT_FOUND])),
        ("went wrong", ("internal", "went wrong", {}, EXIT_STATUS[ErrorCode.INTERNAL])),
    ],
)
def test_refusals_are_errors_with_code_message_and_data(
    run: Path, error: Any, expected: tuple[str, str, dict[str, Any], int]
) -> None:
    """As a map or as text, also with a code that this client has never heard of."""

    def refuse(_peer: Peer, _params: dict[str, Any]) -> None:
        raise Refuse(error)

    with FakeDaemon(run, {"do": refuse}) as daemon, Client.connect(daemon.path) as client:
        with pytest.raises(RemoteError) as caught:
            client.call("do")
        assert client.call("ping")

    refusal = caught.value
    assert (refusal.code, refusal.message, refusal.data, refusal.exit_status) == expected


def test_refusal_that_closes_the_connection_leaves_a_usable_client(run: Path) -> None:
    """After `bad_frame` the daemon hangs up; the next call opens another connection."""

    def refuse(peer: Peer, _params: dict[str, Any]) -> None:
        peer.send([1, None, {"code": "bad_frame", "message": "M", "data": {}}, None])
        raise HangUp

    with FakeDaemon(run, {"do": refuse}) as daemon, Client.connect(daemon.path) as client:
        with pytest.raises(RemoteError, match="bad_frame"):
            client.call("do")
        assert client.call("ping")


def test_lost_connection_is_an_error_and_the_next_call_opens_another(run: Path) -> None:
    """A change may have happened, so it is not asked for twice."""

    def hang_up(_peer: Peer, _params: dict[str, Any]) -> None:
        raise HangUp

    with FakeDaemon(run, {"do": hang_up}) as daemon, Client.connect(daemon.path) as client:
        with pytest.raises(ConnectionLost):
            client.call("do")
        assert client.call("ping")

    assert Counter(daemon.methods())["do"] == 1


def test_late_reply_never_meets_another_request(run: Path) -> None:
    """The connection of a call that timed out is not used again."""
    with FakeDaemon(run, {"do": silence}) as daemon, Client.connect(daemon.path) as client:
        with pytest.raises(TimedOut):
            client.request("do", {}, timeout_s=0.01)
        assert client.call("ping")

    assert daemon.connections == 2


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_time_that_is_up_is_a_time_out(run: Path, timeout_s: float) -> None:
    """Zero must not turn the socket into one that does not block."""
    with FakeDaemon(run) as daemon, Client.connect(daemon.path) as client, pytest.raises(TimedOut):
        client.request("ping", {}, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("argument", "code"),
    [("\udcff", "invalid_params"), (1 << 64, "invalid_params"), ("x" * MAX_REQUEST_BYTES, "frame_too_large")],
)
def test_request_that_cannot_be_sent_is_refused_here(run: Path, argument: Any, code: str) -> None:
    """Bytes of a command line that are not UTF-8, say.  Nothing is sent."""
    with FakeDaemon(run, {"echo": echo}) as daemon, Client.connect(daemon.path) as client:
        with pytest.raises(RemoteError) as caught:
            client.call("echo", argument=argument)
        assert client.call("ping")

    assert caught.value.code == code
    assert "echo" not in daemon.methods()


def busy(times: int, answer: Any = "done") -> Any:
    """A handler that is busy so many times."""
    left = [times]

    def handle(_peer: Peer, _params: dict[str, Any]) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise Refuse({"code": "busy", "message": "Later.", "data": {"retry_ms": 1}})
        return answer

    return handle


@requirement("WIR-23")
def test_busy_call_is_asked_again(run: Path) -> None:
    """The person sees a slow answer, not a refusal."""
    with FakeDaemon(run, {"do": busy(3)}) as daemon, Client.connect(daemon.path) as client:
        assert client.call("do") == "done"

    assert daemon.methods() == ["hello", "do", "do", "do", "do"]


@requirement("WIR-23")
def test_connection_over_the_limit_is_tried_again(run: Path) -> None:
    """The daemon says `busy` before it has read anything, and hangs up."""
    refused = [3]

    def hello(peer: Peer, _params: dict[str, Any]) -> dict[str, Any]:
        refused[0] -= 1
        if refused[0] >= 0:
            peer.send([1, None, {"code": "busy", "message": "Full.", "data": {"retry_ms": 1}}, None])
            raise HangUp
        return {}

    with FakeDaemon(run, {"hello": hello}) as daemon, Client.connect(daemon.path) as client:
        assert client.call("ping")

    assert daemon.connections == 4


@requirement("WIR-23")
def test_patience_ends(run: Path) -> None:
    """A daemon that stays busy is told to the caller."""
    with (
        FakeDaemon(run, {"do": busy(1_000_000)}) as daemon,
        Client.connect(daemon.path, patience_s=0.02) as client,
        pytest.raises(RemoteError, match="busy"),
    ):
        client.call("do")


@requirement("WIR-23")
def test_busy_without_a_time_is_not_asked_again(run: Path) -> None:
    """Only a daemon that says when wants to be asked again."""

    def refuse(_peer: Peer, _params: dict[str, Any]) -> None:
        raise Refuse({"code": "busy", "message": "No.", "data": {}})

    with (
        FakeDaemon(run, {"do": refuse}) as daemon,
        Client.connect(daemon.path) as client,
        pytest.raises(RemoteError, match="busy"),
    ):
        client.call("do")

    assert daemon.methods() == ["hello", "do"]


@requirement("WIR-23")
def test_full_backlog_is_busy_and_not_a_missing_daemon(run: Path) -> None:
    """The kernel answers EAGAIN at once; the daemon is alive and only behind."""
    path = str(run / "eryxd.sock")
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as waiting,
    ):
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        with pytest.raises(RemoteError, match="busy"):
            Client.connect(path, patience_s=0.02)


HEAVY = {
    *("asyncio", "msgspec", "typer", "json", "logging", "subprocess", "importlib.metadata", "pluggy", "rich"),
    *("platformdirs", "pathlib", "inspect", "dataclasses", "pydantic", "random", "tempfile"),
}
"""What no client command may import (architecture, 12)."""


USE = """
import sys
before = set(sys.modules)
from eryxd.client.client import Client
from eryxd.client.follow import follow_run
with Client.connect(sys.argv[1]) as client:
    client.call("ping")
print("\\n".join(set(sys.modules) - before))
"""


@requirement("CLI-20")
def test_client_imports_nothing_heavy(run: Path) -> None:
    """Each of these costs more than the whole rest of a quick command; counted after real use."""
    root = Path(__file__).parents[2]
    with FakeDaemon(run) as daemon:
        used = subprocess.run(
            [sys.executable, "-c", USE, daemon.path], cwd=root, capture_output=True, text=True, timeout=30
        )
    loaded = set(used.stdout.split())

    assert used.returncode == 0, used.stderr
    assert "eryxd.client.follow" in loaded
    assert loaded & HEAVY == set()
    assert {name for name in loaded if name.startswith("eryxd.")} == {
        "eryxd.api",
        "eryxd.api.errors",
        "eryxd.client",
        "eryxd.client.channel",
        "eryxd.client.client",
        "eryxd.client.dial",
        "eryxd.client.errors",
        "eryxd.client.follow",
        "eryxd.domain",
        "eryxd.domain.errors",
        "eryxd.paths",
    }
