"""Disks that are really full, and really read-only.  Needs root: they are mounted for the test.

A disk under a running daemon cannot be remounted read-only by hand, since its files are open for writing; it becomes
so when its file system finds an error, and that is what is made to happen here.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess, is_gone
from tests.e2e.stage import Stage, create, resolve, shell
from tests.requirements import requirement

pytestmark = pytest.mark.system


def command(*words: str | Path) -> str:
    """Run a program that has to succeed; return what it printed."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=WAIT_S).stdout.strip()


def mounted(place: Path, *words: str | Path) -> Path:
    """Mount something at a new folder."""
    place.mkdir()
    try:
        command("mount", *words, place)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"nothing can be mounted here: {error.stderr}")
    return place


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    place = mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs")
    yield place
    command("umount", "--lazy", place)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Path]:
    """A disk that becomes read-only at its first error."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    command("mkfs.ext4", "-q", image)
    place = mounted(tmp_path / "failing", "-o", "loop,errors=remount-ro", image)
    yield place
    command("umount", place)


def fill(disk: Path) -> Path:
    """Fill a disk to the last byte; return the file to remove."""
    filler = disk / "filler"
    dd = subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, text=True, timeout=WAIT_S)
    assert "No space left" in dd.stderr
    return filler


def break_down(disk: Path) -> None:
    """Let the file system find an error."""
    device = command("findmnt", "--noheadings", "--output", "SOURCE", disk)
    Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")


class Governed:
    """A daemon whose home is on that disk, with a run that waits and one that works."""

    def __init__(self, daemon: DaemonProcess, stage: Stage) -> None:
        self.daemon = daemon
        self.client: Client = stage.client
        self.stage = stage
        self.watch = stage.watch()
        self.asking, self.working = stage.session(), stage.session(stage.pattern(rules=()))
        os.mkfifo(stage.folder / "pids")
        self.runs = [
            stage.play(self.asking, create("loot"), create("more")),
            stage.play(self.working, shell("sleep 600 & echo $$ $! > pids; wait")),
        ]
        self.pids = [int(pid) for pid in (stage.folder / "pids").read_text().split()]
        self.asked = self.watch.approvals(1)[0]

    def nothing_is_granted(self) -> None:
        """Writes are refused, reads answer as before, what ran is dead and nothing was made."""
        before = self.client.call("workspace.get")
        with pytest.raises(RemoteError) as refused:
            self.stage.resolve(self.asked)
        assert refused.value.code == "store_unavailable"
        with pytest.raises(RemoteError) as refused:
            self.client.call("sessions.create", pattern_id="single")
        assert refused.value.code == "store_unavailable"
        self.until(lambda: all(map(is_gone, self.pids)))
        assert self.client.call("workspace.get") == before
        assert not self.client.call("daemon.status")["store"]["writable"]
        for run_id in self.runs:
            assert self.client.call("timeline.get", run_id=run_id)["events"]
        assert self.stage.approval(self.asked["id"])["status"] == "pending"
        assert sorted(path.name for path in self.stage.folder.iterdir()) == ["pids"]

    def all_is_settled(self, client: Client) -> None:
        """What ran has ended as interrupted, and a new run works."""
        for session_id in (self.asking, self.working):
            assert client.call("sessions.get", session_id=session_id)["session"]["status"] == "error"
        with pytest.raises(RemoteError) as refused:
            resolve(client, self.asked)
        assert refused.value.data["resolution"] == "interrupted"
        assert client.call("store.check")["problems"] == []
        plan = self.stage.plan({"say": "Here again."})
        run_id = client.call("messages.send", session_id=self.working, content="Again.", plan=plan)["run_id"]
        reply = client.request("runs.wait", {"run_id": run_id, "timeout_s": WAIT_S}, timeout_s=2 * WAIT_S)
        assert reply["run"]["status"] == "completed"

    def until(self, holds: object) -> None:
        """Wait until something is so."""
        assert callable(holds)
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, self.daemon.log()
            self.daemon.pause()


@requirement("DUR-25", "DUR-26")
def test_a_full_disk_grants_nothing_and_is_survived(small: Path, tmp_path: Path) -> None:
    """It recovers by itself when there is room."""
    with (
        DaemonProcess(tmp_path, home=small / "home") as daemon,
        Stage(daemon.start(), tmp_path / "project") as stage,
    ):
        governed = Governed(daemon, stage)
        filler = fill(small)
        governed.nothing_is_granted()

        filler.unlink()

        governed.until(lambda: stage.client.call("daemon.status")["store"]["writable"])
        governed.until(lambda: stage.client.call("daemon.status")["running"] == 0)
        governed.all_is_settled(stage.client)


@requirement("DUR-25", "DUR-26")
def test_a_disk_that_becomes_read_only_grants_nothing(failing: Path, tmp_path: Path) -> None:
    """After it was repaired and mounted again, a new start settles what was left."""
    with (
        DaemonProcess(tmp_path, home=failing / "home") as daemon,
        Stage(daemon.start(), tmp_path / "project") as stage,
    ):
        governed = Governed(daemon, stage)
        break_down(failing)
        governed.nothing_is_granted()
        assert daemon.stop() == 0

        command("umount", failing)
        subprocess.run(["e2fsck", "-fy", tmp_path / "image"], capture_output=True, check=False, timeout=WAIT_S)
        command("mount", "-o", "loop,errors=remount-ro", tmp_path / "image", failing)

        governed.all_is_settled(daemon.start().client())
        assert daemon.stop() == 0


@requirement("DUR-23")
@pytest.mark.parametrize("known", [False, True], ids=["first start", "with a store"])
def test_a_start_on_a_read_only_disk_says_so(small: Path, tmp_path: Path, known: bool) -> None:
    """One line that names the file; nothing has changed."""
    with DaemonProcess(tmp_path, home=small / "home") as daemon:
        if known:
            assert daemon.start().stop() == 0
        content = daemon.store_path.read_bytes() if known else b""
        command("mount", "-o", "remount,ro", small)

        status, said = daemon.run_to_end()

        assert (status, len(said.splitlines())) == (78, 1), said
        assert said.startswith("eryxd: ")
        assert str(daemon.state) in said
        assert "Read-only file system" in said
        assert (daemon.store_path.read_bytes() if known else b"") == content
        command("mount", "-o", "remount,rw", small)
        assert daemon.start().stop() == 0


@requirement("DUR-23")
def test_a_first_start_on_a_full_disk_says_so_and_can_be_repeated(small: Path, tmp_path: Path) -> None:
    """Whatever could be made before there was no more room is in nobody's way."""
    with DaemonProcess(tmp_path, home=small / "home") as daemon:
        daemon.home.mkdir(mode=0o700)
        filler = fill(small)

        status, said = daemon.run_to_end()

        assert (status, len(said.splitlines())) == (78, 1), said
        assert str(daemon.state) in said
        assert "No space left" in said
        filler.unlink()
        assert daemon.start().client().call("store.check")["problems"] == []


@requirement("DUR-23", "APR-11")
def test_a_restart_on_a_full_disk_does_not_come_up_with_what_it_cannot_settle(small: Path, tmp_path: Path) -> None:
    """With room it starts, and what was left is settled."""
    with (
        DaemonProcess(tmp_path, home=small / "home") as daemon,
        Stage(daemon.start(), tmp_path / "project") as stage,
    ):
        governed = Governed(daemon, stage)
        daemon.kill9()
        filler = fill(small)

        status, said = daemon.run_to_end()

        assert status == 78
        assert f"eryxd: The store {daemon.store_path} cannot be written: database or disk is full." in said
        filler.unlink()
        governed.all_is_settled(daemon.start().client())
