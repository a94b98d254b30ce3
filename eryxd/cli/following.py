"""A run followed to its end: printed as it happens, asked about in place, left or cancelled with Ctrl-C."""

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from eryxd.api.errors import EXIT_RUN_FAILED
from eryxd.cli.answer import Asker
from eryxd.cli.ctrl_c import CtrlC
from eryxd.cli.feed import Feed
from eryxd.cli.kit import CLIENT_NAME, EXIT_LEFT
from eryxd.cli.live import Live
from eryxd.cli.narrate import waiting_lines
from eryxd.cli.refs import sure
from eryxd.cli.report import EXIT_OF, say, to_json
from eryxd.cli.terminal import Terminal, is_interactive
from eryxd.cli.text import here
from eryxd.client.client import Client
from eryxd.client.follow import follow_run

SECOND_THOUGHT_S: Final = 2.0
"""How long after the first Ctrl-C a second one cancels the run."""


def follow(
    client: Client,
    run_id: str,
    session_id: str | None,
    *,
    as_json: bool,
    cancels: bool,
    joins: bool = False,
    command: str = "eryx",
) -> int:
    """Print a run until it ends and return the exit status.

    A person at the terminal is asked about what waits; elsewhere the commands to type are printed.  With
    `cancels`, a second Ctrl-C ends the run; without, the first one leaves at once.  Who `joins` is told with
    which message the run started.  `command` is how eryx is called from another terminal.
    """
    with CtrlC() as ctrl_c, Feed(_events(run_id, session_id)) as feed:
        following = _Following(client, run_id, feed, ctrl_c, as_json=as_json, cancels=cancels)
        return following.to_the_end(joins, command)


def _events(run_id: str, session_id: str | None) -> Iterator[dict[str, Any]]:
    """Yield the run's events on a connection of their own: they are read in another thread."""
    with Client.connect(name=CLIENT_NAME) as client:
        yield from follow_run(client, run_id, session_id)


class _Following:
    def __init__(self, client: Client, run_id: str, feed: Feed, ctrl_c: CtrlC, *, as_json: bool, cancels: bool) -> None:
        self._client = client
        self._run_id = run_id
        self._feed = feed
        self._ctrl_c = ctrl_c
        self._as_json = as_json
        self._look = here()
        self._live = Live()
        self._seen: set[str] = set()
        self._cancels = cancels
        self._cancelling = False
        self._asker: Asker | None = None

    def _new_asker(self, command: str) -> Asker:
        return Asker(self._client, Terminal(self._ctrl_c), self._look, self._feed, self._take, self._waits, command)

    def to_the_end(self, joins: bool, command: str) -> int:
        self._live = Live(self._look, joins=joins)
        self._asker = self._new_asker(command) if not self._as_json and is_interactive() else None
        while not self._live.ended:
            try:
                with self._ctrl_c.waiting():
                    self._feed.wait()
                say(self._take())
                self._attend()
            except KeyboardInterrupt:
                if self._leaves():
                    return EXIT_LEFT
        if not self._as_json:
            say(self._live.closing())
        return EXIT_OF.get((self._live.run or {}).get("status", ""), EXIT_RUN_FAILED)

    def _take(self) -> list[str]:
        """Take in what has happened and return it as lines."""
        lines = []
        for event in self._feed.take():
            told = self._live.take(event)
            lines += [to_json(event)] if self._as_json else told
        return lines

    def _waits(self, id: str) -> bool:
        return id in self._live.waiting and not self._live.ended

    def _attend(self) -> None:
        """Ask about what waits, or say what to type; each approval once."""
        while new := [id for id in self._live.waiting if id not in self._seen]:
            if self._asker is None:
                self._seen.update(new)
                if not self._as_json:
                    say(waiting_lines({id: self._live.waiting[id] for id in new}, self._look))
                continue
            self._seen.add(new[0])
            self._asker.ask(new[0])

    def _leaves(self) -> bool:
        """Return whether to leave the run alone; a second Ctrl-C in time cancels it instead."""
        come_back = f"eryx timeline {sure(self._run_id)} --follow"
        if self._cancelling:
            self._tell("", f"Still ending.  See: {come_back}")
            return True
        if not self._cancels:
            self._tell("")
            return True
        try:
            with self._ctrl_c.waiting():
                self._tell("", f"The run goes on.  Ctrl-C again within {SECOND_THOUGHT_S:.0f} s cancels it.")
                time.sleep(SECOND_THOUGHT_S)
        except KeyboardInterrupt:
            self._cancelling = True
            self._tell("", "Cancelling.")
            self._client.call("runs.cancel", run_id=self._run_id)
            return False
        self._tell(f"Come back with: {come_back}", f"Or end it with: eryx runs cancel {sure(self._run_id)}")
        return True

    def _tell(self, *lines: str) -> None:
        """Say something to the person that is no event: never among JSON."""
        for line in lines:
            print(line, file=sys.stderr if self._as_json else sys.stdout, flush=True)
