"""Messages: requests in; replies, errors and events out."""

import math
from enum import StrEnum
from typing import Annotated, Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from eryxd.domain.errors import BadFrame, Conflict, EryxError, InvalidParams
from eryxd.wire.framing import MAX_REPLY_BYTES
from eryxd.wire.peer import (
    check_free_form,
    decode_params,
    decode_request,
    encode_error,
    encode_error_text,
    encode_event,
    encode_reply,
    message_id,
)
from eryxd.wire.tokens import MAX_DEPTH, MAX_VALUES
from tests.requirements import requirement

SECRET = "sk-secret"


class Colour(StrEnum):
    RED = "red"


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    colour: Colour = Colour.RED


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    parts: tuple[Part, ...] = ()
    labels: dict[Annotated[str, msgspec.Meta(max_length=3)], str] = {}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgpack.packb(value))


def request(params: Any = (), *, kind: Any = 0, msgid: Any = 7, method: Any = "ping") -> bytes:
    return bytes(msgpack.packb([kind, msgid, method, params]))


def refusal(frame: bytes) -> EryxError:
    with pytest.raises((BadFrame, InvalidParams)) as caught:
        decode_request(frame)
    return caught.value


@requirement("WIR-4")
@pytest.mark.parametrize(
    ("params", "arguments"), [([], {}), ([{}], {}), ([[]], {}), ([{"a": 1, "b": [{}]}], {"a": 1, "b": [{}]})]
)
def test_arguments_are_one_map(params: Any, arguments: dict[str, Any]) -> None:
    """Clients in some languages cannot write an empty map."""
    read = decode_request(request(params, msgid=2**32 - 1, method="näme"))

    assert (read.msgid, read.method, msgpack.unpackb(bytes(read.params))) == (2**32 - 1, "näme", arguments)


@requirement("WIR-4")
@pytest.mark.parametrize(
    "frame",
    [b"\xdd\0\0\0\x04\xd3\0\0\0\0\0\0\0\0\xcf\0\0\0\0\0\0\0\x07\xd9\x04ping\xdc\0\x01\xdf\0\0\0\0"]
    + [b"\x94\x00\x07\xa4ping\x91" + empty for empty in (b"\xdc\0\0", b"\xdd\0\0\0\0", b"\xde\0\0")],
)
def test_the_longest_way_to_write_a_request_is_one(frame: bytes) -> None:
    read = decode_request(frame)

    assert (read.msgid, read.method, msgpack.unpackb(bytes(read.params))) == (7, "ping", {})


@requirement("WIR-4")
@pytest.mark.parametrize("params", [["s1"], [{}, {}], [1], [[1]]])
def test_positional_arguments_are_refused_without_ending_the_connection(params: Any) -> None:
    error = refusal(request(params))

    assert isinstance(error, InvalidParams)
    assert error.data == {"path": "$", "msgid": 7}


@requirement("WIR-4")
@pytest.mark.parametrize(
    ("frame", "msgid"),
    [
        (msgpack.packb([0, 7, "ping"]), 7),
        (msgpack.packb([0, 7, "ping", [], []]), 7),
        (request({}), 7),
        (request(None), 7),
        (request(method=1), 7),
        (request(msgid=2**32), None),
        (request(msgid=-1), None),
        (request(msgid="7"), None),
        (request(msgid=True), None),
        (request(msgid=7.0), None),
        (request(msgid=None), None),
        (request(kind=1), None),
        (request(kind=3), None),
        (msgpack.packb([2, "event", []]), None),
        (msgpack.packb({"method": "ping"}), None),
        (msgpack.packb([]), None),
        (b"G", None),
        (b"", None),
        (b"\x94\x00\x07\xa2\xff\xff\x90", 7),
    ],
)
def test_what_is_no_request_is_a_bad_frame(frame: bytes, msgid: int | None) -> None:
    """With its message id where that can be read: notifications and responses of a client have none."""
    error = refusal(frame)

    assert isinstance(error, BadFrame)
    assert error.data.get("msgid") == msgid


@requirement("WIR-3")
@pytest.mark.parametrize(
    "value", [None, b"bin", msgpack.ExtType(1, b"x"), msgpack.Timestamp(1), {1: 2}, {b"k": 1}, {None: 1}]
)
def test_nil_bin_ext_and_other_keys_are_refused_anywhere(value: Any) -> None:
    assert isinstance(refusal(request([{"value": value}])), BadFrame)
    assert isinstance(refusal(request([{"value": {"deep": [[{"er": value}]]}}])), BadFrame)


@requirement("WIR-3")
def test_nesting_has_a_limit() -> None:
    """The frame's own array, the parameters and the argument map count."""
    inner = b"\x91" * (MAX_DEPTH - 3) + b"\x01"
    head = b"\x94\x00\x07\xa4ping\x91\x81\xa1a"

    assert bytes(decode_request(head + inner).params) == b"\x81\xa1a" + inner
    assert refusal(head + b"\x91" + inner).data == {"limit": MAX_DEPTH, "msgid": 7}
    assert refusal(head + b"\x91" * 1000 + b"\x01").data == {"limit": MAX_DEPTH, "msgid": 7}


@requirement("WIR-3")
def test_a_hostile_number_of_values_is_refused_by_its_header() -> None:
    """A million empty arrays are not looked at."""
    most = MAX_VALUES - 8
    fits = request([{"a": [0] * most}])
    hostile = request([{"a": [0] * (most + 1)}])

    assert decode_request(fits).msgid == 7
    assert refusal(hostile).data == {"limit": MAX_VALUES, "msgid": 7}


@requirement("WIR-3")
@pytest.mark.parametrize("cut", range(1, 30))
def test_a_frame_that_ends_early_is_a_bad_frame(cut: int) -> None:
    """Also the ext type whose length overflows in the parser that found the frame's end."""
    whole = request([{"text": "x" * 40, "list": list(range(300))}])

    assert isinstance(refusal(whole[:-cut]), BadFrame)
    assert isinstance(refusal(b"\x94\x00\x07\xa4ping\xc9\xff\xff\xff\xff"), BadFrame)
    assert isinstance(refusal(whole + b"\x01"), BadFrame)


@requirement("WIR-5")
def test_arguments_become_the_record() -> None:
    order = {"id": "o1", "parts": [{"name": "p", "colour": "red"}], "labels": {"a": "b"}}

    assert decode_params(raw(order), Order) == Order(id="o1", parts=(Part(name="p"),), labels={"a": "b"})


@requirement("WIR-5")
@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({}, "$"),
        ({"id": 1}, "$.id"),
        ({"id": None}, "$.id"),
        ({"id": SECRET, SECRET: 1}, "$"),
        ({"id": "o", "count": 0}, "$.count"),
        ({"id": "o", "count": SECRET}, "$.count"),
        ({"id": "o", "parts": [{"name": "p"}, {"name": "p", "colour": SECRET}]}, "$.parts[1].colour"),
        ({"id": "o", "parts": [{"name": "p", SECRET: 1}]}, "$.parts[0]"),
        ({"id": "o", "labels": {SECRET: "x"}}, "$.labels"),
        ([SECRET], "$"),
    ],
)
def test_a_wrong_argument_is_named_by_its_place_and_never_repeated(arguments: Any, path: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        decode_params(raw(arguments), Order)

    assert caught.value.data == {"path": path}
    assert SECRET not in caught.value.message
    assert caught.value.__cause__ is None


@requirement("WIR-5")
def test_an_unknown_argument_is_told_which_are_known() -> None:
    with pytest.raises(InvalidParams, match="known are: id, count, parts, labels"):
        decode_params(raw({"idd": "o"}), Order)


@requirement("WIR-3")
def test_text_that_is_not_utf8_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame):
        decode_params(msgspec.Raw(b"\x81\xa2id\xa2\xc3\x28"), Order)
    with pytest.raises(BadFrame):
        check_free_form(msgspec.Raw(b"\x81\xa2id\x91\xa2\xed\xa0"))


@requirement("WIR-3")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_free_form_record_holds_finite_numbers(number: float) -> None:
    check_free_form(raw({"env": {"A": "é"}, "ratios": [0.5, {"x": -1e308}]}))

    with pytest.raises(InvalidParams):
        check_free_form(raw({"ratios": [0.5, {"x": number}]}))


@requirement("WIR-3")
@pytest.mark.parametrize("value", [{"a": None}, {"a": b"b"}, {"a": msgpack.ExtType(1, b"")}, {1: 1}])
def test_a_free_form_record_holds_what_a_request_may(value: Any) -> None:
    with pytest.raises(BadFrame):
        check_free_form(raw(value))


@requirement("WIR-6")
def test_replies_are_read_by_any_messagepack_client() -> None:
    assert msgpack.unpackb(encode_reply(7, Part(name="p"))) == [1, 7, None, {"name": "p", "colour": "red"}]


@requirement("WIR-6")
def test_errors_are_a_map_or_a_line() -> None:
    error = Conflict("The pattern was changed.", revision=4, ids=["a"])
    written = {"code": "conflict", "message": "The pattern was changed.", "data": {"revision": 4, "ids": ["a"]}}

    assert msgpack.unpackb(encode_error(7, error)) == [1, 7, written, None]
    assert msgpack.unpackb(encode_error_text(7, error)) == [1, 7, "conflict: The pattern was changed.", None]


@requirement("WIR-6")
def test_an_event_is_wrapped_without_being_decoded() -> None:
    event = {"type": "run-updated", "seq": 5}

    assert msgpack.unpackb(encode_event(msgpack.packb(event))) == [2, "event", [event]]
    assert encode_event(raw(event)) == encode_event(msgpack.packb(event))


@requirement("WIR-6")
def test_a_reply_over_the_limit_is_never_sent() -> None:
    overhead = len(encode_reply(7, "x" * 2**16)) - 2**16
    fits = encode_reply(7, "x" * (MAX_REPLY_BYTES - overhead))
    assert len(fits) == MAX_REPLY_BYTES

    _, msgid, error, result = msgpack.unpackb(encode_reply(7, "x" * (MAX_REPLY_BYTES - overhead + 1)))
    assert (msgid, error["code"], error["data"], result) == (7, "internal", {"limit_bytes": MAX_REPLY_BYTES}, None)


@requirement("WIR-4")
@pytest.mark.parametrize(
    ("head", "msgid"),
    [
        (b"\x94\x00\x07", 7),
        (b"\x94\x00\xce\xff\xff\xff\xff\xc1\xc1", 2**32 - 1),
        (b"\x94\x00\xce\xff\xff\xff", None),
        (b"\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00", None),
        (b"\x94\x02\x07", None),
        (b"\x91\x00", None),
        (b"\x94\xdb\xff\xff\xff\xff", None),
        (b"\xc1", None),
        (b"\x94\x00\x81\x90\x01", None),
        (b"", None),
    ],
)
def test_a_message_id_is_read_from_the_head_alone(head: bytes, msgid: int | None) -> None:
    assert message_id(head) == msgid
