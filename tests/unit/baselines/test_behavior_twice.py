"""HPA's `behavior`, written twice from the same source: the contender's and the operator's must agree."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision import behavior
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, HpaBehavior, HpaPolicy, HpaRules

KINDS = {"Pods": behavior.PODS, "Percent": behavior.PERCENT}
SLOW_UP = HpaRules(60.0, (HpaPolicy("Pods", 2, 45.0), HpaPolicy("Percent", 30, 60.0)))
SLOW_DOWN = HpaRules(120.0, (HpaPolicy("Pods", 1, 60.0), HpaPolicy("Percent", 20, 30.0)))


def as_params(n: int, up: HpaRules, down: HpaRules):
    rules = np.zeros((2, 4, 3))
    for direction, chosen in enumerate((up, down)):
        for index, rule in enumerate(chosen.policies):
            rules[direction, index] = KINDS[rule.kind], rule.value, rule.period_seconds
    windows = (up.stabilization_seconds, down.stabilization_seconds)
    return make_params(n, max_replicas=40, has_behavior=True, stabilization_seconds=windows, rules=rules)


@pytest.mark.parametrize(("up", "down"), [(DEFAULT_SCALE_UP, DEFAULT_SCALE_DOWN), (SLOW_UP, SLOW_DOWN)])
def test_both_give_the_same_replicas_on_random_recommendations(up, down):
    generator, n = np.random.default_rng(5), 20
    params, state = as_params(n, up, down), initial_state(n, 1)
    current = generator.integers(1, 20, (n, 2)).astype(np.int32)
    contender = HpaBehavior(current, 0.0, up, down)
    everybody = np.ones((n, 2), bool)
    samples = make_samples(n, time=0.0, spec_replicas=current, ready_replicas=current)
    state = behavior.remember(params, state, samples, current, everybody)
    for step in range(1, 80):
        wanted = np.clip(current + generator.integers(-9, 10, (n, 2)), 1, 40).astype(np.int32)
        samples = make_samples(n, time=15.0 * step, spec_replicas=current, ready_replicas=current)
        state = behavior.note_writes(params, state, samples)
        highest = behavior.scale_up_limit(params, state, samples)
        theirs = behavior.limited(params, state, samples, wanted, highest)
        state = behavior.remember(params, state, samples, wanted, everybody)
        state = behavior.expect_write(params, state, samples, theirs)
        current = contender.limit(15.0 * step, current, wanted, params.min_replicas, params.max_replicas)
        np.testing.assert_array_equal(current, np.clip(theirs, 1, 40), err_msg=f"at {15 * step} s")
