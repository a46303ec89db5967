"""Learning about a policy's pools: cold start, rate of a stream's consumers, and the size of pods."""

from __future__ import annotations

import math

import numpy as np

from rlscaler_core.api import Status
from rlscaler_core.api.status_memory import LEARNED_IN, Learned, LearnedPool
from rlscaler_core.api.targets import LONGEST_COLD_START
from rlscaler_core.decision.types import POOLS
from rlscaler_core.vertical.recommend import Memory, Usage, nothing_known
from rlscaler_core.vertical.storage import from_text
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.sensing.queries import size_name
from rlscaler_operator.sensing.results import Answers, pick
from rlscaler_operator.state.pod_sizes import RESOURCES, look, ranges_of
from rlscaler_operator.state.policy import Policy


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
    cold_start, capacity = known.cold_start_seconds, None
    measured = cache.cold_start_seconds((policy.key[0], target.reference))
    if measured is not None:
        # Stamps are of the clocks of several machines, and a node's may be days off.
        cold_start = min(max(1.0, round(measured)), LONGEST_COLD_START)
    if policy.decision.stream is not None:
        capacity = _per_consumer(known.carried(unit), policy.decision.stream.service_rate)
    if target.cold_start_seconds is not None:
        cold_start = None
    if policy.spec.per_replica(pool) is not None:
        capacity = None
    if cold_start is None and capacity is None:
        return None
    return LearnedPool(cold_start_seconds=cold_start).model_copy(update={LEARNED_IN[unit]: capacity})


CONSUMER_CHANGE = 0.1
"""Share by which the measured rate of a consumer must differ before the used rate, and with it the status, changes."""


def _per_consumer(used: float | None, measured: float) -> float | None:
    """Return the messages per second of a consumer, as they are used from now on; None = unknown."""
    # Small changes are noise: following them would write the status at every tick.
    if not measured > 0 or (used is not None and abs(measured - used) <= CONSUMER_CHANGE * used):
        return used
    return float(f"{measured:.3g}")


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
