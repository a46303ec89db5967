"""Token services to train a network with, in simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, sense, stacked_input
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.tables import initial_state
from rlscaler_core.decision.types import GPU, Float, Float32, Observation, Params, Samples
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.objectives import REWARD_SCALE
from rlscaler_rl.simulation.tokens import ledger
from rlscaler_rl.simulation.tokens.drawn import World
from rlscaler_rl.simulation.tokens.episode import NEEDED, looks_per_action, params_of
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.looks import LOOK_SECONDS, Looks


class TokenEpisodes:
    """The services of a world, with capacities as declared, under actions that are added to a forecast rule.

    `params` are those of policies that are written already, in place of new ones; all have one action interval.
    """

    def __init__(
        self, world: World, contract: ObservationContract, rule: RuleSettings | None, params: Params | None = None
    ) -> None:
        self.world, self.contract, self.rule = world, contract, rule
        self.level = TokenLevel(world.services, world.requests)
        self.params = params_of(world.services, world.declared, "tokens", learns=True) if params is None else params
        self._looks_per_action = looks_per_action(self.params)
        self._interval = self._looks_per_action * LOOK_SECONDS
        weights = np.stack([world.declared.prompt_weight, world.declared.answer_weight], axis=1)
        self.looks = Looks(self.level, weights)
        self.state = initial_state(len(world.services), contract.stack_size)
        first = world.requests.first
        need = np.diff(np.concatenate([[0.0], np.cumsum(world.requests.need)])[first]) / world.seconds
        self._need, self._rate = np.maximum(need, 1e-9), np.maximum(np.diff(first) / world.seconds, 1e-9)
        self._samples: Samples
        self._observation: Observation

    @property
    def intervals(self) -> int:
        return int(self.world.seconds // self._interval)

    def observe(self) -> Float32:
        """Return (N, 10 k) at the begin of an action interval; call it once for each."""
        self._samples = self._sense()
        self._observation, self.state = observe(self.params, self.state, self._samples, self.contract)
        return stacked_input(self.state)

    def play(self, indices: NDArray[np.int64]) -> Float:
        """Return the rewards (N,) of an interval: minus its share of J, up to scale.

        A request counts as late at its late first token, at the end of a slow answer, or when its client gives up for
        good: up to a minute after its objective has passed. A request that waits at the end counts in J alone.
        """
        billed, missed = ledger.billed(self.level), self.level.fleet.service["missed"].copy()
        proposal = Proposal(self._observation, from_indices(indices), self.rule)
        decision, _, self.state = decide(self.params, self.state, self._samples, proposal)
        self._apply(decision.desired)
        for _ in range(self._looks_per_action - 1):
            samples = self._sense()
            decision, _, self.state = decide(self.params, self.state, samples, kind="floor")
            self._apply(decision.desired)
        over_need = (ledger.billed(self.level) - billed) / (self._need * self._interval)
        late = (self.level.fleet.service["missed"] - missed) / (self._rate * self._interval)
        return np.asarray(-REWARD_SCALE * (NEEDED * over_need + LATE_WEIGHT * 100 * late), np.float64)

    def _sense(self) -> Samples:
        self.looks.look()
        samples = self.looks.samples("tokens")
        self.state = sense(self.params, self.state, samples)
        return samples

    def _apply(self, desired: NDArray[np.int32]) -> None:
        """Set the replicas (N, 2), and let the time until the next look pass."""
        services = self.world.services
        self.level.scale(np.clip(desired[:, GPU], services.min_replicas, services.max_replicas))
        self.level.advance(LOOK_SECONDS)
