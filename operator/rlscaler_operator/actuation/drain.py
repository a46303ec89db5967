"""The fewest replicas of a pool before its traffic has gone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.types import POOLS, Decision, Params, Samples, State
from rlscaler_operator.state.traffic import Shares

MOST = 10_000
"""The most replicas that a target may have."""


class Need(NamedTuple):
    """The replicas that a share of the load needs, by pool."""

    arrivals: float
    """Requests per second of the service; NaN = not known."""
    carried: tuple[float, float]
    """Requests per second that a replica of each pool answers at its target utilization; NaN = not known."""
    most: tuple[int, int]
    """`maxReplicas` of each pool."""

    @classmethod
    def of(cls, params: Params, state: State, samples: Samples) -> Need:
        """Return the need at one tick; the tables have one row."""
        carried = believed(params, state).requests_per_second[0] * params.target_utilization[0]
        fresh = samples.age_seconds[0, 0] <= params.max_age_seconds[0]
        arrivals = float(samples.arrival_rate[0]) if fresh else math.nan
        most = params.max_replicas[0]
        return cls(arrivals, (float(carried[0]), float(carried[1])), (int(most[0]), int(most[1])))

    @classmethod
    def unknown(cls) -> Need:
        """Return an unknown need: a pool with any share keeps all its replicas."""
        return cls(math.nan, (math.nan, math.nan), (MOST, MOST))

    def replicas(self, pool: int, share: float, running: int) -> int:
        """Return the replicas that a share (0-1) of the load needs, of `running`: at least 1 where there is any share.

        All of them where the load or the capacity is unknown, but never more than `maxReplicas`, which is the user's.
        """
        if share <= 0:
            return 0
        wanted = self.arrivals * share / self.carried[pool]
        # The tolerance keeps 2.0000000001 replicas from being 3.
        needed = math.ceil(wanted - 1e-9) if math.isfinite(wanted) and wanted >= 0 else running
        return min(max(needed, 1), running, max(self.most[pool], 1))


def fewest(need: Need, in_force: Shares, now: Shares, moved: bool, running: tuple[int, int]) -> tuple[int, int]:
    """Return the replicas of each pool that must stay for the traffic that may still be sent to it.

    `in_force` are the largest shares that the data plane may use, `now` the shares of the route, and `moved` tells
    whether these are the wanted ones. Once nothing older is in force, a pool without a share needs no replica, and a
    pool with a share needs one: further replicas are up to the decision.
    """
    replicas = []
    for pool in (0, 1):
        # The wanted weights are in force, and no older ones: only a pool with a share must not be empty.
        if moved and in_force[pool] == now[pool]:
            replicas.append(min(running[pool], int(now[pool] > 0)))
        else:
            replicas.append(need.replicas(pool, in_force[pool], running[pool]))
    return replicas[0], replicas[1]


def resumed(outcome: Outcome, pending: Mapping[str, int]) -> Decision | None:
    """Return the decision of a sensing tick while pools shrink to `pending` replicas; None where they do not any more.

    The tick is decided once more from the `pending` replicas. Where that decision wants more, because the load has
    grown, because a signal is unknown or because a pause holds the replicas, nothing is left of the earlier decision.
    """
    decision, entry = outcome.decision, outcome.entry
    if decision is None or entry.samples.paused[0] or entry.samples.paused_scale_down[0]:
        return None
    target = decision.base.copy()
    for i, pool in enumerate(POOLS):
        # Never above the base: a pending decision only shrinks.
        target[0, i] = min(target[0, i], pending.get(pool, target[0, i]))
    again, _, _ = decide(entry.params, outcome.state, replace(entry.samples, spec_replicas=target), kind="floor")
    if (again.desired != target).any() or (decision.desired > decision.base).any() or (target == decision.base).all():
        return None
    return replace(decision, desired=np.array(target), weights=again.weights)
