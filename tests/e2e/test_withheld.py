"""What is held back is found nowhere but in `approvals.get` and `approvals.content`, until a person lets it out.

Every read method is called, every topic was subscribed to from before, and the journal, every table, the store's
own bytes and the log are searched.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pytest

from eryxd.api.access import Access
from eryxd.api.methods import METHODS
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.distributions import provided
from tests.e2e.stage import HOLD, Json, Stage, Watch, is_a
from tests.requirements import requirement

SECRET: Final = "marmaladenfuchs"
"""A word that occurs only in what the agent says."""

THOUGHT: Final = "quittenbrombeere"
"""A word that occurs only in what the agent thinks."""

WORDS: Final = (SECRET, THOUGHT)

SHOWS: Final = ("approvals.get", "approvals.content")
"""The methods that may show it."""

STEPS: Final = ({"think": f"I should mention the {THOUGHT}."}, {"say": f"It was the {SECRET}, in the garden. " * 40})


def told(value: Any) -> set[str]:
    """Return which of the words occur anywhere in a value, as it would be sent."""
    raw = value if isinstance(value, bytes) else msgpack.packb(value)
    return {word for word in WORDS if word.encode() in raw}


class Held:
    """A run whose response is held, and somebody who has heard everything from the start."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.daemon = stage.daemon
        self.watch: Watch = stage.watch()
        self.session_id = stage.session(stage.pattern(HOLD))
        self.run_id = stage.play(self.session_id, *STEPS)
        self.approval: Json = self.watch.approvals(1)[0]

    def arguments(self) -> dict[str, list[Json]]:
        """Return with what each method that reads is called: everything that could lead to the text."""
        session, run, approval = (
            {"session_id": self.session_id},
            {"run_id": self.run_id},
            {"approval_id": self.approval["id"]},
        )
        pattern = self.stage.client.call("patterns.list")["patterns"][0]
        draft = {"name": "Another", "mode": "single", "agents": [{"id": "a", "name": "A"}]}
        return {
            "hello": [{}],
            "ping": [{}],
            "api.describe": [{}],
            "daemon.status": [{}],
            "capabilities.describe": [{}],
            "projects.list": [{}],
            "patterns.list": [{}],
            "patterns.get": [{"pattern_id": pattern["id"]}],
            "patterns.validate": [{"pattern": draft}],
            "tools.list": [{}, session],
            "tools.stale": [{}],
            "tools.explain": [session],
            "providers.list": [{}],
            "providers.get": [{"provider": "say", "id": "mine"}],
            "plugins.list": [{}],
            "sessions.list": [{}, {"archived": True}, {"project_id": self.stage.project_id}],
            "sessions.get": [session],
            "sessions.search": [{"query": word} for word in WORDS],
            "messages.list": [session],
            "runs.get": [run],
            "runs.list": [{}, session],
            "runs.wait": [{**run, "timeout_s": 0}],
            "approvals.list": [{}, session, {"resolved": True}],
            "approvals.get": [approval],
            "approvals.content": [approval],
            "timeline.get": [run],
            "events.unsubscribe": [{}],
            "workspace.get": [{}],
        }

    def shown_by(self) -> dict[str, set[str]]:
        """Call every method that reads; return which of them show something of what was held back."""
        client = self.daemon.client()
        asked = self.arguments()
        shown = {
            method: told([client.call(method, **params) for params in asked[method]])
            for method in METHODS
            if method in asked
        }
        return {method: words for method, words in shown.items() if words}

    def heard(self) -> set[str]:
        """Return what was heard by who had subscribed to everything before, and by a replay of the whole journal."""
        self.stage.client.call("sessions.pin", session_id=self.session_id, is_pinned=True)
        self.watch.until(lambda event: is_a("session-updated")(event) and event["session"]["is_pinned"])
        last = self.watch.heard[-1]["seq"]
        with Watch(self.daemon.client(), since=0) as replay:
            replay.until(lambda event: bool(event["seq"] == last))
            return told(self.watch.heard) | told(replay.heard)

    def stored(self) -> set[str]:
        """Return the tables that hold something of it, and `log` where the log does."""
        with closing(self.daemon.database()) as store:
            found = {table for table in tables(store) if told(rows(store, table))}
        return found | ({"log"} if told(self.daemon.log().encode()) else set())

    def bytes_left(self) -> set[str]:
        """Stop the daemon in good order and return what can still be read in the bytes of its files."""
        assert self.daemon.stop() == 0
        with closing(sqlite3.connect(self.daemon.store_path)) as store:
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return set().union(*(told(path.read_bytes()) for path in self.daemon.state.rglob("*") if path.is_file()))


def tables(store: sqlite3.Connection) -> list[str]:
    """Return every table, those of the search index included."""
    return [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def rows(store: sqlite3.Connection, table: str) -> bytes:
    """Return a table as bytes."""
    return repr(store.execute(f"SELECT * FROM {table}").fetchall()).encode()  # noqa: S608


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with a provider of tools."""
    with provided(tmp_path) as running:
        yield running


@pytest.fixture
def held(stage: Stage) -> Held:
    """A response that waits to be read."""
    return Held(stage)


def test_every_method_that_reads_is_called(held: Held) -> None:
    """A new one has to be added here; a subscription is looked at in its own way."""
    reading = {name for name, method in METHODS.items() if method.access in (Access.OPEN, Access.READ)}

    assert reading - {"events.subscribe"} == set(held.arguments())


@requirement("APR-7")
def test_what_waits_to_be_read_is_shown_by_two_methods_and_no_other(held: Held) -> None:
    """Those that a person reads it with."""
    assert held.shown_by() == {method: set(WORDS) for method in SHOWS}


@requirement("APR-7")
def test_what_waits_to_be_read_is_in_no_event_live_or_replayed(held: Held) -> None:
    """Nor in a piece that was streamed."""
    assert held.heard() == set()
    assert "message-delta" not in {event["type"] for event in held.watch.heard}


@requirement("APR-7")
def test_what_waits_to_be_read_is_stored_in_its_own_table_alone(held: Held) -> None:
    """The plan, which is replay's own input and no saying, lies with the run."""
    assert held.stored() == {"withheld", "run_input"}


@requirement("APR-7")
def test_an_approved_response_is_published_everywhere_it_belongs(held: Held) -> None:
    """Transcript, timeline, search, journal; no longer in the approval."""
    held.stage.resolve(held.approval)

    assert held.heard() == set(WORDS)
    shown = held.shown_by()
    assert shown == {"messages.list": {SECRET}, "timeline.get": set(WORDS)}
    found = held.stage.client.call("sessions.search", query=SECRET)["sessions"]
    assert [session["id"] for session in found] == [held.session_id]
    assert "withheld" not in held.stored()


@requirement("APR-7")
@pytest.mark.parametrize("how", ["rejected", "cancelled", "interrupted", "killed", "deleted"])
def test_a_response_that_was_not_approved_is_found_nowhere(held: Held, how: str) -> None:
    """However it ended: in no reply, event, row or byte of the files."""
    ends: dict[str, Callable[[], Any]] = {
        "rejected": lambda: held.stage.resolve(held.approval, "rejected"),
        "cancelled": lambda: held.stage.client.call("runs.cancel", run_id=held.run_id),
        "interrupted": held.daemon.restart,
        "killed": held.daemon.crash,
        "deleted": lambda: held.stage.client.call("sessions.delete", session_id=held.session_id),
    }
    forget_the_plan = "DELETE FROM run_input"

    ends[how]()

    if how in ("rejected", "cancelled"):
        held.stage.ended(held.run_id)
        assert held.shown_by() == {}
        assert held.heard() == set()
    assert held.stored() <= {"run_input"}
    assert held.daemon.stop() == 0
    with closing(sqlite3.connect(held.daemon.store_path)) as store:
        store.execute("PRAGMA secure_delete = ON")
        store.execute(forget_the_plan)
        store.commit()
    held.daemon.start()
    assert held.bytes_left() == set()
