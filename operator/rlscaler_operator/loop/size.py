"""Looking at how large the pods of a policy should be, at each of its actions."""

from __future__ import annotations

import math

import numpy as np

from rlscaler_core.api import Status
from rlscaler_core.vertical.recommend import Memory, Usage, nothing_known
from rlscaler_core.vertical.storage import from_text
from rlscaler_operator.sensing.queries import size_name
from rlscaler_operator.sensing.results import Answers, pick
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.sizing import RESOURCES, look, ranges_of


def size_pods(policy: Policy, answers: Answers, now: float) -> None:
    """Recommend how large the policy's pods should be, where its spec has a range; `now` in unix seconds.

    What is not measured, or is too old, is not known, and keeps the size that it has.
    """
    targets = [(pool, target) for pool, _ in policy.facts.targets if (target := policy.spec.targets.pool(pool))]
    sized = [(pool, target.object_name, target.resources) for pool, target in targets if target.resources is not None]
    if not sized:
        policy.decision.size_pods(None)
        return
    pools = tuple(pool for pool, _, _ in sized)
    used = [
        [_used(policy, answers, size_name(one, resources.container or ""), name) for one in RESOURCES]
        for _, name, resources in sized
    ]
    usage = Usage(np.full(len(pools), now), np.array(used, np.float64))
    ranges = ranges_of(resources for _, _, resources in sized)
    policy.decision.size_pods(look(_before(policy, pools), ranges, pools, usage))


def _used(policy: Policy, answers: Answers, query: str, target: str) -> float:
    reading = pick(answers.get(query, {}), (policy.key[0], target))
    return reading.value if reading.age_seconds <= policy.spec.metrics.max_age_seconds else math.nan


def _before(policy: Policy, pools: tuple[str, ...]) -> Memory:
    """What was seen before: by this process, or by the one that wrote the status."""
    sizing = policy.decision.sizing
    if sizing is not None and sizing.pools == pools:
        return sizing.after
    kept = Status.model_validate(policy.outbox.status).pod_sizes if sizing is None else None
    found = from_text(kept.seen, len(pools)) if kept is not None and kept.seen else None
    return nothing_known(len(pools)) if found is None else found
