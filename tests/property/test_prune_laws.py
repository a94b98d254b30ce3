"""The laws at the top of `eryxd.domain.catalog`, each as a property of generated answers and lists."""

from random import Random
from typing import Any, Final

from hypothesis import given, strategies as st
from msgspec.structs import replace

from eryxd.domain.catalog import ANYBODY, Prune, SourceAnswer, SourceId, build, lost, prune_list, succeed
from eryxd.domain.ids import ProviderId, ToolId
from tests.builders import NOON, source_answer
from tests.requirements import requirement

TOOLS: Final = ("view", "edit", "grep", "build")
SOURCES: Final = ("backend:replay", "backend:other", "mcp:git", "mcp:fs", "make")

tools = st.lists(st.sampled_from(TOOLS), unique=True)


@st.composite
def answers(draw: Any, source: str | None = None) -> SourceAnswer:
    named = draw(st.sampled_from(SOURCES)) if source is None else source
    made = source_answer(named, *draw(tools), fingerprint=draw(st.sampled_from(("f1", "f2"))))
    offered = {tool.id for tool in made.tools}
    return replace(made, missing=tuple(ToolId(tool) for tool in draw(tools) if tool not in offered))


several = st.lists(answers(), unique_by=lambda answer: answer.source)
lists = st.dictionaries(
    st.sampled_from(TOOLS), st.lists(st.sampled_from(("mcp:git", "mcp:fs", "builtin:view")), unique=True).map(tuple)
)


@st.composite
def prunes(draw: Any) -> Prune:
    gone = draw(st.dictionaries(st.sampled_from(TOOLS), st.sampled_from(("mcp:git", "builtin:view", ANYBODY))))
    offered = tuple(tool for tool, loser in gone.items() if loser != ANYBODY and draw(st.booleans()))
    return Prune(number=1, source=SourceId("mcp:git"), at=NOON, lost=gone, offered=offered, why="it went")


@requirement("CAT-7", "CAT-2")
@given(several, st.randoms(use_true_random=False))
def test_the_catalog_is_a_function_of_the_answers_alone(known: list[SourceAnswer], order: Random) -> None:
    """Whatever their order, and whatever is missing in them."""
    shuffled = [replace(answer, missing=(), answered_at=NOON) for answer in known]
    order.shuffle(shuffled)

    assert build(shuffled).tools == build(known).tools
    assert set(build(known)) == {tool.id for answer in known for tool in answer.tools}


@requirement("PRN-2")
@given(answers("mcp:git"), answers("mcp:git"))
def test_an_answer_under_an_unchanged_fingerprint_gives_nothing_up(old: SourceAnswer, new: SourceAnswer) -> None:
    """What it lists no more is missing: out of the catalog, and held."""
    new = replace(new, missing=(), fingerprint=old.fingerprint)
    after = succeed(old, new)

    assert lost(old, after, []) == {}
    assert set(after.held()) == set(old.held()) | set(new.held())
    assert build([after]).tools == build([new]).tools


@requirement("PRN-2", "PRN-3")
@given(answers("mcp:git"), st.none() | answers("mcp:git"), st.lists(answers("mcp:fs"), max_size=1))
def test_what_a_source_gives_up_is_what_it_held_and_holds_no_more(
    old: SourceAnswer, new: SourceAnswer | None, others: list[SourceAnswer]
) -> None:
    """Nobody else's answer, good or bad, has a part in it."""
    left = set() if new is None else set(new.held())

    assert lost(old, new, others) == {tool: "mcp:git" for tool in old.held() if tool not in left}


@requirement("PRN-2")
@given(answers("backend:replay"), answers("backend:replay"), answers("backend:other"))
def test_a_runtime_tool_is_given_up_when_no_backend_holds_it(
    old: SourceAnswer, new: SourceAnswer, other: SourceAnswer
) -> None:
    """They share its provider."""
    left = {*new.held(), *other.held()}

    assert lost(old, new, [other]) == {tool: f"builtin:{tool}" for tool in old.held() if tool not in left}


@requirement("PRN-2", "POL-11")
@given(tools, lists, prunes())
def test_a_prune_removes_only_what_is_gone_for_every_recorded_provider(
    names: list[str], providers: dict[str, tuple[str, ...]], prune: Prune
) -> None:
    """And what somebody else offers stays listed, for nobody that was recorded."""
    before = {ToolId(tool): tuple(ProviderId(one) for one in who) for tool, who in providers.items()}
    after = prune_list(tuple(ToolId(name) for name in names), before, prune)

    for name in map(ToolId, names):
        loser, recorded = prune.lost.get(name), before.get(name, ())
        by_hand = loser == ANYBODY
        alone = bool(recorded) and set(recorded) == {loser}
        assert (name in after.gone) == (by_hand or (alone and name not in prune.offered))
        if name not in after.gone and loser is not None and recorded:
            assert loser not in after.providers[name]
    assert after.names == tuple(name for name in names if name not in after.gone)
    for tool, who in after.providers.items():
        assert set(who) <= set(before[tool])


@requirement("PRN-2")
@given(tools, lists, prunes())
def test_pruning_twice_is_pruning_once(names: list[str], providers: dict[str, tuple[str, ...]], prune: Prune) -> None:
    before = {ToolId(tool): tuple(ProviderId(one) for one in who) for tool, who in providers.items()}
    once = prune_list(tuple(ToolId(name) for name in names), before, prune)
    twice = prune_list(once.names, once.providers, prune)

    assert twice._replace(gone=once.gone) == once
