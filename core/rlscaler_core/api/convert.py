"""Conversion of a spec into one row of the decision function's parameters."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api.behavior import Behavior, ScalingRules
from rlscaler_core.api.spec import Spec
from rlscaler_core.api.status_memory import Learned, LearnedPool
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.types import BEHAVIOR_RULES, POOLS, FallbackBehavior, Params
from rlscaler_core.decision.units import SIGNALS, UNITS

FALLBACKS = {
    "forecastRule": FallbackBehavior.FORECAST_RULE,
    "currentReplicas": FallbackBehavior.CURRENT_REPLICAS,
    "currentReplicasIfHigher": FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER,
    "static": FallbackBehavior.STATIC,
    "hpaFormula": FallbackBehavior.HPA_FORMULA,
}

RULE_KINDS = {"Pods": 1.0, "Percent": 2.0}
SELECT_POLICIES = {"Max": 0, "Min": 1, "Disabled": 2}

ASSUMED = make_params(1)
"""Values of an absent pool, and the cold start of one that was not measured yet."""


def to_params(
    spec: Spec,
    learned: Learned | None = None,
    off: Collection[str] = (),
    window_seconds: float = 0.0,
    usage_seconds: float = 0.0,
    routed: bool = False,
) -> Params:
    """Return one row of parameters.

    Fields that the spec leaves open come from `learned`; an unknown capacity is NaN, and a cold start that was not
    measured is the one that the bundled actors were trained around. An absent pool has `present` False, no replicas and
    a step of 1, and so has one that is turned `off`. `window_seconds` is that of Prometheus's rates, `usage_seconds`
    that of utilization and latency; the messages of a stream are counted between two looks instead. `routed`: each pool
    gets its part of the traffic by the decided weights.
    """
    utilization = spec.guards.target_utilization
    return make_params(
        1,
        present=np.array([spec.targets.pool(pool) is not None and pool not in off for pool in POOLS]),
        unit=UNITS.index(spec.capacity.unit),
        stream=spec.signal is not None,
        slo_ms=float(spec.slo.latency_milliseconds),
        slo_signal=SIGNALS.index(spec.slo.signal),
        objective=spec.slo.objective / 100 if spec.slo.steers else math.nan,
        interval_seconds=float(spec.interval_seconds),
        sense_seconds=float(spec.sense_seconds),
        window_seconds=0.0 if spec.signal is not None else window_seconds,
        usage_seconds=usage_seconds,
        # The rate of a stream's consumers is counted from their commits, and is no matter of belief.
        learns_capacity=spec.capacity.trust == "learned" and spec.signal is None,
        routed=routed,
        max_age_seconds=float(spec.metrics.max_age_seconds),
        target_utilization=np.array([utilization.gpu / 100, utilization.cpu / 100]),
        reactive_floor=spec.guards.reactive_floor,
        ceiling=spec.guards.ceiling,
        ceiling_seconds=float(spec.guards.ceiling_seconds),
        budget_per_hour=math.inf if (budget := spec.guards.budget_per_hour) is None else budget,
        pending_seconds=math.nan if (pending := spec.guards.pending_seconds) is None else float(pending),
        fallback=FALLBACKS[spec.fallback.behavior],
        failure_threshold=spec.fallback.failure_threshold,
        has_behavior=spec.behavior is not None,
        **_pools(spec, learned),
        **_behavior(spec.behavior),
    )


def _pools(spec: Spec, learned: Learned | None) -> dict[str, NDArray[Any]]:
    """Return the columns that have one value a pool; open fields and absent pools are as in `ASSUMED`."""
    columns = {
        name: getattr(ASSUMED, name)[0].copy()
        for name in ("min_replicas", "max_replicas", "cost_per_hour", "requests_per_second", "cold_start_seconds")
    }
    columns["step_size"] = np.ones(2, np.int32)
    columns["start_seconds"] = np.full(2, math.nan)
    for index, pool in enumerate(POOLS):
        target = spec.targets.pool(pool)
        if target is None:
            continue
        for name in ("min_replicas", "max_replicas", "cost_per_hour"):
            columns[name][index] = getattr(target, name)
        columns["step_size"][index] = target.step
        own = getattr(learned, pool, None) or LearnedPool()
        for name, values in (
            ("requests_per_second", (own.carried(spec.capacity.unit), spec.per_replica(pool))),
            ("cold_start_seconds", (own.cold_start_seconds, target.cold_start_seconds)),
            ("start_seconds", (target.start_cost_seconds,)),
        ):
            for value in values:
                if value is not None:
                    columns[name][index] = value
    replicas = spec.fallback.replicas
    fallback = [getattr(replicas, pool, None) for pool in POOLS]
    columns["fallback_replicas"] = np.array([-1 if value is None else value for value in fallback], np.int32)
    return columns


def _behavior(behavior: Behavior | None) -> dict[str, NDArray[Any]]:
    """Return windows (2,), rules (2, BEHAVIOR_RULES, 3) and select policies (2,); the directions are up, down."""
    windows, select = np.zeros(2), np.zeros(2, np.int32)
    rules = np.zeros((2, BEHAVIOR_RULES, 3))
    directions: list[ScalingRules | None] = [] if behavior is None else [behavior.scale_up, behavior.scale_down]
    for index, direction in enumerate(directions):
        if direction is None:
            continue
        windows[index] = direction.stabilization_window_seconds
        select[index] = SELECT_POLICIES[direction.select_policy]
        for row, policy in enumerate(direction.policies or []):
            rules[index, row] = RULE_KINDS[policy.type], policy.value, policy.period_seconds
    return {"stabilization_seconds": windows, "rules": rules, "select_policy": select}
