"""Consumer groups to train a network with, in simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, stacked_input
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.types import CPU, Float, Float32, Observation, Samples
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.objectives import REWARD_SCALE
from rlscaler_rl.simulation.streams.episode import Operator, params_of
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS, Groups
from rlscaler_rl.simulation.streams.ledger import consumer_price
from rlscaler_rl.simulation.streams.level import StreamLevel

SENSE_SECONDS = 5.0
"""A look at the groups takes as long as the steps between two: more of them make training slower."""


class StreamEpisodes:
    """N groups under actions that are added to a forecast rule, from one action interval to the next."""

    def __init__(
        self, groups: Groups, interval_seconds: float, contract: ObservationContract, rule: RuleSettings | None
    ) -> None:
        self.groups, self.contract, self.rule = groups, contract, rule
        self.interval = interval_seconds
        self.level = StreamLevel(groups)
        self.params = params_of(groups, interval_seconds, SENSE_SECONDS)
        self.operator = Operator(self.level, self.params, contract.stack_size)
        self._written = np.cumsum(groups.arrivals, axis=2, dtype=np.float64)
        self._slo_steps = np.ceil(groups.slo_seconds / STEP_SECONDS - 1e-9).astype(np.intp)
        self._mean_rate = np.maximum(groups.messages() / groups.seconds, 1e-9)
        self._samples: Samples
        self._observation: Observation

    @property
    def intervals(self) -> int:
        return int(self.groups.seconds // self.interval)

    def observe(self) -> Float32:
        """(N, 10 k) at the begin of an action interval; call it once for each."""
        self._samples = self.operator.sense()
        state = self.operator.state
        self._observation, self.operator.state = observe(self.params, state, self._samples, self.contract)
        return stacked_input(self.operator.state)

    def play(self, indices: NDArray[np.int64]) -> Float:
        """(N,) rewards of an interval: minus its share of J, up to scale, late messages counted when they become so."""
        level, billed, late = self.level, self.level.state.billed.copy(), np.zeros(len(self.groups))
        proposal = Proposal(self._observation, from_indices(indices), self.rule)
        decision, _, self.operator.state = decide(self.params, self.operator.state, self._samples, proposal)
        level.scale(decision.desired[:, CPU])
        for number in range(round(self.interval / STEP_SECONDS)):
            if number and number * STEP_SECONDS % SENSE_SECONDS == 0:
                samples = self.operator.sense()
                decision, _, self.operator.state = decide(self.params, self.operator.state, samples, kind="floor")
                level.scale(decision.desired[:, CPU])
            level.advance()
            late += self._become_late()
        consumers = consumer_price(self.groups) * (level.state.billed - billed) / self.interval
        late_percent = 100 * late / (self._mean_rate * self.interval)
        return np.asarray(-REWARD_SCALE * (consumers + LATE_WEIGHT * late_percent), np.float64)

    def _become_late(self) -> Float:
        """(N,) messages that have just waited for the objective and are not processed."""
        came = self.level.step - 1 - self._slo_steps
        there, rows = came >= 0, np.arange(len(came))
        written = self._written[rows, :, np.maximum(came, 0)]
        missing = np.clip(written - self.level.state.reached, 0.0, self.groups.arrivals[rows, :, np.maximum(came, 0)])
        return np.asarray(np.where(there, missing.sum(axis=1), 0.0), np.float64)
