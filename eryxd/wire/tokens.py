"""The grammar of MessagePack: what the first bytes of a value say about its length.

Reads headers only and builds no value, so that a hostile frame costs no more than an honest one.
"""

from typing import Final

from eryxd.domain.errors import BadFrame

MAX_DEPTH: Final = 32
"""Deepest nesting of a request, its own array and argument map included.  Our records need six."""

MAX_VALUES: Final = 65_536
"""Most values in one request: 16 bytes of a full frame for each.  Bounds a check to some ten milliseconds."""

STRING: Final = 0
ARRAY: Final = 1
MAP: Final = 2
BIN: Final = 3
EXT: Final = 4
NIL: Final = 5
RESERVED: Final = 6
"""What a header announces.  Plain numbers: members of an enumeration double the cost of a check."""

Header = tuple[int, int, int]
"""What is announced, where its body begins, and its count: bytes of a string, bin or ext, items of an array,
keys and values of a map."""

REFUSED: Final = {
    BIN: "A request holds no bin: text is sent as a string.",
    EXT: "A request holds no ext types.",
    NIL: "A request holds no nil: what is optional is left out.",
    RESERVED: "The frame is not MessagePack.",
}
"""What no request may hold, and what its sender is told."""

TEXT_HEADS: Final = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
"""First bytes of a string: all that a key may begin with."""

_SHAPES: Final = {
    0xC0: (NIL, 0),
    0xC1: (RESERVED, 0),
    **{0xC4 + i: (BIN, 1 << i) for i in range(3)},
    **{0xC7 + i: (EXT, 1 << i) for i in range(3)},
    **{0xD4 + i: (EXT, 0) for i in range(5)},
    **{0xD9 + i: (STRING, 1 << i) for i in range(3)},
    **{0xDC + i: (ARRAY, 2 << i) for i in range(2)},
    **{0xDE + i: (MAP, 2 << i) for i in range(2)},
}
"""What is announced and how wide its count is, for first bytes that do not hold the count themselves."""


def _whole_lengths() -> bytes:
    lengths = bytearray(256)
    lengths[0x00:0x80] = bytes([1]) * 0x80
    lengths[0xA0:0xC0] = bytes(range(1, 33))
    lengths[0xC2:0xC4] = bytes([1, 1])
    lengths[0xCA:0xD4] = bytes([5, 9, 2, 3, 5, 9, 2, 3, 5, 9])
    lengths[0xE0:] = bytes([1]) * 0x20
    return bytes(lengths)


WHOLE: Final = _whole_lengths()
"""Length of a value by its first byte, for numbers, booleans and short strings; 0 means: read the header."""


def read_header(data: bytes | bytearray, at: int) -> Header | None:
    """Return the header at `at`, where `WHOLE` has 0; None when `data` ends inside it."""
    head = data[at]
    if head < 0x90:
        return MAP, at + 1, 2 * (head & 0x0F)
    if head < 0xA0:
        return ARRAY, at + 1, head & 0x0F
    form, width = _SHAPES[head]
    body_at = at + 1 + width
    if body_at > len(data):
        return None
    count = int.from_bytes(data[at + 1 : body_at], "big")
    return form, body_at, 2 * count if form == MAP else count


def check_values(frame: bytes) -> None:
    """Check that `frame` is one value of maps, arrays, strings, numbers and booleans, within the limits.

    Strings are stepped over, not decoded.

    Raises: BadFrame.
    """
    try:
        end = _pass_value(frame)
    except IndexError:
        raise BadFrame("The frame ends inside a value.") from None
    if end != len(frame):
        raise BadFrame("The frame does not end where its value ends.")


def _pass_value(frame: bytes) -> int:
    """Return where the first value of `frame` ends, having checked what is in it.

    Iterative; counts are held against `MAX_VALUES` before their values are visited.

    Raises: BadFrame; IndexError -- the frame ends first.
    """
    # Of each container that is open: how many values are left, and whether it is a map.
    outer: list[tuple[int, bool]] = []
    left, is_map, at, values = 1, False, 0, 1
    while True:
        while left:
            head = frame[at]
            # A map counts down from an even number: where that many are left, a key comes.
            if is_map and not left & 1 and head not in TEXT_HEADS:
                raise BadFrame("The keys of a map are strings.")
            left -= 1
            if step := WHOLE[head]:
                at += step
                continue
            form, at, count = _allowed(frame, at)
            if form == STRING:
                at += count
                continue
            values += count
            if values > MAX_VALUES or len(outer) >= MAX_DEPTH:
                raise _over_limit(values)
            outer.append((left, is_map))
            left, is_map = count, form == MAP
        if not outer:
            return at
        left, is_map = outer.pop()


def _allowed(frame: bytes, at: int) -> Header:
    header = read_header(frame, at)
    if header is None:
        raise BadFrame("The frame ends inside a value.")
    if header[0] in REFUSED:
        raise BadFrame(REFUSED[header[0]])
    return header


def _over_limit(values: int) -> BadFrame:
    if values > MAX_VALUES:
        return BadFrame(f"A request holds at most {MAX_VALUES} values.", limit=MAX_VALUES)
    return BadFrame(f"A request nests at most {MAX_DEPTH} deep.", limit=MAX_DEPTH)
