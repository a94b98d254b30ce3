"""How a command answers: a reply as text or in its wire form, and an error as one line with what to type next.

Free of typer, so that the commands which machines call often can do without it.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from eryxd.api.errors import EXIT_RUN_CANCELLED, EXIT_RUN_FAILED, EXIT_STATUS
from eryxd.cli.text import Look, here, visible
from eryxd.client.errors import ClientError, ConnectionLost, DaemonNotRunning, RemoteError, UntrustedSocket
from eryxd.domain.errors import ErrorCode, EryxError

EXIT_LEFT: Final = 130
"""Left with Ctrl-C: the shell's own number for it."""

EXIT_STILL_RUNNING: Final = 75
"""`runs wait` gave up before the run ended."""

EXIT_OF: Final = {"completed": 0, "error": EXIT_RUN_FAILED, "cancelled": EXIT_RUN_CANCELLED}
"""The exit status of a command that followed a run to its end, for how it ended."""

Reply = dict[str, Any]
"""What a method returned: plain maps."""

Text = Callable[[Any, Look], Iterable[str]]
"""How a reply reads, line by line."""


class Problem(ClientError):
    """Something that the command line refuses by itself; `hint` is a command to type."""

    def __init__(self, message: str, hint: str = "", code: ErrorCode = ErrorCode.INVALID_PARAMS, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.data = data
        self.exit_status = EXIT_STATUS[code]


HINTS: Final[dict[str, str]] = {
    # This release has no other backend than the one that plays plans.
    ErrorCode.BACKEND_UNAVAILABLE: "eryx run MESSAGE --plan FILE  (plays a plan; a Copilot backend comes later)",
    ErrorCode.BACKEND_FAILED: "eryx daemon logs",
    ErrorCode.PROVIDER_FAILED: "eryx status",
    ErrorCode.STORE_UNAVAILABLE: "eryx status",
    ErrorCode.UNKNOWN_METHOD: "eryx daemon stop && eryx daemon start",
    ErrorCode.READ_ONLY: "eryx patterns copy PATTERN",
    ErrorCode.SHUTTING_DOWN: "eryx daemon start",
    ErrorCode.INTERNAL: "eryx daemon logs",
}
"""What to type after a refusal.  Codes whose message already says it are not here."""

LISTED: Final = frozenset({"approval", "pattern", "project", "run", "session"})
"""Nouns that have a `list`."""


def emit(reply: Any, as_json: bool, text: Text) -> None:
    """Print a reply: its wire form as one line of JSON, or as text.  Warnings in it go to standard error."""
    if as_json:
        print(to_json(reply), flush=True)
        return
    say(text(reply, here()))
    if isinstance(reply, dict):
        for warning in reply.get("warnings", ()):
            print(f"warning: {visible(warning)}", file=sys.stderr)


def say(lines: Iterable[str]) -> None:
    """Print lines of text at once."""
    for line in lines:
        print(line)
    sys.stdout.flush()


def to_json(value: Any) -> str:
    """Return the wire form as one line of JSON.

    Only ASCII: what a terminal would obey comes out as an escape.  Bytes become base64.
    """
    import json

    return json.dumps(value, separators=(",", ":"), default=_base64)


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    import base64

    return base64.b64encode(value).decode("ascii")


def fail(error: ClientError | EryxError, as_json: bool) -> int:
    """Print an error on standard error and return the exit status."""
    body = describe(error)
    if as_json:
        print(to_json({"error": {key: body[key] for key in ("code", "message", "data")}}), file=sys.stderr)
        return int(body["exit_status"])
    message, problems = _apart(body)
    print(f"eryx: {visible(message)}", file=sys.stderr)
    for problem in problems:
        print(f"  - {visible(problem)}", file=sys.stderr)
    if body["hint"]:
        print(f"try: {visible(body['hint'])}", file=sys.stderr)
    return int(body["exit_status"])


def describe(error: ClientError | EryxError) -> Reply:
    """Return `code message data hint exit_status` of anything that can go wrong."""
    match error:
        case Problem():
            return _body(error.code, error.message, error.data, error.hint, error.exit_status)
        case RemoteError():
            return _body(error.code, error.message, error.data, hint_for(error), error.exit_status)
        case EryxError():
            return _body(error.code, error.message, error.data, "", EXIT_STATUS[error.code])
        case DaemonNotRunning():
            message = f"The daemon is not running: nothing listens on {error.path}."
            return _body("not_running", message, {}, "eryx daemon start", error.exit_status)
        case UntrustedSocket():
            return _body("untrusted_socket", str(error), {}, "", error.exit_status)
        case ConnectionLost():
            return _body("no_answer", str(error), {}, "eryx daemon start", error.exit_status)
    return _body("no_answer", str(error), {}, "", error.exit_status)


def hint_for(refusal: RemoteError) -> str:
    """Return the command to type after a refusal: what the daemon advises, else what suits the code."""
    advice, session, noun = (refusal.data.get(key) for key in ("next", "session_id", "noun"))
    if isinstance(advice, str) and advice:
        return advice
    if refusal.code == ErrorCode.SESSION_RUNNING:
        return f"eryx timeline {session or 'SESSION'} --follow"
    if refusal.code == ErrorCode.BACKEND_FAILED and ("problems" in refusal.data or "place" in refusal.data):
        # It is the plan that is broken, and what is wrong with it is all said.
        return ""
    if refusal.code == ErrorCode.NOT_FOUND and noun in LISTED:
        return f"eryx {noun}s list"
    return HINTS.get(refusal.code, "")


def _body(code: str, message: str, data: Reply, hint: str, exit_status: int) -> Reply:
    return {
        "code": str(code),
        "message": message,
        "data": data,
        "hint": hint,
        "exit_status": exit_status,
    }


def _apart(body: Reply) -> tuple[str, list[str]]:
    """Return the message and the problems to list below it: several go there, one stays where it is."""
    message, problems = body["message"], body["data"].get("problems", ())
    listed = [str(each) for each in problems] if isinstance(problems, list | tuple) else []
    if len(listed) > 1:
        head, found, rest = message.partition("; ".join(listed))
        if found and head.endswith(": ") and rest in ("", "."):
            return head[:-1], listed
    return message, [each for each in listed if (each.partition(": ")[2] or each) not in message]
