"""The socket side of the daemon, through real sockets and plain msgpack clients."""

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest

from eryxd.daemon.server import Limits
from tests.e2e.serving import LOOPS, PATIENCE_S, Client, House, code_of, frame, result, serving
from tests.requirements import requirement

Start = Callable[..., House]


@pytest.fixture(params=LOOPS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start the server with limits of the test's own."""
    with ExitStack() as stack:

        def start_server(own_uid: int = os.getuid(), **limits: float) -> House:
            chosen = Limits(**limits)  # type: ignore[arg-type]
            return stack.enter_context(serving(tmp_path / "run", request.param, chosen, own_uid))

        yield start_server


@requirement("WIR-12")
def test_pipelined_requests_are_answered_in_the_order_in_which_they_are_ready(start: Start) -> None:
    client = start().client()
    client.send(frame("later", 1), frame("echo", 2, a=1), frame("later", 3), frame("release", 4))

    assert [client.read() for _ in range(4)] == [
        result({"a": 1}, 2),
        result("released", 1),
        result("released", 3),
        result(True, 4),
    ]


@requirement("WIR-1", "WIR-12")
def test_a_request_may_come_byte_by_byte(start: Start) -> None:
    client = start().client()
    for byte in frame("echo", a="é" * 50):
        client.send(bytes([byte]))

    assert client.read() == result({"a": "é" * 50})


@requirement("WIR-2", "WIR-12")
def test_a_request_of_the_largest_size_is_served(start: Start) -> None:
    client = start().client()
    text = "x" * (2**20 - len(frame("echo", a="")) - 4)
    assert len(frame("echo", a=text)) == 2**20

    assert client.ask("echo", a=text) == result({"a": text})


@requirement("WIR-12")
def test_a_request_too_many_in_flight_is_busy_and_the_others_are_served(start: Start) -> None:
    client = start(in_flight=3).client()
    client.send(*(frame("later", msgid) for msgid in range(1, 5)))
    busy = client.read()

    assert code_of(busy) == (4, "busy")
    assert busy[2]["data"]["retry_ms"] > 0


@requirement("WIR-12")
def test_what_was_answered_is_in_flight_no_more(start: Start) -> None:
    client = start(in_flight=2).client()
    client.send(*(frame("echo", msgid) for msgid in range(100)))

    assert [client.read() for _ in range(100)] == [result({}, msgid) for msgid in range(100)]


@requirement("WIR-12")
def test_an_id_that_is_still_in_flight_ends_the_connection(start: Start) -> None:
    """Its sender could not tell which of the two was refused."""
    client = start().client()
    client.send(frame("later", 7), frame("echo", 7))

    assert [code_of(response) for response in client.rest()] == [(7, "bad_frame")]


@requirement("WIR-12")
def test_events_and_replies_keep_their_order(start: Start) -> None:
    client = start().client()
    client.send(frame("events", before=2))

    assert [client.read() for _ in range(4)] == [
        [2, "event", [{"seq": 0}]],
        [2, "event", [{"seq": 1}]],
        result("subscribed"),
        [2, "event", [{"seq": "after"}]],
    ]


@requirement("WIR-12", "WIR-17")
def test_a_second_answer_is_dropped(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    client = start().client()
    client.send(frame("twice", 1), frame("echo", 2))

    assert [client.read(), client.read()] == [result("first", 1), result({}, 2)]
    assert "answered twice" in caplog.text


@requirement("WIR-13")
@pytest.mark.parametrize("limits", [{"connections": 2}, {"per_peer": 2}])
def test_a_connection_too_many_is_told_so_and_closed(start: Start, limits: dict[str, int]) -> None:
    house = start(**limits)
    first, second = house.client(), house.client()
    (refused,) = house.stranger().rest()

    assert code_of(refused) == (0, "busy")
    assert refused[2]["data"]["retry_ms"] > 0
    assert [first.ask("echo"), second.ask("echo")] == [result({}), result({})]
    first.sock.close()
    house.wait_until_left()
    assert house.client().ask("echo") == result({})


@requirement("WIR-13")
def test_a_flood_fills_neither_the_log_nor_the_descriptors(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    house = start(connections=2)
    client = house.client()
    house.client()
    for _ in range(300):
        house.stranger()

    assert client.ask("echo") == result({})
    assert len(caplog.records) == 1


@requirement("WIR-13")
def test_half_of_the_descriptors_are_kept_for_others(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Above what this process has open already: the server must still be able to make its own.
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        house = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for _ in range(32):
        house.client()

    assert code_of(house.stranger().read()) == (0, "busy")


@requirement("WIR-13")
def test_another_user_is_refused_before_it_is_heard(start: Start) -> None:
    house = start(own_uid=os.getuid() + 1)
    (refused,) = house.stranger().rest()

    assert code_of(refused) == (0, "forbidden_peer")
    assert refused[2]["data"] == {"check": "uid", "pid": os.getpid()}
    assert house.handler.arrived.empty()


@requirement("WIR-14")
def test_a_frame_that_does_not_end_is_closed_without_an_answer(start: Start) -> None:
    client = start(incomplete_s=0.05).client()
    client.send(frame("echo", 1), frame("echo", 2)[:-1])

    assert client.rest() == [result({}, 1)]


@requirement("WIR-14")
def test_time_counts_from_the_first_byte_of_a_frame_and_only_while_it_is_open(start: Start) -> None:
    """Timers of one length fire in the order in which they were set."""
    house = start(incomplete_s=0.3)
    done, slow, slower = house.client(), house.client(), house.client()
    done.send(frame("echo")[:-1])
    done.send(frame("echo")[-1:])
    assert done.read() == result({})

    slow.send(frame("echo")[:2])
    house.inside(lambda: None)
    slower.send(frame("echo")[:1])
    house.inside(lambda: None)
    slow.send(frame("echo")[2:3])

    assert slower.rest() == []
    slow.sock.setblocking(False)
    assert slow.sock.recv(1) == b""
    assert done.ask("echo") == result({})


ECHO = b"\x94\x00\x09\xa4echo"
"""How a request with message id 9 begins; its parameters are to follow."""

BROKEN = {
    "no-messagepack": (b"\xc1", 0, "bad_frame"),
    "http": (b"GET / HTTP/1.1\r\n\r\n", 0, "bad_frame"),
    "notification": (msgpack.packb([2, "event", []]), 0, "bad_frame"),
    "no-messagepack-inside": (ECHO + b"\x91\xc1", 9, "bad_frame"),
    "nil": (ECHO + b"\x91\xc0", 9, "bad_frame"),
    "bin": (ECHO + msgpack.packb([{"a": [[b"bin"]]}]), 9, "bad_frame"),
    "key": (ECHO + msgpack.packb([{"a": {1: 2}}]), 9, "bad_frame"),
    "deep": (ECHO + b"\x91" * 33 + b"\x01", 9, "bad_frame"),
    "very-deep": (ECHO + b"\x91" * 100_000, 9, "bad_frame"),
    "many": (ECHO + b"\x91\xdd\x00\x0f\x00\x00" + b"\x90" * 0xF0000, 9, "bad_frame"),
    "announced": (ECHO + b"\xdb\xff\xff\xff\xff", 9, "frame_too_large"),
    "announced-at-once": (b"\xdd\xff\xff\xff\xff", 0, "frame_too_large"),
    "large": (ECHO + b"\x91\x81\xa1a\xdb\x00\x10\x00\x00" + b"x" * 2**20, 9, "frame_too_large"),
}


@requirement("WIR-2", "WIR-15")
@pytest.mark.parametrize("kind", BROKEN)
def test_after_a_broken_frame_nothing_is_read(start: Start, kind: str) -> None:
    """What came before is served; the answer has the message id, where it could be read; then it is closed."""
    broken, msgid, code = BROKEN[kind]
    house = start()
    client = house.client()
    try:
        client.send(frame("echo", 1), broken, frame("echo", 2))
    except (BrokenPipeError, ConnectionResetError):
        # The daemon had seen enough before all was sent.
        assert code == "frame_too_large"
    answered, refused = client.rest()

    assert answered == result({}, 1)
    assert code_of(refused) == (msgid, code)
    assert house.handler.served == 1
    assert house.client().ask("echo") == result({})


@requirement("WIR-4", "WIR-15")
def test_positional_arguments_do_not_end_the_connection(start: Start) -> None:
    client = start().client()
    client.send(msgpack.packb([0, 9, "echo", ["s1"]]), frame("echo"))

    assert code_of(client.read()) == (9, "invalid_params")
    assert client.read() == result({})


@requirement("WIR-16")
def test_a_client_that_does_not_read_is_not_read_from(start: Start) -> None:
    house = start()
    lazy, other = house.client(), house.client()
    lazy.send(*(frame("big", msgid, size=2**20) for msgid in range(40)))
    for _ in range(10):
        assert other.ask("echo") == result({})

    assert house.handler.served - 10 < 5
    assert [lazy.read()[1] for _ in range(40)] == list(range(40))


@requirement("WIR-16")
def test_a_client_that_is_sent_more_than_it_reads_is_cut_off(start: Start) -> None:
    house = start(unread_bytes=2**20)
    lazy = house.stranger()
    conn = house.handler.arrived.get(timeout=PATIENCE_S)
    other = house.client()

    def send_much() -> None:
        for _ in range(20):
            conn.send(b"\xc0" * 2**18)

    house.inside(send_much)

    assert house.wait_until_left() is conn
    assert (conn.closed, conn.write_buffer_size()) == (True, 0)
    assert other.ask("echo") == result({})
    assert len(lazy.rest()) < 20 * 2**18


@requirement("WIR-17")
def test_a_refusal_carries_code_message_and_data(start: Start) -> None:
    refused = {"code": "conflict", "message": "Changed meanwhile.", "data": {"revision": 2}}

    assert start().client().ask("refuse") == [1, 1, refused, None]


@requirement("WIR-17")
def test_a_client_may_ask_for_errors_as_text(start: Start) -> None:
    client = start().client()
    client.ask("text")

    assert client.ask("refuse") == [1, 1, "conflict: Changed meanwhile.", None]
    assert client.ask("big", size=2**23) == [1, 1, "internal: The reply does not fit into one frame.", None]


@requirement("WIR-17")
@pytest.mark.parametrize("method", ["crash", "odd", "odd_refusal", "unheard_of"])
def test_a_fault_inside_is_internal_and_tells_nothing(
    start: Start, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = start().client()
    refused = client.ask(method)

    assert code_of(refused) == (1, "internal")
    assert refused[2]["data"] == {}
    assert not {"secret", "object", "Rehearsal"} & set(refused[2]["message"].split())
    assert [record.name for record in caplog.records] == ["eryxd.server"]
    assert caplog.records[0].exc_info
    assert client.ask("echo") == result({})


@requirement("WIR-17")
def test_a_fault_after_the_answer_changes_nothing(start: Start) -> None:
    client = start().client()

    assert [client.ask("crash_late"), client.ask("echo")] == [result("answered"), result({})]


@requirement("WIR-18")
def test_a_client_that_has_said_all_gets_its_answers(start: Start) -> None:
    """`printf … | nc -U` ends its side at once."""
    house = start()
    client, other = house.client(), house.client()
    client.send(frame("echo", 1), frame("later", 2), frame("big", 3, size=2**22), frame("echo", 4)[:3])
    client.sock.shutdown(socket.SHUT_WR)
    assert [client.read()[1] for _ in range(2)] == [1, 3]
    other.ask("release")

    assert client.rest() == [result("released", 2)]


@requirement("WIR-18")
def test_a_client_that_has_gone_is_forgotten_though_it_waits_for_an_answer(start: Start) -> None:
    """An answer can be hours away."""
    house = start()
    client, other = house.client(), house.client()
    client.send(frame("later"))
    other.ask("echo")
    client.sock.close()

    assert house.wait_until_left().closed
    assert other.ask("release") == result(True)


@requirement("WIR-18")
def test_the_handler_may_hang_up_after_an_answer(start: Start) -> None:
    client = start().client()
    client.send(frame("hang_up", 1), frame("echo", 2))

    assert client.rest() == [result("bye")]


@requirement("WIR-19")
def test_stopping_sends_what_is_written_and_takes_nobody_in(start: Start) -> None:
    house = start()
    client = house.client()
    client.send(frame("later", 1), frame("big", 2, size=2**20), frame("release", 3))
    client.read()
    house.run(house.server.stop)

    assert [response[1] for response in client.rest()] == [1, 3]
    with pytest.raises(ConnectionRefusedError):
        Client(house.path)
    assert house.path.is_socket()


@requirement("WIR-19")
def test_stopping_does_not_wait_for_a_client_that_does_not_read(start: Start) -> None:
    house = start(linger_s=0.05)
    house.client().send(frame("big", size=2**22))
    house.client().ask("echo")
    house.run(house.server.stop)

    assert {house.wait_until_left().closed, house.wait_until_left().closed} == {True}
