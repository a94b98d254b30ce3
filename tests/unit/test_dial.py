"""Whom the client trusts, and how it reaches a socket."""

import os
import socket
from pathlib import Path

import pytest

from eryxd.client.client import (
    Client,
    DaemonNotRunning,
    UntrustedSocket,
)
from tests.requirements import requirement
from tests.unit.fake_daemon import FakeDaemon


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A runtime folder as the daemon makes it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("missing", ["eryxd.sock", "gone/eryxd.sock", "file/gone/eryxd.sock"])
def test_missing_daemon_says_what_to_type(run: Path, missing: str) -> None:
    """Whatever part of the path is missing."""
    (run / "file").touch()
    path = str(run / missing)
    with pytest.raises(DaemonNotRunning) as caught:
        Client.connect(path)

    assert (caught.value.path, caught.value.exit_status) == (path, 69)
    assert str(caught.value).endswith("Type: eryx daemon start")


def test_stale_socket_is_a_missing_daemon(run: Path) -> None:
    """A killed daemon leaves its socket behind."""
    path = str(run / "eryxd.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    with pytest.raises(DaemonNotRunning):
        Client.connect(path)


@requirement("WIR-20")
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o1777, 0o500])
def test_folder_that_others_can_reach_is_refused(run: Path, mode: int) -> None:
    """Nothing is sent to a daemon that anybody could have put there."""
    with FakeDaemon(run) as daemon:
        run.chmod(mode)
        with pytest.raises(UntrustedSocket) as caught:
            Client.connect(daemon.path)
        run.chmod(0o700)

    assert str(caught.value).endswith(f"Type: chmod 700 {run}")
    assert daemon.connections == 0


@requirement("WIR-20")
def test_linked_folder_is_refused(run: Path, tmp_path: Path) -> None:
    """Where a link leads can change between the look and the connection."""
    link = tmp_path / "link"
    link.symlink_to(run)
    with FakeDaemon(run) as daemon, pytest.raises(UntrustedSocket, match="link"):
        Client.connect(str(link / "eryxd.sock"))

    assert daemon.connections == 0


@requirement("WIR-20")
def test_folder_of_another_user_is_refused() -> None:
    """The root folder is another user's, or (for root) open to all."""
    with pytest.raises(UntrustedSocket):
        Client.connect("/eryxd.sock")


@requirement("WIR-20")
@pytest.mark.system
def test_daemon_of_another_user_is_refused(run: Path) -> None:
    """The kernel remembers who listened, whoever owns the folder."""
    path = str(run / "eryxd.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.seteuid(65534)
        try:
            listener.listen(1)
        finally:
            os.seteuid(0)
        with pytest.raises(UntrustedSocket, match="uid 65534"):
            Client.connect(path)


@requirement("WIR-24")
@pytest.mark.parametrize("length", [100, 101, 107, 108, 300])
def test_long_socket_path_is_reached(run: Path, length: int) -> None:
    """A path over 100 bytes goes through a descriptor of its folder; home folders can be deep."""
    folder = run
    while len(str(folder / "eryxd.sock")) < length:
        folder /= "d" * max(1, min(length - len(str(folder / "eryxd.sock")) - 1, 100))
        folder.mkdir(mode=0o700)
    descriptors = len(os.listdir("/proc/self/fd"))
    with FakeDaemon(folder) as daemon, Client.connect(daemon.path) as client:
        assert client.call("ping")

    assert len(os.listdir("/proc/self/fd")) == descriptors
