"""Sending a message: what is refused, the run that it makes, and the backend that is chosen."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.replies import Effective, RunStarted
from eryxd.core import approvals, patterns, runs, sessions
from eryxd.core.change import StartRun
from eryxd.core.views import session_view
from eryxd.domain.approval import Approval
from eryxd.domain.errors import Invalid, NotFound, SessionRunning
from eryxd.domain.ids import AgentId, BackendName, SessionId
from eryxd.domain.pattern import MODE_UNAVAILABLE, Availability, Mode
from eryxd.domain.policy import UNAVAILABLE, ListFrom
from eryxd.domain.session import (
    SCRATCHPAD,
    Message,
    Role,
    Run,
    RunInput,
    SessionHead,
    SessionStatus,
    Withheld,
    WorkspaceKind,
)
from eryxd.domain.timeline import TimelineEvent
from eryxd.plugin.types import Allow
from tests.builders import (
    after,
    effective_policy,
    grants,
    message,
    pattern,
    policy,
    project,
    rule,
    run,
    run_agent,
    run_input,
    session,
    settings,
    timeline_event,
)
from tests.core_builders import World, call, put, types, wanted, world
from tests.requirements import requirement

REPLAY: Final = BackendName("replay")
FINAL: Final = (rule("final-response"),)


def sending(session_id: str = "s1", content: str = "Mend it.") -> ask.MessagesSend:
    """Return a client's request."""
    return wanted(ask.MessagesSend, session_id=session_id, content=content)


@requirement("RUN-1", "RUN-2")
def test_a_message_makes_a_run() -> None:
    """The transcript, the run with its snapshot, its first event; then the agents begin."""
    there = world(listed=["view"], status=SessionStatus.ERROR, last_error="It broke.", title="New session")
    there.now = after(3)
    wants = there.sending("Mend the parser.")._replace(inputs={AgentId("coder"): "say = 'Done.'"})
    change = there.do(runs.send, wants)
    started: RunStarted = change.reply
    made = put(change, Run)

    assert made == run(
        made.id,
        trigger_message_id=put(change, Message).id,
        started_at=after(3),
        approval_policy=effective_policy(auto_approved=["view"]),
        grants=grants(providers={"view": ["builtin:view"]}),
        number=made.number,
    )
    assert put(change, Message) == message(
        made.trigger_message_id,
        run_id=made.id,
        role=Role.USER,
        author_name="You",
        agent_id=None,
        content="Mend the parser.",
        created_at=after(3),
        number=put(change, Message).number,
    )
    first = put(change, TimelineEvent)
    assert first == timeline_event(
        first.id, run_id=made.id, number=first.number, occurred_at=after(3), content="Mend the parser."
    )
    assert put(change, RunInput) == run_input(run_id=made.id)
    assert put(change, SessionHead) == session(
        title="Mend the parser.", status=SessionStatus.RUNNING, updated_at=after(3)
    )
    assert types(change) == ["message-published", "timeline-event", "run-updated", "session-updated"]
    assert change.effects == (StartRun(made.id),)
    assert started == RunStarted(run_id=made.id, session=session_view(there.head, SessionId("s1")), seq=0)  # type: ignore[arg-type]


@requirement("RUN-1")
def test_runs_of_a_session_are_numbered_in_order() -> None:
    """Newest first is by number; ids say nothing about order."""
    there = world()
    first = there.send()
    there.finishes(first)

    assert there.send().number > first.number


@requirement("RUN-2")
def test_a_run_in_the_scratchpad_says_so() -> None:
    """Its folder is the session's own."""
    there = world(project(SCRATCHPAD, path="/scratch"), project_id=SCRATCHPAD)
    made = put(there.do(runs.send, there.sending()._replace(project_path="/scratch/s1")), Run)

    assert (made.workspace_kind, made.project_id, made.project_path) == (
        WorkspaceKind.SCRATCHPAD,
        SCRATCHPAD,
        "/scratch/s1",
    )


@requirement("RUN-1")
@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_a_running_session_takes_no_message_and_says_what_it_waits_for(waiting: int) -> None:
    """The text is for the person, the number for a program."""
    there = world()
    made = there.send()
    for n in range(waiting):
        there.asks(made, call(call_id=f"c{n}"))
    error = there.refuses(runs.send, there.sending(), SessionRunning)

    assert error.data == {"session_id": "s1", "run_id": made.id, "waiting": waiting}
    said = ("is running", "waits for 1 approval and", "waits for 2 approvals and")
    assert said[waiting] in error.message


@requirement("RUN-1", "RUN-3")
def test_a_session_that_is_being_cancelled_takes_no_message_yet() -> None:
    """Until its processes have ended it is running."""
    there = world()
    made = there.send()
    there.do(runs.cancel, made.id)

    there.refuses(runs.send, there.sending(), SessionRunning)


@requirement("RUN-1")
@pytest.mark.parametrize("content", ["", " ", "\n\t "])
def test_a_blank_message_is_refused(content: str) -> None:
    """Before anything is looked up, and again where the run would be made."""
    there = world()
    for use_case, request in ((runs.refuse_send, sending(content=content)), (runs.send, there.sending(content))):
        assert there.refuses(use_case, request, Invalid).data == {"problems": ["content: is blank"]}


@requirement("RUN-1")
def test_an_unknown_session_is_not_found() -> None:
    """By its id."""
    assert world().refuses(runs.refuse_send, sending("s9"), NotFound).data == {"id": "s9", "noun": "session"}


@requirement("PAT-2")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"availability": Availability.UNAVAILABLE}, "it is marked unavailable"),
        ({"availability": Availability.UNAVAILABLE, "unavailability_reason": "being rewritten"}, "being rewritten"),
        ({"mode": Mode.HANDOFF}, MODE_UNAVAILABLE[Mode.HANDOFF]),
        ({"mode": Mode.CONCURRENT, "availability": Availability.PREVIEW}, MODE_UNAVAILABLE[Mode.CONCURRENT]),
    ],
)
def test_a_pattern_that_cannot_run_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    """Its own where it has one, its mode's otherwise."""
    there = World(project(), pattern(**changes), session())

    assert there.refuses(runs.refuse_send, sending(), Invalid).data == {"problems": [f"pattern: {reason}"]}


@requirement("PAT-2")
def test_a_preview_may_run() -> None:
    """Only `unavailable` may not."""
    there = World(project(), pattern(availability=Availability.PREVIEW), session())

    assert there.send().pattern_id == "p1"


@requirement("POL-6")
def test_a_run_keeps_the_policy_that_it_started_with() -> None:
    """Edits of the pattern, even its deletion, do not reach it; the next run has them."""
    there = world(listed=["view"])
    made = there.send()
    there.do(patterns.delete, wanted(ask.PatternsGet, pattern_id="p1"))

    assert there.asks(made, call("view")) == Allow()
    assert there.row(Run, made.id) == made


@requirement("POL-6", "POL-5")
@pytest.mark.parametrize(
    ("own", "names", "list_from"),
    [(None, ["view"], "pattern"), ((), [], "session"), (("edit",), ["edit"], "session")],
)
def test_a_run_obeys_the_list_in_force_and_the_patterns_rules(own: Any, names: Any, list_from: str) -> None:
    """With the providers that were there when that list was saved."""
    made = world(listed=["view"], own=own, rules=[rule(agents=["coder"])]).send()

    assert made.approval_policy == effective_policy(
        rules=[rule(agents=["coder"])], auto_approved=names, list_from=list_from
    )
    assert made.grants == grants(providers={name: [f"builtin:{name}"] for name in names})


@requirement("POL-6", "SES-3")
def test_revoking_makes_every_call_ask_and_is_told() -> None:
    """Also where no rule covered the agent; what is stored is an explicit empty list."""
    there = world(rules=(), listed=["view"])
    made = there.send()
    assert there.asks(made, call("edit")) == Allow()
    change = there.do(sessions.revoke, wanted(ask.SessionsGet, session_id="s1"))

    assert put(change, Run) == replace(made, grants=replace(made.grants, revoked=True))
    assert put(change, SessionHead) == session(status=SessionStatus.RUNNING, approval_settings=settings())
    assert types(change) == ["run-updated", "session-updated"]
    for n, tool in enumerate(["view", "edit", None]):
        assert isinstance(there.asks(made, call(tool, f"d{n}")), Approval)


@requirement("SES-3")
def test_revoking_counts_before_it_is_on_disk() -> None:
    """What narrows counts at once."""
    there = world(listed=["view"])
    made = there.send()
    there.start(sessions.revoke, wanted(ask.SessionsGet, session_id="s1"))
    reply = there.start(approvals.ask_tool_call, there.asking(made, call("view"))).reply

    assert isinstance(there.row(Approval, reply), Approval)


@requirement("SES-3")
def test_revoking_an_idle_session_empties_its_list() -> None:
    """The next run starts with nothing allowed."""
    there = world(listed=["view"], own=["edit"])
    change = there.do(sessions.revoke, wanted(ask.SessionsGet, session_id="s1"))

    assert put(change, SessionHead) == session(approval_settings=settings())
    assert there.send().approval_policy == effective_policy(list_from="session")


@requirement("POL-9")
def test_a_pattern_without_a_policy_allows_nothing_by_itself() -> None:
    """A policy that is missing never widens, not even through the session's own list."""
    there = World(project(), pattern(approval_policy=None), session(approval_settings=settings(["view"])))
    made = there.send()

    assert made.approval_policy == UNAVAILABLE
    assert isinstance(there.asks(made, call("view")), Approval)
    view = session_view(there.head, SessionId("s1"))
    assert view is not None
    assert view.effective == Effective(auto_approved_tool_names=(), list_from=ListFrom.PATTERN)


@requirement("BKD-3", "RUN-2")
def test_the_choice_is_kept_in_the_runs_agents() -> None:
    """With everything else that the agent was when the run started."""
    there = world(agents=["planner", "coder"])
    made = there.send()

    assert made.agents == (run_agent("planner"), run_agent("coder"))
    assert made.pattern_mode is Mode.SEQUENTIAL


@requirement("POL-9")
def test_a_stored_policy_that_could_never_be_saved_asks() -> None:
    """A rule for nobody must not let every call pass."""
    odd = policy(rules=[rule("tool-call", [""])], auto_approved=["view"])
    there = World(project(), pattern(approval_policy=odd), session())

    assert there.send().approval_policy == UNAVAILABLE


@requirement("POL-9", "APR-7")
def test_under_a_policy_that_cannot_be_read_what_is_said_is_held_back() -> None:
    """It may have had a final-response rule; nobody can know."""
    there = World(project(), pattern(approval_policy=None), session())
    made = there.send()

    there.says(made, "Published unread?")

    assert [row.content for row in there.every(Withheld)] == ["Published unread?"]
