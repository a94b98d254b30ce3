"""What the tests of the real daemon share: one that runs, and a small world to play plans in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.serving import Client as RawClient
from tests.e2e.stage import Stage


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that answers."""
    with DaemonProcess(tmp_path) as process:
        yield process.start()


@pytest.fixture
def stage(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Stage]:
    """A project and plans for that daemon."""
    with Stage(daemon, tmp_path / "project") as ready:
        yield ready


@pytest.fixture
def raw(daemon: DaemonProcess) -> Iterator[RawClient]:
    """A client of that daemon that sends and reads frames by hand."""
    with daemon.raw() as client:
        yield client
