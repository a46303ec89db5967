"""Learning about a policy's pools: cold start and capacity where the spec leaves them open, and the size of pods."""

from __future__ import annotations

import math

import numpy as np

from rlscaler_core.api import Status
from rlscaler_core.api.status import LEARNED_IN, Learned, LearnedPool
from rlscaler_core.decision.types import POOLS
from rlscaler_core.vertical.recommend import Memory, Usage, nothing_known
from rlscaler_core.vertical.storage import from_text
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.sensing.capacity import DIGITS, SUSPECT_PERCENT, Capacity
from rlscaler_operator.sensing.measure import Readings, load_of
from rlscaler_operator.sensing.queries import size_name
from rlscaler_operator.sensing.results import Answers, pick, unknown
from rlscaler_operator.state.pod_sizes import RESOURCES, look, ranges_of
from rlscaler_operator.state.policy import Policy

UTILIZATIONS = {"gpu": "gpu_utilization", "cpu": "cpu_utilization"}


def learned(policy: Policy, cache: WatchCache) -> Learned | None:
    """Return the learned values, measured now or before; None where nothing is open or known."""
    if not policy.facts.learns:
        return None
    pools = {pool: known for pool in POOLS if (known := _known(policy, cache, pool)) is not None}
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
"""Share by which the measured rate of a consumer must differ before the used rate, and with it the status, changes."""


def _per_consumer(used: float | None, measured: float) -> float | None:
    """Return the messages per second of a consumer, as they are used from now on; None = unknown."""
    # Small changes are noise: following them would write the status at every tick.
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
    """Learn the capacity of a replica of each pool from this tick's measurements, where the spec does not state it.

    `replicas` and `ready` are of the GPU and the CPU pool, `window_seconds` is that of the rates, `now` in seconds.
    """
    subject = policy.subject
    if not subject.learns or policy.spec.signal is not None:
        policy.decision.capacity.clear()
        return
    # The capacity follows from answered requests: arrivals may wait.
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
    """Return the readings without a utilization that does not follow the load, while the latency is low.

    It would let the reactive floor, the HPA formula and the actor add replicas for ever, since more replicas do not
    lower it. Only pools whose capacity is being learned are checked; above half of the SLO it is used all the same.
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


def size_pods(policy: Policy, answers: Answers, now: float) -> None:
    """Recommend a size for the policy's pods, where its spec has a range; `now` in unix seconds.

    A resource whose usage is not measured, or too old, keeps its size.
    """
    targets = [(pool, target) for pool, _ in policy.facts.targets if (target := policy.spec.targets.pool(pool))]
    sized = [(pool, target.object_name, target.resources) for pool, target in targets if target.resources is not None]
    if not sized:
        policy.decision.size_pods(None)
        return
    pools = tuple(pool for pool, _, _ in sized)
    used = [
        [_used(policy, answers, size_name(resource, resources.container or ""), name) for resource in RESOURCES]
        for _, name, resources in sized
    ]
    usage = Usage(np.full(len(pools), now), np.array(used, np.float64))
    ranges = ranges_of(resources for _, _, resources in sized)
    policy.decision.size_pods(look(_sizes_before(policy, pools), ranges, pools, usage))


def _used(policy: Policy, answers: Answers, query: str, target: str) -> float:
    reading = pick(answers.get(query, {}), (policy.key[0], target))
    return reading.value if reading.age_seconds <= policy.spec.metrics.max_age_seconds else math.nan


def _sizes_before(policy: Policy, pools: tuple[str, ...]) -> Memory:
    """Return the memory of usage of this process, or of the process that wrote the status."""
    sizing = policy.decision.sizing
    if sizing is not None and sizing.pools == pools:
        return sizing.after
    written = Status.model_validate(policy.outbox.status).pod_sizes if sizing is None else None
    memory = from_text(written.seen, len(pools)) if written is not None and written.seen else None
    return nothing_known(len(pools)) if memory is None else memory
