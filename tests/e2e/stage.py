"""A project, a pattern and plans for a daemon that runs, and a way to wait for what happens in it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from eryxd.client.client import Client, EventStream
from tests.e2e.daemon_process import WAIT_S, DaemonProcess

Json = dict[str, Any]

ASK: Final = ({"kind": "tool-call"},)
"""Every tool call asks."""

HOLD: Final = ({"kind": "final-response"},)
"""What is said is held back; tools run freely."""


class Watch:
    """A subscription that keeps what it heard.  Begins where it is made."""

    def __init__(self, client: Client, **asked: Any) -> None:
        self.heard: list[Json] = []
        self.stream: EventStream = client.events(timeout_s=WAIT_S, **asked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def until(self, wanted: Callable[[Json], bool]) -> Json:
        """Return the next event that is wanted; the others are kept in `heard`."""
        for event in self.stream:
            self.heard.append(event)
            if wanted(event):
                return event
        raise AssertionError(f"the subscription ended; it heard {[event['type'] for event in self.heard]}")

    def approvals(self, count: int) -> list[Json]:
        """Return the next approvals that are asked for, in request order."""
        return [self.until(is_a("approval-requested"))["approval"] for _ in range(count)]

    def run_ended(self, run_id: str | None = None) -> Json:
        """Return the run that has ended next, or that one."""
        wanted = self.until(lambda event: _is_ended(event) and run_id in (None, event["run"]["id"]))
        return dict(wanted["run"])


def is_a(kind: str) -> Callable[[Json], bool]:
    """Return what is true of one type of event."""
    return lambda event: bool(event["type"] == kind)


def _is_ended(event: Json) -> bool:
    return bool(event["type"] == "run-updated" and event["run"]["status"] != "running")


class Stage:
    """One project folder and the sessions that work in it.  `client` is the person's."""

    def __init__(self, daemon: DaemonProcess, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.daemon = daemon
        self.folder = folder
        self.client = daemon.client("person")
        self.project_id = str(self.client.call("projects.add", path=str(folder))["project"]["id"])
        self._plans = 0
        self._watches: list[Watch] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.stream.close()
        self.client.close()

    def watch(self, **asked: Any) -> Watch:
        """Subscribe now; ends with the stage."""
        watch = Watch(self.client, **asked)
        self._watches.append(watch)
        return watch

    def pattern(
        self, rules: Iterable[Mapping[str, Any]] = ASK, agents: Sequence[str] = ("coder",), **policy: Any
    ) -> str:
        """Save a pattern and return its id; more than one agent take turns."""
        draft = {
            "name": "Team",
            "mode": "single" if len(agents) == 1 else "sequential",
            "agents": [{"id": agent, "name": agent.title()} for agent in agents],
            "approval_policy": {"rules": [dict(rule) for rule in rules], **policy},
        }
        return str(self.client.call("patterns.save", pattern=draft)["pattern"]["id"])

    def session(self, pattern_id: str | None = None, project_id: str | None = None) -> str:
        """Create a session and return its id; its calls ask unless the pattern says otherwise."""
        created = self.client.call(
            "sessions.create", pattern_id=pattern_id or self.pattern(), project_id=project_id or self.project_id
        )
        return str(created["session"]["id"])

    def plan(self, *steps: Mapping[str, Any]) -> str:
        """Write a plan and return its path."""
        self._plans += 1
        path = self.folder.parent / f"{self.folder.name}-plan-{self._plans}.toml"
        path.write_text('title = "A plan"\n' + "".join(_step(step) for step in steps))
        return str(path)

    def play(self, session_id: str, *steps: Mapping[str, Any], content: str = "Go on.") -> str:
        """Start a run that plays these steps; return its id."""
        started = self.client.call("messages.send", session_id=session_id, content=content, plan=self.plan(*steps))
        return str(started["run_id"])

    def resolve(self, approval: Mapping[str, Any], decision: str = "approved", **more: Any) -> Json:
        """Decide as the person."""
        return resolve(self.client, approval, decision, **more)

    def ended(self, run_id: str) -> Json:
        """Wait for the end of a run and return it."""
        reply = self.client.request("runs.wait", {"run_id": run_id, "timeout_s": WAIT_S}, timeout_s=2 * WAIT_S)
        assert reply["run"]["status"] != "running", self.daemon.log()
        return dict(reply["run"])

    def get(self, session_id: str) -> Json:
        """Return a session as it is."""
        return dict(self.client.call("sessions.get", session_id=session_id)["session"])

    def approval(self, approval_id: str) -> Json:
        """Return an approval as `approvals.get` shows it."""
        return dict(self.client.call("approvals.get", approval_id=approval_id)["approval"])

    def timeline(self, run_id: str, kind: str | None = None) -> list[Json]:
        """Return a run's events, or those of one kind."""
        events: list[Json] = self.client.call("timeline.get", run_id=run_id)["events"]
        return [event for event in events if kind in (None, event["kind"])]


def resolve(client: Client, approval: Mapping[str, Any], decision: str = "approved", **more: Any) -> Json:
    """Decide an approval from any client."""
    reply = client.call(
        "approvals.resolve",
        session_id=approval["session_id"],
        approval_id=approval["id"],
        decision=decision,
        **more,
    )
    return dict(reply)


def call(tool: str, expect: Mapping[str, Any] | None = None, **arguments: Any) -> Json:
    """Return a step, or one entry of `calls`."""
    expected = {"expect": dict(expect)} if expect else {}
    return {"call": tool, "arguments": arguments, **expected}


def create(name: str, expect: Mapping[str, Any] | None = None) -> Json:
    """Return a call that leaves a file behind: the proof that it ran."""
    return call("create", expect, path=name, content="x")


def shell(command: str, expect: Mapping[str, Any] | None = None, **more: Any) -> Json:
    """Return a call of the shell."""
    return call("shell", expect, command=command, **more)


def _step(step: Mapping[str, Any]) -> str:
    return "[[step]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in step.items())


def _toml(value: Any) -> str:
    """Write a value as TOML: strings as JSON has them, maps and lists on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
