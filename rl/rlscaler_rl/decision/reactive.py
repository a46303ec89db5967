"""What the load of this moment needs, without any forecast: the capacity floor and the HPA's formula."""

from __future__ import annotations

import numpy as np

from rlscaler_rl.decision.pairs import total
from rlscaler_rl.decision.types import Bool, Float, Int, Samples

HPA_TOLERANCE = 0.1
"""Kubernetes' --horizontal-pod-autoscaler-tolerance default."""

ROUNDING = 1e-9
"""Replicas; keeps 2.0000000001 from becoming 3."""

MANY = 1_000_000
"""Replicas; no limit is that high, and it fits an int32 whatever is added."""


def floor_replicas(
    arrivals: Float,
    desired: Int,
    rps: Float,
    target_utilization: Float,
    cold_start_seconds: Float,
    cost_per_hour: Float,
    limit: Int,
    running: Int | None = None,
) -> Int:
    """(N, 2) `desired` raised until arrivals / (replicas * rps) is within the target utilization.

    What is missing is taken in whole replicas: first from those that `running` (N, 2) says are there and `desired`
    would remove, cheapest capacity first; then new ones in the pool that is ready soonest, up to its `limit` (N, 2);
    the rest in the other pool. Equally quick pools are taken by cost of their capacity. Never below `desired`.
    A NaN in `arrivals` (N,) raises nothing; a pool whose `rps` (N, 2) is 0 or NaN gets nothing.
    """
    capacity = np.nan_to_num(rps * target_utilization)
    short = np.flatnonzero(arrivals - total(desired * capacity) > ROUNDING)
    if not short.size:
        return desired
    cheapest, soonest = _orders(capacity[short], cold_start_seconds[short], cost_per_hour[short])
    plan = [] if running is None else [(cheapest, running), (1 - cheapest, running)]
    raised = desired.copy()
    for pool, bound in [*plan, (soonest, limit), (1 - soonest, limit)]:
        missing = arrivals[short] - total(raised[short] * capacity[short])
        unit = capacity[short, pool]
        usable = unit > 0
        wanted = np.where(usable, np.ceil(missing / np.where(usable, unit, 1.0) - ROUNDING), 0.0)
        room = np.minimum(bound[short, pool], limit[short, pool]) - raised[short, pool]
        raised[short, pool] += np.clip(wanted, 0, np.maximum(room, 0)).astype(np.int32)
    return raised


def _orders(capacity: Float, cold_start_seconds: Float, cost_per_hour: Float) -> tuple[Int, Int]:
    """(R,) the pool whose capacity is cheapest and (R,) the pool to fill first."""
    price = np.where(capacity > 0, cost_per_hour / np.where(capacity > 0, capacity, 1.0), np.inf)
    cheapest = np.where(price[:, 0] <= price[:, 1], 0, 1).astype(np.int32)
    lead = cold_start_seconds[:, 1] - cold_start_seconds[:, 0]
    return cheapest, np.where(lead == 0, cheapest, np.where(lead > 0, 0, 1)).astype(np.int32)


def hpa_formula(ready: Int, current: Int, utilization: Float, target_utilization: Float) -> Int:
    """(N, 2) ceil(ready * utilization / target), or `current` within the tolerance or where nothing is known.

    `utilization` in %, `target_utilization` a fraction. As in Kubernetes' replica calculator, a result that points
    the other way than the ratio (because not all replicas are ready) is dropped for `current`.
    Source: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
    """
    ratio = utilization / (100 * target_utilization)
    measured = np.isfinite(ratio) & (ready > 0) & (np.abs(ratio - 1) > HPA_TOLERANCE + ROUNDING)
    wanted = np.where(measured, whole_replicas(np.where(measured, ready * ratio, 0.0)), current)
    contrary = np.where(ratio > 1, wanted < current, wanted > current)
    return np.where(contrary, current, wanted)


def whole_replicas(count: Float) -> Int:
    """`count` rounded up, at least 0, at most MANY; NaN is 0."""
    rounded = np.nan_to_num(np.ceil(count - ROUNDING), nan=0.0)
    return np.asarray(np.clip(rounded, 0, MANY), np.int32)


def pool_utilization(samples: Samples, signal_known: Bool) -> Float:
    """(N, 2) in %, NaN where not known; `signal_known` as `samples.known` gives it."""
    utilization = np.stack([samples.gpu_utilization, samples.cpu_utilization], axis=1)
    return np.where(signal_known[:, [3, 1]], utilization, np.nan)
