"""Records with defaults, so that a test states only what it is about.

Plain strings stand for identifiers and enum values; `None` leaves an optional field absent.  Every other field
of a record can be given by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.api.replies import BackendState, SessionView
from eryxd.domain.approval import (
    Approval,
    ApprovalContent,
    ApprovalMessage,
    ApprovalStatus,
    Decider,
    Permission,
)
from eryxd.domain.capabilities import BackendDescriptor, Capabilities, Connection, ConnectionState
from eryxd.domain.catalog import SourceAnswer, SourceId, build, runtime_tools
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
    ApprovalSettings,
    CheckpointKind,
    CheckpointRule,
    EffectivePolicy,
    Grants,
    ListFrom,
    ToolAsk,
)
from eryxd.domain.session import (
    ListOwner,
    Message,
    Offers,
    Project,
    Role,
    Run,
    RunAgent,
    RunInput,
    RunStatus,
    SessionHead,
    SessionStatus,
    TitleSource,
    Withheld,
    WithheldKind,
    WorkspaceKind,
)
from eryxd.domain.timeline import TimelineEvent, TimelineKind, TimelineStatus
from eryxd.domain.tools import ProvidedTool, RuntimeTool, ToolDefinition, ToolKind

R = TypeVar("R", bound=Record)

NOON: Final = Timestamp("2026-11-30T12:00:00.000Z")
"""When everything happens unless a test says otherwise."""


def after(seconds: int) -> Timestamp:
    """Return the timestamp that many seconds after noon, at most an hour."""
    return Timestamp(f"2026-11-30T12:{seconds // 60:02}:{seconds % 60:02}.000Z")


def _with(record: R, changes: Mapping[str, Any]) -> R:
    return replace(record, **{name: UNSET if value is None else value for name, value in changes.items()})


def _tools(names: Iterable[str]) -> tuple[ToolId, ...]:
    return tuple(ToolId(name) for name in names)


def rule(kind: str = "tool-call", agents: Iterable[str] | None = None) -> CheckpointRule:
    """Return a checkpoint; without agents it covers all of them."""
    scope = UNSET if agents is None else tuple(AgentId(agent) for agent in agents)
    return CheckpointRule(kind=CheckpointKind(kind), agent_ids=scope)


EVERY_CALL: Final = (rule(),)
"""One unscoped tool-call checkpoint: what a policy has unless a test says otherwise."""


def policy(
    *,
    rules: Sequence[CheckpointRule] = EVERY_CALL,
    auto_approved: Iterable[str] | None = None,
    expires_after_s: float | UnsetType = UNSET,
) -> ApprovalPolicy:
    """Return a pattern's policy."""
    names = UNSET if auto_approved is None else _tools(auto_approved)
    return ApprovalPolicy(rules=tuple(rules), auto_approved_tool_names=names, expires_after_s=expires_after_s)


def settings(auto_approved: Iterable[str] = ()) -> ApprovalSettings:
    """Return a session's override."""
    return ApprovalSettings(auto_approved_tool_names=_tools(auto_approved))


def effective_policy(
    *,
    rules: Sequence[CheckpointRule] = EVERY_CALL,
    auto_approved: Iterable[str] = (),
    list_from: str = "pattern",
    expires_after_s: float | UnsetType = UNSET,
) -> EffectivePolicy:
    """Return what a run obeys."""
    return EffectivePolicy(
        rules=tuple(rules),
        auto_approved_tool_names=_tools(auto_approved),
        list_from=ListFrom(list_from),
        expires_after_s=expires_after_s,
    )


def grants(
    *,
    remembered: Iterable[str] = (),
    revoked: bool = False,
    providers: Mapping[str, Iterable[str]] | None = None,
) -> Grants:
    """Return what changed a running run, and who offered each listed id."""
    return Grants(remembered=_tools(remembered), revoked=revoked, providers=catalog(providers or {}))


def catalog(offers: Mapping[str, Iterable[str]]) -> dict[ToolId, tuple[ProviderId, ...]]:
    """Return a mapping from tool id to providers: what a decision reads of the catalog."""
    return {ToolId(tool): tuple(ProviderId(name) for name in names) for tool, names in offers.items()}


def ask(tool: str | None = "view", agent: str | None = "coder", provider: str | None = None) -> ToolAsk:
    """Return a question about one tool call."""
    return ToolAsk(
        agent_id=UNSET if agent is None else AgentId(agent),
        tool_id=UNSET if tool is None else ToolId(tool),
        provider=UNSET if provider is None else ProviderId(provider),
    )


def agent(id: str = "coder", **changes: Any) -> Agent:
    """Return an agent with a name and instructions, as they are when nothing is wrong with them."""
    made = Agent(id=AgentId(id), name=id.capitalize(), instructions="Do the task.")
    return _with(made, changes)


def run_agent(id: str = "coder", **changes: Any) -> RunAgent:
    """Return an agent as a run keeps it."""
    made = RunAgent(id=AgentId(id), name=id.capitalize(), backend=BackendName("replay"), instructions="Do the task.")
    return _with(made, changes)


def pattern(id: str = "p1", **changes: Any) -> Pattern:
    """Return a pattern of one agent whose every tool call asks."""
    made = Pattern(
        id=PatternId(id),
        name="Coding",
        mode=Mode.SINGLE,
        agents=(agent(),),
        created_at=NOON,
        updated_at=NOON,
        revision=1,
        approval_policy=policy(),
    )
    return _with(made, changes)


def project(id: str = "j1", **changes: Any) -> Project:
    """Return a project."""
    return _with(Project(id=ProjectId(id), name="eryx", path="/home/ada/eryx", created_at=NOON), changes)


def session(id: str = "s1", **changes: Any) -> SessionHead:
    """Return an idle session that inherits its pattern's list."""
    made = SessionHead(
        id=SessionId(id),
        project_id=ProjectId("j1"),
        pattern_id=PatternId("p1"),
        title="Mend the parser",
        title_source=TitleSource.AUTO,
        status=SessionStatus.IDLE,
        created_at=NOON,
        updated_at=NOON,
    )
    return _with(made, changes)


def session_view(id: str = "s1", *, pending: Sequence[Approval] = (), **changes: Any) -> SessionView:
    """Return a session as replies carry it; with anything pending it is running, as it is in life."""
    head = session(id)
    view = SessionView(
        **{name: getattr(head, name) for name in head.__struct_fields__},
        pending_approval=pending[0] if pending else UNSET,
        pending_approval_queue=tuple(pending[1:]),
    )
    status = SessionStatus.RUNNING if pending else SessionStatus.IDLE
    return _with(view, {"status": status, **changes})


def message(id: str = "m1", **changes: Any) -> Message:
    """Return a published message of an agent."""
    made = Message(
        id=MessageId(id),
        session_id=SessionId("s1"),
        run_id=RunId("r1"),
        role=Role.ASSISTANT,
        author_name="Coder",
        agent_id=AgentId("coder"),
        content="The parser is mended.",
        created_at=NOON,
        number=1,
    )
    return _with(made, changes)


def withheld(id: str = "m1", **changes: Any) -> Withheld:
    """Return a message that nobody may see yet."""
    made = Withheld(
        id=MessageId(id),
        session_id=SessionId("s1"),
        run_id=RunId("r1"),
        kind=WithheldKind.MESSAGE,
        author_name="Coder",
        agent_id=AgentId("coder"),
        content="The parser is mended.",
        created_at=NOON,
        number=1,
    )
    return _with(made, changes)


def run(id: str = "r1", **changes: Any) -> Run:
    """Return a run in progress."""
    made = Run(
        id=RunId(id),
        session_id=SessionId("s1"),
        project_id=ProjectId("j1"),
        project_path="/home/ada/eryx",
        workspace_kind=WorkspaceKind.PROJECT,
        pattern_id=PatternId("p1"),
        pattern_name="Coding",
        pattern_mode=Mode.SINGLE,
        trigger_message_id=MessageId("m0"),
        started_at=NOON,
        status=RunStatus.RUNNING,
        agents=(run_agent(),),
        approval_policy=effective_policy(),
        number=1,
    )
    return _with(made, changes)


def run_input(**changes: Any) -> RunInput:
    """Return the plan that a run's agent plays."""
    made = RunInput(run_id=RunId("r1"), session_id=SessionId("s1"), agent_id=AgentId("coder"), text="say = 'Done.'")
    return _with(made, changes)


def offers(*tools: str, owner: str = "pattern", owner_id: str = "p1", **changes: Any) -> Offers:
    """Return who offered the ids of a list when they were put there."""
    made = Offers(
        owner=ListOwner(owner),
        owner_id=owner_id,
        providers={ToolId(tool): (ProviderId(f"builtin:{tool}"),) for tool in tools or ("view",)},
        number=0,
    )
    return _with(made, changes)


def permission(**changes: Any) -> Permission:
    """Return what a shell call would do."""
    return _with(Permission(command="make test"), changes)


def decider(**changes: Any) -> Decider:
    """Return who answered."""
    return _with(Decider(uid=1000, pid=4321, client_name="eryx"), changes)


def approval_message(id: str = "m1", **changes: Any) -> ApprovalMessage:
    """Return one withheld message as an approval shows it."""
    made = ApprovalMessage(id=MessageId(id), author_name="Coder", content="The parser is mended.")
    return _with(made, changes)


def approval(id: str = "a1", **changes: Any) -> Approval:
    """Return a pending approval of a tool call."""
    made = Approval(
        id=ApprovalId(id),
        kind=CheckpointKind.TOOL_CALL,
        status=ApprovalStatus.PENDING,
        requested_at=NOON,
        session_id=SessionId("s1"),
        run_id=RunId("r1"),
        agent_id=AgentId("coder"),
        agent_name="Coder",
        tool_name=ToolId("shell"),
        title="Approve shell",
        permission=permission(),
        digest="0" * 64,
        number=1,
    )
    return _with(made, changes)


def approval_content(approval_id: str = "a1", **changes: Any) -> ApprovalContent:
    """Return the whole content behind an approval."""
    made = ApprovalContent(approval_id=ApprovalId(approval_id), session_id=SessionId("s1"), body=b"{}")
    return _with(made, changes)


def timeline_event(id: str = "t1", **changes: Any) -> TimelineEvent:
    """Return an event of a run: its start, unless the kind is given."""
    made = TimelineEvent(
        id=TimelineId(id),
        session_id=SessionId("s1"),
        run_id=RunId("r1"),
        number=1,
        kind=TimelineKind.RUN_STARTED,
        occurred_at=NOON,
        status=TimelineStatus.RUNNING,
    )
    return _with(made, changes)


def runtime_tool(id: str = "view", **changes: Any) -> RuntimeTool:
    """Return a tool as a backend reports it."""
    return _with(RuntimeTool(id=ToolId(id)), changes)


def tool(id: str = "view", *, providers: Sequence[str] | None = None, **changes: Any) -> ToolDefinition:
    """Return a definition; each provider's name is its id in capitals."""
    offered = (f"builtin:{id}",) if providers is None else tuple(providers)
    made = ToolDefinition(
        id=ToolId(id),
        label=id,
        kind=ToolKind.BUILTIN,
        provider_ids=tuple(ProviderId(name) for name in offered),
        provider_names=tuple(name.upper() for name in offered),
    )
    return _with(made, changes)


def descriptor(name: str = "replay", **changes: Any) -> BackendDescriptor:
    """Return what is known of a backend without asking it."""
    return _with(BackendDescriptor(name=BackendName(name), label=name.capitalize()), changes)


def capabilities(status: str = "ready", **changes: Any) -> Capabilities:
    """Return what a backend can do: view files, when it is ready."""
    state = ConnectionState(status=Connection(status), summary=f"It is {status}.", checked_at=NOON)
    return _with(Capabilities(connection=state, runtime_tools=(runtime_tool(),)), changes)


def backend_state(name: str = "replay", **changes: Any) -> BackendState:
    """Return a backend that is ready and may run an agent that names none."""
    made = BackendState(
        name=BackendName(name), label=name.capitalize(), by_default=True, needs_model=False, capabilities=capabilities()
    )
    return _with(made, changes)


def source_answer(source: str = "mcp:git", *tools: str, **changes: Any) -> SourceAnswer:
    """Return what a source answered."""
    made = SourceAnswer(
        source=SourceId(source),
        kind=ToolKind.BUILTIN if source.startswith("backend:") else ToolKind.MCP,
        name="Built-in" if source.startswith("backend:") else source.upper(),
        fingerprint="f1",
        tools=tuple(ProvidedTool(id=ToolId(tool)) for tool in tools),
        answered_at=NOON,
        since=NOON,
        backend=BackendName(source.partition(":")[2]) if source.startswith("backend:") else UNSET,
    )
    return _with(made, changes)


def builtin_tools(backend: BackendName, reported: Iterable[RuntimeTool]) -> tuple[ToolDefinition, ...]:
    """Return what the catalog makes of a backend's runtime tools."""
    return build([source_answer(f"backend:{backend}", tools=runtime_tools(reported))]).tools
