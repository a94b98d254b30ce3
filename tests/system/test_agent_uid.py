"""Other users, and an ordinary user: what only file modes and uids decide.  Needs root, to be somebody else.

An interpreter under root's home is out of others' reach, so what runs as another user is the system's Python with
our packages on its path.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from eryxd.api.methods import METHODS
from tests.e2e.daemon_process import ROOT, WAIT_S, DaemonProcess
from tests.e2e.test_guard_attack import TRY
from tests.requirements import requirement

pytestmark = pytest.mark.system

USER: Final = 65534
OTHER: Final = 65533
"""Two ordinary users; neither needs an entry in the password database."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The start of a command line that runs Python with eryx in reach of every user."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    interpreter = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not os.access(interpreter, os.X_OK):
        pytest.skip(f"there is no {interpreter}, for which our packages were built")
    library = tmp_path_factory.mktemp("library")
    for package in (Path(msgpack.__file__).parent, Path(msgspec.__file__).parent, *_needed()):
        target = library / package.name
        shutil.copytree(package, target) if package.is_dir() else shutil.copy(package, target)
    for folder in (library, *library.parents):
        if folder.is_relative_to(tmp_path_factory.getbasetemp().parent):
            folder.chmod(0o755)
    return ("env", f"PYTHONPATH={library}", "PYTHONDONTWRITEBYTECODE=1", interpreter)


def _needed() -> list[Path]:
    """Return what else the daemon and its command line import."""
    import click
    import typer

    found = [ROOT / "eryxd", Path(typer.__file__).parent, Path(click.__file__).parent]
    return found + [path for name in ("platformdirs", "pluggy", "watchfiles", "shellingham") if (path := _place(name))]


def _place(name: str) -> Path | None:
    module = __import__(name)
    return Path(module.__file__).parent if module.__file__ else None


def as_user(uid: int, command: Sequence[str]) -> list[str]:
    """Return the command as that user would run it."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


def run(uid: int, command: Sequence[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user."""
    return subprocess.run(
        as_user(uid, command),
        env={"PATH": os.environ["PATH"], **environ},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of USER's, on a path that everybody can walk."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/") and "pytest" in folder.name:
            folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, USER, USER)
    return home


@pytest.fixture
def daemon(home: Path, tmp_path: Path, python: Sequence[str]) -> Iterator[DaemonProcess]:
    """A daemon that runs as USER."""
    command = as_user(USER, [*python, "-m", "eryxd.daemon.app"])
    with DaemonProcess(tmp_path, home=home, command=command) as process:
        yield process
