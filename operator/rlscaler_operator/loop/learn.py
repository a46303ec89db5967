"""What is learned about a policy's pools where its spec leaves it open: cold start and capacity."""

from __future__ import annotations

import math

from rlscaler_core.api.status import Learned, LearnedPool
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.sensing.capacity import Capacity
from rlscaler_operator.sensing.results import Answers, pick
from rlscaler_operator.state.policy import Policy

UTILIZATIONS = {"gpu": "gpu_utilization", "cpu": "cpu_utilization"}


def learned(policy: Policy, cache: WatchCache) -> Learned | None:
    """Measured now, else what was before; None where nothing is open or known."""
    if not policy.facts.learns:
        return None
    pools = {pool: found for pool in POOLS if (found := _known(policy, cache, pool)) is not None}
    return Learned(**pools) if pools else None


def _known(policy: Policy, cache: WatchCache, pool: str) -> LearnedPool | None:
    target = policy.spec.targets.pool(pool)
    if target is None:
        return None
    known: LearnedPool = getattr(policy.decision.learned, pool, None) or LearnedPool()
    cold_start, capacity, samples = known.cold_start_seconds, known.requests_per_second, known.samples
    measured = cache.cold_start_seconds((policy.key[0], target.deployment))
    if measured is not None:
        cold_start = max(1.0, round(measured))
    learning = policy.decision.capacity.get(pool)
    if learning is not None and learning.published is not None:
        capacity, samples = learning.published, len(learning.samples)
    if target.cold_start_seconds is not None:
        cold_start = None
    if target.requests_per_second is not None:
        capacity = samples = None
    if cold_start is None and capacity is None:
        return None
    return LearnedPool(cold_start_seconds=cold_start, requests_per_second=capacity, samples=samples)


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
        policy.decision.capacity.clear()
        return
    whole = pick(answers.get("answer_rate", {}), (subject.namespace, subject.service))
    limit = policy.spec.metrics.max_age_seconds
    here = [pool for pool in POOLS if policy.spec.targets.pool(pool) is not None]
    for i, pool in enumerate(POOLS):
        target = policy.spec.targets.pool(pool)
        if target is None or target.requests_per_second is not None:
            policy.decision.capacity.pop(pool, None)
            continue
        if pool not in policy.decision.capacity:
            before = getattr(policy.decision.learned, pool, None)
            policy.decision.capacity[pool] = Capacity(before.requests_per_second if before else None, now)
        answered = whole.pools.get(pool, whole if len(here) == 1 else None)
        used = policy.decision.readings[UTILIZATIONS[pool]]
        fresh = answered is not None and answered.age_seconds <= limit and used.age_seconds <= limit
        rate = answered.value if answered is not None and fresh else math.nan
        policy.decision.capacity[pool].look(now, window_seconds, rate, ready[i], replicas[i], used.value)
