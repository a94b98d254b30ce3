"""A run told while it happens."""

from typing import Any

from eryxd.cli.live import Live
from tests import builders
from tests.fakes import wire
from tests.requirements import requirement
from tests.unit.cli_records import approval_event, ask, call, decided


def test_live_tells_nothing_twice_and_asks_once() -> None:
    waiting, approved = approval_event(), decided()
    open_call, done_call = (
        call("t2", ask("ask", "not-listed", "a1")),
        call("t2", ask("ask", "not-listed", "a1"), status="completed", result="ok"),
    )
    live = Live()

    lines = [
        line
        for record in (waiting, open_call, waiting, approved, approved, open_call, done_call, done_call)
        for line in live.take({"type": "timeline-event", "timeline_event": record})
    ]

    assert [line.strip() for line in lines] == [
        lines[0],
        "↳ ok",
    ]
    assert lines[0].endswith("✓ shell make test  asked (not-listed): approved by you (cli pid 123)  · Coder")


@requirement("CLI-13")
def test_live_tells_that_an_agent_tried_to_answer() -> None:
    """Whoever watches the run hears of it at once."""
    refusal = {"pid": 9, "command": "eryx", "method": "approvals.resolve", "check": "no-new-privs", "session_id": "s1"}

    lines = Live().take({"type": "peer-refused", "refusal": refusal})

    assert lines == ["✗ refused: the agent of session s1 called approvals.resolve (pid 9 eryx, check no-new-privs)"]


def test_live_knows_what_waits() -> None:
    live = Live()

    live.take({"type": "approval-requested", "approval": wire(builders.approval())})
    live.take({"type": "timeline-event", "timeline_event": approval_event(approval_id="a2")})
    assert list(live.waiting) == ["a1", "a2"]

    live.take({"type": "timeline-event", "timeline_event": decided()})
    live.take({"type": "approval-resolved", "approval": wire(builders.approval("a2", status="approved"))})
    assert live.waiting == {}


def test_live_tells_a_message_when_it_is_whole() -> None:
    live = Live()
    begun = wire(builders.timeline_event(kind="message", content="", agent_name="Coder"))
    whole = {**begun, "status": "completed", "content": "Done."}

    assert live.take({"type": "timeline-event", "timeline_event": begun}) == []
    assert live.take({"type": "timeline-event", "timeline_event": whole})[1].strip() == "│ Done."


def lines_of(live: Live, *records: Any) -> list[str]:
    """Return what is told of these, without times."""
    told = [line for each in records for line in live.take({"type": "timeline-event", "timeline_event": each})]
    return [line[10:] if line[2:3] == ":" else line.strip() for line in told]


def test_who_joins_reads_the_decision_before_the_result() -> None:
    """In a timeline the call stands before the approval that it asked for."""
    done = call("t2", ask("ask", "not-listed", "a1"), status="completed", result="ok")

    assert lines_of(Live(), done, decided()) == [
        "✓ shell make test  asked (not-listed): approved by you (cli pid 123)  · Coder",
        "↳ ok",
    ]


def test_who_joins_is_told_the_start_with_its_message() -> None:
    started = wire(builders.timeline_event(kind="run-started", content="Mend it."))

    assert lines_of(Live(joins=True), started, started) == ["▸ started", "│ Mend it."]
    assert lines_of(Live(), started) == []


def test_results_of_calls_that_run_side_by_side_say_of_which() -> None:
    first, second = ({"tool_name": "create", "arguments": {"path": f"{each}.md"}} for each in ("a", "b"))
    auto = ask("auto", "pattern-list")
    open_calls = [call("t1", auto, **first), call("t2", auto, **second)]
    done = [
        call("t1", auto, status="completed", result="Created a.", **first),
        call("t2", auto, status="error", result="No.", **second),
    ]

    assert lines_of(Live(), *open_calls, *done)[2:] == ["↳ create a.md: Created a.", "✗ create b.md failed: No."]
