"""The laws at the top of `eryxd.domain.tools`, each as a property of generated contributions."""

from random import Random

from hypothesis import given, strategies as st
from msgspec import UNSET

from eryxd.domain.ids import BackendName
from eryxd.domain.tools import Catalog, RuntimeTool, ToolDefinition, ToolKind, merge
from tests.builders import builtin_tools
from tests.requirements import requirement
from tests.strategies import contributions, distinct_definitions, runtime_tools


@requirement("CAT-1")
@given(offered=contributions)
def test_merging_is_by_exact_id(offered: list[ToolDefinition]) -> None:
    """One definition of each id, in the order in which ids first came."""
    merged = merge(offered)

    assert [tool.id for tool in merged] == list(dict.fromkeys(tool.id for tool in offered))


@requirement("CAT-1")
@given(offered=contributions)
def test_the_first_label_wins(offered: list[ToolDefinition]) -> None:
    """What a person has learnt to read does not change when a server is added; so with what describes the tool."""
    for tool in merge(offered):
        same = [one for one in offered if one.id == tool.id]

        assert tool.label == same[0].label
        assert tool.description == next((one.description for one in same if one.description), UNSET)


@requirement("CAT-1")
@given(offered=contributions)
def test_providers_accumulate_without_repeats_names_parallel_to_ids(offered: list[ToolDefinition]) -> None:
    """Every provider of an id is listed once, beside its own name."""
    for tool in merge(offered):
        everyone = [provider for one in offered if one.id == tool.id for provider in one.provider_ids]

        assert list(tool.provider_ids) == list(dict.fromkeys(everyone))
        assert list(tool.provider_names) == [provider.upper() for provider in tool.provider_ids]


@requirement("CAT-1")
@given(offered=contributions)
def test_two_kinds_on_one_id_make_mixed_for_good(offered: list[ToolDefinition]) -> None:
    """One kind stays what it is."""
    for tool in merge(offered):
        kinds = {one.kind for one in offered if one.id == tool.id}

        assert tool.kind is (ToolKind.MIXED if len(kinds) > 1 else kinds.pop())


@requirement("CAT-1")
@given(offered=contributions, cut=st.integers(0, 6))
def test_merging_in_steps_is_merging_at_once(offered: list[ToolDefinition], cut: int) -> None:
    """So a source may be added to what was merged before."""
    assert merge([*merge(offered[:cut]), *offered[cut:]]) == merge(offered)


@requirement("CAT-1")
@given(offered=contributions)
def test_offering_the_same_again_changes_nothing(offered: list[ToolDefinition]) -> None:
    """A source that answers twice is no second source."""
    assert merge([*offered, *offered]) == merge(offered)


@given(offered=distinct_definitions, order=st.randoms(use_true_random=False))
def test_the_output_order_does_not_depend_on_the_order_of_equal_contributions(
    offered: list[ToolDefinition], order: Random
) -> None:
    """Sources answer in any order; the list that a person sees stays still."""
    shuffled = list(offered)
    order.shuffle(shuffled)

    assert Catalog(merge(shuffled)).tools == Catalog(merge(offered)).tools


@requirement("CAT-3")
@given(reported=st.lists(runtime_tools))
def test_runtime_tools_are_trimmed_named_and_have_one_builtin_provider(reported: list[RuntimeTool]) -> None:
    """Whatever a backend reports."""
    made = builtin_tools(BackendName("replay"), reported)

    assert {tool.id for tool in made} == {name for tool in reported if (name := tool.id.strip())}
    for tool in made:
        assert tool.provider_ids == (f"builtin:{tool.id}",)
        assert tool.provider_names == ("Built-in",)
        assert tool.label
