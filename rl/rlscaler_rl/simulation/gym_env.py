"""A single simulated service as a gymnasium.Env, for tools that expect one and for looking at single episodes."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.observation import ObservationContract
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_rl.simulation import ledger, objectives
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.scenario import nominal
from rlscaler_rl.simulation.vec_env import spaces

PATTERNS = ("ramp", "spike", "periodic", "random")


class SimulatorEnv(gym.Env[NDArray[np.float32], NDArray[np.int64]]):
    """The nominal service under one pattern; observation (10 k,) float32, action MultiDiscrete([5, 5, 3]).

    `pattern` None takes the patterns in turn, from that of the seed on. With a `rule` actions are added to that
    forecast rule's replicas.
    Episodes are truncated after `duration_seconds`, never terminated.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        pattern: str | None = None,
        duration_seconds: int = 300,
        interval_seconds: int = 30,
        *,
        contract: ObservationContract | None = None,
        rule: RuleSettings | None = None,
        objective: str | objectives.Objective = "slo_cost",
        **overrides: Any,
    ) -> None:
        self.contract = contract or ObservationContract()
        self.observation_space, self.action_space = spaces(self.contract)
        self._patterns = PATTERNS if pattern is None else (pattern,)
        self._timing = duration_seconds, float(interval_seconds)
        self._rule, self._overrides = rule, overrides
        self._objective = objectives.named(objective)
        self._episodes = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        # Equal seeds give equal episodes, so that the rotation begins anew at the seed's pattern.
        self._episodes = self._episodes if seed is None else seed
        pattern = self._patterns[self._episodes % len(self._patterns)]
        self._episodes += 1
        drawn = int(self.np_random.integers(2**31))
        self.scenarios = nominal([pattern], [drawn], *self._timing, **self._overrides)
        self.batch = Batch(self.scenarios, self.contract, rule=self._rule)
        self._norms = objectives.norms(self.scenarios)
        self._samples, self._observation, stacked = self.batch.observe()
        return stacked[0], {"pattern": pattern}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        before = objectives.read(self.batch.cluster)
        base = self._samples.spec_replicas
        chosen = from_indices(np.asarray(action)[None])
        made = self.batch.act(self._samples, self._observation, chosen)
        self.batch.finish_interval()
        after = objectives.read(self.batch.cluster)
        changed = np.abs(made.desired - base).sum(1)
        reward = float(self._objective(after.since(before), self._norms, changed)[0])
        truncated = bool(after.time[0] >= self.scenarios.duration[0])
        self._samples, self._observation, stacked = self.batch.observe()
        info: dict[str, Any] = {"desired": made.desired[0].tolist(), "placement": int(made.placement[0])}
        if truncated:
            total = ledger.check(ledger.read(self.batch.cluster), self.scenarios)
            info["cost"] = float(total.cost(self.scenarios.price_ratio)[0])
            info["late_percent"] = float(total.late_percent()[0])
        return stacked[0], reward, False, truncated, info
