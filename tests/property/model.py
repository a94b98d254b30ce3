"""What eryx must do, once more and much smaller: sessions, runs, approvals and what is held back, as plain values.

Written from the rules, not from the code.  Every function returns the world afterwards and what the caller is told:
`ok`, `allow`, `deny`, `waits`, or an error code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

Catalog = Mapping[str, tuple[str, ...]]
"""Tool ids and who offers them."""

PATTERN_LIST: Final = ("view",)
PATTERN_TRUST: Final = {"view": ("builtin:view",)}
AGENTS: Final = ("planner", "coder")


@dataclass(frozen=True)
class Rules:
    """Whom each checkpoint covers: None nobody, empty everybody."""

    calls: tuple[str, ...] | None
    final: tuple[str, ...] | None


@dataclass(frozen=True)
class Room:
    """A session.  `own` is its override, None to inherit; `trust` who offered the override's tools then."""

    is_scratch: bool = False
    status: str = "idle"
    own: tuple[str, ...] | None = None
    trust: Catalog = field(default_factory=dict)


@dataclass(frozen=True)
class Life:
    """A run that has not ended.  `held` has what is withheld, as (kind, text)."""

    room: str
    listed: tuple[str, ...]
    trust: Catalog
    remembered: tuple[str, ...] = ()
    is_revoked: bool = False
    is_closing: bool = False
    is_holding: bool = False
    held: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Wait:
    """An approval that waits; without a call it is a final response."""

    run: str
    room: str
    agent: str = ""
    tool: str = ""
    provider: str = ""
    call: str = ""


@dataclass(frozen=True)
class Model:
    """Everything.  `waits` is in request order; `done` has session, status and resolution, `public` published text."""

    rules: Rules
    rooms: Mapping[str, Room]
    lives: Mapping[str, Life] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    done: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    public: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()

    def running(self, room: str) -> str | None:
        """Return the run of a session."""
        return next((run for run, life in self.lives.items() if life.room == room), None)

    def final_of(self, run: str) -> str | None:
        """Return the approval with which a run's response waits to be read."""
        return next((one for one, wait in self.waits.items() if wait.run == run and not wait.call), None)

    def is_acting(self, run: str) -> bool:
        """Say whether agents of this run may still say and ask."""
        return run in self.lives and not self.lives[run].is_closing and self.final_of(run) is None

    def with_room(self, name: str, **changes: object) -> "Model":
        """Return the world with a session changed."""
        return replace(self, rooms={**self.rooms, name: replace(self.rooms[name], **changes)})  # type: ignore[arg-type]

    def with_life(self, name: str, **changes: object) -> "Model":
        """Return the world with a run changed."""
        return replace(self, lives={**self.lives, name: replace(self.lives[name], **changes)})  # type: ignore[arg-type]


def covers(scope: tuple[str, ...] | None, agent: str) -> bool:
    """Say whether a checkpoint covers an agent; an unknown one might be any."""
    return scope is not None and (not scope or agent in scope or agent not in AGENTS)


def must_ask(model: Model, life: Life, agent: str, tool: str, provider: str, catalog: Catalog) -> bool:
    """Say whether a person has to decide a call."""
    if life.is_revoked:
        return True
    if not covers(model.rules.calls, agent):
        return False
    if agent not in AGENTS and model.rules.calls:
        return True
    if tool not in catalog or tool not in life.listed + life.remembered:
        return True
    runs_on = provider or (catalog[tool][0] if len(catalog[tool]) == 1 else "")
    return runs_on not in life.trust.get(tool, ()) or runs_on not in catalog[tool]


def send(model: Model, room: str, run: str) -> tuple[Model, str]:
    """A person sends a message."""
    if model.running(room) is not None:
        return model, "session_running"
    own, trust = model.rooms[room].own, model.rooms[room].trust
    life = Life(room, PATTERN_LIST, PATTERN_TRUST) if own is None else Life(room, own, trust)
    model = replace(model, lives={**model.lives, run: life})
    return model.with_room(room, status="running"), "ok"


def ask(model: Model, durable: Model, wait: Wait, catalog: Catalog, new_id: str) -> tuple[Model, str]:
    """An agent asks; what widens counts only when it is durable."""
    if not model.is_acting(wait.run):
        return model, "deny"
    views = [model.lives[wait.run], durable.lives.get(wait.run, model.lives[wait.run])]
    if not any(must_ask(model, life, wait.agent, wait.tool, wait.provider, catalog) for life in views):
        return model, "allow"
    same = next((one for one, open_one in model.waits.items() if open_one == wait), None)
    if same is not None:
        return model, f"waits {same}"
    return replace(model, waits={**model.waits, new_id: wait}), f"waits {new_id}"


def resolve(
    model: Model, approval: str, room: str, decision: str, is_as_shown: bool, remember: bool, catalog: Catalog
) -> tuple[Model, str]:
    """A person decides."""
    if room != (model.waits[approval].room if approval in model.waits else model.done.get(approval, ("",))[0]):
        return model, "not_found"
    if approval in model.done:
        return model, "approval_not_active"
    if not is_as_shown:
        return model, "conflict"
    wait = model.waits[approval]
    no_memory = decision == "rejected" or not wait.call or wait.tool not in catalog or model.rooms[room].is_scratch
    if remember and no_memory:
        return model, "invalid"
    model = _close(model, [approval], decision, "user")
    if not wait.call:
        return _read(model, wait.run, decision), "ok"
    return (_remember(model, wait, catalog) if remember else model), "ok"


def _read(model: Model, run: str, decision: str) -> Model:
    """A response was read: published with the decision, or never."""
    if decision == "rejected":
        return end(model, run, "error", "run-failed")
    texts = {text for _, text in model.lives[run].held}
    return end(replace(model, public=model.public | texts), run, "idle", "cancelled")


def _remember(model: Model, wait: Wait, catalog: Catalog) -> Model:
    """One tool more, for the session and for its run; what waits for it and need not is released."""
    room, life = model.rooms[wait.room], model.lives[wait.run]
    names = PATTERN_LIST if room.own is None else room.own
    trust = PATTERN_TRUST if room.own is None else room.trust
    now = {wait.tool: catalog[wait.tool]}
    model = model.with_room(wait.room, own=_with(names, wait.tool), trust={**trust, **now})
    model = model.with_life(wait.run, remembered=_with(life.remembered, wait.tool), trust={**life.trust, **now})
    life = model.lives[wait.run]
    released = [
        one
        for one, other in model.waits.items()
        if (other.room, other.tool) == (wait.room, wait.tool)
        and not must_ask(model, life, other.agent, other.tool, other.provider, catalog)
    ]
    return _close(model, released, "approved", "remembered")


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _close(model: Model, approvals: list[str], status: str, resolution: str) -> Model:
    done = {one: (model.waits[one].room, status, resolution) for one in approvals}
    waits = {one: wait for one, wait in model.waits.items() if one not in done}
    return replace(model, waits=waits, done={**model.done, **done})


def revoke(model: Model, room: str) -> tuple[Model, str]:
    """From now on everything asks."""
    model, run = model.with_room(room, own=(), trust={}), model.running(room)
    return (model if run is None else model.with_life(run, is_revoked=True)), "ok"


def update(model: Model, room: str, names: tuple[str, ...] | None, catalog: Catalog) -> tuple[Model, str]:
    """A person sets, empties or clears a session's list."""
    if model.running(room) is not None:
        return model, "session_running"
    if names and (model.rooms[room].is_scratch or any(name not in catalog for name in names)):
        return model, "invalid"
    return model.with_room(room, own=names, trust={name: catalog[name] for name in names or ()}), "ok"


def cancel(model: Model, run: str) -> tuple[Model, str]:
    """The gate closes; the run ends when its processes have."""
    if run not in model.lives or model.lives[run].is_closing:
        return model, "ok" if run in model.lives or run in model.ended else "not_found"
    return _close(model.with_life(run, is_closing=True), _waits_of(model, run), "rejected", "cancelled"), "ok"


def say(model: Model, run: str, agent: str, kind: str, text: str) -> tuple[Model, str]:
    """An agent says something: held back from the first covered agent on."""
    if not model.is_acting(run):
        return model, "ok"
    life = model.lives[run]
    if not life.is_holding and not covers(model.rules.final, agent):
        return replace(model, public=model.public | {text}), "ok"
    return model.with_life(run, is_holding=True, held=(*life.held, (kind, text))), "ok"


def finish(model: Model, run: str, new_id: str) -> tuple[Model, str]:
    """The last agent has finished: complete, or a person reads first."""
    if run not in model.lives or model.lives[run].is_closing:
        return model, "ok"
    asked = model.final_of(run)
    if asked is not None:
        return model, f"waits {asked}"
    if not any(kind == "message" for kind, _ in model.lives[run].held):
        return end(model, run, "idle", "cancelled"), "ok"
    return replace(model, waits={**model.waits, new_id: Wait(run, model.lives[run].room)}), f"waits {new_id}"


def expire(model: Model, approval: str) -> tuple[Model, str]:
    """Nobody answered in time."""
    wait = model.waits.get(approval)
    if wait is None:
        return model, "ok"
    if not wait.call:
        return end(model, wait.run, "error", "expired"), "ok"
    return _close(model, [approval], "rejected", "expired"), "ok"


def end(model: Model, run: str, status: str, resolution: str) -> Model:
    """A run is over, whatever the reason, and everything that hung on it."""
    if run not in model.lives:
        return model
    model = _close(model, _waits_of(model, run), "rejected", resolution).with_room(model.lives[run].room, status=status)
    lives = {one: life for one, life in model.lives.items() if one != run}
    return replace(model, lives=lives, ended=model.ended | {run})


def _waits_of(model: Model, run: str) -> list[str]:
    return [one for one, wait in model.waits.items() if wait.run == run]


def restart(model: Model) -> Model:
    """A start finds what was durable, and interrupts it."""
    for run in model.lives:
        model = end(model, run, "error", "interrupted")
    return model
