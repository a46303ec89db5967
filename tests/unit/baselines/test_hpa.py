"""HPA's algorithm against the cases of its documentation and of its controller's source."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import CPU
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, HpaBehavior, HpaPolicy, HpaRules
from rlscaler_rl.baselines.hpa import KedaKafkaLag, average_value_replicas, utilization_replicas

NAN = float("nan")


@pytest.mark.parametrize(
    ("current", "ready", "utilization", "expected", "why"),
    [
        (1, 1, 200.0, 3, "ceil(1 x 200/80) = 3"),
        (4, 4, 40.0, 2, "half the load, half the pods"),
        (3, 3, 53.0, 2, "ceil(3 x 53/80) = 2"),
        (10, 10, 88.0, 10, "ratio 1.1 is within the 10 % tolerance"),
        (10, 10, 72.0, 10, "ratio 0.9 is within the 10 % tolerance"),
        (10, 10, 89.0, 12, "ratio 1.11 is not"),
        (10, 10, 71.0, 9, "ratio 0.89 is not"),
        (5, 5, 0.0, 0, "no load at all: the bounds keep minReplicas"),
        (3, 3, 96.0, 4, "ceil(3 x 1.2)"),
        (5, 5, 96.0, 6, "5 x 1.2 is 6, not 7: no rounding noise"),
    ],
)
def test_utilization_with_every_pod_ready(current, ready, utilization, expected, why):
    assert utilization_replicas(np.array(current), np.array(ready), np.array(utilization), 80.0) == expected, why


@pytest.mark.parametrize(
    ("current", "ready", "utilization", "expected", "why"),
    [
        (4, 2, 160.0, 4, "unready pods count as idle: ratio 2.0 becomes 1.0, within tolerance"),
        (4, 2, 240.0, 6, "ratio 3.0 becomes 1.5: ceil(1.5 x 4)"),
        (4, 2, 100.0, 4, "ratio 1.25 becomes 0.63: the direction would turn, keep"),
        (4, 3, 40.0, 2, "scaling down leaves unready pods out: ceil(0.5 x 3)"),
        (4, 0, NAN, 4, "no pod ready, no metrics: keep"),
        (4, 4, NAN, 4, "no metrics: keep, never 0"),
    ],
)
def test_utilization_with_pods_not_ready(current, ready, utilization, expected, why):
    assert utilization_replicas(np.array(current), np.array(ready), np.array(utilization), 80.0) == expected, why


@pytest.mark.parametrize(
    ("current", "value", "expected", "why"),
    [
        (1, 100.0, 7, "ceil(100 / 16)"),
        (6, 100.0, 6, "100 / (16 x 6) = 1.04 is within tolerance"),
        (5, 32.0, 2, "32 / 16"),
        (5, 0.0, 0, "no requests: the bounds keep minReplicas"),
        (5, NAN, 5, "no metric: keep, never 0"),
    ],
)
def test_average_value(current, value, expected, why):
    assert average_value_replicas(np.array(current), np.array(value), 16.0) == expected, why


def climb(recommended: int, start: int, steps: int, maximum: int = 100) -> list[int]:
    """Replicas after each sync of 15 s towards a constant recommendation."""
    behavior, current, seen = HpaBehavior(np.array([start])), np.array([start]), []
    for step in range(steps):
        current = behavior.limit(15.0 * step, current, np.array([recommended]), np.array([1]), np.array([maximum]))
        seen.append(int(current[0]))
    return seen


def test_default_scale_up_is_the_larger_of_doubling_and_four_pods():
    assert climb(100, 1, 7) == [5, 10, 20, 40, 80, 100, 100]


def test_scale_up_never_passes_the_maximum():
    assert climb(100, 3, 3, maximum=10) == [7, 10, 10]


def test_scale_down_waits_for_the_stabilisation_window():
    behavior, current = HpaBehavior(np.array([10])), np.array([10])
    fell_at = None
    for step in range(30):
        current = behavior.limit(15.0 * step, current, np.array([2]), np.array([1]), np.array([10]))
        if current[0] < 10 and fell_at is None:
            fell_at = 15.0 * step
    assert fell_at == 300.0
    assert current[0] == 2


def test_scale_down_stops_at_the_highest_recommendation_of_the_window():
    behavior, current = HpaBehavior(np.array([10])), np.array([10])
    for step in range(40):
        recommended = 6 if step == 19 else 2
        current = behavior.limit(15.0 * step, current, np.array([recommended]), np.array([1]), np.array([10]))
        if 20 <= step < 39:
            assert current[0] == 6, step
    assert current[0] == 2


def test_two_rate_policies_take_the_more_permissive_one():
    up = HpaRules(0.0, (HpaPolicy("Pods", 1, 60.0), HpaPolicy("Percent", 50, 60.0)))
    behavior, current = HpaBehavior(np.array([4]), 0.0, up, DEFAULT_SCALE_DOWN), np.array([4])
    seen = []
    for step in range(9):
        current = behavior.limit(15.0 * step, current, np.array([20]), np.array([1]), np.array([20]))
        seen.append(int(current[0]))
    assert seen == [6, 6, 6, 6, 9, 9, 9, 9, 14]


def test_rows_do_not_disturb_each_other():
    behavior = HpaBehavior(np.array([[1, 10], [5, 5]]), 0.0, DEFAULT_SCALE_UP, DEFAULT_SCALE_DOWN)
    low, high = np.ones((2, 2), int), np.full((2, 2), 50)
    result = behavior.limit(0.0, np.array([[1, 10], [5, 5]]), np.array([[50, 2], [5, 7]]), low, high)
    assert result.tolist() == [[5, 10], [5, 7]]


def consumers(keda, lag, current=1, seconds=0.0):
    """What KEDA asks for at a moment, for a group of 12 partitions that runs `current` consumers."""
    replicas = np.array([[0, current]], np.int32)
    samples = make_samples(
        1, time=seconds, spec_replicas=replicas, ready_replicas=replicas, lag_messages=lag, partitions=12
    )
    state = initial_state(1, 1, forecaster=False)
    return keda(keda.params, state, samples, np.random.default_rng(0))[0][0, CPU]


def keda_of(threshold, most=20):
    keda = KedaKafkaLag(threshold)
    keda.reset(make_params(1, present=(False, True), min_replicas=(0, 1), max_replicas=(0, most)))
    return keda


@pytest.mark.parametrize(
    ("threshold", "current", "lag", "expected", "why"),
    [
        (10, 4, 71, 8, "ceil(71 / 10)"),
        (1000, 4, 7100, 8, "ceil(7100 / 1000)"),
        (10, 8, 100_000, 12, "never more than partitions, whatever waits"),
        (10, 10, 109, 10, "a ratio of 1.09 is within the HPA's tolerance"),
        (10, 10, 111, 12, "a ratio of 1.11 is not"),
        (10, 1, 100, 5, "behavior: four pods more in 15 s"),
        (10, 3, NAN, 3, "no lag known: keep, never fewer"),
    ],
)
def test_keda_asks_for_the_lag_over_its_threshold(threshold, current, lag, expected, why):
    assert consumers(keda_of(threshold), lag, current) == expected, why


def test_keda_lets_consumers_go_after_the_hpas_five_minutes():
    keda = keda_of(10)
    assert consumers(keda, 80, 8, 0.0) == 8
    asked = {seconds: consumers(keda, 0, 8, float(seconds)) for seconds in range(15, 331, 15)}
    assert [seconds for seconds, replicas in asked.items() if replicas == 8] == list(range(15, 300, 15))
    assert asked[300] == 1, "minReplicas, in one step"


def test_keda_stays_within_the_most_consumers():
    assert consumers(keda_of(10, most=6), 1000, 6) == 6
