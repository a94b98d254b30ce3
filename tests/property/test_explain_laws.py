"""The law of `eryxd.core.explain`: what is told before a run is what its calls meet."""

from typing import Any

from hypothesis import given, strategies as st

from eryxd.api import requests as ask
from eryxd.core import explain
from eryxd.core.explain import Question
from eryxd.domain.ids import ToolId
from eryxd.domain.policy import Verdict
from eryxd.domain.timeline import TimelineEvent, TimelineKind
from tests.builders import rule, tool
from tests.core_builders import World, call, wanted, world
from tests.requirements import requirement

TOOLS = ("view", "edit", "shell")
names = st.lists(st.sampled_from(TOOLS), unique=True)
offered = st.dictionaries(
    st.sampled_from(TOOLS), st.lists(st.sampled_from(("own", "newcomer")), min_size=1, unique=True)
)
scopes = ((), (rule(),), (rule(agents=["coder"]),), (rule(agents=["scout"]),), (rule("final-response"),))
rules = st.sampled_from(scopes)


def met(there: World, made: Any, tool_id: str, provider: str, agent: str, number: int) -> str:
    """Return verdict and reason that a call of the run got."""
    there.asks(made, call(tool_id, f"c{number}", provider=provider), agent=agent)
    calls = [one for one in there.every(TimelineEvent) if one.kind is TimelineKind.TOOL_CALL]
    (event,) = [one for one in calls if one.call_id == f"c{number}"]
    assert event.asks
    decision = event.asks[0].decision
    return f"{decision.verdict.value} {decision.reason.value}"


@requirement("POL-7", "POL-11")
@given(rules, names, st.none() | names, offered)
def test_what_is_told_is_what_a_call_meets(checkpoints: Any, listed: Any, own: Any, offers: dict[str, Any]) -> None:
    """For every tool, agent and provider of a session."""
    there = world(agents=("coder", "scout"), rules=checkpoints, listed=listed, own=own)
    there.offers(
        *(
            tool(name, providers=[f"builtin:{name}" if one == "own" else one for one in who])
            for name, who in offers.items()
        )
    )
    question = Question(wanted(ask.ToolsExplain, session_id="s1"), lambda agent: frozenset())
    told = there.do(explain.explain, question).reply
    made = there.send()

    for number, row in enumerate(told.rows):
        said = f"{row.decision.verdict.value} {row.decision.reason.value}"
        assert said == met(there, made, row.tool_id, row.provider, row.agent_id, number)
    assert {row.tool_id for row in told.rows} == set(offers)
    in_force = own if own is not None else listed
    assert set(told.inactive) == {ToolId(name) for name in in_force if name not in offers}
    assert all(row.tool_id in in_force for row in told.rows if row.decision.verdict is Verdict.AUTO)
