"""What follows from `Params` alone for the reactive floor: computed once where they stay the same for many ticks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.pairs import either
from rlscaler_core.decision.types import Bool, Float, Int, Params, Rows


@dataclass(slots=True)
class Capacity(Rows):
    """What one more replica brings, and the order in which the floor asks for them."""

    requests_per_second: Float  # (N, 2) that a replica carries at target utilization; 0 = no such pool, or not known
    divisor: Float  # (N, 2) the same, infinite instead of 0
    cheapest: Int  # (N,) the pool whose capacity costs least
    soonest: Int  # (N,) the pool that is ready soonest; of equally quick ones the cheapest
    slower: Bool  # (N, 2) the other pool is quicker
    unmeasured: Bool  # (N,) nobody knows yet what a replica of one of the pools carries


def capacity_of(params: Params) -> Capacity:
    """N rows."""
    rps = np.where(params.present, params.requests_per_second, 0.0)
    capacity = np.nan_to_num(rps * params.target_utilization)
    usable = capacity > 0
    divisor = np.where(usable, capacity, np.inf)
    price = np.where(usable, params.cost_per_hour / np.where(usable, capacity, 1.0), np.inf)
    cheapest = np.where(price[:, 0] <= price[:, 1], 0, 1).astype(np.int32)
    cold = params.cold_start_seconds
    lead = cold[:, 1] - cold[:, 0]
    return Capacity(
        requests_per_second=capacity,
        divisor=divisor,
        cheapest=cheapest,
        soonest=np.where(lead == 0, cheapest, np.where(lead > 0, 0, 1)).astype(np.int32),
        slower=cold > cold[:, ::-1],
        unmeasured=either(np.isnan(rps)),
    )
