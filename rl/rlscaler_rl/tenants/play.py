"""Tenants played from begin to end: an actor proposes for all of them, and a rule or a learned arbiter shares.

A `Sharer` decides at every action interval: a learned arbiter, or the reference that knows the load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlscaler_core.arbiter.filling import Candidates
from rlscaler_core.arbiter.learned import Learned
from rlscaler_core.arbiter.rules import Claims, Order, RuleName
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import Kind, decide
from rlscaler_core.decision.types import CPU, GPU, Decision, Float, Params, Samples, State
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import LATE_WEIGHT, contender_tick
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.tenants.changes import Course
from rlscaler_rl.tenants.pools import Pools, Sharing, Tenants
from rlscaler_rl.tenants.room import Long
from rlscaler_rl.tenants.signals import Loss

Sharer = Callable[[Pools, Samples], Order]
"""Returns, at every action interval, the order of grants until the next one."""

LOOKAHEAD_SECONDS = 90
"""An action interval and a cold start: a replica granted now serves until then."""


@dataclass(frozen=True, slots=True)
class Played:
    """Figures of N tenants over a whole episode, (N,) each."""

    j: Float
    """GPUs held and CPU replicas at their price, plus half a point for every percent late. A pod that waits for a GPU
    costs nothing."""
    gpus: Float
    """GPUs held, the mean over time."""
    late_percent: Float
    requests: Float
    busy: Float
    """GPUs that worked, the mean over time."""
    waiting: Float
    """Pods without a GPU, the mean over time."""
    below: Float
    """Share of the time in which it held less of its guarantee than it asked for, 0 to 1."""


def play(
    scenarios: Scenarios,
    tenants: Tenants,
    gpus: Long,
    controller: Any,
    rule: RuleName | Sharer | None,
    loss: Loss | None = None,
    changes: Course | None = None,
) -> Played:
    """Play tenants on pools of `gpus` (P,), shared by `rule`, or without a budget.

    `controller` is an `ActorLike`, which decides for all tenants, or a contender without a shield, to which no budget
    applies. Raises LedgerError when the counters contradict one another.
    """
    decides = hasattr(controller, "probabilities")
    contract = controller.manifest.contract if decides else None
    pools = Pools(scenarios, tenants, gpus, contract, loss, changes=changes)
    tick = None if decides else contender_tick(pools.batch, controller, 0)
    order: Sharing | None = None
    for second in range(0, int(scenarios.duration[0]), SENSE_SECONDS):
        if pools.acts:
            pools.begin_interval()
        if tick is None:
            samples = pools.batch.sense(latency=pools.acts)
            if pools.acts:
                order = rule(pools, samples) if callable(rule) else rule
            pools.decide(_by(controller, "action" if pools.acts else "floor"), samples, order)
        else:
            tick(second)
            pools.keep_away()
            pools.asked = pools.batch.cluster.pool["target"][:, GPU].astype(np.float64)
        pools.advance()
    return played(pools, scenarios)


def _by(actor: ActorLike, kind: Kind) -> Callable[[Params, State, Samples, Long], tuple[Decision, State]]:
    def decide_rows(params: Params, state: State, samples: Samples, rows: Long) -> tuple[Decision, State]:
        decision, _, after = decide(params, state, samples, actor, kind=kind)
        return decision, after

    return decide_rows


def played(pools: Pools, scenarios: Scenarios) -> Played:
    """Return the figures of the pools until now. Raises LedgerError when the counters contradict one another."""
    ticks = pools.second / SENSE_SECONDS
    ledger = ledgers.read(pools.batch.cluster)
    ledgers.check(ledger, scenarios)
    late = ledger.late_percent()
    gpus = pools.held / ticks
    cpus = ledger.billed[:, CPU] / pools.second
    return Played(
        j=gpus + scenarios.price_ratio * cpus + LATE_WEIGHT * late,
        gpus=gpus,
        late_percent=late,
        requests=ledger.requests,
        busy=ledger.busy[:, GPU] / pools.second,
        waiting=pools.waiting / ticks,
        below=pools.below / ticks,
    )


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
