"""What is learned about a policy's pools where its spec leaves it open: so far the cold start, from the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlscaler_operator.api.status import Learned, LearnedPool
from rlscaler_operator.sensing.cache import WatchCache
from rlscaler_rl.decision.types import POOLS

if TYPE_CHECKING:
    from rlscaler_operator.policies import Policy


def learned(policy: Policy, cache: WatchCache) -> Learned | None:
    """Measured now, else what was before; None where nothing is open or known."""
    pools: dict[str, LearnedPool] = {}
    for pool in POOLS:
        target = policy.spec.targets.pool(pool)
        if target is None or target.cold_start_seconds is not None:
            continue
        measured = cache.cold_start_seconds((policy.key[0], target.deployment))
        before = getattr(policy.learned, pool, None)
        if measured is not None:
            pools[pool] = LearnedPool(cold_start_seconds=max(1.0, round(measured)))
        elif before is not None:
            pools[pool] = before
    return Learned(**pools) if pools else None
