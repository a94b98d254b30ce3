"""Error codes and the errors of the rules.

Codes are stable strings, declared once, here.  This module imports nothing but the standard library's
cheapest, because every client command reads it.
"""

from enum import StrEnum
from typing import ClassVar, Final


class ErrorCode(StrEnum):
    """A stable reason that a client may branch on.  Messages are for people and may change."""

    BAD_FRAME = "bad_frame"
    FRAME_TOO_LARGE = "frame_too_large"
    READ_ONLY = "read_only"
    JOURNAL_GAP = "journal_gap"
    UNKNOWN_METHOD = "unknown_method"
    INVALID_PARAMS = "invalid_params"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    SESSION_RUNNING = "session_running"
    APPROVAL_NOT_ACTIVE = "approval_not_active"
    FORBIDDEN_PEER = "forbidden_peer"
    BUSY = "busy"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    BACKEND_FAILED = "backend_failed"
    PROVIDER_FAILED = "provider_failed"
    STORE_UNAVAILABLE = "store_unavailable"
    SHUTTING_DOWN = "shutting_down"
    INTERNAL = "internal"


MAX_TEXT: Final = 4096
MAX_PROBLEMS: Final = 100
"""Longest message, in characters, and most problems that one error tells: more than anybody mends at once."""


class EryxError(Exception):
    """Anything that a caller is told about: a code, a sentence for a person, and data for a program."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(self, message: str, **data: object) -> None:
        message = _cut(message)
        super().__init__(message)
        self.message = message
        self.data = data
        problems = data.get("problems")
        if isinstance(problems, list | tuple):
            shown = [_cut(each) if isinstance(each, str) else each for each in problems[:MAX_PROBLEMS]]
            more = len(problems) - len(shown)
            self.data["problems"] = [*shown, f"and {more} more"] if more else shown


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


class Internal(EryxError):
    """Something went wrong inside the daemon; its log says what.  Nothing was granted."""

    code = ErrorCode.INTERNAL


class Invalid(EryxError):
    """The request is well formed and breaks a rule.  `problems` in the data lists every one of them."""

    code = ErrorCode.INVALID


class InvalidParams(EryxError):
    """The arguments do not have the shape that the method declares."""

    code = ErrorCode.INVALID_PARAMS


class UnknownMethod(EryxError):
    """No such method in the table."""

    code = ErrorCode.UNKNOWN_METHOD


class NotFound(EryxError):
    """No record of that id."""

    code = ErrorCode.NOT_FOUND


class Conflict(EryxError):
    """What the caller last saw is not what is there now."""

    code = ErrorCode.CONFLICT


class ReadOnly(EryxError):
    """The record belongs to the code or to a file, not to the API."""

    code = ErrorCode.READ_ONLY


class SessionRunning(EryxError):
    """The session has a run that has not ended."""

    code = ErrorCode.SESSION_RUNNING


class ApprovalNotActive(EryxError):
    """The approval was already resolved, or its run ended."""

    code = ErrorCode.APPROVAL_NOT_ACTIVE


class ForbiddenPeer(EryxError):
    """The peer carries the mark of an agent, or its identity could not be established."""

    code = ErrorCode.FORBIDDEN_PEER


class Busy(EryxError):
    """A limit was reached.  `retry_ms` in the data says when to try again."""

    code = ErrorCode.BUSY


class JournalGap(EryxError):
    """The journal no longer reaches back to `since`, or the store is another one: take a snapshot."""

    code = ErrorCode.JOURNAL_GAP


class BackendUnavailable(EryxError):
    """No backend can be chosen for an agent."""

    code = ErrorCode.BACKEND_UNAVAILABLE


class BackendFailed(EryxError):
    """The backend was chosen and could not do its work."""

    code = ErrorCode.BACKEND_FAILED


class ProviderFailed(EryxError):
    """A tool provider was asked and could not answer."""

    code = ErrorCode.PROVIDER_FAILED


class StoreUnavailable(EryxError):
    """The disk refused; nothing took effect."""

    code = ErrorCode.STORE_UNAVAILABLE


class ShuttingDown(EryxError):
    """The daemon is stopping and starts nothing new."""

    code = ErrorCode.SHUTTING_DOWN


class BadFrame(EryxError):
    """The bytes are not a request."""

    code = ErrorCode.BAD_FRAME


class FrameTooLarge(EryxError):
    """One frame is over the limit of its direction."""

    code = ErrorCode.FRAME_TOO_LARGE
