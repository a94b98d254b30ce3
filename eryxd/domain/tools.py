"""Tool definitions and the one catalog that everything is validated against.

Laws: merging is by exact id; the first label wins; providers accumulate without repeats, names parallel to ids;
two kinds on one id make `mixed` for good; the output order does not depend on the order of equal contributions.

Source: CAT-1 to CAT-3.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eryxd.domain.ids import BackendName, ProviderId, Record, ToolId


class ToolKind(StrEnum):
    """Where a definition came from."""

    BUILTIN = "builtin"
    MCP = "mcp"
    LSP = "lsp"
    PLUGIN = "plugin"
    MIXED = "mixed"


class RuntimeTool(Record, frozen=True, kw_only=True):
    """A tool as a backend reports it.  The label defaults to the id."""

    id: ToolId
    label: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    input_schema: dict[str, Any] | UnsetType = UNSET


def without_nil(value: Any) -> Any:
    """Return a JSON value without its nulls: replies hold none, and a schema's `default: null` says nothing."""
    if isinstance(value, dict):
        return {key: without_nil(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nil(inner) for inner in value if inner is not None]
    return value


class ToolAnnotations(Record, frozen=True, kw_only=True):
    """What a provider says of a tool's effects.  Hints to a person; nothing is ever decided on them."""

    title: str | UnsetType = UNSET
    read_only: bool | UnsetType = UNSET
    destructive: bool | UnsetType = UNSET
    idempotent: bool | UnsetType = UNSET
    open_world: bool | UnsetType = UNSET


class ProvidedTool(RuntimeTool, frozen=True, kw_only=True):
    """A tool as a provider lists it."""

    annotations: ToolAnnotations | UnsetType = UNSET


class ToolDefinition(Record, frozen=True, kw_only=True):
    """One entry of the catalog; `provider_ids` and `provider_names` are parallel and of one length."""

    id: ToolId
    label: str
    kind: ToolKind
    provider_ids: tuple[ProviderId, ...]
    provider_names: tuple[str, ...]
    description: str | UnsetType = UNSET
    input_schema: dict[str, Any] | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    backends: tuple[BackendName, ...] = ()

    def __post_init__(self) -> None:
        """Refuse lists that are not parallel."""
        if len(self.provider_ids) != len(self.provider_names):
            raise ValueError(f"provider_ids and provider_names of {self.id!r} differ in length")


class Catalog(Mapping[ToolId, tuple[ProviderId, ...]]):
    """The merged list.  As a mapping it answers what a decision asks: which providers offer this exact id."""

    def __init__(self, tools: Iterable[ToolDefinition] = (), generation: int = 0) -> None:
        self.tools = tuple(sorted(tools, key=lambda tool: (tool.label.casefold(), tool.id)))
        self.generation = generation
        self._providers = {tool.id: tool.provider_ids for tool in self.tools}

    def __getitem__(self, tool: ToolId) -> tuple[ProviderId, ...]:
        return self._providers[tool]

    def __iter__(self) -> Iterator[ToolId]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)


EMPTY_CATALOG: Final = Catalog()


def merge(contributions: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Merge definitions by exact id, in order of contribution (CAT-2)."""
    merged: dict[ToolId, ToolDefinition] = {}
    for tool in contributions:
        seen = merged.get(tool.id)
        merged[tool.id] = tool if seen is None else _join(seen, tool)
    return tuple(merged.values())


def _join(first: ToolDefinition, later: ToolDefinition) -> ToolDefinition:
    names = dict(zip(later.provider_ids, later.provider_names, strict=True))
    names.update(zip(first.provider_ids, first.provider_names, strict=True))
    ids = tuple(dict.fromkeys(first.provider_ids + later.provider_ids))
    return replace(
        first,
        kind=first.kind if first.kind is later.kind else ToolKind.MIXED,
        provider_ids=ids,
        provider_names=tuple(names[provider] for provider in ids),
        description=first.description or later.description,
        input_schema=first.input_schema or later.input_schema,
        annotations=first.annotations or later.annotations,
        backends=tuple(dict.fromkeys(first.backends + later.backends)),
    )
