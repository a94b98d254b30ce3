"""Error codes as the socket and the command line show them: each with its exit status.

Free of msgspec: every client command imports it.
"""

from typing import Final

from eryxd.domain.errors import ErrorCode

EXIT_STATUS: Final[dict[ErrorCode, int]] = {
    ErrorCode.INTERNAL: 70,
    ErrorCode.BAD_FRAME: 76,
    ErrorCode.FRAME_TOO_LARGE: 76,
    ErrorCode.UNKNOWN_METHOD: 76,
    ErrorCode.INVALID_PARAMS: 64,
    ErrorCode.INVALID: 65,
    ErrorCode.NOT_FOUND: 66,
    ErrorCode.CONFLICT: 10,
    ErrorCode.READ_ONLY: 11,
    ErrorCode.SESSION_RUNNING: 12,
    ErrorCode.APPROVAL_NOT_ACTIVE: 13,
    ErrorCode.JOURNAL_GAP: 14,
    ErrorCode.FORBIDDEN_PEER: 77,
    ErrorCode.BUSY: 75,
    ErrorCode.SHUTTING_DOWN: 75,
    ErrorCode.BACKEND_UNAVAILABLE: 69,
    ErrorCode.BACKEND_FAILED: 15,
    ErrorCode.PROVIDER_FAILED: 16,
    ErrorCode.STORE_UNAVAILABLE: 74,
}
"""The command line's exit status for each code: sysexits where one fits, 10 to 16 for what is ours."""

EXIT_NO_DAEMON: Final = 69
"""Nothing listens on the socket."""

EXIT_RUN_FAILED: Final = 1
"""`eryx run` followed a run that ended in error."""

EXIT_RUN_CANCELLED: Final = 130
"""`eryx run` followed a run that was cancelled."""
