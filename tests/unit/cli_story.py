"""One run, told by a daemon: what `eryx run` meets."""

from pathlib import Path
from typing import Any, Final

from tests import builders
from tests.fakes import FakeDaemon, Person, Script, eryx, refuse, wire
from tests.unit.cli_records import ask, call, decided

SESSION: Final = "s" + "x" * 16
RUN: Final = "r" + "y" * 16
ASKED: Final = "a7k2" + "a" * 13


class Story:
    """One run with one call that asks; whoever decides ends the run."""

    def __init__(self, home: Path, **permission: Any) -> None:
        self.approval = builders.approval(
            ASKED,
            session_id=SESSION,
            run_id=RUN,
            digest="d" * 64,
            detail='Coder requested shell permission for tool "shell" in replay.',
            permission=builders.permission(**{"command": "make test", **permission}),
        )
        self.status = "running"
        self.error: str | None = None
        self.remember: dict[str, Any] = {"stores": ["shell"], "releases": []}
        self.daemon = FakeDaemon(
            home,
            {
                "projects.add": lambda _: {"project": {"id": "j1"}, "seq": 1},
                "patterns.list": lambda _: {"patterns": [wire(builders.pattern("single"))]},
                "sessions.create": lambda _: self._session(),
                "messages.send": lambda _: {"run_id": RUN, **self._session()},
                "timeline.get": lambda _: {"run": self._run(), "events": self.events(), "seq": 100},
                "approvals.get": lambda _: {
                    "approval": wire(self.approval),
                    "waiting": 1,
                    "position": 1,
                    "remember": self.remember,
                },
                "approvals.resolve": self._resolve,
                "runs.cancel": lambda _: self._end("cancelled"),
            },
        )

    def __enter__(self) -> "Story":
        self.daemon.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.__exit__()

    def events(self) -> list[Any]:
        """Return the timeline so far: a call that ran by itself, and one that asks."""
        return [
            {**call("t1", ask("auto", "pattern-list"), tool_name="view", arguments={"path": "a.py"}), "number": 1},
            {
                **wire(
                    builders.timeline_event(
                        "t2",
                        kind="approval",
                        number=2,
                        approval_id=ASKED,
                        approval_kind="tool-call",
                        approval_title="Approve shell",
                        agent_name="Coder",
                    )
                )
            },
            {**call("t3", ask("ask", "not-listed", ASKED)), "number": 3},
        ]

    def person(self, *words: str) -> Person:
        """Start `eryx run` in a terminal."""
        return Person(eryx("run", "hello", "--project", str(self.daemon.home), *words), self.daemon.environ)

    def script(self, *words: str) -> Script:
        """Start `eryx run` with its output in a pipe."""
        return Script(eryx("run", "hello", "--project", str(self.daemon.home), *words), self.daemon.environ)

    def decides_elsewhere(self, decision: str, **changes: Any) -> None:
        """Be another client that decides."""
        event = decided(decision, **{"approval_id": ASKED, **changes})
        self.daemon.emit("timeline-event", timeline_event={**event, "id": "t2", "number": 2, "run_id": RUN})
        self._end("completed" if decision == "approved" else "error")

    def _resolve(self, params: dict[str, Any]) -> Any:
        if self.error is not None:
            error, self.error = self.error, None
            raise refuse(error, "Not now.")
        changes = {"note": params["note"]} if "note" in params else {}
        self.decides_elsewhere(params["decision"], **changes)
        return {"approval": wire(self.approval), "released": [], **self._session()}

    def _end(self, status: str) -> Any:
        self.status = status
        self.daemon.emit("run-updated", run=self._run())
        return {"run": self._run(), "seq": 102}

    def _run(self) -> Any:
        error = "It failed." if self.status == "error" else None
        return wire(builders.run(RUN, session_id=SESSION, status=self.status, error=error))

    def _session(self) -> dict[str, Any]:
        return {"session": wire(builders.session_view(SESSION)), "seq": 1}
