"""A rule that sees only so much of the future: what it may know, and that knowing helps."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.tables import make_params
from rlscaler_research.ablation import lookahead
from rlscaler_research.ablation.cli import ablate
from rlscaler_research.ablation.lookahead import (
    HORIZONS,
    LimitedHindsight,
    LookaheadSettings,
    LookaheadTask,
    play_task,
    report,
    tunable,
)
from rlscaler_rl.baselines.contender import stacked
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import from_rate
from rlscaler_rl.workloads import Part, episodes


def peaks(rate, **settings):
    rule = LimitedHindsight(rate, LookaheadSettings(**{"target": 1.0} | settings))
    rule.reset(make_params(len(rate), requests_per_second=(20.0, 4.0), cold_start_seconds=(45.0, 10.0)))
    return rule.peaks


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize(("smooth", "memory"), [(1.0, 0.0), (31.0, 0.0), (31.0, 60.0)])
def test_what_comes_after_the_horizon_changes_nothing_now(horizon, smooth, memory):
    quiet, loud = np.full((1, 300), 10.0), np.full((1, 300), 10.0)
    loud[:, 100 + horizon + 1 :] = 90.0
    seen = {"lookahead_seconds": horizon, "smooth_seconds": smooth, "memory_seconds": memory, "lead": 30.0}
    for one, other in zip(peaks(quiet, **seen), peaks(loud, **seen), strict=True):
        np.testing.assert_array_equal(one[:, :101], other[:, :101])
        assert (other[:, 101] > one[:, 101]).all()


def test_each_pool_looks_no_further_than_its_own_cold_start():
    rate = np.full((1, 300), 10.0)
    rate[:, 200:] = 90.0
    gpu, cpu = peaks(rate, lookahead_seconds=120.0, lead=1.0)
    assert (gpu[0] > 10).argmax() == 200 - (45 + 5) + 1
    assert (cpu[0] > 10).argmax() == 200 - (10 + 5) + 1


def test_what_stands_is_counted_before_more_is_ordered():
    """Four GPU replicas carry 80 requests/s: no CPU replica is wanted for 50."""
    loads = from_rate(np.full((1, 120), 50.0), [1], initial=(4, 1))
    rule = LimitedHindsight(loads.rate.astype(np.float64), LookaheadSettings(target=1.0, min_replicas=(4, 1)))
    played = run(loads, rule).result
    assert played.gpu_replica_seconds[0] == 4 * 120
    assert played.cpu_replica_seconds[0] == 120


def test_the_past_is_remembered_as_long_as_is_said():
    rate = np.full((1, 300), 10.0)
    rate[:, 100] = 90.0
    gpu, _ = peaks(rate, memory_seconds=60.0)
    assert np.flatnonzero(gpu[0] == 90).tolist() == list(range(100, 161))


def test_settings_are_played_side_by_side_as_alone():
    loads = episodes("random", Part.TUNE, runs=1, episodes=2)
    rule = tunable(30)
    found = [rule.default, {**rule.default, "min_gpu": 4, "memory": 300, "smooth": 21}]
    together = loads.take(np.array([0, 1, 0, 1]))
    side = run(together, rule.controllers(found, together.rate.astype(np.float64), 2)).result.j
    alone = [run(loads, rule.controller(one, loads.rate.astype(np.float64))).result.j for one in found]
    np.testing.assert_allclose(side, np.concatenate(alone))
    assert stacked([rule.settings(one) for one in found], 2).min_replicas.shape == (4, 2)


def test_a_horizon_beyond_every_cold_start_is_the_hindsight_rule():
    loads = episodes("spike", Part.TUNE, runs=1, episodes=2)
    rate = loads.rate.astype(np.float64)
    seeing = run(loads, LimitedHindsight(rate, LookaheadSettings(lookahead_seconds=10_000.0))).result.j
    np.testing.assert_array_equal(seeing, run(loads, Hindsight(rate)).result.j)


def test_a_task_is_searched_and_played_on_every_fold():
    result = play_task(LookaheadTask("azure_code", 60, budget=12))
    assert result.j.size == 80
    assert len(result.found) == 2
    assert result.blocks is not None


def test_what_was_found_before_is_played_again_without_a_search(monkeypatch):
    monkeypatch.setattr(lookahead, "best", None)
    found = tunable(30).default
    result = play_task(LookaheadTask("spike", 30, found=(found,)))
    assert result.found == [found]
    assert play_task(LookaheadTask("spike", 30, found=({**found, "target": 1.2},))).j.mean() != result.j.mean()


def test_the_table_marks_what_differs_from_the_hpa():
    row = {"0 s": {"j": 5.0, "low": -0.2, "high": 0.1}, "60 s": {"j": 4.0, "low": -1.2, "high": -0.8}}
    lines = report({"workloads": {"random": row, ALL: row}}).splitlines()
    assert lines[0] == "| seen of the future | 0 s | 60 s |"
    assert lines[2:] == ["| random | 5.00 | 4.00* |", "| mean | 5.00 | 4.00* |"]


def test_an_unknown_workload_is_named():
    answer = CliRunner().invoke(ablate, ["notice", "spikes"])
    assert answer.exit_code == 2
    assert "spikes: no such workload" in answer.output
