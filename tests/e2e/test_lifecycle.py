"""Starting and stopping the real daemon, and what it refuses to start with."""

import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eryxd.client.client import RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess, is_gone
from tests.e2e.stage import Stage, create, shell
from tests.requirements import requirement

Spoil = Callable[[Path], None]


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return everything in a folder with inode, size and time of last change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        found[str(path.relative_to(folder))] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


def mode(path: Path) -> int:
    """Return who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def stopped(tmp_path: Path) -> DaemonProcess:
    """A daemon that has run once and was stopped in good order."""
    with DaemonProcess(tmp_path) as process:
        process.start()
        assert process.stop() == 0
        return process


@requirement("DUR-20")
def test_a_daemon_that_is_ready_answers_on_a_private_socket(daemon: DaemonProcess) -> None:
    """Nobody else can reach it, and it says who it is."""
    status = daemon.client().call("daemon.status")

    assert (status["pid"], status["running"], status["waiting"]) == (daemon.pid, 0, 0)
    assert status["store"] == {"path": str(daemon.store_path), "writable": True}
    assert [mode(path) for path in (daemon.socket_path, daemon.socket_path.parent, daemon.state)] == [
        0o600,
        0o700,
        0o700,
    ]
    assert {mode(path) for path in daemon.stored_files()} == {0o600}


@requirement("DUR-21")
def test_a_second_daemon_names_the_first_and_touches_nothing(daemon: DaemonProcess) -> None:
    """It says so with status 75."""
    before = snapshot(daemon.home)

    second = subprocess.run(
        [sys.executable, "-m", "eryxd.daemon.app"], env=daemon.environ, capture_output=True, text=True, timeout=WAIT_S
    )

    assert (second.returncode, second.stderr) == (75, f"eryxd: eryxd is already running as process {daemon.pid}.\n")
    assert snapshot(daemon.home) == before
    assert daemon.client().call("daemon.status")["pid"] == daemon.pid


@requirement("DUR-21")
def test_a_daemon_whose_lock_was_removed_keeps_its_store(stage: Stage, daemon: DaemonProcess) -> None:
    """A second one must not put in order what is not unfinished at all."""
    run_id = stage.play(stage.session(), create("file"))
    (daemon.state / "lock").unlink()

    second = subprocess.run(
        [sys.executable, "-m", "eryxd.daemon.app"], env=daemon.environ, capture_output=True, text=True, timeout=WAIT_S
    )

    assert (second.returncode, f"Process {daemon.pid} " in second.stderr) == (78, True)
    assert stage.client.call("runs.get", run_id=run_id)["run"]["status"] == "running"


@requirement("DUR-21")
def test_of_daemons_that_start_at_once_exactly_one_stays(daemon: DaemonProcess) -> None:
    """The others name it."""
    daemon.kill9()
    command = [sys.executable, "-m", "eryxd.daemon.app"]
    starting = [
        subprocess.Popen(command, env=daemon.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    daemon.wait_for_answer()
    pid = daemon.client().call("daemon.status")["pid"]
    (winner,) = [process for process in starting if process.pid == pid]

    ended = [(process.communicate(timeout=WAIT_S)[1], process.returncode) for process in starting if process.pid != pid]

    assert ended == [(f"eryxd: eryxd is already running as process {pid}.\n", 75)] * 4
    winner.send_signal(signal.SIGTERM)
    assert winner.communicate(timeout=WAIT_S)[0] is None
    assert winner.returncode == 0


@requirement("DUR-21")
def test_the_socket_of_a_killed_daemon_is_replaced(daemon: DaemonProcess) -> None:
    """A file that nobody listens on is in nobody's way."""
    daemon.kill9()
    assert daemon.socket_path.exists()

    daemon.start()

    assert daemon.client().call("daemon.status")["pid"] == daemon.pid


@requirement("DUR-21")
def test_a_socket_that_somebody_listens_on_is_left_alone(stopped: DaemonProcess) -> None:
    """The line says who holds it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stopped.socket_path))
        listener.listen()

        status, said = stopped.run_to_end()

    assert status == 78
    assert f"eryxd: Process {os.getpid()} " in said
    assert f"listens on {stopped.socket_path}" in said
    assert stopped.socket_path.exists()


@requirement("WIR-24")
def test_a_home_whose_socket_path_is_over_the_limit_works(tmp_path: Path) -> None:
    """Client and daemon both go through the folder."""
    with DaemonProcess(tmp_path, home=tmp_path / ("deep" * 30)) as daemon:
        assert len(bytes(daemon.socket_path)) > 107
        daemon.start()

        assert daemon.client().call("daemon.status")["pid"] == daemon.pid
        assert daemon.stop() == 0
        assert not daemon.socket_path.exists()


@requirement("DUR-22")
def test_shutdown_answers_and_leaves_no_socket(daemon: DaemonProcess) -> None:
    """The reply comes before the end."""
    reply = daemon.client().call("daemon.shutdown")

    assert reply == {"seq": reply["seq"]}
    assert daemon.process is not None
    assert daemon.process.wait(WAIT_S) == 0
    assert not daemon.socket_path.exists()


@requirement("DUR-22")
def test_shutdown_when_idle_is_refused_while_something_runs(stage: Stage, daemon: DaemonProcess) -> None:
    """And the daemon goes on."""
    watch = stage.watch()
    stage.play(stage.session(), create("made"))
    watch.approvals(1)

    with pytest.raises(RemoteError) as refused:
        stage.client.call("daemon.shutdown", when_idle=True)

    assert (refused.value.code, refused.value.data) == ("session_running", {"running": 1})
    assert stage.client.call("daemon.status")["running"] == 1


@requirement("DUR-22")
def test_the_stop_command_ends_it(daemon: DaemonProcess) -> None:
    """`eryx daemon stop` returns when it has gone."""
    stop = subprocess.run(
        [sys.executable, "-m", "eryxd.cli.app", "daemon", "stop"],
        env=daemon.environ,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert stop.returncode == 0, stop.stderr
    assert daemon.process is not None
    assert daemon.process.wait(WAIT_S) == 0


@requirement("DUR-22", "APR-10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_settles_what_runs_and_kills_what_it_started(
    stage: Stage, daemon: DaemonProcess, number: signal.Signals
) -> None:
    """Interrupted, and nothing is left running."""
    session_id, watch = stage.session(stage.pattern(rules=())), stage.watch()
    pid_file = stage.folder / "pid"
    os.mkfifo(pid_file)
    run_id = stage.play(session_id, shell("sleep 600 & echo $! > pid; wait"))
    sleeper = int(pid_file.read_text())
    assert daemon.process is not None

    daemon.process.send_signal(number)

    assert watch.until(lambda event: event["type"] == "daemon-stopping")
    assert watch.run_ended(run_id)["status"] == "error"
    assert daemon.process.wait(WAIT_S) == 0
    assert is_gone(sleeper)
    daemon.start()
    after = daemon.client().call("sessions.get", session_id=session_id)["session"]
    assert (after["status"], after["last_error"]) == (
        "error",
        "The daemon was stopped while this session was running.",
    )


@requirement("DUR-22")
def test_a_stop_in_good_order_is_remembered(stopped: DaemonProcess) -> None:
    """So that the next start need not check the whole file."""
    assert [path.name for path in stopped.stored_files()] == ["store.db"]
    with closing(stopped.database()) as store:
        assert store.execute("SELECT value FROM meta WHERE key = 'clean'").fetchone() == ("1",)


@requirement("CLI-22")
def test_settings_that_are_wrong_are_named_with_file_and_line(stopped: DaemonProcess) -> None:
    """Nothing starts on half of a configuration."""
    stopped.config.mkdir(mode=0o700, exist_ok=True)
    file = stopped.config / "config.toml"
    file.write_text('[approvals]\ndefault = "ask"\n\n[approval]\ndefault = "none"\n')
    before = snapshot(stopped.state)

    status, said = stopped.run_to_end()

    assert (status, said.splitlines()) == (
        78,
        [f"eryxd: {file}, line 4: approval is not a setting.  Did you mean approvals?"],
    )
    assert {name: seen for name, seen in snapshot(stopped.state).items() if name != "lock"} == {
        name: seen for name, seen in before.items() if name != "lock"
    }


MARKED = (
    "import os, sys; from eryxd.daemon.marks import mark_this_thread; mark_this_thread();"
    "os.execv(sys.executable, [sys.executable, '-m', 'eryxd.daemon.app'])"
)
"""Starts the daemon as a process that an agent has started would."""


@requirement("GRD-5")
def test_an_agent_cannot_start_the_daemon_that_judges_it(tmp_path: Path) -> None:
    """Not after it has killed the one that did; its person can, where everything carries the mark."""
    theirs = DaemonProcess(tmp_path, command=[sys.executable, "-c", MARKED])
    status, said = theirs.run_to_end()
    assert (status, "an agent must not start the daemon" in said) == (78, True)

    theirs.config.mkdir(mode=0o700, parents=True, exist_ok=True)
    (theirs.config / "config.toml").write_text("[guard]\nno_new_privs = false\n")
    with theirs:
        theirs.start()
        with theirs.client("person") as client:
            assert "guard.no_new_privs is off" in client.call("daemon.status")["warnings"][0]


def from_the_future(path: Path) -> None:
    """Make it a store of a later version."""
    store = sqlite3.connect(path)
    store.execute("PRAGMA user_version = 99")
    store.close()


def foreign(path: Path) -> None:
    """Put some other program's database in its place."""
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.commit()
    other.close()


@requirement("DUR-23")
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (from_the_future, "was written by a later version of eryx (schema 99"),
        (foreign, "it is not a store of eryx"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"\x00" * 65536), "it is not an SQLite database"),
        (lambda path: path.write_bytes(os.urandom(100) * 1000), "it is not an SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096]), "cannot be used"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be used"),
    ],
    ids=["future", "foreign", "empty", "zeros", "garbage", "cut-off", "folder"],
)
def test_a_store_that_is_not_fit_is_refused_and_left_as_it_is(stopped: DaemonProcess, spoil: Spoil, why: str) -> None:
    """Never an empty start; the line names the file and what to type."""
    spoil(stopped.store_path)
    before = snapshot(stopped.state)
    content = stopped.store_path.read_bytes() if stopped.store_path.is_file() else b""

    status, said = stopped.run_to_end()

    assert status == 78
    assert len(said.splitlines()) == 1, said
    assert why in said
    assert str(stopped.store_path) in said
    assert "eryx store restore FILE" in said
    assert {**snapshot(stopped.state), "lock": before["lock"]} == before
    assert (stopped.store_path.read_bytes() if content else b"") == content


@requirement("DUR-23")
def test_a_store_that_is_missing_where_there_was_one_is_no_first_start(stopped: DaemonProcess) -> None:
    """The marker beside it says that there must be one."""
    stopped.store_path.unlink()

    status, said = stopped.run_to_end()

    assert status == 78
    assert said.startswith(f"eryxd: The store {stopped.store_path} cannot be used: the file is gone.")
    assert not stopped.store_path.exists()


@requirement("DUR-23")
def test_a_write_ahead_log_without_its_store_is_no_first_start(stopped: DaemonProcess) -> None:
    """A new store beside it would be filled with what is not its own."""
    for path in (stopped.store_path, stopped.state / "store.epoch"):
        path.unlink()
    orphan = stopped.state / "store.db-wal"
    orphan.write_bytes(b"x")

    status, said = stopped.run_to_end()

    assert (status, "the file is gone" in said, orphan.read_bytes()) == (78, True, b"x")
    assert not stopped.store_path.exists()


def restore(daemon: DaemonProcess, backup: Path) -> subprocess.CompletedProcess[str]:
    """Put a backup in the place of the store."""
    command = [sys.executable, "-m", "eryxd.daemon.app", "--restore", str(backup)]
    return subprocess.run(command, env=daemon.environ, capture_output=True, text=True, timeout=WAIT_S)


@requirement("DUR-28")
@pytest.mark.parametrize("spoil", [Path.unlink, from_the_future, foreign, lambda path: path.write_bytes(b"x" * 9000)])
def test_a_backup_that_is_not_fit_is_not_restored(daemon: DaemonProcess, tmp_path: Path, spoil: Spoil) -> None:
    """The store stays as it was."""
    backup = tmp_path / "backup.db"
    daemon.client().call("store.backup", path=str(backup))
    assert daemon.stop() == 0
    spoil(backup)
    before = daemon.store_path.read_bytes()

    refused = restore(daemon, backup)

    assert (refused.returncode, len(refused.stderr.splitlines())) == (78, 1)
    assert str(backup) in refused.stderr
    assert daemon.store_path.read_bytes() == before
    assert sorted(path.name for path in daemon.state.glob("store*")) == ["store.db", "store.epoch"]


@requirement("DUR-28", "DUR-21")
def test_a_store_in_use_is_not_replaced(daemon: DaemonProcess, tmp_path: Path) -> None:
    """The daemon that holds it is named."""
    backup = tmp_path / "backup.db"
    daemon.client().call("store.backup", path=str(backup))

    refused = restore(daemon, backup)

    assert (refused.returncode, f"process {daemon.pid}" in refused.stderr) == (75, True)
    assert daemon.client().call("store.check")["problems"] == []


@requirement("DUR-28", "DUR-23")
@pytest.mark.parametrize("interrupted", [False, True], ids=["whole", "interrupted before"])
def test_a_restored_store_holds_what_the_backup_held(
    stage: Stage, daemon: DaemonProcess, tmp_path: Path, interrupted: bool
) -> None:
    """The present one lies beside it, its write-ahead log too, also when an earlier try got only half-way."""
    kept, backup = stage.session(), tmp_path / "backup.db"
    stage.client.call("store.backup", path=str(backup))
    stage.session()
    daemon.kill9()
    if interrupted:
        daemon.store_path.rename(daemon.state / "store.kept-before.db")
        assert daemon.run_to_end()[0] == 78

    restored = restore(daemon, backup)

    assert restored.returncode == 0, restored.stderr
    client = daemon.start().client()
    assert [session["id"] for session in client.call("sessions.list")["sessions"]] == [kept]
    assert client.call("store.check")["problems"] == []
    aside = [path.name for path in daemon.state.glob("store.kept-*")]
    assert any(name.endswith(".db") for name in aside)
    assert any(name.endswith(".db-wal") for name in aside)


@requirement("DUR-24")
def test_a_first_start_that_is_killed_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    """The store appears whole or not at all."""
    for step in range(9):
        with DaemonProcess(tmp_path, home=tmp_path / f"home-{step}") as daemon:
            kill_when_the_state_has(daemon, step)
            daemon.start()

            assert daemon.client().call("store.check")["problems"] == []


def kill_when_the_state_has(daemon: DaemonProcess, entries: int) -> None:
    """Kill a daemon that starts for the first time as soon as its state folder has so many entries, or it is ready."""
    process = daemon.spawn()
    while process.poll() is None and not daemon.socket_path.exists():
        if daemon.state.is_dir() and len(list(daemon.state.iterdir())) >= entries:
            break
    daemon.kill9()
