"""What sources answered, the catalog that follows from it, and what a changed answer takes off lists.

Laws: the catalog is a function of the answers alone, whatever their order.  An answer under an unchanged fingerprint
prunes nothing.  A prune removes an id only from a list that is older and whose every recorded provider is gone, and
never one that somebody still offers; pruning twice is pruning once.

Source: CAT-2, CAT-7, PRN-2, PRN-3; ADR 10.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, NewType

from msgspec import UNSET, UnsetType, structs
from msgspec.structs import replace

from eryxd.domain.ids import BackendName, ProviderId, Record, Timestamp, ToolId
from eryxd.domain.policy import prune_names
from eryxd.domain.tools import Catalog, ProvidedTool, RuntimeTool, ToolDefinition, ToolKind, merge, without_nil

SourceId = NewType("SourceId", str)
"""`backend:<name>`, `<provider>:<entry id>`, or a provider's name where it has no entries."""

BUILTIN: Final = "builtin"
"""Provider of every runtime tool, in front of the tool's id (CAT-3)."""

ANYBODY: Final = ProviderId("")
"""In a prune: whoever was recorded, because a person said that the id may go."""

_ORDER: Final = (ToolKind.BUILTIN, ToolKind.MCP, ToolKind.LSP, ToolKind.PLUGIN)


class SourceStatus(StrEnum):
    """How far a source is: asked and silent, answered, or failed with its last good answer standing in."""

    PENDING = "pending"
    ANSWERED = "answered"
    FAILED = "failed"


class Quarantined(Record, frozen=True, kw_only=True):
    """A tool that is not taken, because nobody could approve it without doubt (CAT-4)."""

    name: str
    why: str


class SourceAnswer(Record, frozen=True, kw_only=True):
    """A source's last good answer.

    `fingerprint` stands for what was asked.  `since` is when its entry was made, and orders contributions of one kind.
    `missing` ids were answered under this fingerprint and are no longer: out of the catalog, kept on lists.
    `is_fallback` marks what stands in for a backend that has never answered.
    """

    source: SourceId
    kind: ToolKind
    name: str
    fingerprint: str
    tools: tuple[ProvidedTool, ...]
    answered_at: Timestamp
    since: Timestamp
    plugin: str = ""
    backend: BackendName | UnsetType = UNSET
    missing: tuple[ToolId, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    is_fallback: bool = False

    def provider(self, tool: ToolId) -> ProviderId:
        """Return under which provider this source offers a tool."""
        return ProviderId(self.source if self.backend is UNSET else f"{BUILTIN}:{tool}")

    def held(self) -> Iterator[ToolId]:
        """Yield the ids it offers, and those that it may offer again without being another."""
        yield from (tool.id for tool in self.tools)
        yield from self.missing


def runtime_tools(reported: Iterable[RuntimeTool]) -> tuple[ProvidedTool, ...]:
    """Return a backend's tools trimmed, once each, blank names skipped (CAT-3)."""
    found: dict[ToolId, ProvidedTool] = {}
    for tool in reported:
        name = ToolId(tool.id.strip())
        if name:
            found.setdefault(name, _tidy(ProvidedTool(**{**structs.asdict(tool), "id": name})))
    return tuple(found.values())


def _tidy(tool: ProvidedTool) -> ProvidedTool:
    return tool if tool.input_schema is UNSET else replace(tool, input_schema=without_nil(tool.input_schema))


class Generation(Record, frozen=True, kw_only=True):
    """How often the catalog has changed."""

    number: int


class Prune(Record, frozen=True, kw_only=True):
    """Knowledge that ids are gone: `lost` names each with the provider that no longer has it.

    `offered` are those of them that somebody else offers: they stay listed, for nobody.  `why` is a sentence's end.
    """

    number: int
    source: SourceId
    at: Timestamp
    lost: dict[ToolId, ProviderId]
    offered: tuple[ToolId, ...]
    why: str


class Pruned(NamedTuple):
    """A list after a prune: its names, their providers, and the ids that went."""

    names: tuple[ToolId, ...]
    providers: dict[ToolId, tuple[ProviderId, ...]]
    gone: tuple[ToolId, ...]


def build(answers: Iterable[SourceAnswer], generation: int = 0) -> Catalog:
    """Merge all answers (CAT-2)."""
    return Catalog(merge(tool for answer in sorted(answers, key=_order) for tool in _definitions(answer)), generation)


def _order(answer: SourceAnswer) -> tuple[int, str, str, str]:
    return _ORDER.index(answer.kind), answer.since, answer.plugin, answer.source


def _definitions(answer: SourceAnswer) -> Iterator[ToolDefinition]:
    for tool in answer.tools:
        yield ToolDefinition(
            id=tool.id,
            label=tool.label or tool.id,
            kind=answer.kind,
            provider_ids=(answer.provider(tool.id),),
            provider_names=(answer.name,),
            description=tool.description,
            input_schema=tool.input_schema,
            annotations=tool.annotations,
            backends=() if answer.backend is UNSET else (answer.backend,),
        )


def taken(tools: Iterable[ProvidedTool]) -> tuple[tuple[ProvidedTool, ...], tuple[Quarantined, ...]]:
    """Return the tools that can be named without doubt, once each, and the others with the reason (CAT-4)."""
    good: dict[ToolId, ProvidedTool] = {}
    bad: list[Quarantined] = []
    for tool in tools:
        why = _doubt(tool.id)
        if why:
            bad.append(Quarantined(name=tool.id[:MAX_NAME], why=why))
        else:
            good.setdefault(tool.id, _tidy(tool))
    return tuple(good.values()), tuple(bad)


MAX_NAME: Final = 256
"""Longest tool id, as in a call."""


def _doubt(name: str) -> str:
    if not name.strip():
        return "its name is blank"
    if name != name.strip():
        return "its name has outer white space"
    if not name.isprintable():
        return "its name has characters that cannot be seen"
    return f"its name is longer than {MAX_NAME} characters" if len(name) > MAX_NAME else ""


def succeed(old: SourceAnswer | None, new: SourceAnswer) -> SourceAnswer:
    """Return an answer with the ids that are missing in it, where it was asked the same as before."""
    if old is None or old.is_fallback or old.fingerprint != new.fingerprint:
        return new
    now = {tool.id for tool in new.tools}
    return replace(new, missing=tuple(dict.fromkeys(tool for tool in old.held() if tool not in now)))


def lost(
    old: SourceAnswer | None, new: SourceAnswer | None, others: Iterable[SourceAnswer]
) -> dict[ToolId, ProviderId]:
    """Return the ids that a source has given up for good, each with the provider that it offered them as.

    `new` is its answer under a new fingerprint, None for a withdrawal; `others` are the other sources' answers.
    """
    if old is None:
        return {}
    still = set() if new is None else set(new.held())
    gone = {tool: old.provider(tool) for tool in old.held() if tool not in still}
    for other in others:
        if other.backend is not UNSET and old.backend is not UNSET:
            # Backends share the provider of a runtime tool: it is gone when none of them has it.
            for tool in other.held():
                gone.pop(tool, None)
    return gone


def prune_list(names: tuple[ToolId, ...], providers: Mapping[ToolId, tuple[ProviderId, ...]], prune: Prune) -> Pruned:
    """Take a prune's ids off one list; order is kept."""
    left = dict(providers)
    gone: list[ToolId] = []
    for tool in names:
        loser = prune.lost.get(tool)
        if loser is None:
            continue
        recorded = left.get(tool, ())
        remaining = () if loser == ANYBODY else tuple(one for one in recorded if one != loser)
        if loser == ANYBODY or (recorded and not remaining and tool not in prune.offered):
            gone.append(tool)
            left.pop(tool, None)
        elif recorded:
            left[tool] = remaining
    return Pruned(prune_names(names, set(gone)), left, tuple(gone))
