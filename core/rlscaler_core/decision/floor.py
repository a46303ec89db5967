"""The reactive floor: no fewer replicas than the load of this moment needs."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision import behavior
from rlscaler_core.decision.capacity import Capacity
from rlscaler_core.decision.reactive import floor_replicas, hpa_formula, pool_utilization
from rlscaler_core.decision.samples import arrivals_known, known
from rlscaler_core.decision.types import Bool, Int, Params, Samples, State


def raised_to_load(
    params: Params,
    state: State,
    samples: Samples,
    base: Int,
    desired: Int,
    limit: Int,
    capacity: Capacity,
    stuck: Bool,
) -> tuple[Int, Int]:
    """(N, 2) `desired` raised to what the load needs now, and the replicas to hold until they were ready once.

    A hold ends when so many were ready, or when `spec_replicas` is below it: then it was never written, or
    somebody took it back. A pool that is stuck gets nothing more, and only what is ready of it counts.
    """
    unreliable = capacity.slower
    if stuck.any():
        unreliable = unreliable | stuck
        limit = np.where(stuck, np.minimum(limit, base), limit)
    hold = state.floor_hold
    held = np.where((samples.ready_replicas >= hold) | (base < hold), 0, hold)
    follows = arrivals_known(params, samples) & params.reactive_floor
    unmeasured = bool(capacity.unmeasured.any())
    if unmeasured:
        follows &= ~capacity.unmeasured
    arrivals = np.where(follows, samples.arrival_rate, np.nan)
    arrivals = behavior.steady_arrivals(params, state, samples, arrivals)
    wanted = floor_replicas(arrivals, np.maximum(desired, held), capacity, limit, base)
    serving = np.where(unreliable, np.minimum(wanted, samples.ready_replicas), wanted)
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
    floored = np.where(active, wanted, desired)
    added = floored > np.maximum(base, desired)
    hold = np.where(added, floored, held) * active
    return floored.astype(np.int32, copy=False), hold.astype(np.int32, copy=False)
