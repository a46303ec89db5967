"""From a spec to one row of the decision function's parameters."""

from __future__ import annotations

import numpy as np

from rlscaler_operator.api.behavior import Behavior, ScalingRules
from rlscaler_operator.api.spec import Fallback, Spec
from rlscaler_operator.api.status import Learned
from rlscaler_operator.api.targets import CPUTarget, GPUTarget
from rlscaler_rl.decision.types import BEHAVIOR_RULES, POOLS, FallbackBehavior, Float, Params

COLD_START_SECONDS = {"gpu": 45.0, "cpu": 8.0}
"""Assumed until the cold start of a pool was measured: the centre of what the bundled actors were trained on."""

FALLBACKS = {
    "currentReplicas": FallbackBehavior.CURRENT_REPLICAS,
    "currentReplicasIfHigher": FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER,
    "static": FallbackBehavior.STATIC,
    "hpaFormula": FallbackBehavior.HPA_FORMULA,
}

RULE_KINDS = {"Pods": 1.0, "Percent": 2.0}
SELECT_POLICIES = {"Max": 0, "Min": 1, "Disabled": 2}
ABSENT_COST = {
    "gpu": GPUTarget.model_fields["cost_per_hour"].default,
    "cpu": CPUTarget.model_fields["cost_per_hour"].default,
}


def to_params(spec: Spec, learned: Learned | None = None) -> Params:
    """One row of parameters.

    What the spec leaves open comes from `learned`; a capacity that nobody knows is NaN. An absent pool has
    `present` False, no replicas and a step of 1.
    """
    targets = [spec.targets.pool(pool) for pool in POOLS]
    windows, rules, select = _behavior(spec.behavior)
    return Params(
        present=np.array([[target is not None for target in targets]]),
        min_replicas=_whole([0 if target is None else target.min_replicas for target in targets]),
        max_replicas=_whole([0 if target is None else target.max_replicas for target in targets]),
        step_size=_whole([1 if target is None else target.step for target in targets]),
        cost_per_hour=_real(
            [
                ABSENT_COST[pool] if target is None else target.cost_per_hour
                for pool, target in zip(POOLS, targets, strict=True)
            ]
        ),
        requests_per_second=_real([_known(spec, learned, pool, "requests_per_second", np.nan) for pool in POOLS]),
        cold_start_seconds=_real(
            [_known(spec, learned, pool, "cold_start_seconds", COLD_START_SECONDS[pool]) for pool in POOLS]
        ),
        slo_ms=np.array([float(spec.slo.latency_milliseconds)]),
        interval_seconds=np.array([float(spec.interval_seconds)]),
        sense_seconds=np.array([float(spec.sense_seconds)]),
        max_age_seconds=np.array([float(spec.metrics.max_age_seconds)]),
        target_utilization=_real([spec.guards.target_utilization.gpu / 100, spec.guards.target_utilization.cpu / 100]),
        reactive_floor=np.array([spec.guards.reactive_floor]),
        fallback=np.array([FALLBACKS[spec.fallback.behavior]], dtype=np.int32),
        fallback_replicas=_whole(_fallback_replicas(spec.fallback)),
        failure_threshold=np.array([spec.fallback.failure_threshold], dtype=np.int32),
        has_behavior=np.array([spec.behavior is not None]),
        stabilization_seconds=windows,
        rules=rules,
        select_policy=select,
    )


def _whole(values: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array([values], dtype=np.int32)


def _real(values: list[float]) -> Float:
    return np.array([values], dtype=np.float64)


def _known(spec: Spec, learned: Learned | None, pool: str, name: str, otherwise: float) -> float:
    """The spec's value, else the learned one, else `otherwise`."""
    for source in (spec.targets.pool(pool), getattr(learned, pool, None)):
        value = getattr(source, name, None)
        if value is not None:
            return float(value)
    return otherwise


def _fallback_replicas(fallback: Fallback) -> list[int]:
    replicas = fallback.replicas
    return [0, 0] if replicas is None else [replicas.gpu or 0, replicas.cpu or 0]


def _behavior(behavior: Behavior | None) -> tuple[Float, Float, np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
    """Windows (1, 2), rules (1, 2, BEHAVIOR_RULES, 3) and select policies (1, 2); directions are up, down."""
    windows, select = np.zeros((1, 2)), np.zeros((1, 2), dtype=np.int32)
    rules = np.zeros((1, 2, BEHAVIOR_RULES, 3))
    directions: list[ScalingRules | None] = [] if behavior is None else [behavior.scale_up, behavior.scale_down]
    for index, direction in enumerate(directions):
        if direction is None:
            continue
        windows[0, index] = direction.stabilization_window_seconds
        select[0, index] = SELECT_POLICIES[direction.select_policy]
        for row, policy in enumerate(direction.policies or []):
            rules[0, index, row] = RULE_KINDS[policy.type], policy.value, policy.period_seconds
    return windows, rules, select
