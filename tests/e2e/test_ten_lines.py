"""The client in docs/ten-lines.md, run as it stands there."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.daemon_process import ROOT, WAIT_S, DaemonProcess
from tests.e2e.stage import HOLD, Stage, create
from tests.requirements import requirement

PAGE: Final = ROOT / "docs" / "ten-lines.md"


def the_client() -> str:
    """Return the one Python program of the page."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(program)


def answered(daemon: DaemonProcess, folder: Path, typed: str) -> subprocess.CompletedProcess[str]:
    """Run the client as the page says, and type these answers."""
    program = folder / "answer.py"
    program.write_text(the_client())
    return subprocess.run(
        [sys.executable, program, daemon.socket_path],
        input=typed,
        env={name: value for name, value in daemon.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@requirement("WIR-34")
def test_it_has_ten_lines_and_imports_only_msgpack_and_the_standard_library() -> None:
    """Lines that are blank or comments would count."""
    imported = [
        name.name for node in ast.walk(ast.parse(the_client())) if isinstance(node, ast.Import) for name in node.names
    ]

    assert len(the_client().splitlines()) == 10
    assert set(imported) - sys.stdlib_module_names == {"msgpack"}


@requirement("WIR-34")
def test_it_lists_what_waits_and_resolves_it(stage: Stage, daemon: DaemonProcess, tmp_path: Path) -> None:
    """Two calls and a final response: yes, no, yes; each was shown before."""
    watch = stage.watch()
    tools, said = stage.session(), stage.session(stage.pattern(HOLD))
    of_tools = stage.play(tools, {"calls": [create("wanted"), create("unwanted")]})
    watch.approvals(2)
    of_said = stage.play(said, {"say": "Read me."})
    watch.approvals(1)
    waiting = stage.client.call("approvals.list")["approvals"]
    paths = [stage.approval(one["id"]).get("permission", {}).get("arguments", {}).get("path") for one in waiting]

    client = answered(daemon, tmp_path, "".join("n\n" if path == "unwanted" else "y\n" for path in paths))

    assert client.returncode == 0, client.stderr
    assert (stage.ended(of_tools)["status"], stage.ended(of_said)["status"]) == ("completed", "completed")
    assert [path.name for path in stage.folder.iterdir()] == ["wanted"]
    places = [
        client.stdout.index(shown) for shown in ("Approve create", "unwanted", "Approve final response", "Read me.")
    ]
    assert places[2] < places[3]
    resolved = stage.client.call("approvals.list", resolved=True)["approvals"]
    assert {one["resolved_by"]["client_name"] for one in resolved} == {""}


@requirement("WIR-34")
@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "gone meanwhile"])
def test_it_ends_well_when_there_is_nothing_to_decide(
    stage: Stage, daemon: DaemonProcess, tmp_path: Path, waiting: bool
) -> None:
    """With nothing to ask, or with the daemon's words."""
    if not waiting:
        assert answered(daemon, tmp_path, "").returncode == 0
        return
    watch = stage.watch()
    run_id = stage.play(stage.session(), create("made"))
    asked = watch.approvals(1)[0]
    program = tmp_path / "answer.py"
    program.write_text(the_client())
    with subprocess.Popen(
        [sys.executable, "-u", program, daemon.socket_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "Approve create\n"
        stage.resolve(asked, "rejected")
        _, said = client.communicate("y\n", WAIT_S)

    assert said == f"Approval {asked['id']} was already rejected (user).\n"
    assert stage.ended(run_id)["status"] == "completed"
