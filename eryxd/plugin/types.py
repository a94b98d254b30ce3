"""The protocols between eryx and what plugins contribute.

A backend runs one agent's turn and asks through the gate before every tool call; it never decides (BKD-2).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from eryxd.domain.approval import Permission, PermissionKind
from eryxd.domain.capabilities import BackendDescriptor, Capabilities, Connection, ConnectionState, Model
from eryxd.domain.errors import BackendFailed, ProviderFailed
from eryxd.domain.ids import CallId, ProviderId, Record, RunId, SessionId, ToolId
from eryxd.domain.policy import EffectivePolicy
from eryxd.domain.session import Message, RunAgent
from eryxd.domain.tools import ProvidedTool, RuntimeTool, ToolAnnotations, ToolKind

__all__ = [
    "TOOL_OUTPUT_BYTES",
    "Allow",
    "Answer",
    "Backend",
    "BackendDescriptor",
    "BackendFailed",
    "Capabilities",
    "Connection",
    "ConnectionState",
    "DeniedBy",
    "Deny",
    "Entry",
    "Gate",
    "Model",
    "Observer",
    "PermissionKind",
    "PluginContext",
    "ProcessResult",
    "Processes",
    "ProvidedTool",
    "ProviderCall",
    "ProviderDescriptor",
    "ProviderFailed",
    "Record",
    "RuntimeTool",
    "Secret",
    "SessionTool",
    "SessionTools",
    "ToolAnnotations",
    "ToolCall",
    "ToolId",
    "ToolKind",
    "ToolOutcome",
    "ToolProvider",
    "Turn",
]


class DeniedBy(StrEnum):
    """Why the gate said no.  Only `person` is told to the model as a refusal, with the note (APR-5)."""

    PERSON = "person"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"
    STORE = "store"
    RULE = "rule"


class Allow(Record, frozen=True, kw_only=True):
    """The call may run, now, with the arguments that were shown."""


class Deny(Record, frozen=True, kw_only=True):
    """The call must not run."""

    by: DeniedBy
    note: str | UnsetType = UNSET


Answer = Allow | Deny


class ToolCall(Record, frozen=True, kw_only=True):
    """One tool call as the backend describes it before it runs.

    `tool_id` is absent when the backend cannot identify the tool; such a call asks.
    """

    call_id: CallId
    tool_id: ToolId | UnsetType = UNSET
    provider: ProviderId | UnsetType = UNSET
    permission: Permission = Permission()
    arguments: dict[str, Any] = {}
    backend_session: str | UnsetType = UNSET


class ToolOutcome(Record, frozen=True, kw_only=True):
    """What came of a call, bounded.  `truncated_bytes` says how much of the output is missing."""

    ok: bool
    text: str
    truncated_bytes: int = 0


class Gate(Protocol):
    """The daemon's side of a turn.  Every method may wait; none raises except when the turn is being cancelled."""

    async def tool_call(self, call: ToolCall) -> Answer:
        """Ask before running a tool.  Waits for a person when the policy says so."""

    async def tool_done(self, call_id: CallId, outcome: ToolOutcome) -> None:
        """Report how a call that was allowed, or refused, ended."""

    async def thinking(self, text: str) -> None:
        """Report finished reasoning."""

    async def delta(self, text: str) -> None:
        """Report a piece of the message being generated; the first piece begins it."""

    async def message(self, content: str) -> None:
        """Report a finished message: the whole of it, whatever deltas came before."""


class Processes(Protocol):
    """How a backend starts programs: marked, in their own process group, bounded, killed as a tree."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        timeout_s: float,
        limit_bytes: int,
        stdin: bytes = b"",
        environ: Mapping[str, str] = {},
    ) -> "ProcessResult":
        """Run one program to its end.  A time-out, or cancelling the caller, kills the whole tree."""


class ProcessResult(Record, frozen=True, kw_only=True):
    """How a program ended.  `exit_status` is negative for a signal.  Output keeps both ends when it was too long."""

    exit_status: int
    output: bytes
    stderr: bytes
    truncated_bytes: int
    timed_out: bool


TOOL_OUTPUT_BYTES: Final = 64 * 1024
"""Most of a tool's output that is kept and shown; models lose the thread before that."""


Secret = Annotated[str, msgspec.Meta(extra={"eryx": "secret"})]
"""Type of a record's field that is kept apart, and shown to nobody.  Also as `dict[str, Secret]`."""


class ProviderDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tool provider without asking it.

    `record` is the type of its entries, a `Record`; None for one that offers tools without entries, and is then a
    source by itself.  `kind` is shown beside its tools.
    """

    name: str
    label: str
    kind: ToolKind = ToolKind.PLUGIN
    record: type[Record] | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as its provider gets it: `record` is an instance of the declared type, secrets filled in.

    `project_path` is absent for an entry of the whole workspace.
    """

    id: str
    name: str
    record: Any
    project_path: str | UnsetType = UNSET


class ProviderCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was allowed: exactly what was shown."""

    tool_id: ToolId
    arguments: dict[str, Any]
    project_path: str


class ToolProvider(Protocol):
    """Lists tools and runs them.  Its methods get `None` for an entry where the descriptor declares no record."""

    @property
    def descriptor(self) -> ProviderDescriptor:
        """What is known without asking."""

    def problems(self, entry: Entry, others: Sequence[Entry]) -> Sequence[str]:
        """Name everything that makes an entry unfit, beside its type; `others` are the provider's other entries."""

    def fingerprint(self, entry: Entry | None) -> str:
        """Return what besides the entry's record decides which tools there are: executable, version.  May block."""

    def declared(self, entry: Entry | None) -> Sequence[ProvidedTool] | None:
        """Return the tools that can be told without asking anybody, or None when it has to be asked."""

    async def tools(self, entry: Entry | None, processes: Processes) -> Sequence[ProvidedTool]:
        """Ask which tools there are.  Starts nothing that stays.

        Raises: ProviderFailed -- with a sentence for the person.
        """

    async def call(self, entry: Entry | None, call: ProviderCall, processes: Processes) -> ToolOutcome:
        """Run a tool, after the gate has let it pass.  Cancelling the task must end everything it started.

        Raises: ProviderFailed -- with a sentence for the person and the model.
        """


class SessionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's tool that a session is offered: who runs it, and what kind of permission it asks for (APR-8)."""

    tool: ProvidedTool
    provider: ProviderId
    kind: PermissionKind


class SessionTools(Protocol):
    """What providers offer to a session.  A backend asks the gate first, and calls only what was allowed."""

    def offered(self) -> Sequence[SessionTool]:
        """Return the tools of the entries that the session has selected, and of providers without entries."""

    async def call(self, provider: ProviderId, call: ProviderCall) -> ToolOutcome:
        """Run a tool that the gate has let pass.  What fails is an outcome that says why."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's turn: who, where, and what was said so far (oldest first, the user's message included)."""

    run_id: RunId
    session_id: SessionId
    agent: RunAgent
    project_path: str
    policy: EffectivePolicy
    messages: tuple[Message, ...]
    processes: Processes
    tools: SessionTools
    input: str | UnsetType = UNSET


class Backend(Protocol):
    """What actually runs an agent."""

    @property
    def descriptor(self) -> BackendDescriptor:
        """What is known without asking."""

    async def describe(self) -> Capabilities:
        """Ask what it can do now.  Starts nothing that stays."""

    async def prepare(self, agent: RunAgent) -> str | UnsetType:
        """Return what must be kept with the run to tell later what was run, or UNSET when there is nothing.

        Raises: BackendFailed -- the agent cannot run as it is written; the message names what to mend.
        """

    async def run_turn(self, turn: Turn, gate: Gate) -> None:
        """Run the turn to its end.

        Raises: BackendFailed -- with a sentence for the person.  Cancelling the task must end everything it started.
        """


class PluginContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is told.  `settings` is of the type that `eryxd_settings` returned, None where there is none.

    `state_dir` is eryx's own folder; a plugin keeps what it must in a folder of its name there.
    """

    settings: Any
    state_dir: str


class Observer(Protocol):
    """Sees what happens."""

    def saw(self, event: Mapping[str, Any]) -> None:
        """Take one journalled event, in its wire form; a copy, so nothing that is done to it matters.

        Called in a thread of its own, one event after the other.  Who is slow misses the oldest.
        """
