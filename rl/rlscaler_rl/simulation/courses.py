"""Episodes that begin and end together as a stable-baselines3 VecEnv: N of them, and then the next N."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import HEADS, to_indices
from rlscaler_core.decision.observation import ObservationContract
from rlscaler_core.decision.types import Float, Float32
from rlscaler_rl.simulation.vec_env import NO_CHANGE, ArrayVecEnv, spaces


class Episodes(Protocol):
    """N episodes under actions that are added to a forecast rule, from one action interval to the next."""

    @property
    def intervals(self) -> int: ...

    def observe(self) -> Float32:
        """Return (N, 10 k) at the begin of an action interval; call it once for each."""

    def play(self, indices: NDArray[np.int64]) -> Float:
        """Return the rewards (N,) of an interval under actions (N, 3)."""


class Course:
    """Episodes to train with, made anew each time, and the rewards of the rule alone on the same arrivals."""

    def __init__(self, make: Callable[[], Episodes]) -> None:
        self.make = make
        alone, rewards = make(), []
        for _ in range(alone.intervals):
            still = np.tile(to_indices(NO_CHANGE), (len(alone.observe()), 1)).astype(np.int64)
            rewards.append(alone.play(still))
        self.of_the_rule = np.stack(rewards)
        """(K, N)"""


class CourseVecEnv(ArrayVecEnv):
    """Observation (n, 10 k) float32, action (n, 3) int64, reward (n,) float32 beyond that of the rule alone.

    `courses` have n episodes each and are played again and again, in an order that `seed` draws. Episodes end by time
    limit, all at once.
    """

    def __init__(self, courses: Sequence[Course], contract: ObservationContract, seed: int = 0) -> None:
        self.courses = courses
        self._rng = np.random.default_rng([seed, 7])
        self._order: list[int] = []
        super().__init__(courses[0].of_the_rule.shape[1], *spaces(contract))
        self._actions: NDArray[np.int64] = np.zeros((self.num_envs, len(HEADS)), np.int64)

    def reset(self) -> Float32:
        if not self._order:
            self._order = self._rng.permutation(len(self.courses)).tolist()
        self._course, self._played = self.courses[self._order.pop()], 0
        self._episodes = self._course.make()
        return self._episodes.observe()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Float32, Float32, NDArray[np.bool_], list[Any]]:
        rewards = self._episodes.play(self._actions) - self._course.of_the_rule[self._played]
        seen = self._episodes.observe()
        self._played += 1
        over = self._played == self._episodes.intervals
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over:
            infos = [{"TimeLimit.truncated": True, "terminal_observation": last} for last in seen]
            seen = self.reset()
        return seen, rewards.astype(np.float32), np.full(self.num_envs, over), infos

    def close(self) -> None:
        """There is nothing to close."""
