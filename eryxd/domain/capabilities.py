"""What backends say of themselves.

Source: BKD-1, BKD-3, POL-10.
"""

from enum import StrEnum

from msgspec import UNSET, UnsetType

from eryxd.domain.ids import BackendName, Record, Timestamp
from eryxd.domain.tools import RuntimeTool


class Connection(StrEnum):
    """Whether a backend can work."""

    READY = "ready"
    CLI_MISSING = "cli-missing"
    AUTH_REQUIRED = "auth-required"
    ERROR = "error"


class ConnectionState(Record, frozen=True, kw_only=True):
    """The state of a backend's connection, in words for a person as well."""

    status: Connection
    summary: str
    checked_at: Timestamp
    detail: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    account: str | UnsetType = UNSET


class Model(Record, frozen=True, kw_only=True):
    """A model, or for `replay` a plan, that an agent can name."""

    id: str
    label: str


class Capabilities(Record, frozen=True, kw_only=True):
    """What a backend can do right now.  `runtime_tools` is absent when the tool list alone failed."""

    connection: ConnectionState
    models: tuple[Model, ...] = ()
    runtime_tools: tuple[RuntimeTool, ...] | UnsetType = UNSET


class BackendDescriptor(Record, frozen=True, kw_only=True):
    """What is known of a backend without asking it.

    `infrastructure` names its conversation-only tools (POL-10); `fallback_tools` stand in until it has answered;
    `by_default` is false for a backend that only runs when it is named (BKD-3).
    """

    name: BackendName
    label: str
    fallback_tools: tuple[RuntimeTool, ...] = ()
    infrastructure: tuple[str, ...] = ()
    needs_model: bool = False
    by_default: bool = True
