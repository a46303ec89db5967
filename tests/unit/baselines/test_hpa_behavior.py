"""HPA's `behavior` with rules of one's own, against the cases of its documentation and of its controller's tests."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.baselines.behavior import DISABLED, MAX, MIN, HpaBehavior, HpaPolicy, HpaRules
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, average_value_replicas, utilization_replicas

FREE = HpaRules(0.0, (HpaPolicy("Pods", 1000, 15.0),))
"""Limits nothing here."""


def steps(start: int, wanted: int, seconds: float, count: int, up: HpaRules = FREE, down: HpaRules = FREE) -> list[int]:
    """Replicas after each of `count` syncs, `seconds` apart, towards a constant recommendation."""
    behavior, current, seen = HpaBehavior(np.array([start]), -1e6, up, down), np.array([start]), []
    for step in range(count):
        current = behavior.limit(seconds * step, current, np.array([wanted]), np.array([0]), np.array([1000]))
        seen.append(int(current[0]))
    return seen


FOUR_OR_A_TENTH = (HpaPolicy("Pods", 4, 60.0), HpaPolicy("Percent", 10, 60.0))


def test_the_documented_scale_down_from_eighty_replicas():
    """A tenth, rounded up, a minute while that is more than four pods; then four pods a minute."""
    seen = steps(80, 10, 60.0, 14, down=HpaRules(0.0, FOUR_OR_A_TENTH))
    assert seen == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12, 10]


@pytest.mark.parametrize(
    ("select", "expected"),
    [(MAX, 72), (MIN, 76), (DISABLED, 80)],
    ids=["the most change", "the least change", "none"],
)
def test_select_policy_of_a_scale_down(select, expected):
    assert steps(80, 10, 60.0, 1, down=HpaRules(0.0, FOUR_OR_A_TENTH, select)) == [expected]


@pytest.mark.parametrize(("select", "expected"), [(MAX, 20), (MIN, 14), (DISABLED, 10)])
def test_select_policy_of_a_scale_up(select, expected):
    rules = HpaRules(0.0, (HpaPolicy("Pods", 4, 60.0), HpaPolicy("Percent", 100, 60.0)), select)
    assert steps(10, 100, 60.0, 1, up=rules) == [expected]


@pytest.mark.parametrize(
    ("rule", "start", "expected", "why"),
    [
        (HpaPolicy("Percent", 10, 60.0), 5, 6, "half a pod more is one pod more"),
        (HpaPolicy("Percent", 900, 60.0), 10, 100, "ten times as many"),
        (HpaPolicy("Pods", 1, 60.0), 10, 11, "one pod"),
        (HpaPolicy("Percent", 0, 60.0), 10, 10, "nothing"),
    ],
)
def test_one_scale_up_rule(rule, start, expected, why):
    assert steps(start, 1000, 60.0, 1, up=HpaRules(0.0, (rule,))) == [expected], why


@pytest.mark.parametrize(
    ("rule", "start", "expected", "why"),
    [
        (HpaPolicy("Percent", 10, 60.0), 5, 4, "4.5 is cut to 4"),
        (HpaPolicy("Percent", 100, 60.0), 10, 0, "all at once"),
        (HpaPolicy("Pods", 5, 60.0), 100, 95, "five pods"),
        (HpaPolicy("Percent", 5, 60.0), 100, 95, "a twentieth"),
    ],
)
def test_one_scale_down_rule(rule, start, expected, why):
    assert steps(start, 0, 60.0, 1, down=HpaRules(0.0, (rule,))) == [expected], why


def test_changes_within_the_period_count_against_the_rule():
    """Two pods a minute, looked at every 15 s."""
    assert steps(10, 20, 15.0, 9, up=HpaRules(0.0, (HpaPolicy("Pods", 2, 60.0),))) == [
        12,
        12,
        12,
        12,
        14,
        14,
        14,
        14,
        16,
    ]


def test_scale_up_stabilization_takes_the_lowest_recommendation():
    behavior = HpaBehavior(np.array([5]), 0.0, HpaRules(60.0, FREE.policies), FREE)
    current, seen = np.array([5]), []
    for step, wanted in enumerate([9, 9, 7, 9, 9, 9, 9, 9]):
        current = behavior.limit(15.0 * (step + 1), current, np.array([wanted]), np.array([0]), np.array([99]))
        seen.append(int(current[0]))
    assert seen == [5, 5, 5, 7, 7, 7, 9, 9], "5 until it leaves the window, then the 7 of 45 s until that leaves"


@pytest.mark.parametrize(
    ("current", "ready", "utilization", "target", "expected", "why"),
    [
        (3, 3, 50.0, 30.0, 5, "levels 300, 500, 700 of 1000"),
        (3, 2, 60.0, 30.0, 4, "the one not ready counts as idle: 2.0 becomes 1.33"),
        (3, 1, 40.0, 30.0, 3, "two not ready: 1.33 becomes .44, which would turn around"),
        (5, 5, 28.0, 50.0, 3, "levels 100, 300, 500, 250, 250"),
        (5, 3, 30.0, 50.0, 2, "scaling down looks at the three ready ones only"),
        (3, 3, 102.0, 100.0, 3, "within the tolerance"),
    ],
)
def test_the_replica_calculator_on_resource_metrics(current, ready, utilization, target, expected, why):
    found = utilization_replicas(np.array(current), np.array(ready), np.array(utilization), target)
    assert found == expected, why


@pytest.mark.parametrize(
    ("current", "value", "target", "expected"), [(3, 8600.0, 2150.0, 4), (5, 8600.0, 2867.0, 3), (3, 8600.0, 2888.0, 3)]
)
def test_the_replica_calculator_on_an_external_average(current, value, target, expected):
    assert average_value_replicas(np.array(current), np.array(value), target) == expected


def test_the_tolerance_can_be_set():
    sizes = [utilization_replicas(np.array(10), np.array(10), np.array(88.0), 80.0, slack) for slack in (0.1, 0.05)]
    assert sizes == [10, 11]


def test_every_row_has_rules_of_its_own():
    up = HpaRules(np.array([0.0, 0.0, 60.0]), (HpaPolicy("Pods", np.array([1, 5, 5]), np.array([15.0, 15.0, 15.0])),))
    current = np.array([2, 2, 2])
    behavior = HpaBehavior(current, 0.0, up, FREE)
    found = behavior.limit(15.0, current, np.array([9, 9, 9]), np.zeros(3, int), np.full(3, 20))
    assert found.tolist() == [3, 7, 2]


def size(settings: HpaSettings, gpu: float, cpu: float) -> list[int]:
    params = make_params(1, min_replicas=1, max_replicas=10)
    hpa, replicas = Hpa(settings), np.array([[4, 4]], np.int32)
    hpa.reset(params)
    samples = make_samples(1, gpu_utilization=gpu, cpu_utilization=cpu, spec_replicas=replicas, ready_replicas=replicas)
    return hpa(params, initial_state(1, 1), samples, np.random.default_rng(0))[0][0].tolist()


@pytest.mark.parametrize(
    ("settings", "expected", "why"),
    [
        (HpaSettings(), [5, 6], "each pool by its own utilization: 100 and 120 over 80"),
        (HpaSettings(target=(0.5, 0.9)), [8, 6], "a target for each pool"),
        (HpaSettings(min_replicas=(7, 1)), [7, 6], "a minimum above the policy's"),
        (HpaSettings(scaled=(False, True)), [4, 6], "no HPA for the GPU pool"),
    ],
)
def test_each_pool_has_its_own_spec(settings, expected, why):
    assert size(settings, 100.0, 120.0) == expected, why
