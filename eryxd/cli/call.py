"""`eryx call`: any method of the socket, as it is."""

import json
import sys
from typing import Annotated, Any

import typer

from eryxd.cli import kit
from eryxd.cli.kit import Problem, visible
from eryxd.client.client import RemoteError
from eryxd.domain.errors import ErrorCode

CALL_S = 86430.0
"""As long as the longest wait that a method takes."""


def call(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="Say, approvals.list; `api.describe` lists all.")],
    arguments: Annotated[
        str, typer.Argument(metavar="JSON", help="Its arguments, an object; - reads them from standard input.")
    ] = "{}",
    as_json: kit.AsJson = False,
) -> None:
    """Call a method of the socket and print what it returns as JSON."""
    del as_json  # There is no other form; the option only makes errors JSON as well.
    params = _params(sys.stdin.read() if arguments == "-" else arguments)
    with kit.client() as client:
        try:
            reply = client.request(method, params, timeout_s=CALL_S)
        except RemoteError as refusal:
            if refusal.code != ErrorCode.UNKNOWN_METHOD:
                raise
            raise Problem(refusal.message, "eryx call api.describe", ErrorCode.UNKNOWN_METHOD) from refusal
    kit.emit(reply, True, lambda _, __: ())


def _params(text: str) -> dict[str, Any]:
    """Return the arguments.  Raises: Problem -- they are not an object, or hold a null."""
    try:
        params = json.loads(text)
    except ValueError as error:
        raise Problem(f"The arguments are not JSON: {error}.") from error
    if not isinstance(params, dict):
        raise Problem('The arguments are not an object: write them as {"name": value}.')
    for name, value in params.items():
        if value is None:
            raise Problem(f"The argument {visible(name)!r} is null: leave it out instead.")
    return params
