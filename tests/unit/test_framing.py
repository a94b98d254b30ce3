"""Frames: their limit, what is delivered before a fault, and what a fault leaves behind."""

import msgpack  # type: ignore[import-untyped]
import pytest

from eryxd.domain.errors import BadFrame, EryxError, FrameTooLarge
from eryxd.wire.framing import KEPT_BYTES, MAX_REQUEST_BYTES, FrameReader
from eryxd.wire.peer import message_id
from tests.requirements import requirement

PING = bytes(msgpack.packb([0, 1, "ping", []]))


def text_frame(size: int) -> bytes:
    """A frame of exactly `size` bytes: an array of one long string."""
    return b"\x91\xdb" + (size - 6).to_bytes(4, "big") + b"a" * (size - 6)


def refusal_of(stream: bytes, limit: int = MAX_REQUEST_BYTES) -> EryxError | None:
    reader = FrameReader(limit)
    reader.feed(stream)
    return reader.failure


@requirement("WIR-1")
def test_a_frame_is_delivered_by_its_last_byte() -> None:
    reader = FrameReader()

    assert [reader.feed(PING[i : i + 1]) for i in range(len(PING))] == [[]] * (len(PING) - 1) + [[PING]]
    assert not reader.incomplete


@requirement("WIR-1")
def test_the_memory_that_was_fed_may_be_reused() -> None:
    """The server reads into one buffer for all connections."""
    buffer = bytearray(PING + PING[:4])
    reader = FrameReader()
    frames = reader.feed(memoryview(buffer))
    buffer[:] = b"\xc1" * len(buffer)

    assert frames + reader.feed(PING[4:]) == [PING, PING]


@requirement("WIR-1")
def test_frames_before_the_fault_are_delivered_and_none_after_it() -> None:
    reader = FrameReader()

    assert reader.feed(PING + PING + b"\xc1" + PING) == [PING, PING]
    assert isinstance(reader.failure, BadFrame)
    assert reader.feed(PING) == []


@requirement("WIR-2")
def test_a_frame_of_the_limit_fits_and_one_byte_more_does_not() -> None:
    assert FrameReader().feed(text_frame(MAX_REQUEST_BYTES)) == [text_frame(MAX_REQUEST_BYTES)]

    failure = refusal_of(text_frame(MAX_REQUEST_BYTES + 1))
    assert isinstance(failure, FrameTooLarge)
    assert failure.data == {"limit_bytes": MAX_REQUEST_BYTES}


@requirement("WIR-2")
@pytest.mark.parametrize(
    "announced", [b"\xdb\xff\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\0\x10\0\0"]
)
@pytest.mark.parametrize("before", [b"", b"\x94\x00\x07\xa4ping\x91\x81\xa4text"])
def test_a_length_that_cannot_fit_is_refused_when_it_is_announced(before: bytes, announced: bytes) -> None:
    """Nothing is gathered for it."""
    assert isinstance(refusal_of(before + announced), FrameTooLarge)


@requirement("WIR-2")
def test_a_length_that_fits_is_waited_for() -> None:
    """Digits of a number that look like an announcement are none."""
    assert refusal_of(b"\x92\xcf\xdb\xff\xff\xff\xff\x01\x01\x01") is None
    assert refusal_of(b"\x91\xdb\x00\x0f\xff\xfa") is None


@requirement("WIR-2")
def test_endless_values_end_at_the_limit() -> None:
    """A million empty arrays that never close."""
    assert isinstance(refusal_of(b"\xdd\x00\x0f\xff\xf0" + b"\x90" * 50, limit=50), FrameTooLarge)


@requirement("WIR-3")
def test_nesting_without_end_is_a_bad_frame() -> None:
    assert isinstance(refusal_of(b"\x91" * 100_000), BadFrame)


@requirement("WIR-4")
def test_a_broken_frame_leaves_its_head() -> None:
    """Enough to answer the request that it was."""
    reader = FrameReader()
    reader.feed(PING + b"\x94\x00\xcd\x12\x34\xa4ping\x91\xc1")

    assert message_id(reader.head) == 0x1234


@requirement("WIR-2")
def test_a_large_frame_is_not_remembered() -> None:
    """What comes after it is cut as before, though the parser was replaced."""
    large = text_frame(KEPT_BYTES + 1)

    assert FrameReader().feed(large + PING + large) == [large, PING, large]
    reader = FrameReader()
    assert [reader.feed(frame) for frame in (large, PING, large, PING)] == [[large], [PING], [large], [PING]]
