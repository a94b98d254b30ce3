"""Laws of the wire: cutting a stream into frames, and what a frame may hold."""

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, strategies as st

from eryxd.domain.errors import BadFrame
from eryxd.wire.framing import FrameReader
from eryxd.wire.peer import decode_request, message_id
from eryxd.wire.tokens import MAX_DEPTH
from tests.requirements import requirement

# Values, headers that announce little, much and too much, and bytes that are no MessagePack.
TOKENS = [
    *(bytes([b]) for b in (0x00, 0x7F, 0xE0, 0xC0, 0xC1, 0xC2, 0xC3, 0xA0)),
    *(b"\xa3abc", b"\xd9\x05hello", b"\xda\0\x02hi", b"\xdb\0\0\0\x01x", b"\xdb\0\0\0\x50", b"\xdb\xff\xff\xff\xff"),
    *(b"\xc4\x02ab", b"\xc6\xff\xff\xff\xff", b"\xc7\x01\x01a", b"\xc9\0\0\x01\0\x01", b"\xd4\x01a"),
    *(b"\xc9\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xd8" + bytes(17)),
    *(b"\x90", b"\x91", b"\x92", b"\x94", b"\xdc\0\x02", b"\xdc\0\x41", b"\xdd\0\0\0\x02", b"\xdd\xff\xff\xff\xff"),
    *(b"\x80", b"\x81", b"\x82", b"\xde\0\x01", b"\xdf\0\0\0\x01", b"\xdf\x80\0\0\0"),
    *(b"\xca\0\0\0\0", b"\xcb" + bytes(8), b"\xcf\xdb\xff\xff\xff\xff\x01\x01\x01"),
    *(b"\x91" * 40, b"\x91" * 1100),
]
streams = st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join)
limits = st.sampled_from([1, 8, 60, 64, 300, 5000])

plain = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=40)
foreign = st.none() | st.binary(max_size=4) | st.builds(msgpack.ExtType, st.integers(0, 5), st.binary(max_size=4))
values = st.recursive(
    plain | foreign,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
        | st.integers(1, 40).flatmap(lambda depth: inner.map(lambda value: nested(value, depth)))
    ),
    max_leaves=6,
)


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def read(stream: bytes, cuts: list[int], limit: int) -> tuple[list[bytes], object]:
    """Return the frames and the final failure of a stream that arrives in pieces."""
    reader = FrameReader(limit)
    frames: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += reader.feed(stream[start:end])
    failure = reader.failure
    return frames, failure and (failure.code, failure.message, failure.data)


def allowed(value: Any, depth: int) -> bool:
    """The rule, written down once more: what a request may hold, where `value` is already `depth` deep."""
    match value:
        case bool() | int() | float() | str():
            return True
        case msgpack.ExtType():
            return False
        case list():
            return depth < MAX_DEPTH and all(allowed(item, depth + 1) for item in value)
        case dict():
            names = all(isinstance(key, str) for key in value)
            return names and depth < MAX_DEPTH and all(allowed(item, depth + 1) for item in value.values())
    return False


def outcome(frame: bytes) -> object:
    """What a frame is read as, or why it is refused."""
    try:
        request = decode_request(frame)
    except BadFrame as error:
        return error.message, error.data
    return request.msgid, request.method, bytes(request.params)


@requirement("WIR-1")
@given(streams, limits, st.data())
@example(b"\x93\xc9\xff\xff\xff\xff\x01\x02", 60, None)
def test_any_chunking_gives_the_same_frames_and_failure(stream: bytes, limit: int, data: Any) -> None:
    """Law of eryxd.wire.framing: in one piece, byte by byte, and cut anywhere."""
    places = st.lists(st.integers(0, len(stream)), max_size=5).map(sorted)
    cuts = data.draw(places) if data else [6]
    whole = read(stream, [], limit)

    assert read(stream, list(range(len(stream))), limit) == whole
    assert read(stream, cuts, limit) == whole


@requirement("WIR-1")
@given(st.lists(values.map(msgpack.packb), max_size=5))
def test_frames_are_what_was_sent(sent: list[bytes]) -> None:
    assert read(b"".join(sent), [], 2**20) == (sent, None)


@requirement("WIR-1")
@given(streams, limits)
def test_no_frame_is_over_the_limit_and_none_is_invented(stream: bytes, limit: int) -> None:
    frames, _ = read(stream, [], limit)

    assert stream.startswith(b"".join(frames))
    assert all(0 < len(frame) <= limit for frame in frames)


@requirement("WIR-3")
@given(values)
def test_a_request_passes_exactly_when_it_holds_what_it_may(value: Any) -> None:
    """Law of eryxd.wire.peer, against the same rule on decoded values."""
    frame = msgpack.packb([0, 7, "ping", [{"value": value}]])
    if allowed(value, 3):
        assert bytes(decode_request(frame).params) == msgpack.packb({"value": value})
        return
    with pytest.raises(BadFrame) as caught:
        decode_request(frame)
    assert caught.value.data["msgid"] == 7


@requirement("WIR-4")
@given(st.dictionaries(st.text(max_size=4) | st.integers(0, 9), plain | foreign, max_size=20), plain)
def test_how_a_request_is_written_does_not_change_what_it_is(arguments: dict[Any, Any], msgid: Any) -> None:
    """Short requests are read on a way of their own; a longer head than needed leads to the other."""
    short = msgpack.packb([0, msgid, "ping", [arguments]])

    assert outcome(b"\xdc\0\x04" + short[1:]) == outcome(short)


@requirement("WIR-4")
@given(st.binary(max_size=40) | streams)
def test_garbage_is_a_bad_frame_or_a_request_and_nothing_else(frame: bytes) -> None:
    """No input raises anything but the errors that a client is told about."""
    message_id(frame)
    try:
        request = decode_request(frame)
    except BadFrame:
        return
    assert frame.startswith((b"\x94", b"\xdc\0\x04", b"\xdd\0\0\0\x04"))
    assert 0 <= request.msgid < 2**32
