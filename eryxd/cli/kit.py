"""What every command is made of: options, a connection, and how to answer.

Commands of plugins may import this and nothing else of the command line.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeVar

import typer

from eryxd.cli.report import EXIT_LEFT, Problem, Reply, emit, fail, say, to_json
from eryxd.cli.text import Look, here, visible
from eryxd.client.client import Client

__all__ = [
    "CLIENT_NAME",
    "EXIT_LEFT",
    "AsJson",
    "Cursor",
    "Limit",
    "Look",
    "Problem",
    "Reply",
    "choice",
    "client",
    "emit",
    "fail",
    "group",
    "here",
    "say",
    "split",
    "to_json",
    "visible",
    "wants_json",
]

T = TypeVar("T")

CLIENT_NAME: Final = "cli"
"""What an approval's `resolved_by` shows for a decision that was made here."""

_JSON_KEY: Final = "eryx.json"


def _note_json(context: typer.Context, value: bool) -> bool:
    context.find_root().meta[_JSON_KEY] = value
    return value


AsJson = Annotated[
    bool,
    # Eager, so that an error in a later option is already told as JSON.
    typer.Option("--json", help="Print the wire form.", callback=_note_json, is_eager=True),
]
Limit = Annotated[int, typer.Option("--limit", help="Most rows to show.", min=1, max=1000)]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="Where to go on; the page before names it.", metavar="CURSOR")
]


def group(help: str) -> typer.Typer:
    """Return an empty command group that answers `--help` without rich."""
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def wants_json(context: typer.Context) -> bool:
    """Whether the command at hand was asked for JSON, so that its errors are JSON as well."""
    return bool(context.find_root().meta.get(_JSON_KEY))


@contextmanager
def client(timeout_s: float = 30.0) -> Iterator[Client]:
    """Connect to the daemon for one command.  Raises: ClientError."""
    with Client.connect(name=CLIENT_NAME, timeout_s=timeout_s) as connected:
        yield connected


def split(values: Iterable[str] | None) -> list[str]:
    """Return the words of options that take a list, given as `a,b` or several times."""
    return [word for value in values or () for part in value.split(",") if (word := part.strip())]


def choice(**given: object) -> str:
    """Return the name of the one option that was given, or nothing.  Raises: Problem -- several were."""
    named = [name for name, value in given.items() if value]
    if len(named) > 1:
        raise Problem(f"Give only one of {', '.join(f'--{name}' for name in named)}.")
    return named[0] if named else ""
