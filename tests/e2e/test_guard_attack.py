"""An agent whose shell reaches for its own approvals: refused, written down, and told to the person."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from eryxd.api.access import Access
from eryxd.api.methods import METHODS
from tests.e2e.daemon_process import ROOT, WAIT_S, DaemonProcess
from tests.e2e.stage import Json, Stage, create, is_a, shell
from tests.requirements import requirement

Attack = Callable[[DaemonProcess], str]
"""Makes a shell command that tries to approve `$id` of `$session`, and ends with what came of it."""

OPEN: Final = {name for name, method in METHODS.items() if method.access is Access.OPEN}

TRY: Final = """
import json, sys
from eryxd.client.client import Client, RemoteError
def attempt(method, params):
    try:
        with Client.connect(name="person") as client:
            client.call(method, **params)
    except RemoteError as refused:
        return refused.code
    return "granted"
if __name__ == "__main__":
    print(json.dumps({method: attempt(method, params) for method, params in json.loads(sys.argv[1]).items()}))
"""
"""Calls methods as a client would, and prints what came of each."""

SLIP_AWAY: Final = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
while os.getppid() == int(sys.argv[1]): pass
os.execve(sys.argv[2], sys.argv[2:], {"ERYX_HOME": os.environ["ERYX_HOME"], "PYTHONPATH": os.environ["PYTHONPATH"]})
"""
"""Becomes nobody's child in a session of its own, without what eryx marked its environment with."""


def python(daemon: DaemonProcess, *words: str) -> str:
    """Return a command line that runs Python with eryx in reach, as an agent would have to write it."""
    environ = [f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1", f"ERYX_HOME={daemon.home}"]
    return shlex.join(["env", *environ, sys.executable, *words])


def by_command(daemon: DaemonProcess) -> str:
    """Type what a person would type."""
    return f"{python(daemon, '-m', 'eryxd.cli.app', 'approvals', 'approve')} $id 2>&1"


def by_client(daemon: DaemonProcess) -> str:
    """Speak the protocol."""
    wanted = """{"approvals.resolve": {"session_id": "'$session'", "approval_id": "'$id'", "decision": "approved"}}"""
    return f"{python(daemon, 'try.py')} '{wanted}'"


def out_of_sight(daemon: DaemonProcess) -> str:
    """Double fork, new session, scrubbed environment; the shell waits for the word that it sends back."""
    attack = by_client(daemon).partition(sys.executable)[2]
    slip = python(daemon, "-c", SLIP_AWAY)
    return f'mkfifo back; {slip} $$ /bin/sh -c \'exec "$0" "$@" > back\' {sys.executable}{attack} & cat back'


def prepare(stage: Stage) -> tuple[str, str]:
    """Make a session whose shell needs no approval while everything else does; return it and its other half."""
    (stage.folder / "try.py").write_text(TRY)
    pattern_id = stage.pattern(auto_approved_tool_names=["shell"])
    return stage.session(pattern_id), stage.session(pattern_id)


def play_attack(stage: Stage, attack: str, own: bool) -> tuple[str, Json, Json]:
    """Play a run that attacks an approval of its own, or one of another session.

    Returns the run, the approval, and the refusal as it was told.
    """
    attacker, other = prepare(stage)
    watch = stage.watch()
    os.mkfifo(stage.folder / "go")
    calls = [shell(f"read id session < go; {attack}; echo ended")]
    if own:
        calls.append(create("loot"))
    else:
        stage.play(other, create("loot"))
    run_id = stage.play(attacker, {"calls": calls})
    asked = watch.approvals(1)[0]
    (stage.folder / "go").write_text(f"{asked['id']} {asked['session_id']}\n")
    return run_id, asked, watch.until(is_a("peer-refused"))


@requirement("GRD-1")
@pytest.mark.parametrize("own", [True, False], ids=["its own", "another session's"])
@pytest.mark.parametrize("attack", [by_command, by_client, out_of_sight])
def test_an_agent_that_approves_is_refused_and_the_person_is_told(
    stage: Stage, daemon: DaemonProcess, attack: Attack, own: bool
) -> None:
    """The approval still waits, the journal says who tried what, and the person still decides."""
    run_id, asked, event = play_attack(stage, attack(daemon), own)

    refusal = event["refusal"]
    assert (refusal["check"], refusal["method"] in METHODS, refusal["method"] in OPEN) == ("no-new-privs", True, False)
    assert stage.client.call("daemon.status")["refusals"][-1] == refusal
    assert stage.approval(asked["id"])["status"] == "pending"
    if attack is not out_of_sight:
        session_id = stage.client.call("runs.get", run_id=run_id)["run"]["session_id"]
        assert (refusal["session_id"], event["session_id"]) == (session_id, session_id)
    stage.resolve(asked, "rejected")
    assert stage.ended(run_id)["status"] == "completed"
    (shell_call,) = [each for each in stage.timeline(run_id, "tool-call") if each["tool_name"] == "shell"]
    assert "ended" in shell_call["result"]
    assert "forbidden_peer" in shell_call["result"] or "no_new_privs" in shell_call["result"]
    assert not (stage.folder / "loot").exists()


@requirement("GRD-1")
def test_an_agent_may_call_what_is_open_and_nothing_else(stage: Stage, daemon: DaemonProcess) -> None:
    """Reading is refused as well; whether the arguments are right is not even looked at."""
    session_id, _ = prepare(stage)
    before = stage.client.call("workspace.get")["sessions"]
    wanted: Json = {method: {} for method in METHODS if method != "hello"}
    attack = python(daemon, "try.py", json.dumps(wanted))

    run_id = stage.play(session_id, shell(attack))

    assert stage.ended(run_id)["status"] == "completed"
    answers = json.loads(stage.timeline(run_id, "tool-call")[0]["result"])
    assert {method for method, answer in answers.items() if answer == "granted"} == OPEN - {"hello"}
    assert {answer for method, answer in answers.items() if method not in OPEN} == {"forbidden_peer"}
    assert len(before) == len(stage.client.call("workspace.get")["sessions"])


@requirement("GRD-2")
def test_a_flood_of_refused_calls_is_told_once(stage: Stage, daemon: DaemonProcess) -> None:
    """Each method of each process: an agent cannot fill the journal."""
    session_id, _ = prepare(stage)
    watch = stage.watch()
    flood = "import try_\nfor _ in range(300): try_.attempt('approvals.list', {})\ntry_.attempt('sessions.list', {})"
    (stage.folder / "try_.py").write_text(TRY)

    run_id = stage.play(session_id, shell(python(daemon, "-c", flood)))
    watch.run_ended(run_id)

    told = [event["refusal"]["method"] for event in watch.heard if event["type"] == "peer-refused"]
    assert told == ["approvals.list", "sessions.list"]


@requirement("GRD-1")
def test_a_refusal_survives_a_restart_in_the_journal(stage: Stage, daemon: DaemonProcess) -> None:
    """What the status no longer shows can still be read."""
    session_id, _ = prepare(stage)
    attack = python(daemon, "try.py", json.dumps({"approvals.list": {}}))
    stage.ended(stage.play(session_id, shell(attack)))

    daemon.crash()

    with daemon.client().events(since=0, timeout_s=WAIT_S) as events:
        refusal = next(event["refusal"] for event in events if event["type"] == "peer-refused")
    assert (refusal["method"], refusal["session_id"]) == ("approvals.list", session_id)


@requirement("GRD-3")
def test_the_guard_can_be_turned_off_by_whoever_owns_the_configuration(tmp_path: Path) -> None:
    """For people whose own terminal carries the mark."""
    with DaemonProcess(tmp_path) as daemon:
        daemon.config.mkdir(parents=True, mode=0o700, exist_ok=True)
        (daemon.config / "config.toml").write_text("[guard]\nno_new_privs = false\n")
        daemon.start()
        with Stage(daemon, tmp_path / "project") as stage:
            session_id, _ = prepare(stage)
            run_id = stage.play(session_id, shell(python(daemon, "try.py", json.dumps({"approvals.list": {}}))))

            assert stage.ended(run_id)["status"] == "completed"
            assert json.loads(stage.timeline(run_id, "tool-call")[0]["result"]) == {"approvals.list": "granted"}


@requirement("GRD-1")
def test_everything_that_a_tool_starts_carries_the_mark(stage: Stage) -> None:
    """Also what has left its session and its parents."""
    session_id, _ = prepare(stage)
    look = "grep NoNewPrivs /proc/self/status"
    run_id = stage.play(session_id, shell(f"{look}; (setsid {look}); nohup {look}; env -i /bin/sh -c '{look}'"))

    stage.ended(run_id)

    lines: list[Any] = stage.timeline(run_id, "tool-call")[0]["result"].splitlines()
    assert [line.split() for line in lines if "NoNewPrivs" in line] == [["NoNewPrivs:", "1"]] * 4


HOG: Final = """
import socket, sys
held, refused = [], 0
for _ in range(60):
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(sys.argv[1])
    connected.settimeout(0.05)
    try:
        refused += bool(connected.recv(1))
    except TimeoutError:
        held.append(connected)
print(len(held), refused)
"""
"""Holds what connections it gets; one that is refused is told so at once."""


@requirement("GRD-4", "WIR-13")
def test_an_agent_cannot_take_the_connections_of_its_person(stage: Stage, daemon: DaemonProcess) -> None:
    """All agents together get a few; who has to stop them always gets in."""
    (stage.folder / "hog.py").write_text(HOG)
    session_id = stage.session(stage.pattern(auto_approved_tool_names=["shell"]))

    run_id = stage.play(session_id, shell(python(daemon, "hog.py", str(daemon.home / "run" / "eryxd.sock"))))
    stage.client.call("runs.wait", run_id=run_id)

    (called,) = [one for one in stage.timeline(run_id) if one["kind"] == "tool-call"]
    held, refused = map(int, called["result"].split())
    assert (held, refused) == (16, 44)


FLOOD: Final = """
import os, sys
for n in range(80):
    if os.fork() == 0:
        from try_ import attempt
        attempt("sessions.list", {})
        os._exit(0)
    os.wait()
from try_ import attempt
print(attempt("patterns.delete", {"pattern_id": "single"}))
"""
"""Has many processes refused, each once, and then tries what it is really after."""


@requirement("GRD-1", "GRD-2")
def test_cheap_calls_do_not_hide_the_one_that_counts(stage: Stage, daemon: DaemonProcess) -> None:
    """However many refusals came before in the same minute, the first try at a method is told."""
    (stage.folder / "try_.py").write_text(TRY)
    (stage.folder / "flood.py").write_text(FLOOD)
    watch = stage.watch()
    session_id = stage.session(stage.pattern(auto_approved_tool_names=["shell"]))

    stage.play(session_id, shell(python(daemon, "flood.py")))
    told = watch.until(lambda event: event.get("refusal", {}).get("method") == "patterns.delete")

    assert told["type"] == "peer-refused"
    assert told["refusal"]["session_id"] == session_id
