"""The parts of the documents that are made from the code: run `python docs/generate.py` after a change.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else on a page is written by hand.
Law: running it twice changes nothing; a page whose parts are current is written back byte by byte.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from eryxd import settings
from eryxd.api.describe import describe
from eryxd.api.errors import EXIT_NO_DAEMON, EXIT_RUN_CANCELLED, EXIT_RUN_FAILED
from eryxd.api.events import EventType, Topic
from eryxd.cli.report import EXIT_STILL_RUNNING
from eryxd.daemon import app, bus, engine, limits
from eryxd.domain.approval import SHOWN_BYTES
from eryxd.domain.errors import ErrorCode
from eryxd.wire.framing import MAX_REPLY_BYTES, MAX_REQUEST_BYTES
from eryxd.wire.tokens import MAX_DEPTH, MAX_VALUES

DOCS: Final = Path(__file__).parent
PAGES: Final = (DOCS / "protocol.md", DOCS / "errors.md", DOCS / "concepts.md")
COMMAND: Final = "python docs/generate.py"

_PART: Final = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
_CLASSES: Final = {
    "open": "anybody of this user, agents too",
    "agent": "an agent with the token of its own session; no method has this class yet",
    "read": "looks",
    "steer": "narrows, ends or tidies",
    "widen": "lets something happen that did not happen before",
    "admin": "concerns the daemon itself",
}
_CARRIES: Final[Mapping[EventType, str]] = {
    EventType.SESSION_UPDATED: "`session`, with what waits in it",
    EventType.SESSION_DELETED: "only `session_id`",
    EventType.RUN_UPDATED: "`run`; comes after everything else of the same commit but the session",
    EventType.TIMELINE_EVENT: "`timeline_event`; one with a known id replaces it",
    EventType.MESSAGE_PUBLISHED: "`message`, when it begins and when it ends",
    EventType.APPROVAL_REQUESTED: "`approval` as a brief: without `messages` and `permission`",
    EventType.APPROVAL_RESOLVED: "`approval` as a brief",
    EventType.PATTERN_SAVED: "`pattern`",
    EventType.PATTERN_DELETED: "`pattern_id`",
    EventType.PROJECT_UPDATED: "`project`",
    EventType.PROJECT_REMOVED: "`project_id`",
    EventType.CATALOG_CHANGED: "`generation`",
    EventType.TOOLS_PRUNED: "`pruned`: which ids were taken off which list, and why",
    EventType.CONFIG_RELOADED: "`reloaded`: how much the files define, and warnings",
    EventType.CONFIG_REJECTED: "`rejected`: the problems; the last good files stand",
    EventType.PLUGIN_STATUS: "`plugin`: how it stands now",
    EventType.PROVIDER_SAVED: "`entry`, its secrets masked",
    EventType.PROVIDER_DELETED: "`entry` as it was",
    EventType.POLICY_WIDENED: "`widening`: which tool may run by itself now, and why",
    EventType.PEER_REFUSED: "`refusal`: which process called what, and by which check it was refused",
    EventType.DAEMON_STOPPING: "nothing more",
    EventType.MESSAGE_DELTA: "`delta`: a piece of a message that is being generated",
    EventType.LAGGED: "nothing more; its `seq` is the last event that was sent",
}
_MEANING: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INTERNAL: "A fault of eryx.",
    ErrorCode.PROVIDER_FAILED: "A tool provider could not do its work.  Nothing in this release answers with it.",
}
"""Codes that no class of their own explains."""

_NEXT: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.BAD_FRAME: "Mend the client. The daemon has hung up.",
    ErrorCode.FRAME_TOO_LARGE: "Send less at once. The daemon has hung up.",
    ErrorCode.READ_ONLY: "Change a copy: `eryx patterns copy PATTERN`.",
    ErrorCode.JOURNAL_GAP: "Call `workspace.get` and subscribe from its `seq`.",
    ErrorCode.UNKNOWN_METHOD: "Look at `api.describe`; restart a daemon that is older than the client.",
    ErrorCode.INVALID_PARAMS: "Mend the arguments; `path` says where.",
    ErrorCode.INVALID: "Mend what `problems` lists.",
    ErrorCode.NOT_FOUND: "List what there is: `noun` says of which kind.",
    ErrorCode.CONFLICT: "Read it again, then decide again.",
    ErrorCode.SESSION_RUNNING: "Wait for the run, answer what it waits for, or cancel it: `eryx runs cancel RUN`.",
    ErrorCode.APPROVAL_NOT_ACTIVE: "Nothing: `data` says who decided what, and whether it was the same.",
    ErrorCode.FORBIDDEN_PEER: "Answer from a terminal of your own; see [Security](security.md).",
    ErrorCode.BUSY: "Ask again after `retry_ms`; `eryx` does so by itself for some seconds.",
    ErrorCode.BACKEND_UNAVAILABLE: "`eryx status` lists the backends; name one in the agent or in `defaults.backend`.",
    ErrorCode.BACKEND_FAILED: "The message names what to mend; `eryx daemon logs` may say more.",
    ErrorCode.PROVIDER_FAILED: "`eryx status`.",
    ErrorCode.STORE_UNAVAILABLE: "Make room or mend the disk; the daemon tries again by itself. `eryx status` tells.",
    ErrorCode.SHUTTING_DOWN: "`eryx daemon start`, then ask again.",
    ErrorCode.INTERNAL: "Look at `eryx daemon logs` and report it.",
}
_SETTINGS: Final[Mapping[str, str]] = {
    "approvals.default": "the policy of a pattern that is saved without one: each tool call asks, or nothing does",
    "defaults.backend": "the backend of agents that name none",
    "sessions.tooling": "which provider entries a new session starts with; without effect until there are providers",
    "limits.connections": "clients at once",
    "limits.connections_per_peer": "clients at once of one process",
    "limits.journal_events": "how many events the journal keeps",
    "limits.journal_days": "for how many days",
    "guard.no_new_privs": "refuse a caller that carries the mark of an agent; see [Security](security.md)",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def code(text: object) -> str:
    """Return text as code."""
    return f"`{text}`"


def methods() -> Iterator[str]:
    """Yield the classes, and a table of the methods for each noun."""
    described = describe()
    yield from table(["class", "for"], [(code(name), words) for name, words in _CLASSES.items()])
    noun = None
    rows: list[tuple[str, ...]] = []
    for method in described.methods:
        row = (
            code(method["name"]),
            method["access"],
            _fields(method["params"], described.definitions) or "none",
            _fields(method["result"], described.definitions),
            method["summary"],
        )
        group = method["name"].rpartition(".")[0]
        if group != noun and rows:
            yield from _methods_of(noun, rows)
            rows = []
        noun = group
        rows.append(row)
    yield from _methods_of(noun, rows)


def _methods_of(noun: str | None, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"\n### {noun or 'Greeting'}\n"
    yield from table(["method", "class", "arguments", "returns", "what it does"], rows)


def _fields(reference: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the fields of a record, those that may be absent with a question mark."""
    record = definitions[reference["$ref"].rpartition("/")[2]]
    required = record.get("required", ())
    return " ".join(code(name if name in required else f"{name}?") for name in record.get("properties", {}))


def events() -> Iterator[str]:
    """Yield the table of the events."""
    rows = [
        (
            code(event["type"]),
            code(event["topic"]),
            "no" if event["transient"] else "yes",
            _CARRIES[EventType(event["type"])],
        )
        for event in describe().events
    ]
    yield from table(["type", "topic", "journalled", "carries"], rows)
    yield f"\nTopics: {' '.join(code(topic.value) for topic in Topic)}."


def bounds() -> Iterator[str]:
    """Yield the table of the limits."""
    one, config = limits.Limits(), settings.LimitsSection()
    rows = [
        ("frame from a client", _size(MAX_REQUEST_BYTES), "`frame_too_large`, then hung up"),
        ("frame from the daemon", _size(MAX_REPLY_BYTES), "never sent: what can be longer comes in pages"),
        ("frame that has begun", f"{one.incomplete_s:.0f} s", "hung up"),
        ("nesting, values in a request", f"{MAX_DEPTH} deep, {MAX_VALUES:,}", "`bad_frame`, then hung up"),
        ("nil, bin, ext, keys that are no strings", "none", "`bad_frame`, then hung up"),
        (
            "connections, of one process",
            f"{config.connections}, {config.connections_per_peer} (`limits.connections`, "
            "`limits.connections_per_peer`); at most half of the descriptors that the daemon may open",
            "`busy` with `retry_ms`, then hung up",
        ),
        ("requests in flight on a connection", str(one.in_flight), "`busy`"),
        (
            "events a subscriber has not read",
            f"{bus.MAX_QUEUED_EVENTS:,} or {_size(bus.MAX_QUEUED_BYTES)}",
            "`lagged`: the subscription ends, the connection stays",
        ),
        ("replies a client has not read", _size(one.unread_bytes), "cut off"),
        ("changes on their way to the disk", f"{engine.MAX_IN_FLIGHT:,}", "`busy`"),
        ("what one approval shows", _size(SHOWN_BYTES), "cut in the middle; `approvals.content` has the rest"),
        (
            "journal",
            f"{config.journal_events:,} events, {config.journal_days} days "
            "(`limits.journal_events`, `limits.journal_days`)",
            "`journal_gap`",
        ),
    ]
    yield from table(["what", "limit", "beyond it"], rows)


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count // 2**10} KiB"


def codes() -> Iterator[str]:
    """Yield the table of the error codes."""
    rows = []
    for error in describe().errors:
        known = ErrorCode(error["code"])
        meaning = _MEANING.get(known, error["summary"])
        rows.append((code(known.value), str(error["exit_status"]), re.sub(r"\s+", " ", meaning), _NEXT[known]))
    yield from table(["code", "exit status", "what it means", "what to do"], rows)


def statuses() -> Iterator[str]:
    """Yield the exit statuses that stand for no error code."""
    yield from table(
        ["status", "of", "what it means"],
        [
            ("0", "`eryx`", "It worked; also when somebody else had made the same decision already."),
            (str(EXIT_RUN_FAILED), "`eryx run`, `eryx timeline --follow`, `eryx runs wait`", "The run failed."),
            ("2", "`eryx`", "The command line is wrong."),
            (str(EXIT_NO_DAEMON), "`eryx`", "The daemon is not running, or the connection broke."),
            (str(EXIT_STILL_RUNNING), "`eryx runs wait`", "The time was up before the run ended."),
            (str(EXIT_RUN_CANCELLED), "`eryx run`", "The run was cancelled, or left with Ctrl-C."),
            (str(app.EXIT_ALREADY_RUNNING), "`eryxd`", "Another daemon holds the lock. Nothing was touched."),
            (str(app.EXIT_UNFIT), "`eryxd`", "Settings or store are not fit to start with; the message says why."),
        ],
    )


def configuration() -> Iterator[str]:
    """Yield the table of the settings."""
    rows = [
        (code(name), _allowed(field), _default(field), _SETTINGS[name])
        for section in msgspec.structs.fields(settings.Settings)
        if isinstance(section.type, type)  # not the plugins' own tables
        for field in msgspec.structs.fields(section.type)
        for name in [f"{section.name}.{field.name}"]
    ]
    yield from table(["setting", "may be", "unless set", "what it does"], rows)


def _allowed(field: msgspec.structs.FieldInfo) -> str:
    if get_origin(field.type) is Literal:
        return " or ".join(code(f'"{choice}"') for choice in get_args(field.type))
    if field.type is bool:
        return "`true` or `false`"
    return "a number, at least 1" if isinstance(field.default, int) else "a name"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.UNSET:
        return "none"
    return code(msgspec.json.encode(field.default).decode())


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "methods": methods,
    "events": events,
    "limits": bounds,
    "codes": codes,
    "statuses": statuses,
    "settings": configuration,
}


def current(page: str) -> str:
    """Return a page with its generated parts as they should be."""
    return _PART.sub(lambda match: f"{match[1]}{chr(10).join(PARTS[match[2]]())}\n{match[4]}", page)


def main() -> int:
    """Bring every page up to date; say which ones changed."""
    for path in PAGES:
        before = path.read_text()
        after = current(before)
        if after != before:
            path.write_text(after)
            print(f"changed: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
