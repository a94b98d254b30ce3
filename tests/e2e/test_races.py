"""Clients that want the same thing at the same moment: one gets it, the others are told."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from eryxd.client.client import Client, RemoteError
from tests.e2e.daemon_process import WAIT_S, DaemonProcess
from tests.e2e.stage import HOLD, Json, Stage, create, resolve
from tests.requirements import requirement

CLIENTS = 20

Act = Callable[[Client], Any]


@contextmanager
def crowd(daemon: DaemonProcess, count: int = CLIENTS) -> Iterator[list[Client]]:
    """Connect clients under names of their own, `c0` and on."""
    yield [daemon.client(f"c{number}") for number in range(count)]


def at_once(clients: Sequence[Client], acts: Iterable[Act]) -> list[Json | RemoteError]:
    """Let each client do its act at the same moment; return what came of each."""
    start = threading.Barrier(len(clients))
    outcomes: dict[int, Json | RemoteError] = {}

    def work(number: int, act: Act) -> None:
        start.wait(WAIT_S)
        try:
            outcomes[number] = act(clients[number])
        except RemoteError as refusal:
            outcomes[number] = refusal

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return [outcomes[number] for number in range(len(threads))]


def won(outcomes: Sequence[Json | RemoteError]) -> list[int]:
    """Return who got an answer and no refusal."""
    return [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, RemoteError)]


@requirement("APR-4")
@pytest.mark.parametrize("rules", [({"kind": "tool-call"},), HOLD], ids=["tool call", "final response"])
def test_of_twenty_clients_that_decide_one_approval_exactly_one_wins(
    stage: Stage, daemon: DaemonProcess, rules: tuple[Json, ...]
) -> None:
    """The others learn who it was and whether it was the same decision; what happens is what the winner said."""
    session_id, watch = stage.session(stage.pattern(rules)), stage.watch()
    run_id = stage.play(session_id, create("made"), {"say": "Done."})
    asked = watch.approvals(1)[0]
    decisions = [("approved", "rejected")[number % 2] for number in range(CLIENTS)]

    def deciding(decision: str) -> Act:
        return lambda client: resolve(client, asked, decision)

    with crowd(daemon) as clients:
        outcomes = at_once(clients, map(deciding, decisions))

    (winner,) = won(outcomes)
    told = [outcome for outcome in outcomes if isinstance(outcome, RemoteError)]
    assert {refusal.code for refusal in told} == {"approval_not_active"}
    assert {refusal.data["resolved_by"]["client_name"] for refusal in told} == {f"c{winner}"}
    assert {refusal.data["status"] for refusal in told} == {decisions[winner]}
    same = Counter(decision == decisions[winner] for decision in decisions)
    assert Counter(refusal.data["same_decision"] for refusal in told) == same - Counter([True])
    run = stage.ended(run_id)
    approval = stage.approval(asked["id"])
    assert (approval["status"], approval["resolved_by"]["client_name"]) == (decisions[winner], f"c{winner}")
    if rules is HOLD:
        assert run["status"] == {"approved": "completed", "rejected": "error"}[decisions[winner]]
    else:
        assert (stage.folder / "made").exists() is (decisions[winner] == "approved")


@requirement("APR-3")
def test_twenty_clients_that_decide_twenty_approvals_at_once_all_win(stage: Stage, daemon: DaemonProcess) -> None:
    """Each its own; nobody waits for the order."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, {"calls": [create(f"f{number}") for number in range(CLIENTS)]})
    asked = watch.approvals(CLIENTS)

    def deciding(approval: Json) -> Act:
        return lambda client: resolve(client, approval)

    with crowd(daemon) as clients:
        outcomes = at_once(clients, map(deciding, asked))

    assert won(outcomes) == list(range(CLIENTS))
    assert stage.ended(run_id)["status"] == "completed"
    assert len(list(stage.folder.iterdir())) == CLIENTS


@requirement("RUN-1")
def test_of_clients_that_send_to_one_session_at_once_exactly_one_starts_a_run(
    stage: Stage, daemon: DaemonProcess
) -> None:
    """The others are told that it runs, and leave no message behind."""
    session_id = stage.session()
    plan = stage.plan(create("made"))

    def sending(client: Client) -> Any:
        return client.call("messages.send", session_id=session_id, content="Go on.", plan=plan)

    with crowd(daemon) as clients:
        outcomes = at_once(clients, [sending] * CLIENTS)

    assert len(won(outcomes)) == 1
    assert {outcome.code for outcome in outcomes if isinstance(outcome, RemoteError)} == {"session_running"}
    assert len(stage.client.call("messages.list", session_id=session_id)["messages"]) == 1
    assert len(stage.client.call("runs.list", session_id=session_id)["runs"]) == 1


@requirement("PAT-3")
def test_of_clients_that_save_one_revision_exactly_one_wins(stage: Stage, daemon: DaemonProcess) -> None:
    """The others work on something old."""
    pattern = stage.client.call("patterns.get", pattern_id=stage.pattern())["pattern"]
    draft = {key: value for key, value in pattern.items() if key not in ("created_at", "updated_at", "is_builtin")}

    def saving(client: Client) -> Any:
        return client.call("patterns.save", pattern={**draft, "description": "mine"})

    with crowd(daemon) as clients:
        outcomes = at_once(clients, [saving] * CLIENTS)

    assert len(won(outcomes)) == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, RemoteError)]
    assert {(refusal.code, refusal.data["revision"]) for refusal in refused} == {("conflict", 2)}


@requirement("RUN-3", "APR-10")
def test_cancelling_and_approving_at_once_end_in_one_story(stage: Stage, daemon: DaemonProcess) -> None:
    """Whoever came first: the approval is decided once, the run is cancelled, and nothing waits."""
    session_id, watch = stage.session(), stage.watch()
    run_id = stage.play(session_id, {"calls": [create("a"), create("b")]})
    asked = watch.approvals(2)

    def cancelling(client: Client) -> Any:
        return client.call("runs.cancel", run_id=run_id)

    def deciding(approval: Json) -> Act:
        return lambda client: resolve(client, approval)

    with crowd(daemon, 3) as clients:
        outcomes = at_once(clients, [deciding(asked[0]), cancelling, deciding(asked[1])])

    run = stage.ended(run_id)
    assert not isinstance(outcomes[1], RemoteError)
    for approval, outcome in zip(asked, (outcomes[0], outcomes[2]), strict=True):
        after = stage.approval(approval["id"])
        approved = not isinstance(outcome, RemoteError)
        assert (after["status"], after["resolution"]) == (
            ("approved", "user") if approved else ("rejected", "cancelled")
        )
    assert run["status"] in ("cancelled", "completed")
    assert stage.get(session_id)["status"] == "idle"
    assert stage.client.call("approvals.list")["approvals"] == []
    assert {event["status"] for event in stage.timeline(run_id)} <= {"completed", "error"}
