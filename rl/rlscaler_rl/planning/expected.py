"""The cheapest next step under many futures: expected cost over both pools with what is starting already.

Time is cut into stages, and a decision is taken every `period` of them. What is ordered serves from one cold start
(`lead`) on, until the next order does. A plan says how many replicas of each pool are ready in each stage; a replica
that was ordered costs from the order on, and one that is given back costs nothing more.

What may be decided later need not be decided now. Of the slow pool one plan is made for all futures. The quick pool is
planned so for as long as what is ordered now has to do, its lead and one period. From then on every stretch of that
length gets the replicas of the quick pool that its own future asks for beside the slow ones of the stage, since they
can still be ordered when it shows. That makes a plan a little too sure of the quick pool, by one lead of foresight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision: K stages and S futures, A numbers of replicas of the slow pool and B of the quick one.

    Pairs are of the slow pool and the quick one. Numbers of replicas are positions, 0 for the fewest allowed.
    """

    late: Float32  # (S, K, A, B) late requests of every stage of every future
    late_price: float  # cost of one late request
    unit: tuple[float, float]  # cost of one replica in one stage
    fewest: tuple[int, int]  # replicas at position 0
    ready: tuple[int, int]  # positions of what is ready now
    starting: Int  # (2, K) replicas that become ready at the begin of each stage
    lead: tuple[int, int]  # stages until what is ordered now is ready
    period: int  # stages between two decisions

    @property
    def committed(self) -> int:
        """Stages for which a quick replica that is ordered now, or not, has to do."""
        return self.lead[1] + self.period


def horizon_stages(lead: tuple[int, int], period: int) -> int:
    """Give the stages K to look ahead: two leads of the slow pool and a period, in whole stretches of the quick one."""
    stretch = lead[1] + period
    return stretch * max(-(-(2 * lead[0] + period) // stretch), 2)


def cheapest_step(decision: Decision) -> tuple[float, Int]:
    """Give the least expected cost of all plans, and the positions (2,) to ask for now that begin one of them."""
    costs = expected_costs(decision)
    steps = [step_costs(decision, pool) for pool in range(2)]
    values = np.empty_like(costs)
    ahead = np.zeros(costs.shape[1:])
    for stage in range(len(costs) - 1, -1, -1):
        values[stage] = costs[stage] + ahead
        quick = (steps[1][stage][None] + values[stage][:, None, :]).min(axis=2)
        ahead = (steps[0][stage][:, :, None] + quick[None]).min(axis=1)
    return float(ahead[decision.ready]), _asked(decision, values, steps)


def _asked(decision: Decision, values: Float, steps: list[Float]) -> Int:
    """Follow a cheapest plan and give what has to be there or ordered now: the most of what it has within each lead."""
    here, plan = decision.ready, []
    for stage in range(max(decision.lead) + 1):
        onward = steps[0][stage][here[0]][:, None] + steps[1][stage][here[1]][None, :] + values[stage]
        slow, quick = np.unravel_index(int(onward.argmin()), onward.shape)
        here = (int(slow), int(quick))
        plan.append(here)
    path = np.array(plan, np.int64)
    return np.array([path[: decision.lead[pool] + 1, pool].max() for pool in range(2)])


def expected_costs(decision: Decision) -> Float:
    """Give the expected cost (K, A, B) of every stage in every state; see the module on the quick pool's later part."""
    late, committed = decision.late, decision.committed
    slow = decision.unit[0] * (decision.fewest[0] + np.arange(late.shape[2]))
    quick = decision.unit[1] * (decision.fewest[1] + np.arange(late.shape[3]))
    soon = decision.late_price * late[:, :committed].mean(axis=0, dtype=np.float64) + slow[:, None] + quick
    futures, stages = len(late), late.shape[1] - committed
    later = late[:, committed:].reshape(futures, stages // committed, committed, *late.shape[2:])
    best = (decision.late_price * later.sum(axis=2) + committed * quick).argmin(axis=-1)
    least = np.take_along_axis(later, best[:, :, None, :, None], axis=-1)[..., 0]
    mean = (decision.late_price * least + quick[best][:, :, None]).mean(axis=0, dtype=np.float64)
    rest = mean.reshape(stages, -1) + slow
    return np.concatenate([soon, np.broadcast_to(rest[..., None], (stages, *late.shape[2:]))])


def step_costs(decision: Decision, pool: int) -> Float:
    """Give the cost (K, n, n) of going from one number of ready replicas to another at the begin of each stage.

    Infinite for what cannot be: fewer between two decisions, and more than what is starting before an order of this or
    a later decision is ready. What the quick pool does after its committed part is no matter of this plan.
    """
    stages, count = decision.late.shape[1], decision.late.shape[2 + pool]
    stage = np.arange(stages)[:, None, None]
    more = np.arange(count)[None, :] - np.arange(count)[:, None]
    lead, unit = decision.lead[pool], decision.unit[pool]
    arrived = np.minimum(np.maximum(more, 0), decision.starting[pool][:, None, None])
    ordered = np.maximum(more, 0) - arrived
    possible = (stage >= lead) & ((stage - lead) % decision.period == 0)
    up = unit * (arrived * stage + ordered * lead)
    cost = np.where((ordered > 0) & ~possible, np.inf, up)
    cost = np.where((more < 0) & (stage % decision.period != 0), np.inf, cost)
    if pool == 1:
        cost[decision.committed :] = np.where(more == 0, 0.0, np.inf)
    return np.asarray(cost, np.float64)
