"""`rlscaler streams simulate`: its table on small cases, and what it says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.models import load_bundled
from rlscaler_live.cli import main
from rlscaler_loadgen.patterns import PATTERNS
from rlscaler_loadgen.traces import Trace, write_trace
from rlscaler_rl.baselines.hpa import KedaKafkaLag
from rlscaler_rl.evaluation.streams import loads
from rlscaler_rl.evaluation.streams.cli import MOST_CONSUMERS, SHAPES
from rlscaler_rl.evaluation.streams.result import Consumers, Spread
from rlscaler_rl.evaluation.streams.search import LATE_PERCENT, best, grid_of, searched
from rlscaler_rl.evaluation.streams.simulate import simulated
from rlscaler_rl.simulation.streams.episode import run
from rlscaler_rl.simulation.streams.groups import DRAWS, groups
from rlscaler_rl.simulation.streams.state import SLOTS_EACH

TINY = ["--pattern", "spike", "--duration", "80", "--partitions", "4", "--low", "20", "--peak", "300", "--seeds", "2"]


def called(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "160"}).invoke(main, ["streams", "simulate", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def played(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(called(*words, "-o", "json"))
    return found


def row(found: dict[str, Any], contender: str) -> dict[str, Any]:
    (one,) = [one for one in found["rows"] if one["contender"] == contender]
    return dict(one)


def group(**changes: Any) -> Consumers:
    given = {"partitions": 4, "messages_per_second": 100.0, "protocol": "range", "objective_seconds": 10.0}
    return Consumers(**given | {"fewest": 1, "most": 4} | changes)


def test_every_contender_has_a_row_and_none_takes_less_than_is_possible() -> None:
    found = played(*TINY)
    assert [one["contender"] for one in found["rows"]] == ["rule", "keda", "keda_searched", "hindsight", "least"]
    least = row(found, "least")
    assert [least[name] for name in ("p95_lag_seconds", "late_percent", "rebalances_per_hour", "left")] == [None] * 4
    for one in found["rows"][:4]:
        assert one["consumer_seconds"]["least"] >= least["consumer_seconds"]["least"]
        for figure in (
            "p95_lag_seconds",
            "late_percent",
            "consumer_seconds",
            "performance_cost",
            "rebalances_per_hour",
        ):
            spread = one[figure]
            assert spread["least"] <= spread["mean"] <= spread["most"], figure
        assert one["rebalances_per_hour"]["least"] > 0, "a spike above one consumer makes each of them scale"


@pytest.mark.slow
def test_the_table_says_the_same_as_the_json_and_what_is_not_in_it() -> None:
    found, text = played(*TINY), called(*TINY)
    lines = text.splitlines()
    for one in found["rows"]:
        (line,) = [line for line in lines if line.startswith(f"{one['label']} ")]
        assert f"{one['consumer_seconds']['mean']:,.0f}" in line
    assert "spike, 80 s; 4 partitions, cooperative-sticky; mean of 2 seeds (least-most)" in text
    assert sum("Lags below a second are too short" in line for line in lines) == 1
    assert any(line.startswith("KEDA's default is a lagThreshold of 10, and 300 s") for line in lines)
    assert "HPA" not in text


def test_the_cheapest_settings_win_that_keep_to_the_objective_or_else_the_least_late() -> None:
    late, seconds = np.array([1.0, 4.9, 5.1, 30.0]), np.array([900.0, 500.0, 400.0, 100.0])
    assert best(late, seconds) == 1
    assert best(late + 10, seconds) == 0


@pytest.mark.slow
def test_the_searched_settings_are_no_worse_on_their_groups_than_the_default() -> None:
    rates = np.tile(np.concatenate([np.full(60, 60.0), np.full(120, 500.0), np.full(120, 60.0)]), (2, 1))
    made = groups(rates, [7, 8])
    default, found = (run(made, one).result for one in (KedaKafkaLag(), searched(made).contender()))
    assert found.late_percent.mean() <= LATE_PERCENT
    assert found.consumer_seconds.mean() < default.consumer_seconds.mean()


def test_thresholds_follow_what_a_consumer_processes_and_none_is_0() -> None:
    assert {one.lag_threshold for one in grid_of(50.0)} >= {5, 50, 500}
    assert {one.lag_threshold for one in grid_of(0.01)} == {1}


def test_settings_are_searched_on_the_busiest_part_of_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "SEARCH_SECONDS", 50)
    load = loads.shaped("spike", 200, 10.0, 100.0, 2)
    assert load.searched.shape == (loads.SEARCH_SEEDS, 50)
    assert load.searched.mean() > load.rates.mean()


def test_performance_over_cost_is_the_messages_in_time_for_each_consumer_second() -> None:
    made = groups(np.full((2, 60), 150.0), [0, 1], slo_seconds=2.0)
    result = run(made, load_bundled("rule")).result
    on_time = made.messages() * (1 - result.late_percent / 100)
    assert result.late_percent.min() > 1
    assert result.performance_cost.tolist() == pytest.approx((on_time / result.consumer_seconds).tolist())


@pytest.mark.slow
def test_faster_consumers_need_fewer_seconds() -> None:
    slow, fast = (row(played(*TINY, "--messages-per-second", rate), "rule") for rate in ("100", "400"))
    assert fast["consumer_seconds"]["mean"] < slow["consumer_seconds"]["mean"]
    assert fast["p95_lag_seconds"]["mean"] < slow["p95_lag_seconds"]["mean"]


def test_consumers_stay_between_min_and_max_and_an_overload_is_named() -> None:
    found = played(*TINY, "--min", "2", "--max", "2")
    assert {one["consumer_seconds"]["mean"] for one in found["rows"][:3]} == {160.0}
    assert any("300 messages/s, and 2 consumers that have a partition process 200" in note for note in found["notes"])


@pytest.mark.slow
def test_what_is_never_processed_is_never_and_null() -> None:
    """A tenth of the load can be processed: 95 % of it never are."""
    words = (*TINY, "--max", "1", "--messages-per-second", "2")
    assert row(played(*words), "rule")["p95_lag_seconds"] == {"mean": None, "least": None, "most": None}
    (line,) = [line for line in called(*words).splitlines() if line.startswith("forecast rule  ")]
    assert line.split()[2] == "never"


@pytest.mark.slow
def test_a_history_is_the_load_and_its_end_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "LONGEST_SECONDS", 120)
    write_trace(tmp_path / "orders.csv", Trace(np.array([900.0, 900.0, 30.0, 40.0]), 60.0))
    found = played("--history", str(tmp_path / "orders.csv"), "--seeds", "1", "--partitions", "2")
    assert (found["load"], found["load_seconds"]) == ("orders", 120)
    assert "played: the last 2 min of 4 min" in found["notes"]
    assert any(note.startswith("bins of 60 s: the seconds within are drawn") for note in found["notes"])
    assert not any("the load reaches" in note for note in found["notes"]), "the high bins are not played"
    assert row(found, "least")["consumer_seconds"]["mean"] == 120.0


@pytest.mark.slow
def test_the_same_call_gives_the_same_figures_and_each_seed_its_own() -> None:
    assert played(*TINY) == played(*TINY)
    for pattern in SHAPES:
        one = loads.shaped(pattern, 60, 10.0, 50.0, 3).rates
        assert np.array_equal(one[:2], loads.shaped(pattern, 60, 10.0, 50.0, 2).rates), pattern
        assert 10.0 <= one.min() < one.max() <= 50.0, pattern


@pytest.mark.slow
def test_the_shapes_are_those_of_the_load_generator_and_as_many_consumers_as_are_allowed_can_be_played() -> None:
    assert set(SHAPES) == set(PATTERNS) - {"trace"}
    assert 1 + SLOTS_EACH * MOST_CONSUMERS <= DRAWS < 1 + SLOTS_EACH * (MOST_CONSUMERS + 1)
    load = loads.Load("short", np.full((1, 2), 30.0), np.full((1, 2), 30.0))
    found = simulated(load, group(partitions=300, most=MOST_CONSUMERS, fewest=MOST_CONSUMERS), lambda text: None)
    assert found.rows[0].consumer_seconds.mean == 2.0 * MOST_CONSUMERS


def test_a_spread_shows_its_range_only_where_seeds_differ() -> None:
    assert f"{Spread.of(np.array([2.0, 4.0])):.1f}" == "3.0 (2.0-4.0)"
    assert f"{Spread.of(np.array([3.0, 3.01])):.1f}" == "3.0"
    assert f"{Spread.of(np.array([3.0, np.inf])):.1f}" == "never (3.0-never)"
    assert f"{Spread.of(np.array([np.nan])):.1f}" == "-"
