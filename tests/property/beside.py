"""The engine beside the model: both views of both after every step, and whatever was released in between."""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine, invariant

from eryxd.core import recovery
from eryxd.core.change import Release, Tx
from eryxd.core.state import State
from eryxd.core.views import live_run, pending
from eryxd.domain.ids import SessionId
from eryxd.domain.session import SessionHead, Withheld
from eryxd.plugin.types import Allow
from tests.core_builders import World
from tests.property.model import Model, Room, Rules, restart
from tests.property.ordered import Watched, stored_approvals, stored_texts

ROOMS: Final = ("s1", "s2")
TEXT: Final = re.compile(rb"~\d+~")
"""What agents say; found wherever it lies."""

SCRATCH: Final = "/scratch"


class Flight(NamedTuple):
    """A change on its way: the model once it is durable, and what its caller is to hear."""

    model: Model
    hears: str


class Beside(RuleBasedStateMachine):
    """Keeps the books.  The rules are elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="eryx-model-"))
        self.world = World()
        self.machine = Watched(self.folder, self.world)
        self.committed = self.head = Model(Rules(None, None), {one: Room() for one in ROOMS})
        self.flights: list[Flight] = []
        self.released: dict[str, bool] = {}

    def does(self, use_case: Callable[[Tx, Any], Any], request: Any, model: Model, hears: str) -> None:
        """Execute a use case; the model afterwards and what the caller hears are known beforehand."""
        self.machine.executes(use_case, request)
        self.expects(model, hears)

    def expects(self, model: Model, hears: str) -> None:
        """Write down what a use case that was just executed comes to."""
        if self.machine.engine.problem is None:
            self.head = model
            self.flights.append(Flight(model, hears))
        else:
            assert self.machine.heard.pop() == "store_unavailable"
        self._listens()

    def _listens(self) -> None:
        """Compare what was released with what was to be released, in order."""
        while self.machine.heard:
            flight = self.flights.pop(0)
            assert self.machine.heard.pop(0) == flight.hears
            self.committed = flight.model
        for _, what in self.machine.log:
            if isinstance(what, Release):
                # Each gate is answered once, and let through by a decision that is durable.
                assert what.approval_id not in self.released
                self.released[what.approval_id] = isinstance(what.answer, Allow)
                assert self.released[what.approval_id] == (self.committed.done[what.approval_id][1] == "approved")
        bodies = [what.body for name, what in self.machine.log if name == "event"]
        assert set(TEXT.findall(b"".join(bodies))) <= {text.encode() for text in self.committed.public}
        self.machine.log.clear()

    def disk_goes(self, order: str) -> None:
        """Let the batch that is being written go as ordered.  If it fails, what came later goes with it."""
        self.machine.disk_goes(order)
        if order == "fails":
            assert self.machine.heard == ["store_unavailable"] * len(self.flights)
            assert ("signal", "failed") in self.machine.log
            self.machine.heard.clear()
            self.flights.clear()
            self.head = self.committed
        self._listens()

    def everything_lands(self) -> None:
        """Let the disk write whatever is in flight."""
        if self.machine.engine.problem is not None:
            self.machine.probes()
            self._listens()
        while self.machine.engine._writing:
            self.disk_goes("happens")
        assert self.flights == []

    def starts(self) -> None:
        """Recover, as every start does."""
        self.does(recovery.recover, SCRATCH, restart(self.head), "ok")

    def dies(self, order: str) -> None:
        """End without a word, the batch that is being written going as ordered, and start again."""
        written = self.machine.is_killed(order)
        if written:
            self.committed = self.flights[written - 1].model
        self.flights.clear()
        self.head = self.committed
        self.machine = Watched(self.folder, self.world)
        self.starts()

    @invariant()
    def agrees(self) -> None:
        """Both views are the model's; nothing is approved, running or withheld that is not in it."""
        engine = self.machine.engine
        for state, model in ((engine.head, self.head), (engine.committed, self.committed)):
            assert {room: _seen(state, room) for room in ROOMS} == {room: _expected(model, room) for room in ROOMS}

    def teardown(self) -> None:
        """Look at the file, unless something was wrong before."""
        try:
            if sys.exception() is None:
                self._ends_well()
        finally:
            self.machine.is_let_go()
            shutil.rmtree(self.folder)

    def _ends_well(self) -> None:
        """In the end every approval is stored as it was decided, and every text lies where it belongs."""
        self.everything_lands()
        self.agrees()
        self.machine.is_killed("happens")
        ended = {one: (status, resolution) for one, (_, status, resolution) in self.committed.done.items()}
        waiting = {one: ("pending", "") for one in self.committed.waits}
        assert stored_approvals(self.folder) == ended | waiting
        held = {text for life in self.committed.lives.values() for _, text in life.held}
        assert stored_texts(self.folder, TEXT) == (set(self.committed.public), held)
        let_through = {one for one, is_allowed in self.released.items() if is_allowed}
        assert let_through <= {one for one, (status, _) in ended.items() if status == "approved"}


def _seen(state: State, room: str) -> Any:
    head, run = state.get(SessionHead, room), live_run(state, SessionId(room))
    assert head is not None
    own = head.approval_settings
    life = run and (
        run.id,
        bool(run.cancel_requested_at),
        run.grants.revoked,
        run.withholding,
        run.grants.remembered,
        [row.content for row in sorted(state.of(Withheld, run.id), key=lambda row: row.number)],
    )
    waiting = [one.id for one in pending(state, SessionId(room))]
    return head.status.value, own.auto_approved_tool_names if own else None, life, waiting


def _expected(model: Model, room: str) -> Any:
    run = model.running(room)
    life = None
    if run is not None:
        it = model.lives[run]
        life = (run, it.is_closing, it.is_revoked, it.is_holding, it.remembered, [text for _, text in it.held])
    waiting = [one for one, wait in model.waits.items() if wait.room == room]
    return model.rooms[room].status, model.rooms[room].own, life, waiting
