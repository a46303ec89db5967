"""The reactive floor: no fewer replicas than the load of this moment needs, without any forecast.

The formula of the HPA is here too, since the floor uses it where the capacity of a replica is not known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.behavior import steady_arrivals
from rlscaler_core.decision.partitions import drain, to_partitions
from rlscaler_core.decision.pooling import eased
from rlscaler_core.decision.situation import Capacity, Recommendation, Situation
from rlscaler_core.decision.tables import arrivals_known, known
from rlscaler_core.decision.types import Bool, Float, Int, Samples, total

Rows = NDArray[np.intp]

HPA_TOLERANCE = 0.1
"""Default of --horizontal-pod-autoscaler-tolerance in Kubernetes."""

ROUNDING = 1e-9
"""Share of a replica that is ignored when replicas are rounded up, which keeps 2.0000000001 from becoming 3."""

MANY = 1_000_000
"""A number of replicas above every limit; it fits an int32 whatever is added."""


def raise_to_load(now: Situation, desired: Int) -> Int:
    """The guard: raise `desired` (N, 2) to the need of the present load, at the pooled target utilization.

    Replicas that it adds are held until so many were ready once, less those that are stuck. A hold also ends when
    `spec_replicas` is below it: then it was never written, or the user took it back. The other pool takes the load of
    stuck pods.
    """
    params, samples, capacity, base, limit = now.params, now.samples, now.capacity, now.base, now.limit
    hold = now.state.floor_hold
    up = samples.ready_replicas if now.stuck is None else samples.ready_replicas + now.stuck
    held = np.where((up >= hold) | (base < hold), 0, hold)
    follows = arrivals_known(params, samples) & params.reactive_floor
    unmeasured = bool(capacity.unmeasured.any())
    if unmeasured:
        follows &= ~capacity.unmeasured
    arrivals = np.where(follows, samples.arrival_rate + drain(params, samples), np.nan)
    arrivals = steady_arrivals(params, now.state, samples, arrivals)
    # The capacity of consumers is not pooled, because each of them has a queue of its own.
    arrivals = np.where(params.stream, arrivals, eased(params, arrivals))
    wanted = floor_replicas(arrivals, np.maximum(desired, held), capacity, limit, base)
    if params.stream.any():
        useful = to_partitions(params, samples, arrivals, capacity.requests_per_second, wanted, limit)
        wanted = np.maximum(useful, np.maximum(desired, held))
    # Starting replicas carry nothing: the pool that is ready sooner bridges the cold start of the slower one. Without
    # this, six GPU replicas took 45 s to start while a single CPU replica answered, and most requests were late.
    serving = np.where(capacity.slower, np.minimum(wanted, samples.ready_replicas), wanted)
    if now.stuck is not None:
        # A smaller target removes pods that are not ready first.
        staying = np.maximum(now.stuck - np.maximum(base - wanted, 0), 0)
        serving = np.minimum(serving, wanted - staying)
    starting = serving < wanted
    if starting.any():
        bridged = floor_replicas(arrivals, serving, capacity, np.where(starting, serving, limit), base)
        wanted = np.maximum(wanted, bridged)
    if unmeasured:
        utilization = pool_utilization(samples, known(params, samples))
        formula = hpa_formula(samples.ready_replicas, base, utilization, params.target_utilization)
        formula = np.where((capacity.unmeasured & params.reactive_floor)[:, None] & params.present, formula, 0)
        wanted = np.maximum(wanted, np.minimum(formula, limit))
    active = params.reactive_floor[:, None]
    floored = np.where(active, wanted, desired).astype(np.int32, copy=False)
    added = floored > np.maximum(base, desired)
    now.state.floor_hold = (np.where(added, floored, held) * active).astype(np.int32, copy=False)
    if now.recommendation is not None:
        lifted, (replicas, given) = floored != desired, now.recommendation
        raised = np.where(lifted, np.maximum(replicas, floored), replicas)
        now.recommendation = Recommendation(raised, given | lifted)
    return floored


def floor_replicas(arrivals: Float, desired: Int, capacity: Capacity, limit: Int, running: Int | None = None) -> Int:
    """Raise `desired` (N, 2) until the replicas carry `arrivals` (N,) in requests/s within their target utilization.

    Missing capacity is filled with whole replicas: first `running` ones (N, 2) that `desired` would remove, cheapest
    capacity first; then new ones in the pool that is ready soonest, up to its `limit` (N, 2); the rest in the other
    pool. Never below `desired`. A NaN in `arrivals` raises nothing, nor does a pool without capacity get replicas.
    """
    short = np.flatnonzero(arrivals - total(desired * capacity.requests_per_second) > ROUNDING)
    if not short.size:
        return desired
    raised = desired.copy()
    filling = _Filling(arrivals[short], raised.reshape(-1), capacity)
    if running is not None:
        reused = np.minimum(running, limit)
        if (reused > raised).any():
            filling.fill(2 * short + capacity.cheapest[short], reused.reshape(-1))
    filling.fill(2 * short + capacity.soonest[short], limit.reshape(-1))
    return raised


class _Filling:
    """Adds whole replicas to the R rows that are short of them; pools are positions in the flattened (N, 2)."""

    def __init__(self, arrivals: Float, raised: Int, capacity: Capacity) -> None:
        self.arrivals, self.raised = arrivals, raised
        self.capacity = capacity.requests_per_second.reshape(-1)
        self.divisor = capacity.divisor.reshape(-1)

    def fill(self, first: Rows, bound: Int) -> None:
        """Raise the pool `first` (R,), then the row's other one, up to `bound` (2 N,)."""
        for pool, other in ((first, first ^ 1), (first ^ 1, first)):
            there = self.raised[pool]
            carried = there * self.capacity[pool] + self.raised[other] * self.capacity[other]
            wanted = np.ceil((self.arrivals - carried) / self.divisor[pool] - ROUNDING)
            room = np.maximum(bound[pool] - there, 0)
            self.raised[pool] = there + np.minimum(np.maximum(wanted, 0), room).astype(np.int32)


def hpa_formula(ready: Int, current: Int, utilization: Float, target_utilization: Float) -> Int:
    """Return ceil(ready * utilization / target), or `current` within the tolerance or for unknown data; all (N, 2).

    `utilization` is in %, `target_utilization` a fraction. As in Kubernetes' replica calculator, a result that points
    the other way than the ratio (because not all replicas are ready) is dropped for `current`.
    Source: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
    """
    ratio = utilization / (100 * target_utilization)
    measured = np.isfinite(ratio) & (ready > 0) & (np.abs(ratio - 1) > HPA_TOLERANCE + ROUNDING)
    wanted = np.where(measured, whole_replicas(np.where(measured, ready * ratio, 0.0)), current)
    contrary = np.where(ratio > 1, wanted < current, wanted > current)
    return np.where(contrary, current, wanted)


def whole_replicas(count: Float) -> Int:
    """Round `count`, of any shape, up to replicas from 0 to MANY; NaN becomes 0."""
    rounded = np.nan_to_num(np.ceil(count - ROUNDING), nan=0.0)
    return np.asarray(np.clip(rounded, 0, MANY), np.int32)


def pool_utilization(samples: Samples, signal_known: Bool) -> Float:
    """Return the utilization (N, 2) in %, NaN where it is not known; `signal_known` is the result of `tables.known`."""
    utilization = np.stack([samples.gpu_utilization, samples.cpu_utilization], axis=1)
    return np.where(signal_known[:, [3, 1]], utilization, np.nan)
