"""Approvals by example: titles, details, caps, briefs, and what a late client is told."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from eryxd.domain.approval import (
    SHOWN_BYTES,
    Approval,
    ApprovalStatus,
    Permission,
    PermissionKind,
    Resolution,
    Truncated,
    brief,
    cut_middle,
    detail,
    digest,
    resolve,
    shown_messages,
    shown_permission,
    title,
    tool_content,
)
from eryxd.domain.errors import ApprovalNotActive, ErrorCode
from eryxd.domain.ids import AgentId, ProviderId, ToolId
from eryxd.domain.policy import CheckpointKind
from tests.builders import NOON, after, approval, approval_message, decider, permission, withheld
from tests.requirements import requirement

TOOL_CALL, FINAL_RESPONSE = CheckpointKind.TOOL_CALL, CheckpointKind.FINAL_RESPONSE


@requirement("APR-8")
@pytest.mark.parametrize(
    ("tool", "kind", "expected"),
    [
        ("lsp_ts_hover", PermissionKind.CUSTOM_TOOL, "Approve lsp_ts_hover"),
        (UNSET, PermissionKind.CUSTOM_TOOL, "Approve custom-tool"),
        (UNSET, UNSET, "Approve tool access"),
    ],
)
def test_the_title_names_the_best_that_is_known(tool: Any, kind: Any, expected: str) -> None:
    """The tool, else the permission kind, else neither."""
    assert title(TOOL_CALL, tool, kind, "Coder") == expected


@requirement("APR-7")
def test_the_title_of_a_final_response_names_the_agent() -> None:
    """Whatever else is known."""
    assert title(FINAL_RESPONSE, UNSET, UNSET, "Coder") == "Approve final response from Coder"


@requirement("APR-8")
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            ("Coder", PermissionKind.CUSTOM_TOOL, "hover", "Copilot", "c-1"),
            'Coder requested custom tool permission for tool "hover" in Copilot session c-1.',
        ),
        (("Coder", UNSET, "hover", "Copilot", UNSET), 'Coder requested permission for tool "hover" in Copilot.'),
        (("Coder", PermissionKind.SHELL, UNSET, UNSET, UNSET), "Coder requested shell permission."),
    ],
)
def test_the_detail_leaves_out_what_is_unknown(parts: Any, expected: str) -> None:
    """One sentence, whole in itself."""
    assert detail(*parts) == expected


@requirement("APR-8")
def test_permission_kinds_are_the_eight() -> None:
    """Clients choose a picture by them."""
    assert set(PermissionKind) == {"shell", "read", "write", "url", "mcp", "memory", "custom-tool", "hook"}


@requirement("APR-1")
def test_statuses_and_resolutions_are_stable_words() -> None:
    """They are stored, and clients branch on them."""
    assert set(ApprovalStatus) == {"pending", "approved", "rejected"}
    assert set(Resolution) == {"user", "remembered", "interrupted", "cancelled", "expired", "run-failed"}


@requirement("APR-1", "APR-2")
def test_a_brief_says_how_many_messages_there_are_and_shows_none() -> None:
    """They are read with `approvals.get`."""
    held = approval(kind=FINAL_RESPONSE, messages=(approval_message("m1"), approval_message("m2")))

    assert brief(held) == approval(kind=FINAL_RESPONSE, permission=None, message_count=2)


@requirement("APR-4")
def test_resolving_records_who_when_and_why() -> None:
    """Nothing else of the approval changes."""
    by = decider()

    resolved = resolve(approval(), ApprovalStatus.REJECTED, Resolution.USER, after(5), by, "Not on Friday.")

    assert resolved == approval(
        status=ApprovalStatus.REJECTED,
        resolution=Resolution.USER,
        resolved_at=after(5),
        resolved_by=by,
        note="Not on Friday.",
    )


@requirement("APR-4")
@pytest.mark.parametrize("again", [ApprovalStatus.APPROVED, ApprovalStatus.REJECTED])
def test_a_late_decision_is_told_what_was_decided(again: ApprovalStatus) -> None:
    """Also when it is the same one."""
    done = resolve(approval(), ApprovalStatus.APPROVED, Resolution.USER, NOON, decider())

    with pytest.raises(ApprovalNotActive) as late:
        resolve(done, again, Resolution.USER, after(1), decider(pid=1))

    assert late.value.code is ErrorCode.APPROVAL_NOT_ACTIVE
    assert late.value.data == {
        "approval_id": "a1",
        "status": "approved",
        "resolution": "user",
        "resolved_at": NOON,
        "resolved_by": {"uid": 1000, "pid": 4321, "client_name": "eryx"},
        "same_decision": again is ApprovalStatus.APPROVED,
    }


@requirement("APR-4")
def test_a_late_decision_after_an_end_without_a_person_names_nobody() -> None:
    """A restart has no process that answered."""
    ended = resolve(approval(), ApprovalStatus.REJECTED, Resolution.INTERRUPTED, NOON)

    with pytest.raises(ApprovalNotActive) as late:
        resolve(ended, ApprovalStatus.APPROVED, Resolution.USER, after(1), decider())

    assert "resolved_by" not in late.value.data
    assert late.value.data["resolution"] == "interrupted"
    assert late.value.data["same_decision"] is False


@requirement("APR-1")
@pytest.mark.parametrize(
    "other",
    [
        (AgentId("reviewer"), ToolId("shell"), ProviderId("builtin:shell"), b"make"),
        (UNSET, ToolId("shell"), ProviderId("builtin:shell"), b"make"),
        (AgentId("coder"), ToolId("edit"), ProviderId("builtin:shell"), b"make"),
        (AgentId("coder"), ToolId("shell"), UNSET, b"make"),
        (AgentId("coder"), ToolId("shell"), ProviderId("builtin:shell"), b"make clean"),
        (AgentId("codershell"), UNSET, ProviderId("builtin:shell"), b"make"),
    ],
)
def test_the_digest_covers_every_part(other: Any) -> None:
    """And tells apart what would read the same when joined."""
    mine = digest(AgentId("coder"), ToolId("shell"), ProviderId("builtin:shell"), b"make")

    assert digest(*other) != mine


@requirement("APR-1")
def test_content_does_not_depend_on_the_order_of_arguments() -> None:
    """A backend may list them anyhow; a repeated ask is recognised by its digest."""
    one = permission(arguments={"path": "a", "depth": {"x": 1, "y": 2}})
    two = permission(arguments={"depth": {"y": 2, "x": 1}, "path": "a"})

    assert tool_content(one) == tool_content(two)


@requirement("APR-1")
@pytest.mark.parametrize(("one", "two"), [(1, True), ("1", 1), (0, False), ("", None), ([], {})])
def test_content_tells_different_arguments_apart(one: object, two: object) -> None:
    """A digest that two calls share would let one be approved for the other."""
    assert tool_content(permission(arguments={"n": one})) != tool_content(permission(arguments={"n": two}))


@requirement("APR-1")
@pytest.mark.parametrize("field", ["command", "path", "diff", "url", "server"])
def test_a_long_field_is_cut_in_the_middle(field: str) -> None:
    """Both ends stay: a harmless beginning may have a harmful end."""
    text = "<" + "x" * SHOWN_BYTES + ">"

    shown = shown_permission(permission(**{"command": None, field: text}))
    cut = getattr(shown, field)

    assert cut[0] == "<"
    assert cut[-1] == ">"
    assert shown.truncated == Truncated(bytes=len(text) - len(cut.replace("…", "")))
    assert len(msgspec.msgpack.encode(shown)) <= SHOWN_BYTES


@requirement("APR-1")
def test_long_arguments_are_cut_in_the_middle() -> None:
    """As the JSON that they are, under one key."""
    whole = '{"text":"' + "x" * SHOWN_BYTES + '"}'

    shown = shown_permission(Permission(arguments={"text": "x" * SHOWN_BYTES}))

    assert shown.arguments is not UNSET
    assert set(shown.arguments) == {"json"}
    head, _, tail = shown.arguments["json"].partition("…")
    assert whole.startswith(head + "x")
    assert whole.endswith("x" + tail)
    assert shown.truncated == Truncated(bytes=len(whole) - len(head) - len(tail))


@requirement("APR-1")
def test_what_fits_is_shown_whole() -> None:
    """And does not claim that anything is missing."""
    mine = permission(kind=PermissionKind.SHELL, diff="x" * 100_000, arguments={"text": "y" * 100_000})

    assert shown_permission(mine) == mine


@requirement("APR-1", "APR-7")
def test_messages_that_fit_are_shown_whole_in_order() -> None:
    """In the order in which they were generated."""
    rows = [withheld("m2", content="First."), withheld("m1", content="Second.")]

    assert shown_messages(rows) == (
        (approval_message("m2", content="First."), approval_message("m1", content="Second.")),
        UNSET,
    )


@requirement("APR-1")
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_messages_that_do_not_fit_are_cut_to_the_cap(count: int) -> None:
    """However many share it; what is missing is counted."""
    size = 2 * SHOWN_BYTES // count + 1
    rows = [withheld(content="x" * size)] * count

    messages, truncated = shown_messages(rows)
    shown = sum(len(one.content.encode()) for one in messages)

    assert len(messages) == count
    assert shown <= SHOWN_BYTES
    assert truncated is not UNSET
    assert truncated.bytes > 0


@requirement("APR-1")
@pytest.mark.parametrize(("limit", "expected"), [(26, "abcdefghijklmnopqrstuvwxyz"), (12, "ab…yz"), (8, "…")])
def test_cutting_keeps_both_ends(limit: int, expected: str) -> None:
    """As much of each."""
    assert cut_middle("abcdefghijklmnopqrstuvwxyz", limit)[0] == expected


@requirement("APR-1")
def test_a_pending_approval_says_nothing_of_an_end() -> None:
    """Absent fields are absent on the wire, never nil."""
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(approval()))

    assert {"resolved_at", "resolution", "resolved_by", "note", "messages"}.isdisjoint(sent)
    assert None not in sent.values()
    assert msgspec.convert(sent, Approval) == approval()
