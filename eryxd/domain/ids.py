"""Identifiers are types, not strings; and the base of every record.

An id is a kind letter and 16 random base32 characters (APR-9); order never comes from an id.
"""

from typing import Final, NewType

import msgspec

AgentId = NewType("AgentId", str)
PatternId = NewType("PatternId", str)
ProjectId = NewType("ProjectId", str)
SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
RunId = NewType("RunId", str)
ApprovalId = NewType("ApprovalId", str)
TimelineId = NewType("TimelineId", str)
CallId = NewType("CallId", str)
"""The backend's own name of one tool call.  Unique within a run and an agent at the most; never a key alone."""
ToolId = NewType("ToolId", str)
"""The runtime identifier of a tool, compared exactly and case-sensitively; never a label."""
ProviderId = NewType("ProviderId", str)
BackendName = NewType("BackendName", str)
Timestamp = NewType("Timestamp", str)
"""RFC 3339 in UTC with milliseconds and a `Z`, so that text order is time order."""

ID_LENGTH: Final = 17
"""A kind letter and 16 characters of base32: 80 random bits."""

ID_LETTERS: Final = {
    "session": "s",
    "run": "r",
    "message": "m",
    "approval": "a",
    "pattern": "p",
    "project": "j",
    "timeline": "t",
}
"""The kind letter of each record that eryx names."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what is stored and sent: frozen, keyword-only, unknown fields refused.

    Optional fields are `X | UnsetType = UNSET`: absent on the wire and in the store, never nil.
    """
