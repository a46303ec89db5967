"""Capacity that differs from the declared one and moves, starts that cost, and services of 200 replicas."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import LATE_WEIGHT, run
from rlscaler_rl.simulation.levels import LEVELS
from rlscaler_rl.simulation.scenario import ScenarioError, from_rate, nominal

EXACT = {
    ("fluid", Hpa): 28.535021042384,
    ("fluid", KedaRequestRate): 22.099342150732,
    ("fluid", Kpa): 39.38356703396,
    ("request", Hpa): 29.053996064366,
    ("request", KedaRequestRate): 22.102209976089,
    ("request", Kpa): 39.15079636223,
}
"""J of an episode before capacity could move and starts could cost."""


@pytest.mark.slow
@pytest.mark.parametrize(("level", "autoscaler"), EXACT)
def test_figures_of_the_exact_world_are_as_before(level, autoscaler):
    result = run(nominal(["periodic"], [2], 900, 15.0, high=160.0), autoscaler(), level=level).result
    assert result.j[0] == pytest.approx(EXACT[level, autoscaler], rel=1e-12)


def steady(seconds: int = 600, rate: float = 40.0, **columns):
    scenarios = from_rate(np.full((1, seconds), rate), [0], initial=(4, 1), noise=0.0, **columns)
    scenarios.arrivals[:] = rate
    return scenarios


def test_a_fall_of_capacity_in_the_middle_shows_in_the_utilization_and_nowhere_else():
    scenarios = steady(fall=(0.3, 0.0))
    batch = Batch(scenarios)
    batch.scale(np.array([[4, 1]]), np.array([[1000, 0]]))
    batch.advance(295)
    before = batch.sense()
    for _ in range(30):
        batch.advance(5)
    after = batch.sense()
    assert before.gpu_utilization[0] == pytest.approx(50, abs=1)
    assert after.gpu_utilization[0] == pytest.approx(50 / 0.7, abs=1)
    assert (batch.params.requests_per_second == scenarios.believed_rps).all()


def test_capacity_swings_around_its_mean_by_the_drift_and_returns_after_a_day():
    scenarios = steady(drift=(0.2, 0.2))
    seconds = np.arange(0, 86_400, 600)
    capacity = scenarios.true_rps(np.zeros(len(seconds), np.intp), seconds) / scenarios.rps
    assert capacity.min() == pytest.approx(0.8, abs=1e-3)
    assert capacity.max() == pytest.approx(1.2, abs=1e-3)
    assert capacity.mean(axis=0) == pytest.approx([1.0, 1.0])
    assert abs(np.corrcoef(capacity.T)[0, 1]) < 0.9, "the pools swing apart"


@pytest.mark.parametrize("level", LEVELS)
def test_the_ledger_holds_where_capacity_moves_and_starts_cost(level):
    columns = {"drift": 0.2, "fall": (0.3, 0.1), "start_seconds": (120.0, 46.0), "rps": (14.0, 3.0)}
    scenarios = nominal(["spike"], [1], 600, 15.0, **columns, believed_rps=(20.0, 4.0))
    priced = run(scenarios, KedaRequestRate(), level=level).result
    free = run(
        nominal(["spike"], [1], 600, 15.0, **columns | {"start_seconds": 0.0}, believed_rps=(20.0, 4.0)),
        KedaRequestRate(),
        level=level,
    ).result
    assert priced.gpu_starts[0] > 0
    assert priced.cpu_starts[0] > 0
    assert priced.late_percent[0] == free.late_percent[0]
    started = (120 * priced.gpu_starts + 0.25 * 46 * priced.cpu_starts) / 600
    assert priced.j == pytest.approx(free.j + started)
    assert priced.j == pytest.approx(priced.cost + LATE_WEIGHT * priced.late_percent)


def test_foresight_knows_the_capacity_that_nobody_is_told():
    rate = np.full((1, 600), 60.0)
    wrong = from_rate(rate, [0], rps=(12.0, 2.4), believed_rps=(20.0, 4.0), initial=(6, 1), max_replicas=20)
    assert run(wrong, Hindsight(rate)).result.late_percent[0] < 5
    assert run(wrong, KedaRequestRate()).result.late_percent[0] > 20


@pytest.mark.parametrize("level", LEVELS)
def test_two_hundred_replicas_of_a_pool_can_be_simulated(level):
    rate = np.full((1, 300), 3000.0)
    wide = from_rate(rate, [0], max_replicas=200, schedulable=200, initial=(187, 5), min_replicas=(1, 1))
    result = run(wide, Hpa(), level=level).result
    assert result.late_percent[0] < 1
    assert 150 < result.gpu_replica_seconds[0] / 300 <= 200
    with pytest.raises(ScenarioError, match="at most 200 are simulated"):
        from_rate(rate, [0], max_replicas=201)
