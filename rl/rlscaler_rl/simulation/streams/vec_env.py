"""Consumer groups as a stable-baselines3 VecEnv: N groups begin and end together, and the next N follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import HEADS, from_indices
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
from rlscaler_rl.simulation.vec_env import ArrayVecEnv, spaces

SENSE_SECONDS = 5.0
"""A look at the groups takes as long as the steps between two: more of them make training slower."""


class StreamEpisode:
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


class Course:
    """Groups to train with, and the rewards of the rule alone on the same messages and cold starts."""

    def __init__(
        self, groups: Groups, interval_seconds: float, contract: ObservationContract, rule: RuleSettings
    ) -> None:
        self.groups, self.interval = groups, interval_seconds
        alone = StreamEpisode(groups, interval_seconds, contract, rule)
        still = np.tile([HEADS[0] // 2, HEADS[1] // 2, 0], (len(groups), 1))
        rewards = []
        for _ in range(alone.intervals):
            alone.observe()
            rewards.append(alone.play(still))
        self.of_the_rule = np.stack(rewards)
        """(K, N)"""


class StreamVecEnv(ArrayVecEnv):
    """Observation (n, 10 k) float32, action (n, 3) int64, reward (n,) float32 beyond that of the rule alone.

    `courses` have n groups each and are played again and again, in an order that `seed` draws. Episodes end by time
    limit, all at once.
    """

    def __init__(
        self, courses: Sequence[Course], contract: ObservationContract, rule: RuleSettings, seed: int = 0
    ) -> None:
        self.courses, self.contract, self.rule = courses, contract, rule
        self._rng = np.random.default_rng([seed, 7])
        self._order: list[int] = []
        super().__init__(len(courses[0].groups), *spaces(contract))
        self._actions: NDArray[np.int64] = np.zeros((self.num_envs, len(HEADS)), np.int64)

    def reset(self) -> Float32:
        if not self._order:
            self._order = self._rng.permutation(len(self.courses)).tolist()
        self._course, self._played = self.courses[self._order.pop()], 0
        self._episode = StreamEpisode(self._course.groups, self._course.interval, self.contract, self.rule)
        return self._episode.observe()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Float32, Float32, NDArray[np.bool_], list[Any]]:
        rewards = self._episode.play(self._actions) - self._course.of_the_rule[self._played]
        seen = self._episode.observe()
        self._played += 1
        over = self._played == self._episode.intervals
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over:
            infos = [{"TimeLimit.truncated": True, "terminal_observation": last} for last in seen]
            seen = self.reset()
        return seen, rewards.astype(np.float32), np.full(self.num_envs, over), infos

    def close(self) -> None:
        """There is nothing to close."""
