"""Other users, and an ordinary user: what only file modes and uids decide.  Needs root, to be somebody else.

An interpreter under root's home is out of others' reach, so what runs as another user is one that everybody can
run, with copies of our packages on its path.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest

from tests.e2e.daemon_process import ROOT, WAIT_S, DaemonProcess
from tests.requirements import requirement

pytestmark = pytest.mark.system

USER: Final = 65534
OTHER: Final = 65533
"""Two ordinary users; neither needs an entry in the password database."""

PLAY: Final = """
import json, sys
from eryxd.client.client import Client
project, plan = sys.argv[1:]
with Client.connect() as client:
    project_id = client.call("projects.add", path=project)["project"]["id"]
    agents = [{"id": "a", "name": "A"}]
    draft = {"name": "P", "mode": "single", "agents": agents, "approval_policy": {"rules": []}}
    pattern_id = client.call("patterns.save", pattern=draft)["pattern"]["id"]
    session_id = client.call("sessions.create", pattern_id=pattern_id, project_id=project_id)["session"]["id"]
    run_id = client.call("messages.send", session_id=session_id, content="Go.", plan=plan)["run_id"]
    client.call("runs.wait", run_id=run_id, timeout_s=20)
    print(json.dumps(client.call("timeline.get", run_id=run_id)))
"""
"""What a person does to play a plan: prints the run with its timeline."""

PING: Final = "from eryxd.client.client import Client\nwith Client.connect() as client: client.call('ping')"


class Somebody:
    """A user who runs commands with eryx in reach."""

    def __init__(self, uid: int, python: Sequence[str], home: Path) -> None:
        self.uid = uid
        self.home = home
        self._python = python

    def command(self, *words: str | Path) -> list[str]:
        """Return a command line that runs Python as this user."""
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*become, *self._python, *map(str, words)]

    def python(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run Python to its end."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "ERYX_HOME": str(self.home)}
        return subprocess.run(
            self.command(*words), env=environ, cwd="/", capture_output=True, text=True, timeout=2 * WAIT_S
        )


class UsersDaemon(DaemonProcess):
    """A daemon of another user: whether it answers is for that user to find out."""

    def __init__(self, folder: Path, owner: Somebody) -> None:
        super().__init__(folder, home=owner.home, command=owner.command("-m", "eryxd.daemon.app"))
        self._owner = owner

    @property
    def environ(self) -> dict[str, str]:
        """As any daemon's; where Python finds eryx is said in the command."""
        return {name: value for name, value in super().environ.items() if name != "PYTHONPATH"}

    def _answers(self) -> bool:
        return self._owner.python("-c", PING).returncode == 0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The start of a command line that runs Python with eryx in reach of every user."""
    if os.getuid() != 0:
        pytest.fail("only root can be somebody else")
    library = tmp_path_factory.mktemp("library")
    for package in (ROOT / "eryxd", Path(msgpack.__file__).parent, Path(msgspec.__file__).parent):
        shutil.copytree(package, library / package.name)
    open_the_way_to(library)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for interpreter in (os.path.realpath(sys.executable), f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        words = ("env", f"PYTHONPATH={library}", "PYTHONDONTWRITEBYTECODE=1", interpreter)
        if Somebody(USER, words, library).python("-c", "import eryxd").returncode == 0:
            return words
    pytest.fail(f"no {version} here can be run by an ordinary user")


def open_the_way_to(place: Path) -> None:
    """Let everybody walk from pytest's own folder, which is private, down to a place."""
    for folder in (place, *place.parents):
        if folder.stat().st_uid == os.getuid() and stat.S_IMODE(folder.stat().st_mode) == 0o700:
            folder.chmod(0o711 if folder != place else 0o755)


@pytest.fixture
def user(tmp_path: Path, python: Sequence[str]) -> Somebody:
    """An ordinary user with a home of its own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, USER, USER)
    open_the_way_to(tmp_path)
    return Somebody(USER, python, home)


@pytest.fixture
def daemon(user: Somebody, tmp_path: Path) -> Iterator[UsersDaemon]:
    """That user's daemon, not yet started."""
    with UsersDaemon(tmp_path, user) as process:
        yield process


def give(path: Path, uid: int = USER) -> Path:
    """Make a folder that belongs to a user."""
    path.mkdir(mode=0o700)
    os.chown(path, uid, uid)
    return path


def play(user: Somebody, folder: Path, command: str) -> Any:
    """Play a plan of one command as that user; return its tool call's event."""
    project = give(folder / "project")
    plan = folder / "plan.toml"
    step = f"[[step]]\ncall = 'shell'\narguments = {{ command = {json.dumps(command)} }}\n"
    plan.write_text(f"title = 'A plan'\n{step}")
    played = user.python("-c", PLAY, project, plan)
    assert played.returncode == 0, played.stderr
    (event,) = [each for each in json.loads(played.stdout)["events"] if each["kind"] == "tool-call"]
    return event


@requirement("DUR-20", "WIR-20")
def test_another_user_cannot_reach_the_daemon(daemon: UsersDaemon, user: Somebody, python: Sequence[str]) -> None:
    """The folder of the socket is closed to everybody else."""
    daemon.start()

    stranger = Somebody(OTHER, python, user.home).python("-c", PING)

    assert stranger.returncode != 0
    assert "UntrustedSocket" in stranger.stderr or "DaemonNotRunning" in stranger.stderr


@requirement("WIR-13")
def test_root_reaches_the_socket_and_is_refused(daemon: UsersDaemon) -> None:
    """Who passes every file mode is still another user."""
    daemon.start()

    with daemon.raw() as raw:
        (refusal,) = raw.rest()

    assert (refusal[2]["code"], refusal[2]["data"]["check"]) == ("forbidden_peer", "uid")


@requirement("GRD-1")
def test_an_agent_gains_no_other_user(daemon: UsersDaemon, user: Somebody, tmp_path: Path) -> None:
    """A program that would run as its owner, root, runs as who called it."""
    grab = tmp_path / "grab"
    shutil.copy("/usr/bin/id", grab)
    grab.chmod(0o4755)
    daemon.start()
    outside = subprocess.run([*user.command()[:4], grab, "-u"], capture_output=True, text=True, timeout=WAIT_S)

    event = play(user, tmp_path, f"{grab} -u")

    if outside.stdout.strip() != "0":
        pytest.fail("the temporary folder allows no such programs")
    assert event["result"].strip() == str(USER)


@requirement("GRD-1")
def test_an_ordinary_users_agent_is_refused_like_roots(daemon: UsersDaemon, user: Somebody, tmp_path: Path) -> None:
    """What marks it has nothing to do with rights."""
    daemon.start()
    attack = "from eryxd.client.client import Client; Client.connect().call('approvals.list')"
    words = " ".join([f"ERYX_HOME={user.home}", *user.command()[4:], "-c", f'"{attack}"'])

    event = play(user, tmp_path, f"env {words}")

    assert "RemoteError: forbidden_peer" in event["result"]


Spoil = Callable[[Path], None]


def closed_state(home: Path) -> None:
    """Take the right to write away from the state folder."""
    give(home / "state").chmod(0o500)


def foreign_lock(home: Path) -> None:
    """Let the lock be somebody else's."""
    lock = give(home / "state") / "lock"
    lock.write_text("1")
    lock.chmod(0o600)


def foreign_settings(home: Path) -> None:
    """Let somebody else have written the settings."""
    settings = give(home / "config") / "config.toml"
    settings.write_text("[approvals]\ndefault = 'none'\n")
    os.chown(settings, OTHER, OTHER)
    settings.chmod(0o644)


def foreign_runtime(home: Path) -> None:
    """Let the folder of the socket be somebody else's."""
    give(home / "run", OTHER)


def open_runtime(home: Path) -> None:
    """Let everybody into the folder of the socket."""
    give(home / "run").chmod(0o777)


def foreign_store(home: Path) -> None:
    """Let the store be root's."""
    store = give(home / "state") / "store.db"
    store.write_bytes(b"SQLite format 3\0")
    store.chmod(0o600)


@requirement("DUR-23")
@pytest.mark.parametrize(
    ("spoil", "place", "why"),
    [
        (closed_state, "state/lock", "Permission denied"),
        (foreign_lock, "state/lock", "Permission denied"),
        (foreign_settings, "config/config.toml", "belongs to another user"),
        (foreign_runtime, "run", "belongs to another user"),
        (open_runtime, "run", "chmod 700"),
        (foreign_store, "state/store.db", "Permission denied"),
    ],
)
def test_what_is_not_ours_is_refused_by_name(
    daemon: UsersDaemon, user: Somebody, spoil: Spoil, place: str, why: str
) -> None:
    """One line that names it, and status 78."""
    spoil(user.home)

    status, said = daemon.run_to_end()

    assert (status, len(said.splitlines())) == (78, 1), said
    assert str(user.home / place) in said
    assert why in said
