"""`kill -9` at random moments of a busy life: what was acknowledged is there, and nothing is left waiting.

A failure prints the seed; `ERYX_SEED=N` repeats the same choices, though never the very same moments.
"""

import os
import random
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from eryxd.client.client import Client, ClientError, RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess
from tests.e2e.stage import ASK, HOLD, Json, Stage, create, resolve, shell
from tests.requirements import requirement

CLIENTS: Final = 2
LONGEST_LIFE_S: Final = 0.4
LONGEST_START_S: Final = 0.25
"""Within these a moment is chosen to kill a daemon that works, and one that starts."""


class Person(threading.Thread):
    """Decides whatever is asked, at random, until the daemon is gone; keeps what was acknowledged."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        super().__init__()
        self.acknowledged: dict[str, str] = {}
        self.refused: set[str] = set()
        self._client = client
        self._rng = rng
        # Subscribed before anything is asked, so that nothing is missed.
        self._events = client.events(topics=["approvals"], timeout_s=WAIT_S)

    def run(self) -> None:
        try:
            for event in self._events:
                if event["type"] == "approval-requested":
                    self._decide(event["approval"])
        except ClientError:
            return
        finally:
            self._events.close()

    def _decide(self, approval: Json) -> None:
        decision = self._rng.choice(("approved", "approved", "rejected"))
        try:
            resolve(self._client, approval, decision, note="from the loop")
        except RemoteError as refusal:
            self.refused.add(refusal.code)
            return
        self.acknowledged[approval["id"]] = decision


class Life:
    """A daemon that is killed again and again, and everything that it ever acknowledged."""

    def __init__(self, daemon: DaemonProcess, folder: Path, seed: int) -> None:
        self.daemon = daemon
        self.rng = random.Random(seed)  # noqa: S311
        self.decisions: dict[str, str] = {}
        self.runs: list[str] = []
        self.kills = 0
        daemon.start()
        self.folder = folder
        with Stage(daemon, folder) as stage:
            open_one = stage.pattern(auto_approved_tool_names=["create"])
            held_one = stage.pattern([*ASK, *HOLD], auto_approved_tool_names=["create"])
            self.sessions = [stage.session(open_one), stage.session(open_one), stage.session(held_one)]

    def round(self, number: int) -> None:
        """Be busy, be killed, start again, perhaps after being killed in the middle of it, and hold all laws."""
        with Stage(self.daemon, self.folder) as stage:
            people = [Person(self.daemon.client(f"p{n}"), self._fork()) for n in range(CLIENTS)]
            for person in people:
                person.start()
            self._begin(stage, number)
            self._kill_within(LONGEST_LIFE_S)
            for person in people:
                person.join(WAIT_S)
                assert not person.is_alive()
                # Another client was quicker, or the run had failed.
                assert person.refused <= {"approval_not_active"}
                self.decisions |= person.acknowledged
        while self.rng.random() < 0.25:
            self.daemon.spawn()
            self._kill_within(LONGEST_START_S)
        self.daemon.start()
        with self.daemon.client() as client:
            self._hold_the_laws(client)

    def _fork(self) -> random.Random:
        return random.Random(self.rng.random())  # noqa: S311

    def _begin(self, stage: Stage, number: int) -> None:
        for place, session_id in enumerate(self.sessions):
            token = f"{number}-{place}"
            many = {"calls": [shell(f"echo {token}-{n} >> ran") for n in range(3)]}
            steps = (create(f"auto-{token}"), many, {"say": "Half way."}, shell(f"echo {token}-last >> ran"))
            self.runs.append(stage.play(session_id, *steps))

    def _kill_within(self, longest_s: float) -> None:
        assert self.daemon.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            self.daemon.process.wait(self.rng.uniform(0, longest_s))
        self.daemon.kill9()
        self.kills += 1

    def _hold_the_laws(self, client: Client) -> None:
        status = client.call("daemon.status")
        assert (status["running"], status["waiting"]) == (0, 0)
        assert client.call("approvals.list")["approvals"] == []
        sessions = client.call("sessions.list", archived=True)["sessions"]
        assert {one["id"]: one["status"] for one in sessions if one["status"] == "running"} == {}
        assert not any("pending_approval" in one or one["pending_approval_queue"] for one in sessions)
        for run_id in self.runs:
            assert client.call("runs.get", run_id=run_id)["run"]["status"] in ("completed", "error")
        assert {key: self._stored(client, key) for key in self.decisions} == self.decisions

    def _stored(self, client: Client, approval_id: str) -> str:
        approval = client.call("approvals.get", approval_id=approval_id)["approval"]
        assert (approval["resolution"], approval["note"]) == ("user", "from the loop")
        return str(approval["status"])

    def reckon(self) -> None:
        """At the end: what ran, or was published, had a decision that is stored; nothing ran twice or is open."""
        with self.daemon.client() as client:
            assert client.call("store.check")["problems"] == []
            resolved = self._all(client, "approvals", resolved=True)
            calls = [client.call("approvals.get", approval_id=one["id"])["approval"] for one in resolved]
            timelines = [client.call("timeline.get", run_id=run["id"])["events"] for run in self._all(client, "runs")]
            said = self._all(client, "messages", session_id=self.sessions[-1])
        approved = [one for one in calls if one["status"] == "approved"]
        read = [one for one in approved if one["kind"] == "final-response"]
        assert sum(message["role"] == "assistant" for message in said) == len(read)
        allowed = {one["permission"]["command"].split()[1] for one in approved if one["kind"] == "tool-call"}
        ran = (self.folder / "ran").read_text().split()
        assert sorted(set(ran)) == sorted(ran)
        assert set(ran) <= allowed
        recorded = {
            event["arguments"]["path"]
            for event in (event for events in timelines for event in events if event["kind"] == "tool-call")
            if event["asks"][0]["decision"]["verdict"] == "auto"
        }
        assert {path.name for path in self.folder.glob("auto-*")} <= recorded
        still_open = [event for events in timelines for event in events if event["status"] == "running"]
        assert still_open == []

    def _all(self, client: Client, what: str, **asked: Any) -> list[Json]:
        """Return all pages of a list."""
        found: list[Json] = []
        cursor = None
        while True:
            page = client.call(f"{what}.list", cursor=cursor, **asked)
            found += page[what]
            cursor = page.get("cursor")
            if cursor is None:
                return found


def live(tmp_path: Path, rounds: int) -> Life:
    """Live through so many rounds and hold all laws after each."""
    seed = int(os.environ.get("ERYX_SEED") or random.SystemRandom().randrange(2**32))
    print(f"repeat with ERYX_SEED={seed}")
    with DaemonProcess(tmp_path) as daemon:
        life = Life(daemon, tmp_path / "project", seed)
        for number in range(rounds):
            life.round(number)
        life.reckon()
    return life


@requirement("APR-9", "APR-11", "DUR-27")
@pytest.mark.timeout(180)
def test_forty_kills_lose_no_acknowledged_decision_and_leave_nothing_pending(tmp_path: Path) -> None:
    """After each start all laws hold; at the end nothing has run that nobody allowed."""
    life = live(tmp_path, 40)

    assert life.kills >= 40
    assert len(life.decisions) > 40


@requirement("DUR-27")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_kills_lose_no_acknowledged_decision(tmp_path: Path) -> None:
    """The same, for as long as it takes."""
    assert live(tmp_path, 1000).kills >= 1000
