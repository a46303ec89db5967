"""An interval measured on a cluster is worth what the same interval is worth in the simulator."""

import numpy as np
import pytest

from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS
from rlscaler_rl.simulation.scenario import nominal


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["slo_cost", "performance_cost"])
def test_the_reward_is_the_simulators(objective):
    scenarios = nominal(["spike"], [3], 300, 30.0)
    batch = Batch(scenarios)
    before = objectives.read(batch.cluster)
    for _ in range(4):
        samples, observation, _ = batch.observe()
        batch.act(samples, observation, np.array([[1, 1, 1]], np.int32))
        batch.finish_interval()
    spent, norms = objectives.read(batch.cluster).since(before), objectives.norms(scenarios)
    expected = objectives.OBJECTIVES[objective](spent, norms, np.array([2.0]))
    params = scenarios.params()
    measured = {
        "seconds": float(spent.time[0]),
        "requests": float(spent.requests[0]),
        "in_time": float(spent.in_time[0]),
        "missed": float(spent.missed[0]),
        "dropped": float(spent.dropped[0]),
        "billed": spent.billed[0].tolist(),
        "bounds_seconds": [*BUCKETS_SECONDS, np.inf],
        "within": spent.histogram[0].tolist(),
    }
    facts = {
        "cost_per_hour": params.cost_per_hour[0].tolist(),
        "max_replicas": params.max_replicas[0].tolist(),
        "mean_rate": float(norms.mean_rate[0]),
        "slo_seconds": 1.0,
        "timeout": 5.0,
        "pattern": "spike",
    }
    assert objectives.interval_reward(objective)(measured, facts, 2.0) == pytest.approx(float(expected[0]))


def test_an_objective_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(ValueError, match="'weighted': there is no such objective; choose from slo_cost"):
        objectives.interval_reward("weighted")


def test_the_95th_percentile_is_taken_within_its_bucket_and_a_refusal_counts_as_the_timeout():
    spent = {"seconds": 30.0, "requests": 100.0, "in_time": 100.0, "missed": 0.0, "billed": [120.0, 0.0]}
    bounds = {"bounds_seconds": [*BUCKETS_SECONDS, np.inf], "within": [0.0] * 5 + [100.0] * (len(BUCKETS_SECONDS) - 4)}
    answered, refused, idle = (
        objectives.counters_of({**spent, **bounds, "dropped": 0.0}),
        objectives.counters_of({**spent, **bounds, "dropped": 50.0}),
        objectives.counters_of({**spent, "bounds_seconds": [], "within": [], "dropped": 0.0}),
    )
    timeout = np.array([5.0])
    assert objectives.p95_seconds(answered, timeout) == pytest.approx([0.2 + 0.95 * 0.1])
    assert objectives.p95_seconds(refused, timeout) == pytest.approx([5.0])
    assert np.isnan(objectives.p95_seconds(idle, timeout)).all()
