"""Who a peer is, with real processes on real sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from eryxd.api.access import Access
from eryxd.daemon.guard import (
    GONE,
    NO_NEW_PRIVS,
    OTHER_USER,
    UNREADABLE,
    Peer,
    ancestry,
    check,
    command_name,
    identify,
    recheck,
)
from eryxd.domain.errors import ForbiddenPeer
from tests.requirements import requirement

UID = os.getuid()

CLIENT = """
import ctypes, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
print("connected", flush=True)
for line in sys.stdin:
    word, _, rest = line.rstrip("\\n").partition(" ")
    if word == "mark":
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
    if word == "name":
        open("/proc/self/comm", "w").write(rest.encode().decode("unicode_escape"))
    print("done", flush=True)
"""


class Process:
    """A client that connects, and then changes itself when told to."""

    def __init__(self, address: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(address))
        self.listener.listen()
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CLIENT, str(address)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        self.accepted, _ = self.listener.accept()

    @property
    def pid(self) -> int:
        return self.child.pid

    def tell(self, command: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        self._answer()

    def close(self) -> None:
        self.accepted.close()
        self.listener.close()
        self.child.communicate(timeout=10)

    def _answer(self) -> None:
        assert self.child.stdout is not None
        assert self.child.stdout.readline()


@contextmanager
def process(folder: Path) -> Iterator[Process]:
    running = Process(folder / "socket")
    try:
        yield running
    finally:
        running.close()


@requirement("WIR-7")
def test_a_process_of_the_user_has_no_marks(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        peer = identify(client.accepted, UID)

    assert (peer.pid, peer.uid, peer.marks) == (client.pid, UID, ())
    assert peer.start_time > 0


@requirement("WIR-7")
def test_no_new_privs_marks_an_agent(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        client.tell("mark")

        assert identify(client.accepted, UID).marks == (NO_NEW_PRIVS,)


@requirement("WIR-7")
@pytest.mark.parametrize("name", [r"\nNoNewPrivs:\t0", ") R 1 2 3 4 5", "a b"])
def test_a_name_cannot_hide_the_mark(tmp_path: Path, name: str) -> None:
    """A process chooses its name, which stands in the files that are read."""
    with process(tmp_path) as client:
        before = identify(client.accepted, UID)
        client.tell("mark")
        client.tell(f"name {name}")
        after = identify(client.accepted, UID)

    assert after == msgspec.structs.replace(before, marks=(NO_NEW_PRIVS,))


@requirement("WIR-7")
def test_a_mark_that_came_later_is_found_on_recheck_and_stays(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        peer = identify(client.accepted, UID)
        assert recheck(peer) == peer

        client.tell("mark")
        marked = recheck(peer)

    assert marked.marks == (NO_NEW_PRIVS,)
    assert recheck(marked).marks == (NO_NEW_PRIVS, UNREADABLE)


@requirement("WIR-7")
def test_another_process_under_the_same_number_is_not_trusted() -> None:
    peer = Peer(pid=os.getpid(), uid=UID, start_time=1)

    assert recheck(peer).marks == (UNREADABLE,)


@requirement("WIR-7")
def test_a_client_that_has_ended_is_gone_while_its_entry_can_still_be_read(tmp_path: Path) -> None:
    """Its number could be somebody else's by the time that it is looked at."""
    with process(tmp_path) as client:
        assert client.child.stdin is not None
        client.child.stdin.close()
        os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
        peer = identify(client.accepted, UID)
        client.child.stdin = None

    kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
    # Before Linux 6.5 nobody can tell.
    assert peer.marks == ((GONE,) if kernel >= (6, 5) else ())


@requirement("WIR-7")
def test_a_client_that_was_reaped_is_unreadable(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        client.child.communicate(timeout=10)
        client.child.stdin = client.child.stdout = None
        peer = identify(client.accepted, UID)

    assert peer == Peer(pid=client.pid, uid=UID, start_time=0, marks=(UNREADABLE,))


@requirement("WIR-7")
def test_another_uid_is_marked(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        peer = identify(client.accepted, UID + 1)

    assert peer == Peer(pid=client.pid, uid=UID, start_time=0, marks=(OTHER_USER,))


@requirement("WIR-7")
def test_what_is_no_unix_socket_is_unreadable(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert identify(file, UID) == Peer(pid=0, uid=-1, start_time=0, marks=(UNREADABLE,))


@requirement("WIR-8")
@pytest.mark.parametrize("access", list(Access))
@pytest.mark.parametrize("mark", [OTHER_USER, NO_NEW_PRIVS, UNREADABLE, GONE])
def test_a_marked_peer_gets_what_is_open_and_nothing_else(access: Access, mark: str) -> None:
    peer = Peer(pid=12, uid=UID, start_time=3, marks=(mark,))
    if access is Access.OPEN:
        check(peer, access)
        return
    with pytest.raises(ForbiddenPeer, match=mark) as caught:
        check(peer, access)

    assert caught.value.data == {"check": mark, "pid": 12}


@requirement("WIR-8")
@pytest.mark.parametrize("access", list(Access))
def test_a_person_may_call_everything(access: Access) -> None:
    check(Peer(pid=12, uid=UID, start_time=3), access)


@requirement("WIR-7")
def test_a_name_is_shown_without_what_moves_a_cursor(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        client.tell(r"name a\x1b[2J\nb")

        assert command_name(client.pid) == "a?[2J?b"
    assert command_name(client.pid) == ""


@requirement("WIR-7")
def test_ancestry_leads_from_a_process_to_the_first(tmp_path: Path) -> None:
    with process(tmp_path) as client:
        line = ancestry(client.pid)

    assert line[:3] == (client.pid, os.getpid(), os.getppid())
    assert line[-1] == 1
    assert ancestry(client.pid) == (client.pid,)
    assert ancestry(0) == ()


@requirement("WIR-7")
@pytest.mark.system
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_of_another_user_is_marked(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Needs root, to become somebody else."""
    listener, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    # An abstract address, which no folder protects.
    listener.bind(f"\0eryx-test-{os.getpid()}")
    listener.listen()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        client.connect(listener.getsockname())
        os.read(client.fileno(), 1)
        os._exit(0)
    accepted, _ = listener.accept()
    peer = identify(accepted, UID)
    for sock in (accepted, listener, client):
        sock.close()
    os.waitpid(pid, 0)

    assert (peer.pid, peer.uid, peer.marks) == (pid, 65534, (OTHER_USER,))
