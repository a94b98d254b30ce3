"""Events of a timeline as they come out of the socket."""

import os
from typing import Any, Final

from msgspec import UNSET

from eryxd.domain.ids import ApprovalId
from eryxd.domain.policy import Decision, Reason, Verdict
from eryxd.domain.timeline import Ask
from tests import builders
from tests.builders import NOON
from tests.fakes import wire

ME: Final = {"uid": os.getuid(), "pid": 123, "client_name": "cli"}


def ask(verdict: str, reason: str, approval_id: str | None = None) -> Ask:
    decision = Decision(verdict=Verdict(verdict), reason=Reason(reason))
    return Ask(at=NOON, decision=decision, approval_id=UNSET if approval_id is None else ApprovalId(approval_id))


def call(id: str = "t2", *asks: Ask, **changes: Any) -> dict[str, Any]:
    """Return the event of a tool call."""
    given = {"tool_name": "shell", "arguments": {"command": "make test"}, "agent_name": "Coder", **changes}
    return dict(wire(builders.timeline_event(id, kind="tool-call", asks=asks, **given)))


def approval_event(id: str = "t3", **changes: Any) -> dict[str, Any]:
    """Return the event of an approval that waits."""
    given = {"approval_id": "a1", "approval_kind": "tool-call", "approval_title": "Approve shell", **changes}
    return dict(wire(builders.timeline_event(id, kind="approval", agent_name="Coder", **given)))


def decided(decision: str = "approved", **changes: Any) -> dict[str, Any]:
    """Return the event of an approval that a person decided."""
    given = {"resolution": "user", "resolved_by": ME, **changes}
    return approval_event(decision=decision, status="completed" if decision == "approved" else "error", **given)
