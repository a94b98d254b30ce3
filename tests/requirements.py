"""The rules, each with the claim it makes.  A test names the rules it proves with `@requirement(...)`.

`RULES` holds what this release must prove; `LATER` what the rules describe and a later release will: a test that
proves one of those moves its id to `RULES`.  `tests/contract/test_requirements.py` checks both ways.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])


def requirement(*ids: str) -> Callable[[T], T]:
    """Mark a test as a proof of these rules."""

    def mark(test: T) -> T:
        return pytest.mark.requirement(*ids)(test)  # type: ignore[no-any-return]

    return mark


RULES: Final[dict[str, str]] = {
    "POL-1": "a policy's shape is checked: rules required, unknown kinds and blank agents refused",
    "POL-2": "normalising: unscoped beats scoped, scoped are unioned, order fixed, idempotent",
    "POL-3": "rules and the list are independent",
    "POL-4": "a pattern without a policy gets the configured default",
    "POL-5": "inherit, empty and list stay three states",
    "POL-6": "a run's policy is frozen; only remember and revoke change it",
    "POL-7": "the decision, first match wins",
    "POL-8": "an unidentified agent under a scoped rule asks, and is held",
    "POL-9": "missing or unreadable never widens",
    "POL-10": "infrastructure tools pass only when named and not offered",
    "POL-11": "a provider that came later does not inherit a grant",
    "CAT-1": "a definition's parallel lists",
    "CAT-3": "runtime tools: trimmed, one builtin provider per id",
    "APR-1": "an approval's fields and caps",
    "APR-2": "waiting is not a status",
    "APR-3": "any pending approval may be resolved",
    "APR-4": "resolving: errors, races, remember's limits",
    "APR-5": "approving resumes, the gate's answers",
    "APR-6": "remember releases what waits for the same tool",
    "APR-7": "final responses are held back and appear nowhere",
    "APR-8": "titles, details and permission kinds",
    "APR-9": "ids and durability of decisions",
    "APR-10": "one settle for every end",
    "APR-11": "restart interrupts and never resumes",
    "RUN-1": "sending a message",
    "RUN-2": "a run's record",
    "RUN-3": "cancel in two commits",
    "RUN-4": "late events change nothing",
    "TLN-1": "event kinds and common fields",
    "TLN-2": "one approval event per approval",
    "TLN-3": "one tool-call event per call, with every ask",
    "TLN-4": "one message event per message",
    "TLN-5": "cost does not grow with history",
    "SES-1": "sessions: create, list, search, duplicate, delete",
    "SES-2": "automatic titles",
    "SES-3": "settings are fixed while running; revoke always works",
    "PAT-1": "pattern validation, all problems at once",
    "PAT-2": "built-in patterns",
    "PAT-3": "optimistic revisions",
    "PRJ-1": "projects",
    "FIL-1": "records that belong to the code are read-only",
    "BKD-1": "capabilities",
    "BKD-2": "a backend never decides; a lost one settles its runs",
    "BKD-3": "which backend runs an agent",
    "BKD-4": "replay plays a plan that is kept with the run",
    "VAL-1": "unknown agents and tools are refused, all at once",
    "VAL-3": "a scratchpad session takes no auto-approve override",
    "CHD-1": "every child and grandchild carries no_new_privs, the daemon does not; unmarked, nothing starts",
    "CHD-2": "a child's environment is an allow-list; some names no caller can pass",
    "CHD-3": "output keeps both ends in bounded memory, and a flood holds nothing up",
    "CHD-4": "time-out, cancel, exit and close end the whole tree",
    "CHD-5": "leftovers of a killed daemon are cleaned only if they are the same process; adopted dead are reaped",
    "CHD-6": "a process's owner is found by ancestors and by token",
    "RTL-1": "tool paths stay in the project",
    "RTL-2": "tool output is bounded and says what is missing",
    "RTL-3": "rg is the real ripgrep, offered only where it is on PATH; nothing passes as an option",
    "RTL-4": "arguments that do not fit are an outcome naming the problem",
    "PKG-1": "each dependency has its own line, is named once, and is explained in ADR 1; typer stays below 0.29",
    "PKG-2": "console scripts and plugin entry points resolve; versions, licence and Python bound agree",
    "PKG-3": "the tree has the documented layout and holds nothing made by tools or tied to one machine",
    "WIR-1": "any chunking gives the same frames and the same failure",
    "WIR-2": "request size limit, also when only announced",
    "WIR-3": "what a request may hold",
    "WIR-4": "a request's shape, and its msgid wherever it can be read",
    "WIR-5": "wrong arguments are named by path and never echoed",
    "WIR-6": "the form of replies, errors and events; over 8 MiB is never sent",
    "WIR-7": "who a peer is; every doubt is a mark",
    "WIR-8": "a marked peer gets only `open`",
    "WIR-9": "one lock; losers name the holder; children do not inherit it",
    "WIR-10": "the runtime folder is private or refused",
    "WIR-11": "the socket is 0600, long paths work, stale is replaced, held is left alone",
    "WIR-12": "each request is answered once, in order of readiness; one too many is `busy`",
    "WIR-13": "connection limits, and another uid is refused",
    "WIR-14": "an unfinished frame is closed",
    "WIR-15": "after a broken frame the client is told, and nothing more is read",
    "WIR-16": "a client that does not read is not read from, then cut off",
    "WIR-17": "inner faults are `internal` and tell nothing",
    "WIR-18": "half close and vanished clients",
    "WIR-19": "`stop()` flushes and is bounded",
    "WIR-20": "the client trusts only a private folder and a daemon of the same user",
    "WIR-21": "any chunking gives the client the same replies and events; broken frames are errors",
    "WIR-22": "refusals carry code, message and data, also as text",
    "WIR-23": "a busy daemon or a full backlog is retried for a bounded time",
    "WIR-24": "a socket path over 100 bytes is reached",
    "WIR-25": "following a run leaves no gap and tells nothing twice",
    "CLI-1": "nothing an agent wrote is obeyed by the terminal, invisible, or at the margin",
    "CLI-2": "NO_COLOR, TERM=dumb and files get no colour",
    "CLI-3": "short ids are unique, found again, and refused when ambiguous, before anything changes",
    "CLI-4": "each decision is told with its reason and who made it",
    "CLI-5": "approvals show shows everything; a final response stands under 'not yet published'",
    "CLI-6": "approving sends back the digest; a late answer says who decided; the same decision exits 0",
    "CLI-7": "--json is the wire form on every command; followed runs print one event per line",
    "CLI-8": "every error is one line with what to type, and its documented exit status",
    "CLI-9": "waiting for a run tells how it ended",
    "CLI-10": "answering in place",
    "CLI-11": "first Ctrl-C leaves, second cancels, no event is lost",
    "CLI-12": "without a terminal the command to type is printed",
    "CLI-13": "a refused caller is told to who follows a run, and shown by status",
    "CLI-14": "the reference is current and every option is explained",
    "CLI-15": "daemon start detaches, waits and reports failure",
    "CLI-20": "a client command's path imports nothing heavy",
    "CLI-21": "where files are: XDG, ERYX_HOME, never /tmp",
    "CLI-22": "config.toml is taken whole, or refused with file, line and cure",
    "PRN-4": "a session's list that becomes empty stays explicit",
}

LATER: Final = frozenset(
    {
        *("CAT-2", "CAT-4", "CAT-5", "CAT-6", "CAT-7", "CAT-8"),
        *("VAL-2", "PRN-1", "PRN-2", "PRN-3", "PRN-5"),
        *("APR-12", "FIL-2", "FIL-3", "FIL-4"),
    }
)
