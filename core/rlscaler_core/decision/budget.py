"""The guard of `guards.budgetPerHour`: an upper bound on the cost per hour of both pools together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.situation import Capacity, Situation, within_limits
from rlscaler_core.decision.types import Bool, Flag, Float, Int, Params, State, either, total

ROUNDING = 1e-9
"""Share by which the cost per hour may exceed its bound, which keeps 16 * 0.625 from being more than 10."""


def keep_budget(now: Situation, desired: Int) -> Int:
    """The guard: `desired` (N, 2) within the cost per hour; cheaper rows stay as they are, even beyond the limits."""
    params, state = now.params, now.state
    if not (np.isfinite(params.budget_per_hour).any() or np.isfinite(state.budget_kept).any()):
        return desired
    running, bounded = within_limits(params, now.base), within_limits(params, desired)
    paid, limited, state.budget_kept = within_budget(params, state, running, bounded, now.capacity)
    now.set_flag(Flag.BUDGET_LIMITED, limited)
    return np.where(limited[:, None], paid, desired).astype(np.int32, copy=False)


def within_budget(params: Params, state: State, base: Int, bounded: Int, capacity: Capacity) -> tuple[Int, Bool, Float]:
    """Return `bounded` (N, 2) within the cost per hour, where (N,) it is the limit, and `State.budget_kept` (N,).

    Increases over `budgetPerHour` are refused, least capacity per cost first. Running replicas are lowered only where
    the user lowered it: until they fit once, and never again if something raises them later. An exchange that is
    cut so short that it would serve less than both the replicas that run and those that were asked for is not made.
    `base` and `bounded` (N, 2) have to be within the limits; `min_replicas` wins over the cost.
    """
    budget = params.budget_per_hour
    rows = np.flatnonzero(np.isfinite(budget))
    limited = np.zeros(len(budget), np.bool_)
    if not rows.size:
        return bounded, limited, budget.copy()
    spent = total(base * params.cost_per_hour)
    allowance = budget * (1 + ROUNDING)
    within = np.where((spent <= allowance) | (budget >= state.budget_kept), budget, state.budget_kept)
    limited = total(bounded * params.cost_per_hour) > allowance
    rows = np.flatnonzero(limited)
    if rows.size:
        lowering = (budget < within)[rows]
        bounded = bounded.copy()
        bounded[rows] = _cut(params, base, bounded, capacity, rows, lowering, allowance[rows])
    return bounded, limited, within


def _cut(
    params: Params,
    base: Int,
    desired: Int,
    capacity: Capacity,
    rows: NDArray[np.intp],
    lowering: Bool,
    allowance: Float,
) -> Int:
    """Return the affordable part (R, 2) of `desired` in the `rows` (R,) that cost too much."""
    cost, wanted, running = params.cost_per_hour[rows], desired[rows], base[rows]
    lowest = np.where(lowering[:, None], params.min_replicas[rows], np.minimum(wanted, running))
    best = capacity.cheapest[rows]
    cut = wanted.copy()
    here = np.arange(len(rows))
    for pool in (1 - best, best):
        price = np.where(cost[here, pool] > 0, cost[here, pool], np.inf)
        surplus = np.ceil((total(cut * cost) - allowance) / price)
        cut[here, pool] -= np.clip(surplus, 0, cut[here, pool] - lowest[here, pool]).astype(np.int32)
    for pool in (best, 1 - best):
        price = np.where(cost[here, pool] > 0, cost[here, pool], np.inf)
        room = np.floor((allowance - total(cut * cost)) / price)
        cut[here, pool] += np.clip(room, 0, wanted[here, pool] - cut[here, pool]).astype(np.int32)
    unit = capacity.requests_per_second[rows]
    served = np.minimum(total(wanted * unit), total(running * unit))
    worse = np.where(capacity.unmeasured[rows], either(cut < running), total(cut * unit) < served)
    keeps = worse & (total(running * cost) <= allowance)
    return np.where(keeps[:, None], running, cut)
