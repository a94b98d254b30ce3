"""One daemon: its lock, its folder and its place in it."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eryxd.daemon.single import (
    AlreadyRunning,
    SocketHeld,
    UnsafePlace,
    acquire,
    bind_socket,
    peer_listening,
    prepare_runtime,
    remove_socket,
)
from eryxd.domain.errors import ErrorCode, Invalid, StoreUnavailable
from tests.requirements import requirement

CONTENDER = """
import pathlib, sys
from eryxd.daemon.single import AlreadyRunning, acquire
try:
    lock = acquire(pathlib.Path(sys.argv[1]))
    print("won", flush=True)
except AlreadyRunning as error:
    print(error.pid, flush=True)
sys.stdin.read()
"""

LONG = "a-name-of-thirty-two-characters-"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    prepare_runtime(folder)
    return folder


@pytest.fixture
def deep_run(tmp_path: Path) -> Path:
    """A runtime folder whose socket has a longer path than a Unix address holds."""
    folder = tmp_path / LONG / LONG / LONG / LONG
    prepare_runtime(folder)
    return folder


@contextmanager
def listening(runtime_dir: Path) -> Iterator[Path]:
    """A daemon's socket, as it is while one runs."""
    with bind_socket(runtime_dir) as sock:
        sock.listen()
        yield runtime_dir / "eryxd.sock"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@requirement("WIR-9")
def test_the_second_daemon_is_told_who_is_the_first(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "state")
    with pytest.raises(AlreadyRunning) as caught:
        acquire(tmp_path / "state")

    assert (caught.value.pid, caught.value.code) == (os.getpid(), ErrorCode.BUSY)
    lock.release()
    lock.release()
    acquire(tmp_path / "state").release()
    assert (mode_of(tmp_path / "state"), mode_of(tmp_path / "state" / "lock")) == (0o700, 0o600)


@requirement("WIR-9")
def test_of_daemons_that_start_at_once_one_lives_and_all_others_name_it(tmp_path: Path) -> None:
    """Also when the last one left its own number behind."""
    (tmp_path / "lock").write_text("4194304\n")
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    answers = {child.pid: child.stdout.readline().strip() for child in contenders if child.stdout}
    for child in contenders:
        child.communicate(timeout=30)
    winners = [pid for pid, answer in answers.items() if answer == "won"]

    assert len(winners) == 1
    assert sorted(answers.values()) == sorted(["won"] + [str(winners[0])] * 5)


@requirement("WIR-9")
def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = acquire(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        acquire(tmp_path).release()
        assert child.poll() is None


@requirement("WIR-9")
def test_a_lock_kept_by_a_process_left_behind_names_nobody(tmp_path: Path) -> None:
    """The number in the file is that of a daemon that has ended."""
    lock = acquire(tmp_path)
    (tmp_path / "lock").write_text("4194304\n")
    with pytest.raises(AlreadyRunning, match="left behind") as caught:
        acquire(tmp_path)
    lock.release()

    assert caught.value.pid == 0


def _a_link(folder: Path) -> None:
    (folder / "lock").symlink_to(folder / "elsewhere")


def _a_folder(folder: Path) -> None:
    (folder / "lock").mkdir()


@requirement("WIR-9")
@pytest.mark.parametrize("obstruct", [_a_link, _a_folder])
def test_a_lock_that_cannot_be_written_is_named(tmp_path: Path, obstruct: Callable[[Path], None]) -> None:
    obstruct(tmp_path)
    with pytest.raises(StoreUnavailable, match=str(tmp_path / "lock")):
        acquire(tmp_path)

    assert not (tmp_path / "elsewhere").exists()


@requirement("WIR-9")
@pytest.mark.parametrize("place", [".", "lock"])
def test_a_state_folder_or_lock_that_others_may_change_is_refused(tmp_path: Path, place: str) -> None:
    """Who can change the store can answer its approvals."""
    acquire(tmp_path).release()
    (tmp_path / place).chmod(0o777)
    with pytest.raises(Invalid, match=f"chmod go-w {tmp_path / place}"):
        acquire(tmp_path)
    (tmp_path / place).chmod(0o700)

    acquire(tmp_path).release()


@requirement("WIR-10")
def test_the_runtime_folder_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "run"
    prepare_runtime(folder)
    prepare_runtime(folder)

    assert mode_of(folder) == 0o700


@requirement("WIR-10")
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o711, 0o1700, 0o600])
def test_a_folder_that_others_reach_is_refused_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    """Our own mode is not forced on it: what lies in it may be theirs."""
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnsafePlace, match=f"chmod 700 {folder}"):
        prepare_runtime(folder)

    assert mode_of(folder) == mode


@requirement("WIR-10")
def test_a_link_or_a_file_is_no_runtime_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()

    for name in ("link", "file", "file/run"):
        with pytest.raises(UnsafePlace, match=str(tmp_path / name)):
            prepare_runtime(tmp_path / name)


@requirement("WIR-10")
@pytest.mark.system
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Needs root, to give a folder away."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)

    with pytest.raises(UnsafePlace, match="uid 65534"):
        prepare_runtime(folder)


@requirement("WIR-11")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_socket_is_private_whatever_the_umask(run: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        bind_socket(run).close()
    finally:
        os.umask(before)

    assert mode_of(run / "eryxd.sock") == 0o600


@requirement("WIR-11")
@pytest.mark.parametrize("folder", ["run", "deep_run"])
def test_a_socket_that_a_dead_daemon_left_is_replaced(folder: str, request: pytest.FixtureRequest) -> None:
    runtime_dir: Path = request.getfixturevalue(folder)
    bind_socket(runtime_dir).close()
    left = runtime_dir / "eryxd.sock"
    assert peer_listening(left) is None

    with listening(runtime_dir) as path:
        assert peer_listening(path) == os.getpid()


@requirement("WIR-11")
@pytest.mark.parametrize("folder", ["run", "deep_run"])
def test_a_socket_that_somebody_listens_on_is_left_alone(folder: str, request: pytest.FixtureRequest) -> None:
    """It could be a socket unit's, which holds no lock."""
    runtime_dir: Path = request.getfixturevalue(folder)
    with listening(runtime_dir) as path:
        inode = path.lstat().st_ino
        with pytest.raises(SocketHeld, match=f"Process {os.getpid()} ") as caught:
            bind_socket(runtime_dir)
        remove_socket(runtime_dir)

        assert caught.value.data == {"path": str(path), "pid": os.getpid()}
        assert path.lstat().st_ino == inode
        assert peer_listening(path) == os.getpid()


@requirement("WIR-11")
def test_a_listener_too_busy_to_answer_still_holds_the_socket(run: Path) -> None:
    with bind_socket(run) as sock, socket.socket(socket.AF_UNIX) as waiting:
        sock.listen(0)
        waiting.connect(str(run / "eryxd.sock"))
        with pytest.raises(SocketHeld, match="Another process"):
            bind_socket(run)


@requirement("WIR-11")
def test_what_is_no_socket_is_left_in_the_way(run: Path) -> None:
    path = run / "eryxd.sock"
    path.write_text("notes")
    with pytest.raises(UnsafePlace, match=str(path)):
        bind_socket(run)
    remove_socket(run)

    assert path.read_text() == "notes"


@requirement("WIR-11")
def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsafePlace, match=str(tmp_path / "run")):
        bind_socket(tmp_path / "run")


@requirement("WIR-11")
def test_a_daemon_that_ends_takes_its_socket_file_along(run: Path) -> None:
    bind_socket(run).close()
    remove_socket(run)
    remove_socket(run)

    assert list(run.iterdir()) == []
