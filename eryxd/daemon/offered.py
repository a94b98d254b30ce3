"""What providers offer to one session, and how its backend calls it.

Law: only what the session is offered now can be called, whatever a backend asks for.
"""

import logging
from collections.abc import Sequence
from typing import Final

from eryxd.core import entries
from eryxd.core.state import State
from eryxd.daemon.provided import Providers
from eryxd.domain.catalog import SourceAnswer, SourceId
from eryxd.domain.errors import EryxError
from eryxd.domain.ids import ProviderId, SessionId
from eryxd.domain.providers import EntryId, ProviderEntry
from eryxd.domain.session import SessionHead
from eryxd.domain.tools import ToolKind
from eryxd.plugin.types import (
    TOOL_OUTPUT_BYTES,
    PermissionKind,
    ProviderCall,
    SessionTool,
    ToolOutcome,
)

log = logging.getLogger("eryxd.offered")

PERMISSION: Final = {ToolKind.MCP: PermissionKind.MCP}
"""What a call of a kind of tool asks for; all others are custom tools (APR-8)."""


def is_offered(state: State, head: SessionHead, provider: str) -> bool:
    """Say whether a session is offered what a provider has: selected, or without entries (SES-1)."""
    name, _, id = provider.partition(":")
    if name == "builtin" or not id:
        return True
    entry = state.get(ProviderEntry, (name, EntryId(id)))
    return entry is not None and entries.visible(entry, head) and id in head.tooling.get(name, ())


class OfferedTools:
    """The tools of one session's run.  Implements `plugin.types.SessionTools`."""

    def __init__(self, state: State, providers: Providers, session: SessionId) -> None:
        self._state = state
        self._providers = providers
        self._session = session

    def offered(self) -> Sequence[SessionTool]:
        """Return what the session is offered now."""
        head = self._state.get(SessionHead, self._session)
        if head is None:
            return ()
        return tuple(
            SessionTool(
                tool=tool,
                provider=answer.provider(tool.id),
                kind=PERMISSION.get(answer.kind, PermissionKind.CUSTOM_TOOL),
            )
            for answer in sorted(self._state.all(SourceAnswer), key=lambda answer: (answer.since, answer.source))
            if not answer.backend and is_offered(self._state, head, answer.source)
            for tool in answer.tools
        )

    async def call(self, provider: ProviderId, call: ProviderCall) -> ToolOutcome:
        """Run a tool.  Implements the protocol."""
        if not any((one.provider, one.tool.id) == (provider, call.tool_id) for one in self.offered()):
            return ToolOutcome(ok=False, text=f"This session is not offered {call.tool_id} of {provider}.")
        try:
            outcome = await self._providers.call(SourceId(provider), call, self._session)
        except EryxError as error:
            log.warning("a call of %s failed: %s", provider, error.code)
            return _bounded(ToolOutcome(ok=False, text=error.message))
        return _bounded(outcome)


def _bounded(outcome: ToolOutcome) -> ToolOutcome:
    """Return an outcome of bounded size, in text that can be stored."""
    data = outcome.text.encode(errors="replace")
    kept = data[:TOOL_OUTPUT_BYTES].decode(errors="ignore")
    missing = max(len(data) - TOOL_OUTPUT_BYTES, 0)
    return ToolOutcome(ok=bool(outcome.ok), text=kept, truncated_bytes=outcome.truncated_bytes + missing)
