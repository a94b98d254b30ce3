"""The harness of `make bench`: what it computes and how it judges, without measuring anything."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from bench import stores
from bench.__main__ import BENCHES, chosen, main
from bench.harness import Bench, Pair, Place, Result, measure
from bench.records import PATTERN, SESSION
from bench.stats import Summary, meets, quantity, ratios, summary
from bench.stores import Size
from eryxd.core.state import State
from eryxd.daemon.store import Store
from eryxd.domain.pattern import Pattern
from eryxd.domain.session import Run, SessionHead

COSTS = st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=40)


def test_a_summary_is_quartiles_and_the_worst() -> None:
    assert summary([5.0, 1.0, 4.0, 2.0, 3.0]) == Summary(q1=2.0, median=3.0, q3=4.0, worst=5.0)


@given(COSTS)
def test_a_summary_is_in_order_and_within_what_was_measured(values: list[float]) -> None:
    found = summary(values)

    assert min(values) <= found.q1 <= found.median <= found.q3 <= found.worst == max(values)


@given(COSTS)
def test_a_side_against_itself_has_the_ratio_one(values: list[float]) -> None:
    assert set(ratios(values, values)) == {1.0}


def test_ratios_compare_blocks_that_ran_side_by_side() -> None:
    """A machine that slows down half way changes both sides, and no ratio."""
    assert ratios([2.0, 20.0], [1.0, 10.0]) == [2.0, 2.0]


def test_blocks_that_were_disturbed_do_not_miss_a_goal() -> None:
    disturbed = summary([1.1, 1.1, 9.0, 9.0, 1.1, 9.0, 1.1])

    assert meets(disturbed, 1.2)


def test_a_cost_that_has_grown_misses_its_goal() -> None:
    assert not meets(summary([1.3, 1.3, 1.4, 1.3]), 1.2)


def test_what_has_no_goal_is_never_missed() -> None:
    assert meets(summary([50.0, 60.0]), None)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.5 s"),
        (0.0123, "s", "12.3 ms"),
        (4.2e-5, "s", "42 µs"),
        (30.5 * 2**20, "B", "30.5 MiB"),
        (512.0, "B", "512 B"),
    ],
)
def test_a_quantity_has_three_digits_and_a_prefix(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


class Script:
    """Two sides that cost what a script says, and what was run in which order."""

    def __init__(self, subject: Sequence[float], baseline: Sequence[float]) -> None:
        self.ran: list[str] = []
        self.is_open = False
        self._subject = iter(subject)
        self._baseline = iter(baseline)

    @contextmanager
    def open(self, place: Place) -> Iterator[Pair]:
        self.is_open = True
        yield Pair(self._run_subject, self._run_baseline, lambda: ["so it is"])
        self.is_open = False

    def _run_subject(self) -> float:
        self.ran.append("subject")
        return next(self._subject)

    def _run_baseline(self) -> float:
        self.ran.append("baseline")
        return next(self._baseline)


def scripted(script: Script, pairs: int, goal: float | None = 1.5) -> Bench:
    return Bench("scripted", "a side", "another", goal, pairs, script.open)


def measured(script: Script, pairs: int, seed: int = 1) -> Result:
    place = Place(Path("unused"), Path("unused"))
    return measure(scripted(script, pairs), place, Random(seed))  # noqa: S311


def test_the_first_pair_warms_up_and_does_not_count() -> None:
    result = measured(Script([1000.0, 3.0, 3.0, 3.0], [1.0, 2.0, 2.0, 2.0]), pairs=3)

    assert result.ratios == Summary(1.5, 1.5, 1.5, 1.5)
    assert (result.subject, result.baseline, result.met, result.notes) == (3.0, 2.0, True, ["so it is"])


@given(st.integers(0, 2**32))
def test_each_pair_runs_both_sides_once(seed: int) -> None:
    script = Script([1.0] * 6, [1.0] * 6)

    measured(script, pairs=5, seed=seed)

    pairs = [script.ran[at : at + 2] for at in range(0, len(script.ran), 2)]
    assert [sorted(pair) for pair in pairs] == [["baseline", "subject"]] * 6


def test_the_seed_decides_who_goes_first() -> None:
    def order(seed: int) -> list[str]:
        script = Script([1.0] * 21, [1.0] * 21)
        measured(script, pairs=20, seed=seed)
        return script.ran

    assert order(7) == order(7)
    assert order(7) != order(8)


def test_a_bench_is_taken_down() -> None:
    script = Script([1.0] * 3, [1.0] * 3)

    measured(script, pairs=2)

    assert not script.is_open


def test_a_result_is_a_document_and_a_text() -> None:
    result = measured(Script([2.0] * 3, [1.0] * 3), pairs=2)

    assert json.loads(json.dumps(result.plain())) == {
        "name": "scripted",
        "subject": "a side",
        "baseline": "another",
        "goal": 1.5,
        "pairs": 2,
        "unit": "s",
        "one_core": False,
        "subject_median": 2.0,
        "baseline_median": 1.0,
        "q1": 2.0,
        "median": 2.0,
        "q3": 2.0,
        "worst": 2.0,
        "met": False,
        "notes": ["so it is"],
    }
    assert "goal 1.50, MISSED" in result.text()


def test_no_name_means_every_bench() -> None:
    assert chosen([]) == list(BENCHES)
    assert len({bench.name for bench in BENCHES}) == len(BENCHES)


def test_the_beginning_of_names_means_all_of_them() -> None:
    assert [bench.name for bench in chosen(["scale", "pending"])] == [
        "pending",
        "scale-decision",
        "scale-approval",
        "scale-start",
    ]


def test_an_unknown_name_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "scala"]) == 2
    assert "scala" in capsys.readouterr().err


def test_a_made_store_is_one_that_the_daemon_loads(tmp_path: Path) -> None:
    """It goes through the store's own tables and encoder, so whatever the daemon reads of it is a record."""
    stores.write(Size(5, 3), tmp_path / "state")

    store, state = Store(tmp_path / "state"), State()
    store.load(state)
    store.close()

    assert (state.count(SessionHead), state.count(Run)) == (5, 0)
    assert state.get(SessionHead, SESSION) is not None
    assert state.get(Pattern, PATTERN) is not None
