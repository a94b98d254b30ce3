"""A daemon that answers from a table, and commands run against it in this process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner, Result

from eryxd.cli.tree import app
from tests import builders
from tests.fakes import FakeDaemon, Reply, refuse, wire

FIRST: Final = "a" + "7k2" + "a" * 13
SECOND: Final = "a" + "7k3" + "a" * 13
THIRD: Final = "a" + "7k2b" + "a" * 12
SESSION: Final = "s" + "x" * 16
RUN: Final = "r" + "y" * 16
ME: Final = {"uid": os.getuid(), "pid": 9, "client_name": "other"}

Start = Callable[..., FakeDaemon]


def daemons(home: Path) -> Iterator[Start]:
    """Yield what starts a daemon that answers these methods (`noun__verb`); it ends with the test.

    Unless told otherwise it knows no pattern and no project.
    """
    running: list[FakeDaemon] = []

    def start(**replies: Reply) -> FakeDaemon:
        table: dict[str, Reply] = {
            "patterns.list": lambda _: {"patterns": []},
            "patterns.get": gone,
            "projects.list": lambda _: {"projects": []},
            "approvals.get": gone,
        }
        table |= {name.replace("__", "."): reply for name, reply in replies.items()}
        running.append(FakeDaemon(home, table).__enter__())
        return running[0]

    yield start
    for each in running:
        each.__exit__()


def gone(_: dict[str, Any]) -> Any:
    raise refuse("not_found")


def eryx(home: FakeDaemon | Path, *words: str, stdin: str = "") -> Result:
    """Run one command in this process."""
    environ = home.environ if isinstance(home, FakeDaemon) else {"ERYX_HOME": str(home)}
    return CliRunner().invoke(app, list(words), env=environ, input=stdin)


def shown(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "approval": wire(builders.approval(params["approval_id"], session_id=SESSION, digest="d" * 64)),
        "waiting": 1,
    }


def session_reply(**changes: Any) -> Reply:
    view = wire(builders.session_view(SESSION, **changes))
    own = view.get("approval_settings")
    names = own["auto_approved_tool_names"] if own else ["view"]
    view["effective"] = {"auto_approved_tool_names": names, "from": "session" if own else "pattern"}
    return lambda _: {"session": view, "seq": 1}
