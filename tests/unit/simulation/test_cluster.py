"""What pods, queues and measurements do, case by case."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.scenario import ScenarioError, from_rate, nominal


def service(rate: float = 10.0, seconds: int = 300, **overrides):
    """One steady scenario without noise, and its batch."""
    scenarios = from_rate(np.full((1, seconds), rate), [0], **overrides)
    scenarios.arrivals[:] = rate
    return Batch(scenarios)


def pods(batch: Batch) -> tuple[list[int], list[int]]:
    return batch.cluster.pool["ready"][0].tolist(), batch.cluster.pool["waiting"][0].tolist()


def target(batch: Batch, gpu: int, cpu: int, weights: tuple[int, int] = (500, 500)) -> None:
    batch.scale(np.array([[gpu, cpu]]), np.array([weights]))


def test_pods_become_ready_after_their_cold_start():
    batch = service(cold_start_low=(10, 5), cold_start_high=(10, 5))
    target(batch, 3, 2)
    batch.advance(4)
    assert pods(batch) == ([1, 1], [2, 1])
    batch.advance(1)
    assert pods(batch) == ([1, 2], [2, 0])
    batch.advance(5)
    assert pods(batch) == ([3, 2], [0, 0])


def test_cold_starts_are_drawn_within_their_range_and_differ():
    batch = service(cold_start_low=(20, 5), cold_start_high=(60, 5))
    target(batch, 10, 1)
    left = batch.cluster.left[0, 0, :9]
    assert ((left >= 20) & (left <= 60)).all()
    assert len(np.unique(left)) == 9


def test_pods_without_room_stay_pending_and_start_when_room_is_made():
    batch = service(schedulable=(2, 64), cold_start_low=(5, 5), cold_start_high=(5, 5))
    target(batch, 4, 1)
    batch.advance(30)
    assert pods(batch)[0][0] == 2
    assert pods(batch)[1][0] == 2
    assert batch.cluster.pool["pending_seconds"][0, 0] == pytest.approx(4 * 3 + 2 * 26, abs=2)


def test_scaling_down_removes_pods_that_are_not_ready_first():
    batch = service(cold_start_low=(30, 5), cold_start_high=(30, 5), initial=(3, 1))
    target(batch, 5, 1)
    batch.advance(5)
    target(batch, 3, 1)
    assert pods(batch) == ([3, 1], [0, 0])
    target(batch, 2, 1)
    assert pods(batch) == ([2, 1], [0, 0])


def test_what_waits_at_a_pod_that_leaves_is_routed_again():
    batch = service(rate=60.0, initial=(2, 1))
    target(batch, 2, 1, (1000, 0))
    batch.advance(3)
    held = batch.cluster.pool["queue"][0, 0]
    assert held > 0
    target(batch, 1, 1, (1000, 0))
    assert batch.cluster.pool["queue"][0, 0] == held
    target(batch, 0, 1, (0, 1000))
    assert batch.cluster.pool["queue"][0].tolist() == [0, held]


def test_prefer_gpu_overloads_a_gpu_pool_that_balanced_traffic_would_not():
    """Weights are ready * capacity * k with k 4:1: at high load the preferred pool gets more than it can carry."""

    def late(weights: tuple[int, int]) -> float:
        batch = service(rate=100.0, initial=(4, 9))
        target(batch, 4, 9, weights)
        batch.advance(60)
        return float(batch.cluster.row["late"][0] + batch.cluster.row["dropped"][0])

    balanced, prefer_gpu = (80, 36), (80 * 4, 36)
    assert late(prefer_gpu) > 20 * late(balanced) + 100


def test_capacity_that_follows_a_falling_load_costs_no_lateness():
    """The averages behind the steady tail must not set yesterday's load against today's capacity."""
    scenarios = from_rate(np.r_[np.full(120, 60.0), np.full(120, 15.0)][None], [0], initial=(4, 1))
    scenarios.arrivals[:] = scenarios.rate
    batch = Batch(scenarios)
    target(batch, 4, 1, (1000, 0))
    batch.advance(120)
    before = batch.cluster.row["late"][0]
    target(batch, 1, 1, (1000, 0))
    batch.advance(120)
    assert batch.cluster.row["late"][0] - before < 0.01 * 120 * 15


def test_a_queue_near_saturation_takes_its_time_to_fill():
    """An episode begins with empty queues, as at the request level; lateness comes at a queue's own pace."""
    batch = service(rate=19.5, initial=(1, 0), present=(True, False), max_replicas=(10, 0), min_replicas=(1, 0))
    batch.advance(5)
    soon = batch.cluster.row["late"][0] / (5 * 19.5)
    batch.advance(295)
    assert soon < 0.1 < batch.cluster.row["late"][0] / (300 * 19.5)


def test_requests_beyond_what_clients_wait_for_are_dropped():
    batch = service(rate=100.0, initial=(1, 1))
    target(batch, 1, 1, (1000, 0))
    batch.advance(60)
    assert batch.cluster.pool["queue"][0, 0] <= 20 * (5 - 1 / 20) + 1e-6
    assert batch.cluster.row["dropped"][0] == pytest.approx(60 * 80, rel=0.05)


def test_with_no_ready_pod_everything_is_dropped():
    batch = service(rate=10.0, initial=(0, 1))
    target(batch, 1, 1, (1000, 0))
    batch.advance(5)
    assert batch.cluster.row["dropped"][0] == 50


def test_measurements_lag_behind_and_average_over_the_window():
    scenarios = from_rate(np.r_[np.full(60, 10.0), np.full(60, 100.0)][None], [0], initial=(8, 8), delay=3, window=10)
    scenarios.arrivals[:] = scenarios.rate
    batch = Batch(scenarios)
    batch.advance(60)
    assert batch.sense().arrival_rate[0] == pytest.approx(10, rel=1e-6)
    batch.advance(5)
    samples = batch.sense()
    assert samples.age_seconds[0, 0] in (3, 4)
    visible = 5 - samples.age_seconds[0, 0]
    assert samples.arrival_rate[0] == pytest.approx((10 * (10 - visible) + 100 * visible) / 10)
    batch.advance(20)
    assert batch.sense().arrival_rate[0] == pytest.approx(100, rel=1e-6)


def test_utilization_is_load_over_ready_capacity():
    batch = service(rate=40.0, initial=(4, 1), noise=0.0)
    target(batch, 4, 1, (1000, 0))
    batch.advance(60)
    samples = batch.sense()
    assert samples.gpu_utilization[0] == pytest.approx(50, abs=1)
    assert samples.cpu_utilization[0] == pytest.approx(0, abs=1)


def test_p95_is_seen_rising_under_overload():
    batch = service(rate=10.0, initial=(2, 2), noise=0.0)
    calm = batch.sense().p95_ms[0]
    target(batch, 1, 1, (0, 1000))
    batch.advance(60)
    assert calm < 1000 < batch.sense().p95_ms[0]


def test_equal_seeds_give_equal_episodes():
    first, second = (nominal(["spike", "random"], [3, 4], 300) for _ in range(2))
    assert np.array_equal(first.arrivals, second.arrivals)
    assert np.array_equal(first.key, second.key)
    other = nominal(["spike", "random"], [3, 5], 300)
    assert np.array_equal(first.arrivals[0], other.arrivals[0])
    assert not np.array_equal(first.arrivals[1], other.arrivals[1])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"rps": (0.0, 4.0)}, "rps"),
        ({"present": (False, False)}, "present"),
        ({"max_replicas": (0, 10)}, "max_replicas"),
        ({"window": 260.0}, "window"),
        ({"slo_ms": -1.0}, "slo_ms"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_impossible_scenarios_are_refused_by_name(overrides, named):
    with pytest.raises(ScenarioError, match=named):
        from_rate(np.full((1, 60), 10.0), [0], **overrides)


def test_rates_with_gaps_are_refused():
    with pytest.raises(ScenarioError, match="finite"):
        from_rate(np.array([[1.0, np.nan]]), [0])


def test_batches_of_mixed_intervals_are_refused():
    with pytest.raises(ScenarioError, match="interval_seconds"):
        Batch(nominal(["ramp", "ramp"], [0, 1], 300, interval_seconds=np.array([15.0, 30.0])))


def test_the_rates_of_the_ticks_between_two_actions_are_remembered():
    batch = Batch(nominal(["ramp"], [0], 300, 30.0))
    samples, observation, _ = batch.observe()
    batch.act(samples, observation, np.array([[0, 0, 1]], np.int32))
    batch.finish_interval()
    batch.observe()
    assert (np.diff(batch.state.rate_time[0, -7:]) <= 6).all(), "one every 5 s, scraped every 2 s"
