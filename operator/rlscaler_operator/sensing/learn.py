"""What is learned about a policy's pools where its spec leaves it open: cold start and capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rlscaler_operator.api.status import Learned, LearnedPool
from rlscaler_operator.sensing.cache import WatchCache
from rlscaler_operator.sensing.capacity import Capacity
from rlscaler_operator.sensing.prometheus import Answers
from rlscaler_operator.sensing.results import pick
from rlscaler_rl.decision.types import POOLS

if TYPE_CHECKING:
    from rlscaler_operator.policies import Policy

UTILIZATIONS = {"gpu": "gpu_utilization", "cpu": "cpu_utilization"}


def learned(policy: Policy, cache: WatchCache) -> Learned | None:
    """Measured now, else what was before; None where nothing is open or known."""
    pools = {pool: LearnedPool(**known) for pool in POOLS if (known := _known(policy, cache, pool))}
    return Learned(**pools) if pools else None


def _known(policy: Policy, cache: WatchCache, pool: str) -> dict[str, float | int]:
    target = policy.spec.targets.pool(pool)
    before = getattr(policy.learned, pool, None)
    known: dict[str, float | int] = {}
    if target is None:
        return known
    if target.cold_start_seconds is None:
        measured = cache.cold_start_seconds((policy.key[0], target.deployment))
        if measured is not None:
            known["cold_start_seconds"] = max(1.0, round(measured))
        elif before is not None and before.cold_start_seconds is not None:
            known["cold_start_seconds"] = before.cold_start_seconds
    if target.requests_per_second is None:
        capacity = policy.capacity.get(pool)
        if capacity is not None and capacity.published is not None:
            known |= {"requests_per_second": capacity.published, "samples": len(capacity.samples)}
        elif before is not None and before.requests_per_second is not None:
            known |= {"requests_per_second": before.requests_per_second, "samples": before.samples or 0}
    return known


def learn_capacity(
    policy: Policy,
    answers: Answers,
    replicas: tuple[int, int],
    ready: tuple[int, int],
    window_seconds: float,
    now: float,
) -> None:
    """Take this tick's measurements into what a replica of each pool answers, where the spec does not say it."""
    subject = policy.subject
    if not subject.learns:
        policy.capacity.clear()
        return
    whole = pick(answers.get("answer_rate", {}), (subject.namespace, subject.service))
    limit = policy.spec.metrics.max_age_seconds
    here = [pool for pool in POOLS if policy.spec.targets.pool(pool) is not None]
    for i, pool in enumerate(POOLS):
        target = policy.spec.targets.pool(pool)
        if target is None or target.requests_per_second is not None:
            policy.capacity.pop(pool, None)
            continue
        if pool not in policy.capacity:
            before = getattr(policy.learned, pool, None)
            policy.capacity[pool] = Capacity(before.requests_per_second if before else None, now)
        answered = whole.pools.get(pool, whole if len(here) == 1 else None)
        used = policy.readings[UTILIZATIONS[pool]]
        fresh = answered is not None and answered.age_seconds <= limit and used.age_seconds <= limit
        rate = answered.value if answered is not None and fresh else math.nan
        policy.capacity[pool].look(now, window_seconds, rate, ready[i], replicas[i], used.value)
