"""Stores of any size: real records, through the store's own tables and encoder, written without the daemon.

A store of a million runs takes a while to make, so it is kept in the cache under a name that changes with whatever
it is made from.
"""

import base64
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eryxd.api.events import TOPIC, Event, EventType
from eryxd.core.change import encode
from eryxd.daemon.schema import MIGRATIONS
from eryxd.daemon.store import COLUMNS, STORE_FILE, Store, encoded
from eryxd.domain.approval import Approval, ApprovalStatus, Resolution
from eryxd.domain.ids import (
    AgentId,
    ApprovalId,
    BackendName,
    MessageId,
    PatternId,
    ProjectId,
    ProviderId,
    Record,
    RunId,
    SessionId,
    TimelineId,
    Timestamp,
    ToolId,
)
from eryxd.domain.pattern import Agent, Mode, Pattern
from eryxd.domain.policy import (
    ApprovalPolicy,
    CheckpointKind,
    CheckpointRule,
    EffectivePolicy,
    ListFrom,
)
from eryxd.domain.session import (
    ListOwner,
    Message,
    Offer,
    Project,
    Role,
    Run,
    RunAgent,
    RunStatus,
    SessionHead,
    SessionStatus,
    TitleSource,
    WorkspaceKind,
)
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus

NOON: Final = Timestamp("2026-11-30T12:00:00.000Z")
AUTOMATIC: Final = ToolId("view")
"""The tool on the list of the pattern that every session follows; any other asks."""
SESSION: Final = SessionId("s" + "a" * 16)
"""The first session of every store: where benches work."""
PROJECT: Final = ProjectId("j" + "a" * 16)
PATTERN: Final = PatternId("p" + "a" * 16)
AGENT: Final = AgentId("coder")

JOURNAL_EVENTS: Final = 100_000
"""As many events as the journal keeps by default."""


class Size(NamedTuple):
    """How many sessions, and how many finished runs each has had."""

    sessions: int
    runs_each: int

    def __str__(self) -> str:
        return f"{self.sessions:,} sessions of {self.runs_each} runs"


LARGE: Final = Size(10_000, 100)
SMALL: Final = Size(10, 100)


def cached(size: Size, cache: Path) -> Path:
    """Return a store of this size, made if it is not in the cache.  To be copied, not to be used."""
    path = cache / f"store-{size.sessions}x{size.runs_each}-{_fingerprint()}.db"
    if not path.exists():
        for old in cache.glob(f"store-{size.sessions}x{size.runs_each}-*.db"):
            old.unlink()
        folder = cache / "making"
        shutil.rmtree(folder, ignore_errors=True)
        write(size, folder)
        (folder / STORE_FILE).replace(path)
        shutil.rmtree(folder)
    return path


def install(store: Path, state_dir: Path) -> None:
    """Put a copy of a store where a daemon will find it."""
    state_dir.mkdir(mode=0o700, parents=True)
    copy = state_dir / STORE_FILE
    shutil.copyfile(store, copy)
    copy.chmod(0o600)
    # Or the daemon's first checkpoint would wait for what was only copied.
    with copy.open("rb") as file:
        os.fsync(file.fileno())


def write(size: Size, state_dir: Path) -> None:
    """Make a store of this size in a new folder."""
    state_dir.mkdir(mode=0o700, parents=True)
    Store(state_dir).close()
    db = sqlite3.connect(state_dir / STORE_FILE, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -1000000")
        db.execute("BEGIN")
        _fill(db, size)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()


def _fingerprint() -> str:
    made_from = [*MIGRATIONS, Path(__file__).read_text(encoding="utf-8"), *_layouts()]
    return hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:12]


def _layouts() -> Iterator[str]:
    for kind in COLUMNS:
        for field in msgspec.structs.fields(kind):
            yield f"{kind.__name__}.{field.encode_name}: {field.type}"


def _fill(db: sqlite3.Connection, size: Size) -> None:
    letters = _Letters(Random(size.sessions))  # noqa: S311 -- the same store each time
    _insert(db, Project, [_project()])
    _insert(db, Pattern, [_pattern()])
    _insert(db, Offer, [_offer()])
    sessions = [_session(SESSION), *(_session(SessionId("s" + letters.next())) for _ in range(size.sessions - 1))]
    _insert(db, SessionHead, sessions)
    last_runs = list(_write_runs(db, sessions, size.runs_each, letters))
    number = size.sessions * size.runs_each
    _insert(db, Message, _messages(last_runs, number, letters))
    _insert(db, TimelineEvent, _timeline(last_runs, number, letters))
    _insert(db, Approval, (_approval(run, number + n, letters) for n, run in enumerate(last_runs)))
    db.execute("INSERT INTO message_text (rowid, content) SELECT rowid, ? FROM message", (_TEXT,))
    _write_journal(db, sessions, min(JOURNAL_EVENTS, number))
    db.execute("UPDATE meta SET value = ? WHERE key = 'number'", (str(number + 8 * size.sessions),))


def _insert(db: sqlite3.Connection, kind: type[Record], records: Iterable[Record]) -> None:
    columns = COLUMNS[kind]
    names = (*columns.names, "body")
    sql = f"INSERT INTO {columns.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    db.executemany(sql, ((*columns.values(record), encode(record)) for record in records))


def _write_runs(db: sqlite3.Connection, sessions: list[SessionHead], each: int, letters: "_Letters") -> Iterator[Run]:
    """Write rounds of one run for each session, as time would; yield the last run of each session."""
    number = 0
    for turn in range(each):
        first = number
        runs = [_run(session.id, first + n, letters) for n, session in enumerate(sessions)]
        number += len(runs)
        _insert(db, Run, runs)
        if turn == each - 1:
            yield from runs


def _write_journal(db: sqlite3.Connection, sessions: list[SessionHead], events: int) -> None:
    """End the journal with this many events, numbered as if there had been others before."""
    first = 1_000_000
    event = Event(at=NOON, type=EventType.TIMELINE_EVENT, timeline_event=_event(_TEMPLATE, TimelineKind.MESSAGE, 0, ""))
    topic = TOPIC[event.type].value
    rows = (
        (seq, NOON, topic, sessions[seq % len(sessions)].id, encoded(event, seq))
        for seq in range(first, first + events)
    )
    db.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", rows)
    db.execute("UPDATE meta SET value = ? WHERE key = 'seq'", (str(first + events - 1),))


class _Letters:
    """Random letters of ids, from many bytes at once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """Return 16 characters of base32."""
        if self._at == len(self._text):
            self._text = base64.b32encode(self._random.randbytes(10 * 4096)).decode().lower()
            self._at = 0
        self._at += 16
        return self._text[self._at - 16 : self._at]


_TEXT: Final = "The parser now accepts a trailing comma; its tests pass, and the changelog has a line about it."


def _project() -> Project:
    # A folder that is there on every machine: the daemon checks it before a run.
    return Project(id=PROJECT, name="usr", path="/usr", created_at=NOON)


def _pattern() -> Pattern:
    return Pattern(
        id=PATTERN,
        name="Bench",
        mode=Mode.SINGLE,
        agents=(Agent(id=AGENT, name="Coder", instructions="Do the task."),),
        created_at=NOON,
        updated_at=NOON,
        revision=1,
        approval_policy=ApprovalPolicy(
            rules=(CheckpointRule(kind=CheckpointKind.TOOL_CALL),), auto_approved_tool_names=(AUTOMATIC,)
        ),
    )


def _offer() -> Offer:
    provider = ProviderId(f"builtin:{AUTOMATIC}")
    return Offer(owner=ListOwner.PATTERN, owner_id=PATTERN, tool_id=AUTOMATIC, providers=(provider,))


def _session(id: SessionId) -> SessionHead:
    return SessionHead(
        id=id,
        project_id=PROJECT,
        pattern_id=PATTERN,
        title="Accept a trailing comma",
        title_source=TitleSource.AUTO,
        status=SessionStatus.IDLE,
        created_at=NOON,
        updated_at=NOON,
    )


_TEMPLATE: Final = Run(
    id=RunId(""),
    session_id=SESSION,
    project_id=PROJECT,
    project_path="/usr",
    workspace_kind=WorkspaceKind.PROJECT,
    pattern_id=PATTERN,
    pattern_name="Bench",
    pattern_mode=Mode.SINGLE,
    trigger_message_id=MessageId(""),
    started_at=NOON,
    completed_at=NOON,
    status=RunStatus.COMPLETED,
    agents=(RunAgent(id=AGENT, name="Coder", backend=BackendName("bench"), instructions="Do the task."),),
    approval_policy=EffectivePolicy(
        rules=(CheckpointRule(kind=CheckpointKind.TOOL_CALL),),
        auto_approved_tool_names=(AUTOMATIC,),
        list_from=ListFrom.PATTERN,
    ),
    number=0,
)


def _run(session: SessionId, number: int, letters: _Letters) -> Run:
    id, message = RunId("r" + letters.next()), MessageId("m" + letters.next())
    return replace(_TEMPLATE, id=id, session_id=session, trigger_message_id=message, number=number)


def _messages(runs: Iterable[Run], number: int, letters: _Letters) -> Iterator[Message]:
    for run in runs:
        for role, author in ((Role.USER, "You"), (Role.ASSISTANT, "Coder")):
            number += 1
            yield Message(
                id=MessageId("m" + letters.next()),
                session_id=run.session_id,
                run_id=run.id,
                role=role,
                author_name=author,
                content=_TEXT,
                created_at=NOON,
                number=number,
            )


def _timeline(runs: Iterable[Run], number: int, letters: _Letters) -> Iterator[TimelineEvent]:
    kinds = (TimelineKind.RUN_STARTED, TimelineKind.MESSAGE, TimelineKind.TOOL_CALL, TimelineKind.RUN_COMPLETED)
    for run in runs:
        for kind in kinds:
            number += 1
            yield _event(run, kind, number, letters.next())


def _event(run: Run, kind: TimelineKind, number: int, letters: str) -> TimelineEvent:
    return TimelineEvent(
        id=TimelineId("t" + letters),
        session_id=run.session_id,
        run_id=run.id,
        number=number,
        kind=kind,
        occurred_at=NOON,
        updated_at=NOON,
        status=TimelineStatus.COMPLETED,
        agent_id=AGENT,
        agent_name="Coder",
        content=_TEXT,
    )


def _approval(run: Run, number: int, letters: _Letters) -> Approval:
    return Approval(
        id=ApprovalId("a" + letters.next()),
        kind=CheckpointKind.TOOL_CALL,
        status=ApprovalStatus.APPROVED,
        requested_at=NOON,
        resolved_at=NOON,
        resolution=Resolution.USER,
        session_id=run.session_id,
        run_id=run.id,
        title="Approve shell",
        digest="0" * 64,
        number=number,
    )
