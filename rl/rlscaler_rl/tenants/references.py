"""Ways to share a pool that decide at every action interval: a learned arbiter, and one that knows the load."""

from __future__ import annotations

import numpy as np

from rlscaler_core.arbiter.filling import Candidates
from rlscaler_core.arbiter.learned import Learned
from rlscaler_core.arbiter.rules import Claims, Order
from rlscaler_core.decision.types import GPU, Float, Samples
from rlscaler_rl.tenants.play import Sharer
from rlscaler_rl.tenants.pools import Pools

LOOKAHEAD_SECONDS = 90
"""An action interval and a cold start: a replica granted now serves until then."""


def by_network(learned: Learned) -> Sharer:
    """Share as the network bids, on the tenants' requests until now."""

    def share(pools: Pools, samples: Samples) -> Order:
        return learned.bids(pools.budgets, pools.members, pools.loans, pools.signals(samples)).order

    return share


def hindsight(pools: Pools, samples: Samples) -> Order:
    """Share by the load to come: first the highest need of the next 90 s, evenly; a reference, and no bound."""
    scenarios = pools.batch.scenarios
    ahead = scenarios.rate[:, pools.second : pools.second + LOOKAHEAD_SECONDS]
    need: Float = ahead.max(axis=1) / (scenarios.rps[:, GPU] * scenarios.target_utilization)

    def order(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
        needed = np.maximum(need[chosen.member], 1e-9)
        return (chosen.number > np.ceil(needed)).astype(np.float64), chosen.number / needed

    return order
