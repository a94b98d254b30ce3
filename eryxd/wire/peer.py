"""Messages in frames: requests in; replies, errors and events out.

Law: what `decode_request` lets through holds only maps with string keys, arrays, strings, numbers and
booleans, at most `MAX_DEPTH` deep.  Refuses everything else, and never repeats what it was sent.
"""

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgpack  # type: ignore[import-untyped]
import msgspec

from eryxd.domain.errors import BadFrame, EryxError, Internal, InvalidParams
from eryxd.wire.framing import HEAD_BYTES, MAX_REPLY_BYTES
from eryxd.wire.tokens import TEXT_HEADS, WHOLE, check_values

T = TypeVar("T")

Refusal = Callable[[int, EryxError], bytes]
"""Writes an error for a message id: `encode_error` or `encode_error_text`."""

MAX_MESSAGE_ID: Final = 2**32 - 1
"""Largest message id, as MessagePack-RPC has it."""

CONNECTION: Final = 0
"""Message id of an error about the connection, or about a request whose own id could not be read."""

_MessageId = Annotated[int, msgspec.Meta(ge=0, le=MAX_MESSAGE_ID)]

_REQUEST: Final = msgspec.msgpack.Decoder(tuple[Literal[0], _MessageId, str, list[msgspec.Raw]])

_FLAT_REQUEST: Final = msgspec.msgpack.Decoder(tuple[Literal[0], _MessageId, str, list[dict[str, msgspec.Raw]]])
"""Reads the keys only to see that they are strings."""

_FLAT: Final = frozenset(bytes([0x94, 0x91, 0x80 + pairs]) for pairs in range(16))
"""What is left of a request with up to 15 arguments, none of them a container, when the harmless is removed."""

_HARMLESS: Final = bytes(b for b in range(256) if WHOLE[b] or b in TEXT_HEADS)
"""Bytes that begin a number, a boolean or a string, or lie inside one."""

_ENCODER: Final = msgspec.msgpack.Encoder()

_EMPTY_MAP: Final = b"\x80"

_EMPTY_ARRAYS: Final = frozenset({b"\x90", b"\xdc\0\0", b"\xdd\0\0\0\0"})
"""How some clients write a map without entries."""

_EVENT_HEAD: Final = msgspec.msgpack.encode((2, "event"))[1:] + b"\x91"


class Request(NamedTuple):
    """What a client asks.  `params` is one encoded map, not yet held against the method's arguments."""

    msgid: int
    method: str
    params: msgspec.Raw


def decode_request(frame: bytes) -> Request:
    """Read `[0, msgid, method, params]`, where `params` is `[]`, `[{arguments}]` or `[[]]`.

    Strings that are values in `params` are checked for UTF-8 later, by whoever decodes them.

    Raises: BadFrame -- with `msgid` in its data where that could be read; InvalidParams, with `msgid` -- a
    request whose arguments are not one map.
    """
    return _read_flat(frame) or _read_any(frame)


def message_id(head: bytes) -> int | None:
    """Return the id of the request that begins with `head`, or None.  The rest may be missing or broken."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(head)
    try:
        if unpacker.read_array_header() < 2 or unpacker.unpack() != 0:
            return None
        msgid = unpacker.unpack()
    except (ValueError, msgpack.UnpackException):
        return None
    return msgid if type(msgid) is int and 0 <= msgid <= MAX_MESSAGE_ID else None


def decode_params(raw: msgspec.Raw, kind: type[T]) -> T:
    """Read the arguments of one method, strictly.

    Raises: InvalidParams -- `path` says where, in the notation `$.agents[0].name`; BadFrame -- a string is
    not UTF-8.
    """
    try:
        return _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise _invalid(kind, str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadFrame("Text is UTF-8.") from None


def check_free_form(raw: msgspec.Raw) -> None:
    """Check a record whose shape only its plugin knows: the law of this module, UTF-8, and finite numbers.

    Raises: BadFrame; InvalidParams -- a number is infinite or not a number.
    """
    check_values(bytes(raw))
    try:
        record = msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise BadFrame("Text is UTF-8.") from None
    if not all(map(math.isfinite, _floats(record))):
        raise InvalidParams("Numbers are finite.", path="$")


def encode_error(msgid: int, error: EryxError) -> bytes:
    """Write a refusal as `{code, message, data}`."""
    return _ENCODER.encode((1, msgid, {"code": error.code, "message": error.message, "data": error.data}, None))


def encode_error_text(msgid: int, error: EryxError) -> bytes:
    """Write a refusal as `code: message`, for clients that cannot show a map."""
    return _ENCODER.encode((1, msgid, f"{error.code}: {error.message}", None))


def encode_reply(msgid: int, result: object, refuse: Refusal = encode_error) -> bytes:
    """Write the response to a request.  One over `MAX_REPLY_BYTES` becomes an `internal` error."""
    frame = _ENCODER.encode((1, msgid, None, result))
    if len(frame) <= MAX_REPLY_BYTES:
        return frame
    error = Internal("The reply does not fit into one frame.", limit_bytes=MAX_REPLY_BYTES)
    return refuse(msgid, error)


def encode_event(event: msgspec.Raw | bytes) -> bytes:
    """Wrap an event, one map that is already encoded, into its notification `[2, "event", [event]]`."""
    return b"\x93" + _EVENT_HEAD + bytes(event)


def _read_flat(frame: bytes) -> Request | None:
    """Read a request without values inside values, as most are; None for any other and for a wrong one.

    The only bytes of it that could begin a container, or what is refused, are the heads of the request, of
    its parameters and of their map.  So it nests no deeper, and where the map begins is known.
    """
    if frame.translate(None, _HARMLESS) not in _FLAT:
        return None
    try:
        _, msgid, method, _ = _FLAT_REQUEST.decode(frame)
    except msgspec.DecodeError:
        return None
    return Request(msgid, method, msgspec.Raw(frame[frame.index(0x91) + 1 :]))


def _read_any(frame: bytes) -> Request:
    """Read any request.  Raises: BadFrame, InvalidParams."""
    try:
        check_values(frame)
        _, msgid, method, params = _REQUEST.decode(frame)
    except BadFrame as error:
        raise _with_message_id(error, frame) from None
    except (msgspec.DecodeError, RecursionError):
        misshapen = BadFrame("A request is [0, msgid, method, params], all text UTF-8.")
        raise _with_message_id(misshapen, frame) from None
    return Request(msgid, method, _arguments(msgid, params))


def _with_message_id(error: BadFrame, frame: bytes) -> BadFrame:
    msgid = message_id(frame[:HEAD_BYTES])
    return error if msgid is None else BadFrame(error.message, **error.data, msgid=msgid)


def _arguments(msgid: int, params: list[msgspec.Raw]) -> msgspec.Raw:
    """Return the one map in `params`, an empty one where there is none."""
    if not params:
        return msgspec.Raw(_EMPTY_MAP)
    first = bytes(params[0])
    if len(params) == 1 and first in _EMPTY_ARRAYS:
        return msgspec.Raw(_EMPTY_MAP)
    if len(params) == 1 and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
        return params[0]
    raise InvalidParams("The arguments of a method are one map of names to values.", path="$", msgid=msgid)


_DECODERS: Final[dict[Any, msgspec.msgpack.Decoder[Any]]] = {}
"""One for each record type that was asked for: as many as there are methods."""


def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.msgpack.Decoder(kind)
    return _DECODERS[kind]


_SAFE_COMPLAINTS: Final = ("Expected `", "Object missing required field `")
"""How those complaints of msgspec begin that name types and declared fields, never what was sent."""


def _invalid(kind: type, complaint: str) -> InvalidParams:
    """Return the refusal for what msgspec complains of: `<reason> - at `<path>``, the path left out at the top."""
    reason, _, place = complaint.partition(" - at `")
    # The path of a key reads "`key` in `$.headers`".
    path = place.removesuffix("`").rpartition("` in `")[2] or "$"
    if reason.startswith("Object contains unknown field"):
        reason = f"An argument is not known here{_known(kind) if path == '$' else ''}"
    elif not reason.startswith(_SAFE_COMPLAINTS):
        reason = "The value is not one of those allowed here"
    return InvalidParams(f"{reason} (at {path}).", path=path)


def _known(kind: type) -> str:
    names = kind.__struct_encode_fields__ if issubclass(kind, msgspec.Struct) else ()
    return f"; known are: {', '.join(names)}" if names else ""


def _floats(record: Any) -> Iterator[float]:
    """Yield the floating-point numbers in a decoded record, in no particular order."""
    waiting = [record]
    while waiting:
        match waiting.pop():
            case float() as number:
                yield number
            case dict() as pairs:
                waiting.extend(pairs.values())
            case list() as items:
                waiting.extend(items)
