"""Tool definitions by example: runtime tools, merging, and the catalog as a decision sees it."""

from typing import Final

import pytest

from eryxd.domain.ids import BackendName, ToolId
from eryxd.domain.tools import EMPTY_CATALOG, Catalog, ToolDefinition, ToolKind, merge
from tests.builders import builtin_tools, runtime_tool, tool
from tests.requirements import requirement

REPLAY: Final = BackendName("replay")
COPILOT: Final = BackendName("copilot")


@requirement("CAT-1")
def test_kinds_are_stable_words() -> None:
    """Clients group by them."""
    assert set(ToolKind) == {"builtin", "mcp", "lsp", "mixed", "plugin"}


@requirement("CAT-3")
def test_a_runtime_tool_becomes_a_builtin_definition() -> None:
    """The provider is the tool's own, whichever backend offers it."""
    schema = {"type": "object"}
    reported = runtime_tool("view", label="View", description="Reads a file.", input_schema=schema)

    assert list(builtin_tools(REPLAY, [reported])) == [
        tool(
            "view",
            label="View",
            kind=ToolKind.BUILTIN,
            providers=["builtin:view"],
            provider_names=("Built-in",),
            description="Reads a file.",
            input_schema=schema,
            backends=(REPLAY,),
        )
    ]


@requirement("CAT-3")
def test_a_runtime_tool_without_a_label_is_labelled_by_its_id() -> None:
    """Trimmed, as the id."""
    (made,) = builtin_tools(REPLAY, [runtime_tool(" rg\n")])

    assert (made.id, made.label) == ("rg", "rg")


@requirement("CAT-3")
def test_blank_runtime_tools_are_skipped_and_repeats_are_one() -> None:
    """A backend's list is not trusted to be tidy."""
    reported = [runtime_tool(name) for name in ("view", "", " ", "view ", "glob")]

    assert [made.id for made in builtin_tools(REPLAY, reported)] == ["glob", "view"]


@requirement("CAT-3")
def test_a_tool_of_two_backends_is_one_entry_of_one_provider() -> None:
    """The id is what is approved; `backends` says where it exists."""
    both = [*builtin_tools(COPILOT, [runtime_tool("view")]), *builtin_tools(REPLAY, [runtime_tool("view")])]

    (made,) = merge(both)

    assert made.provider_ids == ("builtin:view",)
    assert made.provider_names == ("Built-in",)
    assert made.backends == (COPILOT, REPLAY)
    assert made.kind is ToolKind.BUILTIN


@requirement("CAT-1")
def test_merging_keeps_the_first_label_and_fills_what_is_missing() -> None:
    """Two kinds on one id make `mixed`; providers accumulate, names parallel to ids."""
    first = tool("view", label="View", providers=["builtin:view"])
    later = tool("view", label="Look", kind=ToolKind.MCP, providers=["git", "builtin:view"], description="Reads.")

    assert merge([first, later]) == (
        tool(
            "view",
            label="View",
            kind=ToolKind.MIXED,
            providers=["builtin:view", "git"],
            description="Reads.",
        ),
    )


@requirement("CAT-1")
def test_a_providers_first_name_stays() -> None:
    """A later contribution does not rename it."""
    first = tool("view", providers=["git"], provider_names=("Git",))
    later = tool("view", providers=["git"], provider_names=("Other",))

    assert merge([first, later]) == (first,)


@requirement("CAT-1")
def test_ids_that_differ_in_case_are_two_tools() -> None:
    """They are compared exactly."""
    assert len(merge([tool("view"), tool("View")])) == 2


@requirement("CAT-1")
def test_lists_that_are_not_parallel_are_refused() -> None:
    """A name would stand beside another's id."""
    with pytest.raises(ValueError, match="provider"):
        ToolDefinition(
            id=ToolId("view"),
            label="View",
            kind=ToolKind.BUILTIN,
            provider_ids=tool(providers=["p", "q"]).provider_ids,
            provider_names=("P",),
        )


@requirement("POL-11")
def test_a_catalog_answers_who_offers_an_id() -> None:
    """That is all that a decision asks of it."""
    mine = Catalog([tool("view", providers=["p", "q"])])

    assert mine[ToolId("view")] == ("p", "q")
    assert ToolId("View") not in mine
    assert dict(mine) == {"view": ("p", "q")}
    assert len(mine) == 1


def test_a_catalog_lists_by_label_without_regard_to_case_then_by_id() -> None:
    """So that a person finds a tool where it is looked for."""
    tools = [
        tool("z", label="alpha"),
        tool("b", label="Beta"),
        tool("a", label="beta"),
        tool("c", label="Alpha"),
    ]

    assert [made.id for made in Catalog(tools).tools] == ["c", "z", "a", "b"]


def test_the_empty_catalog_offers_nothing() -> None:
    """Nothing can be automatic before a backend has answered."""
    assert len(EMPTY_CATALOG) == 0
    assert EMPTY_CATALOG.generation == 0
