"""Approvals: one decision by a person, pending or resolved.

Laws: an approval is resolved once; a brief carries neither what is withheld nor the permission's content; the
digest covers what is shown, whole; cutting a permission never changes its digest.

Source: APR-1 to APR-9.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.domain.errors import ApprovalNotActive
from eryxd.domain.ids import (
    AgentId,
    ApprovalId,
    CallId,
    MessageId,
    ProviderId,
    Record,
    RunId,
    SessionId,
    Timestamp,
    ToolId,
)
from eryxd.domain.policy import CheckpointKind
from eryxd.domain.session import Withheld, WithheldKind

SHOWN_BYTES: Final = 256 * 1024
"""Most of a permission, and of all messages, that one approval shows (APR-1); the rest is read in pages."""


class PermissionKind(StrEnum):
    """What sort of access a tool call needs (APR-8)."""

    SHELL = "shell"
    READ = "read"
    WRITE = "write"
    URL = "url"
    MCP = "mcp"
    MEMORY = "memory"
    CUSTOM_TOOL = "custom-tool"
    HOOK = "hook"


class ApprovalStatus(StrEnum):
    """Pending until somebody or something decides, once."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


class Resolution(StrEnum):
    """What ended the waiting.  Only `user` and `remembered` can approve."""

    USER = "user"
    REMEMBERED = "remembered"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RUN_FAILED = "run-failed"


class Truncated(Record, frozen=True, kw_only=True):
    """How much of something is not shown."""

    bytes: int


APPROVING: Final = frozenset({Resolution.USER, Resolution.REMEMBERED})
"""The only ends of waiting that can approve."""


class Permission(Record, frozen=True, kw_only=True):
    """What a call would do, structured, so that a person sees it and a digest can cover it."""

    kind: PermissionKind | UnsetType = UNSET
    command: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    diff: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    server: str | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    truncated: Truncated | UnsetType = UNSET


class ApprovalMessage(Record, frozen=True, kw_only=True):
    """Something unpublished that the person is asked to read."""

    id: MessageId
    author_name: str
    content: str
    kind: WithheldKind = WithheldKind.MESSAGE


class Decider(Record, frozen=True, kw_only=True):
    """Who answered: the peer's process, as the daemon saw it, and the name the client gave itself."""

    uid: int
    pid: int
    client_name: str


class Approval(Record, frozen=True, kw_only=True):
    """One approval.  `number` orders requests within the daemon; ids say nothing about order."""

    id: ApprovalId
    kind: CheckpointKind
    status: ApprovalStatus
    requested_at: Timestamp
    session_id: SessionId
    run_id: RunId
    title: str
    digest: str
    number: int
    detail: str | UnsetType = UNSET
    agent_id: AgentId | UnsetType = UNSET
    agent_name: str | UnsetType = UNSET
    tool_name: ToolId | UnsetType = UNSET
    permission_kind: PermissionKind | UnsetType = UNSET
    call_id: CallId | UnsetType = UNSET
    provider: ProviderId | UnsetType = UNSET
    permission: Permission | UnsetType = UNSET
    messages: tuple[ApprovalMessage, ...] | UnsetType = UNSET
    message_count: int | UnsetType = UNSET
    messages_truncated: Truncated | UnsetType = UNSET
    expires_at: Timestamp | UnsetType = UNSET
    resolved_at: Timestamp | UnsetType = UNSET
    resolution: Resolution | UnsetType = UNSET
    resolved_by: Decider | UnsetType = UNSET
    note: str | UnsetType = UNSET


class ApprovalContent(Record, frozen=True, kw_only=True):
    """The whole of what an approval covers, for `approvals.content` and the digest.  Stored beside the approval."""

    approval_id: ApprovalId
    session_id: SessionId
    body: bytes


def brief(approval: Approval) -> Approval:
    """Drop what only `approvals.get` may show."""
    count = approval.message_count if approval.messages is UNSET else len(approval.messages)
    return replace(approval, messages=UNSET, permission=UNSET, message_count=count)


def title(kind: CheckpointKind, tool: str | UnsetType, permission: str | UnsetType, agent: str) -> str:
    """Say in a few words what is asked (APR-7, APR-8)."""
    if kind is CheckpointKind.FINAL_RESPONSE:
        return f"Approve final response from {agent}"
    if tool:
        return f"Approve {tool}"
    if permission:
        return f"Approve {permission}"
    return "Approve tool access"


def detail(
    agent: str | UnsetType,
    permission: PermissionKind | UnsetType,
    tool: str | UnsetType,
    backend: str | UnsetType,
    backend_session: str | UnsetType,
) -> str:
    """Say in one sentence who asked for what; parts that are unknown are left out (APR-8)."""
    words = [agent or "An agent", "requested"]
    if permission:
        words.append(permission.value.replace("-", " "))
    words.append("permission")
    if tool:
        words.append(f'for tool "{tool}"')
    if backend:
        words.append(f"in {backend}")
        if backend_session:
            words.append(f"session {backend_session}")
    return " ".join(words) + "."


def digest(
    agent: AgentId | UnsetType, tool: ToolId | UnsetType, provider: ProviderId | UnsetType, content: bytes
) -> str:
    """Return SHA-256 in hex over everything that the person is shown, whole, before any cutting."""
    shown = msgspec.msgpack.encode((agent or "", tool or "", provider or "", content))
    return hashlib.sha256(shown).hexdigest()


def tool_content(permission: Permission) -> bytes:
    """Encode a tool call's permission for the digest and for reading in pages, keys sorted: equal means equal bytes."""
    return msgspec.json.encode(permission, order="deterministic")


def message_content(messages: Sequence[ApprovalMessage]) -> bytes:
    """Encode held-back messages for the digest and for reading in pages."""
    return msgspec.json.encode(messages)


def whole_messages(withheld: Sequence[Withheld]) -> tuple[ApprovalMessage, ...]:
    """Return what is held back, as an approval would carry it if there were no limit."""
    return tuple(
        ApprovalMessage(id=row.id, author_name=row.author_name, content=row.content, kind=row.kind) for row in withheld
    )


def shown_messages(
    withheld: Sequence[Withheld],
) -> tuple[tuple[ApprovalMessage, ...], Truncated | UnsetType]:
    """Return the messages as a person may read them in one piece, cut in the middle where they are too long."""
    messages = whole_messages(withheld)
    total = sum(len(message.content.encode()) for message in messages)
    if total <= SHOWN_BYTES:
        return messages, UNSET
    share = SHOWN_BYTES // len(messages)
    cut = tuple(replace(message, content=cut_middle(message.content, share)[0]) for message in messages)
    return cut, Truncated(bytes=total - sum(len(message.content.encode()) for message in cut))


def shown_permission(permission: Permission) -> Permission:
    """Cut the middle of long fields so that the whole stays within `SHOWN_BYTES`, and say how much is missing."""
    if len(msgspec.msgpack.encode(permission)) <= SHOWN_BYTES:
        return permission
    share = SHOWN_BYTES // 8
    missing = 0
    changes: dict[str, Any] = {}
    for field in ("command", "path", "diff", "url", "server"):
        text = getattr(permission, field)
        if text is not UNSET:
            changes[field], lost = cut_middle(text, share)
            missing += lost
    if permission.arguments is not UNSET:
        changes["arguments"], lost = _cut_arguments(permission.arguments, share)
        missing += lost
    return replace(permission, **changes, truncated=Truncated(bytes=missing))


def _cut_arguments(arguments: dict[str, Any], share: int) -> tuple[dict[str, Any], int]:
    text = msgspec.json.encode(arguments).decode()
    if len(text.encode()) <= share:
        return arguments, 0
    cut, lost = cut_middle(text, share)
    return {"json": cut}, lost


def cut_middle(text: str, limit_bytes: int) -> tuple[str, int]:
    """Keep both ends of a text, at most `limit_bytes` of UTF-8 in all; return it and how many bytes are gone."""
    raw = text.encode()
    if len(raw) <= limit_bytes:
        return text, 0
    half = max(limit_bytes // 2 - 4, 0)
    head = raw[:half].decode(errors="ignore")
    tail = raw[len(raw) - half :].decode(errors="ignore")
    return f"{head}…{tail}", len(raw) - len(head.encode()) - len(tail.encode())


def resolve(
    approval: Approval,
    status: ApprovalStatus,
    resolution: Resolution,
    at: Timestamp,
    by: Decider | UnsetType = UNSET,
    note: str | UnsetType = UNSET,
) -> Approval:
    """Return the approval as resolved.

    Raises: ApprovalNotActive -- it was resolved before; the data says by whom, and whether it was the same decision.
    """
    if approval.status is not ApprovalStatus.PENDING:
        raise not_active(approval, status)
    if status is ApprovalStatus.APPROVED and resolution not in APPROVING:
        raise ValueError(f"{resolution.value} cannot approve")
    return replace(approval, status=status, resolution=resolution, resolved_at=at, resolved_by=by, note=note)


def not_active(approval: Approval, wanted: ApprovalStatus) -> ApprovalNotActive:
    """Describe an approval that no longer waits, with everything a late client needs to know (APR-4)."""
    data: dict[str, object] = {
        "approval_id": approval.id,
        "status": approval.status.value,
        "resolution": approval.resolution.value if approval.resolution else "",
        "resolved_at": approval.resolved_at or "",
        "same_decision": approval.status is wanted,
    }
    if approval.resolved_by:
        data["resolved_by"] = msgspec.to_builtins(approval.resolved_by)
    return ApprovalNotActive(
        f"Approval {approval.id} was already {approval.status.value} ({approval.resolution}).", **data
    )
