"""What is learned about a policy's pools where its spec leaves it open: cold start and capacity."""

from __future__ import annotations

import math

from rlscaler_core.api.status import LEARNED_IN, Learned, LearnedPool
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.sensing.capacity import DIGITS, SUSPECT_PERCENT, Capacity
from rlscaler_operator.sensing.measure import Readings, load_of
from rlscaler_operator.sensing.results import Answers, unknown
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
    unit = policy.spec.capacity.unit
    cold_start, capacity, samples = known.cold_start_seconds, known.carried(unit), known.samples
    measured = cache.cold_start_seconds((policy.key[0], target.reference))
    if measured is not None:
        cold_start = max(1.0, round(measured))
    if policy.decision.stream is not None:
        capacity, samples = _per_consumer(capacity, policy.decision.stream.service_rate), None
    learning = policy.decision.capacity.get(pool)
    if learning is not None and learning.published is not None:
        capacity, samples = learning.published, len(learning.samples)
    if target.cold_start_seconds is not None:
        cold_start = None
    if policy.spec.per_replica(pool) is not None:
        capacity = samples = None
    if cold_start is None and capacity is None:
        return None
    return LearnedPool(cold_start_seconds=cold_start, samples=samples, **{LEARNED_IN[unit]: capacity})


CONSUMER_CHANGE = 0.1
"""Share by which what a consumer processes has to differ before what is used changes, and with it the status."""


def _per_consumer(used: float | None, measured: float) -> float | None:
    """Give what a consumer of a stream processes each second, as it is used from now on; None = not known."""
    if not measured > 0 or (used is not None and abs(measured - used) <= CONSUMER_CHANGE * used):
        return used
    return float(f"{measured:.{DIGITS}g}")


def learn_capacity(
    policy: Policy,
    readings: Readings,
    answers: Answers,
    replicas: tuple[int, int],
    ready: tuple[int, int],
    window_seconds: float,
    now: float,
) -> None:
    """Take this tick's measurements into what a replica of each pool carries, where the spec does not say it.

    `replicas` and `ready` are of the GPU and the CPU pool, `window_seconds` is that of the rates, `now` in seconds.
    """
    subject = policy.subject
    if not subject.learns or policy.spec.signal is not None:
        policy.decision.capacity.clear()
        return
    whole = load_of(answers, "done", subject)
    limit = policy.spec.metrics.max_age_seconds
    arrivals, latency = readings["arrival_rate"], readings["p95_latency"]
    late = latency.age_seconds <= limit and latency.value > policy.spec.slo.latency_milliseconds
    here = [pool for pool in POOLS if policy.spec.targets.pool(pool) is not None]
    for i, pool in enumerate(POOLS):
        target = policy.spec.targets.pool(pool)
        if target is None or policy.spec.per_replica(pool) is not None:
            policy.decision.capacity.pop(pool, None)
            continue
        if pool not in policy.decision.capacity:
            before = getattr(policy.decision.learned, pool, None)
            value = before.carried(subject.unit) if before else None
            policy.decision.capacity[pool] = Capacity(value, now, may_saturate=pool == "gpu")
        answered = whole.pools.get(pool, whole if len(here) == 1 else None)
        arrived = arrivals.pools.get(pool, arrivals if len(here) == 1 else None)
        used = readings[UTILIZATIONS[pool]]
        fresh = answered is not None and answered.age_seconds <= limit and used.age_seconds <= limit
        rate = answered.value if answered is not None and fresh else math.nan
        came = arrived.value if arrived is not None and arrived.age_seconds <= limit else math.nan
        policy.decision.capacity[pool].look(
            now, window_seconds, rate, ready[i], replicas[i], used.value, arrived=came, late=late
        )


def without_saturated(policy: Policy, readings: Readings) -> Readings:
    """Return the readings without a utilization that says nothing about the load, while the latency is low.

    It would let the reactive floor, the HPA formula and the actor add replicas for ever, since more replicas do not
    lower it. Only pools whose capacity is being learned are looked at; above half of the SLO it is used all the same.
    """
    latency, limit = readings["p95_latency"], policy.spec.metrics.max_age_seconds
    if not (latency.age_seconds <= limit and latency.value <= policy.spec.slo.latency_milliseconds / 2):
        return readings
    for pool, learning in policy.decision.capacity.items():
        used = readings[UTILIZATIONS[pool]]
        unproven = learning.may_saturate and learning.follows is None and learning.published is None
        if learning.follows is False or (unproven and used.value >= SUSPECT_PERCENT):
            text = (
                f"the utilization of the {pool} pool has not been seen to follow the load: it is not used while the "
                f"latency is below half of the SLO; set spec.{policy.spec.per_replica_field(pool)}"
            )
            doubted = unknown("UtilizationSaturated", text, used.age_seconds)
            readings = readings | {UTILIZATIONS[pool]: doubted}
    return readings
