"""Shared pools under load: N tenants on P pools, one sensing tick after the other as the operator decides and shares.

Proposals, grants and decisions are those of `rlscaler_core`, for all rows at once. The simulation adds the cluster:
pods wait until a GPU of their pool is free, and then for their cold start. Proposers and the order of the grants are
the caller's: `play` takes an actor and a rule, `environment` the actions of agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate, is_bound, requested
from rlscaler_core.arbiter.features import Signals
from rlscaler_core.arbiter.rules import Order, RuleName
from rlscaler_core.arbiter.types import Loans, Members, make_budgets, make_members, no_loans
from rlscaler_core.decision.observation import ObservationContract
from rlscaler_core.decision.types import CPU, GPU, Decision, Float, Int, Params, Rows, Samples, State
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.tenants.changes import Course, course
from rlscaler_rl.tenants.room import Long, SharedRoom
from rlscaler_rl.tenants.signals import Loss, LossySensing

BUDGET_SECONDS = 15
"""An interval of the budget, as in the custom resource."""


@dataclass(slots=True)
class Tenants(Rows):
    """The terms of N tenants. A tenant's pods in the GPU pool take one GPU each."""

    pool: Int  # (N,) the pool that it shares
    guaranteed: Float  # (N,) GPUs
    weight: Float  # (N,)
    priority: Int  # (N,)


Decide = Callable[[Params, State, Samples, Long], tuple[Decision, State]]
"""Decides for some rows: their params, state and samples, and which (K,) of the N rows they are."""

Sharing = RuleName | Order
"""In which order replicas are handed out."""


class Pools:
    """The simulated clusters, the owner of each GPU, and the arbiter's memory."""

    def __init__(
        self,
        scenarios: Scenarios,
        tenants: Tenants,
        gpus: Long,
        contract: ObservationContract | None = None,
        loss: Loss | None = None,
        seed: int = 0,
        changes: Course | None = None,
    ) -> None:
        """`gpus` (P,) are in each pool, until `changes`. `seed` draws the information that `loss` removes."""
        n = len(scenarios)
        self.tenants, self.second = tenants, 0
        self._faults = None if loss is None or loss.share == 0 else LossySensing(loss, n, seed)
        self.batch = Batch(scenarios, contract, faults=self._faults)
        self.room = SharedRoom(tenants.pool, gpus, scenarios.initial[:, GPU])
        self.asked = np.full(n, np.nan)
        """GPU replicas (N,) that each tenant asks for, as far as it is known."""
        self.held, self.waiting, self.below = (np.zeros(n) for _ in range(3))
        """Sums over the ticks (N,): GPUs held, pods without a GPU, and ticks at which it held less of its guarantee
        than it asked for."""
        self.budgets = make_budgets(len(gpus), amount=np.asarray(gpus, np.float64))
        self._members = make_members(
            n,
            budget=tenants.pool,
            minimum=self.batch.params.min_replicas[:, GPU],
            guaranteed=tenants.guaranteed,
            weight=tenants.weight,
            priority=tenants.priority,
        )
        self.changes = changes or course("none", tenants.pool, gpus, 0)
        """Times at which tenants are absent and GPUs are lost."""
        self._away = np.zeros(n, np.bool_)
        self._before: Loans = no_loans(n)
        self.loans: Loans = no_loans(n)
        self._change()

    @property
    def members(self) -> Members:
        """Members of the budgets as the arbiter sees them now, by the tenants' requests until now."""
        current = self.batch.cluster.pool["target"][:, GPU].astype(np.int32)
        minimum = np.where(self._away, 0, self._members.minimum)
        guaranteed = np.where(self._away[:, None], 0.0, self._members.guaranteed)
        return replace(self._members, asked=self.asked, current=current, minimum=minimum, guaranteed=guaranteed)

    @property
    def acts(self) -> bool:
        """Whether an action interval begins at this tick."""
        return self.second % self.batch.interval == 0

    def begin_interval(self) -> None:
        """Draw the lost information of the action interval that begins; call it before its first `Batch.sense`."""
        if self._faults is not None:
            self._faults.draw()

    def signals(self, samples: Samples) -> Signals:
        """Return the arbiter's signals of each service (N,)."""
        params = self.batch.params
        capacity = (np.where(params.present, samples.ready_replicas, 0) * params.requests_per_second).sum(axis=1)
        # A tenth of a replica at least: without ready replicas the load would be infinite.
        load = samples.arrival_rate / np.maximum(capacity, params.requests_per_second[:, GPU] * 0.1)
        return Signals(samples.gpu_utilization / 100.0, samples.p95_ms / params.slo_ms, load)

    def decide(self, decide: Decide, samples: Samples, sharing: Sharing | None) -> Decision:
        """Take one sensing tick: proposals, grants by `sharing` (None: no budget) and decisions; then replicas are set.

        Returns the decision with the grants in force.
        """
        batch, rows = self.batch, self.batch.rows
        decision, state = decide(batch.params, batch.state, samples, rows)
        acts = np.full(len(rows), self.acts)
        self.asked = requested(self.asked, acts, decision.desired[:, GPU], decision.flags)
        if sharing is not None:
            granted = self._grant(sharing)
            bound = is_bound(decision.desired[:, GPU], decision.base[:, GPU], granted, np.ones_like(acts))
            few = np.flatnonzero(bound)
            if few.size:
                decision, state = decision.copy(), state.copy()
                limit = np.stack([granted[few], np.full(len(few), -1)], axis=1).astype(np.int32)
                limited = replace(samples.take(few), granted_replicas=limit)
                # Only tenants that a grant binds are decided for again, as in the operator: the others stay bit by bit.
                again, after = decide(batch.params.take(few), batch.state.take(few), limited, few)
                decision.put(few, again)
                state.put(few, after)
        batch.state = state
        batch.scale(decision.desired, decision.weights)
        self.keep_away()
        return decision

    def _grant(self, sharing: Sharing) -> Int:
        """Share by the requests and the running replicas; a new interval of the budgets begins when it is time."""
        if self.second % BUDGET_SECONDS == 0:
            self._before = self.loans
            self.budgets = make_budgets(len(self.room.gpus), amount=self.room.gpus)
        grants, self.loans = arbitrate(sharing, self.budgets, self.members, self._before)
        return grants.granted

    def advance(self) -> None:
        """Assign free GPUs to pods, and let a sensing tick pass."""
        pods = self.batch.cluster.pool[["ready", "waiting"]][:, GPU]
        there = pods["ready"] + pods["waiting"]
        placed = self.room.place(there, self.second)
        # A pod without a GPU stays pending: the pool of GPUs is the room on the nodes.
        self.batch.facts.pool["schedulable"][:, GPU] = placed
        self.batch.advance()
        self.held += placed
        self.waiting += there - placed
        self.below += placed < np.minimum(np.nan_to_num(self.asked), np.floor(self.tenants.guaranteed))
        self.second += SENSE_SECONDS
        self._change()

    def keep_away(self) -> None:
        """Withdraw the decisions for absent tenants."""
        if self._away.any():
            self._scale(np.where(self._away[:, None], 0, self.batch.cluster.pool["target"]))
            self.asked = np.where(self._away, 0.0, self.asked)

    def _change(self) -> None:
        """Let tenants come and go, and GPUs be lost and come back, as the course has it at this second."""
        away = self.changes.away(self.second)
        come, self._away = self._away & ~away, away
        if come.any():
            self._scale(np.where(come[:, None], (1, 0), self.batch.cluster.pool["target"]))
            self.asked = np.where(come, np.nan, self.asked)
        self.keep_away()
        if self.second == self.changes.lost_from:
            self._lose()
        if self.second == self.changes.lost_until:
            self.room.regain(self.changes.lost)

    def _lose(self) -> None:
        """Remove lost GPUs with the pods on them. Pods that were starting beside a lost ready pod begin again."""
        pools = self.batch.cluster.pool
        target, ready = pools["target"].copy(), pools["ready"][:, GPU].astype(np.int64)
        gone, running = self.room.lose(self.changes.lost, ready)
        left = np.where(running > 0, ready - running, target[:, GPU] - gone)
        # Pods on lost GPUs go, and the ReplicaSet creates them again: down, then back to the target.
        self._scale(np.stack([left, target[:, CPU]], axis=1))
        self._scale(target)

    def _scale(self, target: Long) -> None:
        """Set the replicas (N, 2); traffic weights stay."""
        self.batch.scale(target, np.zeros_like(target))
