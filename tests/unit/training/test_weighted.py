"""The weighted objective: 0 for default HPA, unclipped, and its four weights act."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS
from rlscaler_rl.simulation.objectives import WEIGHTS, Counters, Norms, Weighted, improvements, p95_seconds
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.training.config import EnvironmentConfig
from rlscaler_rl.training.objective import baselines, objective_of
from rlscaler_rl.training.train import make_env

SHORT = Ranges(intervals=(30,), durations=(300,))


def spent(n: int = 1, *, bucket: int = 5, dropped: float = 0.0, cost: float = 4.0) -> Counters:
    """30 s with 100 requests, all answered within bound `bucket`."""
    histogram = np.zeros((n, len(BUCKETS_SECONDS) + 1), np.float32)
    histogram[:, bucket:] = 100
    full = np.full(n, 1.0)
    billed = np.stack([full * cost * 30, full * 0], axis=1)
    return Counters(full * 30, full * (100 + dropped), full * 100, full * dropped, billed, full * dropped, histogram)


def norms(n: int = 1) -> Norms:
    full = np.ones(n)
    return Norms(full * 0.25, full, full * 100 / 30, full, full * 5.0, np.full(n, "ramp"))


def test_the_95th_percentile_is_taken_within_its_bucket():
    assert p95_seconds(spent(bucket=5), np.array([5.0])) == pytest.approx([0.2 + 0.95 * 0.1])
    assert p95_seconds(spent(dropped=50), np.array([5.0])) == pytest.approx([5.0])


def test_nothing_answered_has_no_percentile_and_improves_nothing():
    idle = spent()
    idle.histogram[:] = 0
    assert np.isnan(p95_seconds(idle, np.array([5.0]))).all()
    figures = {"all": {"latency": 0.3, "throughput": 1.0, "efficiency": 4.0, "stability": 1.0}}
    assert np.isfinite(Weighted(figures)(idle, norms(), np.zeros(1))).all()


def test_equal_to_the_baseline_is_0_and_worse_is_negative_without_a_limit():
    same = {"latency": 0.295, "throughput": 1.0, "efficiency": 4.0, "stability": 2.0}
    score = Weighted({"ramp": same, "all": dict.fromkeys(same, 9.0)})
    assert score(spent(), norms(), np.array([2.0])) == pytest.approx([0.0], abs=1e-6)
    worse = score(spent(dropped=50, cost=40.0), norms(), np.array([2.0]))
    assert worse == pytest.approx([0.4 * (1 - 5 / 0.295) + 0.2 * -9], rel=1e-6)


def test_every_part_improves_in_its_own_direction():
    base = {"latency": 1.0, "throughput": 1.0, "efficiency": 1.0, "stability": 1.0}
    better = {"latency": 0.5, "throughput": 1.5, "efficiency": 0.5, "stability": 0.5}
    assert improvements(better, base) == pytest.approx(dict.fromkeys(WEIGHTS, 0.5))


def test_default_hpa_is_measured_on_the_training_distribution():
    measured = baselines(SHORT, episodes=24)
    assert set(measured["all"]) == set(WEIGHTS)
    assert all(np.isfinite(list(figures.values())).all() for figures in measured.values())
    assert 0.2 < measured["all"]["throughput"] <= 1.1
    assert measured is baselines(SHORT, episodes=24), "measured once"


def test_the_weights_of_the_configuration_act():
    heavy = EnvironmentConfig(
        objective="weighted",
        efficiency_weight=5.0,
        latency_weight=0.0,
        envs=12,
        action_interval=30,
        episode_duration=300,
    )
    made = objective_of(heavy)
    assert isinstance(made, Weighted)
    assert made.weights == {**WEIGHTS, "efficiency": 5.0, "latency": 0.0}
    assert objective_of(EnvironmentConfig()) == "slo_cost"


def test_training_runs_on_it():
    from rlscaler_rl.training.config import TrainingConfig

    settings = {
        "objective": "weighted",
        "envs": 12,
        "action_interval": 30,
        "episode_duration": 300,
        "history_hours": 0,
    }
    env = make_env(TrainingConfig(environment=EnvironmentConfig(**settings)))
    env.reset()
    rewards = np.stack([env.step(np.tile([3, 2, 1], (12, 1)))[1] for _ in range(12)])
    assert np.isfinite(rewards).all()
    assert np.ptp(rewards) > 0
