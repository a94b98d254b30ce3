"""Why a call has no result: the daemon refused, or no answer could be had.

Each says in one sentence what is wrong and, where there is one, what to type.
"""

from typing import Any

from eryxd.api.errors import EXIT_NO_DAEMON, EXIT_STATUS
from eryxd.domain.errors import ErrorCode


class ClientError(Exception):
    """No answer could be had, or the answer was a refusal.  `exit_status` is the command line's."""

    exit_status: int = EXIT_STATUS[ErrorCode.INTERNAL]


class RemoteError(ClientError):
    """A refusal: `code` (an `ErrorCode`, or what a newer daemon calls it), `message`, `data`.

    A request that cannot be put into a frame is refused here, with the code that the daemon would use.
    """

    def __init__(self, code: str, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = str(code)
        self.message = message
        self.data = data or {}
        known = next((known for known in ErrorCode if known == code), ErrorCode.INTERNAL)
        self.exit_status = EXIT_STATUS[known]


class DaemonNotRunning(ClientError):
    """Nothing listens at `path`."""

    exit_status = EXIT_NO_DAEMON

    def __init__(self, path: str) -> None:
        super().__init__(f"The daemon is not running: nothing listens on {path}.  Type: eryx daemon start")
        self.path = path


class UntrustedSocket(ClientError):
    """Someone else could stand behind the socket: nothing was sent."""

    exit_status = EXIT_STATUS[ErrorCode.FORBIDDEN_PEER]


class ConnectionLost(ClientError):
    """The connection ended before the answer; a change that was asked for may or may not have happened."""

    exit_status = EXIT_NO_DAEMON


class BadReply(ClientError):
    """What came is not a frame of the protocol, or is over `MAX_REPLY_BYTES`."""

    exit_status = EXIT_STATUS[ErrorCode.BAD_FRAME]


class TimedOut(ClientError):
    """No answer within the time; a change that was asked for may still happen."""

    exit_status = EXIT_STATUS[ErrorCode.BUSY]

    def __init__(self) -> None:
        super().__init__("The daemon did not answer in time.  See: eryx status")
