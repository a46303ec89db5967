"""The environment of agents that share pools: every step is one action interval of all tenants of all pools at once.

Each tenant has an accelerator agent and a CPU agent. They add -2 to 2 steps to the forecast rule's proposal for the
tenant's pool. The arbiter bids one of five factors for each tenant's weight (`rlscaler_core.arbiter.learned`). All
actions go through the decision function, its shield and the arbiter's filling, as everywhere else.

A pool is laid out as slots: for each of its M tenants one of the accelerator agent, one of the CPU agent and one of the
arbiter's bid. Arrays are (P, M, 3) with an action 0 to 4, of which 2 is "as the rule".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.features import FEATURES, features
from rlscaler_core.arbiter.learned import FACTORS, Bids
from rlscaler_core.arbiter.rules import RuleName
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe
from rlscaler_core.decision.rule import DEFAULT_SETTINGS
from rlscaler_core.decision.types import (
    CPU,
    GPU,
    OBSERVATIONS,
    Decision,
    Float,
    Float32,
    Observation,
    Params,
    Placement,
    Samples,
    SignalState,
    State,
)
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.objectives import LEAST_RATE
from rlscaler_rl.tenants.draw import Request, draw, side_by_side
from rlscaler_rl.tenants.play import Played, played
from rlscaler_rl.tenants.pools import Pools, Sharing
from rlscaler_rl.tenants.room import Long
from rlscaler_rl.tenants.signals import NONE_LOST, Loss

SLOTS = ("accelerator", "cpu", "arbiter")
"""The three places of a tenant that have an agent each."""

ACTIONS = 5
AS_THE_RULE = 2
"""The action that leaves the forecast rule's replicas, or the member's weight, as it is."""

OWN = ("granted", "limited", "guaranteed", "asked")
"""Observations of the budget of an agent of a tenant, beside its ten others."""

TENANT_WIDTH = 2 * len(OBSERVATIONS) + len(OWN)
WIDTH = max(TENANT_WIDTH, len(FEATURES))
"""Numbers that every slot is shown; the narrower kind is filled up with 0."""

REWARD_SCALE = 0.1
"""On J of a tenant, so that rewards are around 1."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of an environment."""

    request: Request
    loss: Loss = NONE_LOST
    arbiter: RuleName | Literal["agent"] | None = "agent"
    """Sharer of the pools: the arbiter agent by its bids, a rule, or none (None): no budget."""


class Rewards(NamedTuple):
    """Rewards of an action interval."""

    local: Float32
    """(P, M, 3) to each slot: the accelerator agent pays for its GPUs, the CPU agent for its CPU replicas, both for the
    tenant's late requests; the arbiter pays for those of all tenants."""
    total: Float32
    """(P,) minus J of the pool's tenants, their mean."""


class TenantsEnv:
    """P pools of M tenants, played side by side. Episodes are truncated at their end, never terminated."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        """`seed` draws the lost information; the pools are those of the request."""
        self.setting, self.seed = setting, seed
        self.contract = ObservationContract(stack_size=1)
        self.shape = setting.request.pools, setting.request.tenants

    def reset(self, *draw_seeds: int) -> Float32:
        """Begin an episode on pools that are drawn from `draw_seeds`, or from the request's own; returns `seen`.

        With several seeds the pools of each are played side by side, in the order of the seeds. Raises WorkloadError
        for a load that is not there.
        """
        request = self.setting.request
        seeds = draw_seeds or (request.seed,)
        parts = {seed: draw(replace(request, seed=seed)) for seed in dict.fromkeys(seeds)}
        drawn = side_by_side([parts[seed] for seed in seeds])
        self.shape = len(drawn.gpus), request.tenants
        self.scenarios, self.gpus = drawn.scenarios, drawn.gpus
        terms = (drawn.scenarios, drawn.tenants, drawn.gpus, self.contract)
        self.pools = Pools(*terms, self.setting.loss, self.seed, drawn.changes)
        mean = np.maximum(drawn.scenarios.mean_rate(), LEAST_RATE)
        self._per_request = 100 * LATE_WEIGHT / (mean * self.pools.batch.interval)
        self._look()
        return self.seen

    def step(self, actions: NDArray[np.int64], sharing: Sharing | None = None) -> tuple[Float32, Rewards, bool]:
        """Take the actions (P, M, 3), 0 to 4, and let an action interval pass; True at the end of the episode.

        `sharing` takes the place of the arbiter's bids.
        """
        pools, interval = self.pools, self.pools.batch.interval
        flat = np.asarray(actions).reshape(-1, len(SLOTS))
        before, held = self._counted(), pools.held.copy()
        sharing = sharing or self._sharing(flat[:, SLOTS.index("arbiter")])
        pools.decide(self._by_agents(flat), self.samples, sharing)
        pools.advance()
        for _ in range(SENSE_SECONDS, interval, SENSE_SECONDS):
            pools.decide(_by_floor, pools.batch.sense(latency=False), sharing)
            pools.advance()
        late, cpus = (self._counted() - before).T
        rewards = self._rewards((pools.held - held) * SENSE_SECONDS / interval, cpus / interval, late)
        done = pools.second >= int(self.scenarios.duration[0])
        self._look()
        return self.seen, rewards, done

    def figures(self) -> Played:
        """Return the figures of the episode until now. Raises LedgerError when the counters contradict one another."""
        return played(self.pools, self.scenarios)

    def _look(self) -> None:
        """Take the sensing tick at which the agents act next."""
        batch = self.pools.batch
        self.pools.begin_interval()
        self.samples = batch.sense()
        """Samples (N,) of that tick."""
        observation, batch.state = observe(batch.params, batch.state, self.samples, self.contract)
        self._observation = observation
        self.seen: Float32 = self._seen(observation)
        """(P, M, 3, WIDTH) observations of the agents; 0 where something is lost, with a column that marks it."""

    def _seen(self, observation: Observation) -> Float32:
        pools = self.pools
        known = observation.status != SignalState.UNKNOWN
        most = pools.batch.params.max_replicas[:, GPU]
        granted = np.where(pools.loans.granted >= 0, pools.loans.granted, pools.members.current)
        asked = np.where(np.isnan(pools.asked), granted, pools.asked)
        own = np.stack([granted / most, granted < asked, pools.tenants.guaranteed / most, asked / most], axis=1)
        tenant = np.concatenate([np.where(known, observation.fed, 0.0), known, own], axis=1)
        signals = pools.signals(self.samples)
        member = features(pools.budgets, pools.members, pools.loans, signals)
        table = np.zeros((len(tenant), len(SLOTS), WIDTH), np.float32)
        table[:, :2, :TENANT_WIDTH] = tenant[:, None]
        table[:, 2, : len(FEATURES)] = member
        return table.reshape(*self.shape, len(SLOTS), WIDTH)

    def _by_agents(self, flat: NDArray[np.int64]) -> _ByAgents:
        chosen = np.empty((len(flat), 3), np.int32)
        chosen[:, :2] = flat[:, :2] - AS_THE_RULE
        chosen[:, 2] = Placement.BALANCED
        return _ByAgents(chosen, self._observation)

    def _sharing(self, bids: NDArray[np.int64]) -> Sharing | None:
        if self.setting.arbiter != "agent":
            return self.setting.arbiter
        return Bids(np.array(FACTORS)[bids], np.ones(self.shape[0], np.bool_)).order

    def _counted(self) -> Float:
        """Late requests and CPU replica-seconds (N, 2) until now."""
        cluster = self.pools.batch.cluster
        row = cluster.row
        return np.stack([row["late"] + row["dropped"], cluster.pool["billed"][:, CPU]], axis=1)

    def _rewards(self, gpus: Float, cpus: Float, late: Float) -> Rewards:
        lateness = late * self._per_request
        cpu_cost = cpus * self.scenarios.price_ratio
        together = np.broadcast_to(lateness.reshape(self.shape).mean(axis=1)[:, None], self.shape).ravel()
        local = -REWARD_SCALE * np.stack([gpus + lateness, cpu_cost + lateness, together], axis=1)
        total = -REWARD_SCALE * (gpus + cpu_cost + lateness).reshape(self.shape).mean(axis=1)
        return Rewards(local.reshape(*self.shape, len(SLOTS)).astype(np.float32), total.astype(np.float32))


class _ByAgents:
    """Decides by the agents' actions, for all rows or for some."""

    def __init__(self, action: NDArray[np.int32], observation: Observation) -> None:
        self._action, self._observation = action, observation

    def __call__(self, params: Params, state: State, samples: Samples, rows: Long) -> tuple[Decision, State]:
        proposal = Proposal(self._observation.take(rows), self._action[rows], DEFAULT_SETTINGS)
        decision, _, after = decide(params, state, samples, proposal)
        return decision, after


def _by_floor(params: Params, state: State, samples: Samples, rows: Long) -> tuple[Decision, State]:
    decision, _, after = decide(params, state, samples, kind="floor")
    return decision, after
