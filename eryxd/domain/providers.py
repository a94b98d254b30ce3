"""Entries of tool providers: what a person has defined, of whatever kind.

Source: architecture 5, FIL-1.
"""

import re
from typing import Any, Final, NewType

from msgspec import UNSET, UnsetType

from eryxd.domain.ids import ProjectId, ProviderId, Record, Timestamp
from eryxd.domain.origin import FileOrigin
from eryxd.domain.pattern import Pattern
from eryxd.domain.session import Offers

EntryId = NewType("EntryId", str)
"""Names an entry among those of its provider; chosen by the person."""

ENTRY_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""What an entry's id looks like: it is typed, and stands in ids of the catalog."""

SECRET_MASK: Final = "••••••"
"""Shown in place of a secret; saved, it means unchanged."""


class ProviderEntry(Record, frozen=True, kw_only=True):
    """One definition: an MCP server, an LSP profile, whatever `provider` declares.

    `record` is of the provider's own type, with secrets masked.  Without a `project_id` the whole workspace has it.
    """

    provider: str
    id: EntryId
    name: str
    record: dict[str, Any]
    created_at: Timestamp
    updated_at: Timestamp
    revision: int
    project_id: ProjectId | UnsetType = UNSET
    origin: FileOrigin | UnsetType = UNSET

    @property
    def provider_id(self) -> ProviderId:
        """The entry as a provider of tools in the catalog, and as a source."""
        return ProviderId(f"{self.provider}:{self.id}")


class Shadowed(Record, frozen=True, kw_only=True):
    """A stored record that a file's stands in place of, by `kind` (`pattern` or `entry`) and id (FIL-2)."""

    kind: str
    id: str
    pattern: Pattern | UnsetType = UNSET
    offers: Offers | UnsetType = UNSET
    entry: ProviderEntry | UnsetType = UNSET
