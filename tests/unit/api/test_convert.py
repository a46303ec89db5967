"""From a spec to parameters, and which fields do not act yet."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rlscaler_core.api import parse, to_params
from rlscaler_core.api.status_memory import Learned, LearnedPool
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.types import FallbackBehavior


def params(body, values=None, learned=None):
    return to_params(parse(body(values)).spec, learned)


def test_one_row_with_the_defaults(body):
    row = params(body)
    assert len(row) == 1
    np.testing.assert_array_equal(row.present, [[True, True]])
    np.testing.assert_array_equal(row.min_replicas, [[1, 1]])
    np.testing.assert_array_equal(row.max_replicas, [[10, 10]])
    np.testing.assert_array_equal(row.step_size, [[1, 1]])
    np.testing.assert_array_equal(row.cost_per_hour, [[2.5, 0.625]])
    np.testing.assert_array_equal(row.target_utilization, [[0.8, 0.8]])
    assert (row.slo_ms[0], row.interval_seconds[0], row.sense_seconds[0], row.max_age_seconds[0]) == (1000, 15, 5, 60)
    assert row.fallback[0] == FallbackBehavior.FORECAST_RULE
    assert row.failure_threshold[0] == 3
    assert not row.has_behavior[0]
    assert row.reactive_floor[0]
    assert (row.ceiling[0], row.ceiling_seconds[0]) == (True, 600)


def test_the_ceiling_and_its_stretch(body):
    row = params(body, {"guards": {"ceiling": False, "ceilingSeconds": 86_400}})
    assert (row.ceiling[0], row.ceiling_seconds[0]) == (False, 86_400)


def test_a_pool_that_is_turned_off_is_not_there(body):
    row = to_params(parse(body()).spec, off=("cpu",))
    assert (row.present.tolist(), row.min_replicas.tolist(), row.max_replicas.tolist()) == (
        [[True, False]],
        [[1, 0]],
        [[10, 0]],
    )


def test_capacity_that_nobody_knows_is_nan_and_never_zero(body):
    assert np.isnan(params(body).requests_per_second).all()


def test_spec_wins_over_what_was_learned(body):
    learned = Learned(
        gpu=LearnedPool(requests_per_second=18.0, cold_start_seconds=50.0), cpu=LearnedPool(requests_per_second=3.5)
    )
    row = params(body, {"targets.gpu.requestsPerSecond": 20}, learned)
    np.testing.assert_array_equal(row.requests_per_second, [[20, 3.5]])
    np.testing.assert_array_equal(row.cold_start_seconds, [[50, 8]])


def test_absent_pool_has_no_replicas_and_a_step_that_divides(body):
    row = params(body, {"targets.gpu": None})
    np.testing.assert_array_equal(row.present, [[False, True]])
    np.testing.assert_array_equal(row.max_replicas, [[0, 10]])
    np.testing.assert_array_equal(row.step_size, [[1, 1]])
    assert np.isfinite(row.cost_per_hour).all()


def test_behavior_is_up_then_down_with_empty_rules_behind(body):
    row = params(
        body,
        {
            "behavior": {
                "scaleUp": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
                "scaleDown": {
                    "stabilizationWindowSeconds": 60,
                    "selectPolicy": "Min",
                    "policies": [
                        {"type": "Pods", "value": 2, "periodSeconds": 30},
                        {"type": "Percent", "value": 10, "periodSeconds": 60},
                    ],
                },
            }
        },
    )
    assert row.has_behavior[0]
    np.testing.assert_array_equal(row.stabilization_seconds, [[0, 60]])
    np.testing.assert_array_equal(row.select_policy, [[0, 1]])
    np.testing.assert_array_equal(row.rules[0, 0], [[2, 100, 15], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(row.rules[0, 1], [[1, 2, 30], [2, 10, 60], [0, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("static", FallbackBehavior.STATIC),
        ("currentReplicasIfHigher", FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER),
    ],
)
def test_fallback_carries_its_replicas(body, name, value):
    row = params(body, {"fallback": {"behavior": name, "replicas": {"gpu": 3, "cpu": 4}}})
    assert row.fallback[0] == value
    np.testing.assert_array_equal(row.fallback_replicas, [[3, 4]])


def test_rows_join_into_a_batch(body):
    batch = type(params(body)).concat([params(body), params(body, {"targets.cpu": None})])
    np.testing.assert_array_equal(batch.present, [[True, True], [True, False]])


def test_guards(body):
    row = params(body, {"guards.budgetPerHour": 30, "guards.pendingSeconds": 60})
    assert row.budget_per_hour[0] == 30
    np.testing.assert_array_equal(row.pending_seconds, [[60, 60]])


def test_a_pod_may_be_pending_for_two_cold_starts_and_a_budget_is_not_limited_by_default(body):
    row = params(body, {"targets.gpu.coldStartSeconds": 100, "targets.cpu.coldStartSeconds": 7})
    np.testing.assert_array_equal(row.pending_seconds, [[200, 14]])
    assert np.isinf(row.budget_per_hour[0])


def test_a_start_costs_what_the_pool_says_else_the_pull_of_an_image_and_a_drain(body):
    row = params(body, {"targets.gpu.startCostSeconds": 0, "targets.cpu.coldStartSeconds": 7})
    np.testing.assert_array_equal(row.start_seconds, [[0, 44]])


def test_shortest_policy_is_the_decision_functions_default(body):
    row, default = params(body), make_params(1, learns_capacity=True)
    for field in dataclasses.fields(row):
        np.testing.assert_array_equal(getattr(row, field.name), getattr(default, field.name), err_msg=field.name)
