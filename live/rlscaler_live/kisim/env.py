"""KISim's environment for Gymnasium: ten raw observations, replica steps and a placement, a weighted reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import HEADS, REACH
from rlscaler_core.decision.types import Float32
from rlscaler_live.kisim.baselines import PATTERNS, Baseline, baselines
from rlscaler_live.kisim.config import Environment, KisimConfig
from rlscaler_live.kisim.world import FIRST_REPLICAS, Interval, LiveWorld, SimulatedWorld, World

OBSERVATIONS: dict[str, tuple[float, float]] = {
    "cpu_utilization": (0, 100),
    "memory_utilization": (0, 100),
    "gpu_utilization": (0, 100),
    "p95_ms": (0, 10_000),
    "throughput": (0, 100),
    "gpu_replicas": (0, 10),
    "cpu_replicas": (0, 10),
    "load_trend": (-1, 1),
    "load_variance": (0, 1),
    "time_in_episode": (0, 1),
}
"""Lowest and highest value of each observation, as KISim has them; a value beyond is cut off."""

GPU_PATTERNS = ("random", "spike")
"""Patterns under which the reward wants GPU replicas; under the others it wants as many of either pool."""

OVERLOAD_PERCENT, OVERLOAD_PENALTY = 90.0, 0.5
RECENT_INTERVALS, MOST_CHANGES = 5, 2
"""More changed intervals than `MOST_CHANGES` of the recent ones are thrashing."""

STEADY, THRASHING = 0.1, -0.2


class KisimEnv(gym.Env[Float32, NDArray[np.int64]]):
    """One service; observation (10,) float32 in raw units, action MultiDiscrete([5, 5, 3]).

    The patterns are taken in turn, from that of the seed on. Episodes are truncated after their duration, never
    terminated. An observation that is not known keeps its last value and is named in `info["unknown"]`.

    `reset(options={"pattern": ..., "seed": ..., "replicas": (3, 0)})` chooses the load and the first replicas.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, environment: Environment, world: World, of_one_pool: Mapping[str, Baseline]) -> None:
        bounds = np.array(list(OBSERVATIONS.values()), np.float32)
        self.observation_space = gym.spaces.Box(bounds[:, 0], bounds[:, 1], dtype=np.float32)
        self.action_space = gym.spaces.MultiDiscrete(HEADS)
        self._environment, self._world, self._baselines = environment, world, of_one_pool
        self._episodes = 0
        self.pattern = PATTERNS[0]
        self.intervals: list[Interval] = []
        """Measurements of the episode, the first one before any action."""
        self._changes: list[bool] = []
        self._observation = np.zeros(len(OBSERVATIONS), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        super().reset(seed=seed)
        # Equal seeds give equal episodes, so that the rotation begins anew at the seed's pattern.
        self._episodes = self._episodes if seed is None else seed
        chosen = options or {}
        self.pattern = str(chosen.get("pattern", PATTERNS[self._episodes % len(PATTERNS)]))
        self._episodes += 1
        drawn = int(chosen.get("seed", self.np_random.integers(2**31)))
        first = chosen.get("replicas", (FIRST_REPLICAS, FIRST_REPLICAS))
        self.intervals, self._changes = [self._world.begin(self.pattern, drawn, first)], []
        self._observation = np.zeros(len(OBSERVATIONS), np.float32)
        return self._observed({"seed": drawn})

    def step(self, action: NDArray[np.int64]) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Take an action (3,) on the present replicas and let an interval pass."""
        low, high = self._environment.min_replicas, self._environment.max_replicas
        before = self.intervals[-1].replicas
        # The limits bound an action: a baseline's pool without replicas stays without.
        gpu, cpu = (
            int(np.clip(count + int(index) - REACH, min(low, count), high))
            for count, index in zip(before, action, strict=False)
        )
        interval = self._world.pass_interval((gpu, cpu), int(action[2]))
        self.intervals.append(interval)
        self._changes.append((gpu, cpu) != before)
        parts = self.reward_parts()
        observation, info = self._observed({"reward": parts})
        truncated = len(self._changes) >= self._environment.intervals
        return observation, float(sum(parts.values())), False, truncated, info

    def whole_episode(self) -> tuple[float, float]:
        """Return p95 latency in ms and answers/s of the episode so far."""
        return self._world.whole_episode()

    def close(self) -> None:
        self._world.close()

    def reward_parts(self) -> dict[str, float]:
        """Return the parts of the last interval's reward, by name. Their formulas are KISim's."""
        now, weights = self.intervals[-1], self._environment
        gpu, cpu = now.replicas
        base = self._baselines[self.pattern]
        share = gpu / max(gpu + cpu, 1) if self.pattern in GPU_PATTERNS else 1 - abs(gpu - cpu) / max(gpu + cpu, 1)
        latency, throughput = (base.p95_ms - now.p95_ms) / base.p95_ms, now.throughput / base.throughput - 1
        return {
            "latency": weights.latency_weight * max(0.0, float(np.nan_to_num(latency))),
            "throughput": weights.throughput_weight * max(0.0, float(np.nan_to_num(throughput))),
            "efficiency": weights.efficiency_weight * share,
            "stability": weights.stability_weight * self._stability(),
            "overload": -OVERLOAD_PENALTY if now.cpu_utilization > OVERLOAD_PERCENT else 0.0,
        }

    def _stability(self) -> float:
        if len(self._changes) < 2:
            return 0.0
        return THRASHING if sum(self._changes[-RECENT_INTERVALS:]) > MOST_CHANGES else STEADY

    def _observed(self, info: dict[str, Any]) -> tuple[Float32, dict[str, Any]]:
        now = self.intervals[-1]
        gpu, cpu = now.replicas
        trend, variance = _of_load([interval.throughput for interval in self.intervals])
        values = np.array(
            [
                now.cpu_utilization,
                now.memory_utilization,
                now.gpu_utilization,
                now.p95_ms,
                now.throughput,
                gpu,
                cpu,
                trend,
                variance,
                len(self._changes) / self._environment.intervals,
            ],
            np.float32,
        )
        unknown = [name for name, value in zip(OBSERVATIONS, values, strict=True) if np.isnan(value)]
        filled = np.where(np.isnan(values), self._observation, values)
        box = self.observation_space
        assert isinstance(box, gym.spaces.Box)
        self._observation = np.clip(filled, box.low, box.high).astype(np.float32)
        return self._observation.copy(), {"pattern": self.pattern, "replicas": now.replicas, "unknown": unknown, **info}


def _of_load(throughput: Sequence[float]) -> tuple[float, float]:
    """Return trend (-1 to 1) and variance (0 to 1) of the last answers/s; 0 as in KISim until three are known."""
    known = [value for value in throughput if np.isfinite(value)]
    if len(known) < 3:
        return 0.0, 0.0
    recent, last = known[-RECENT_INTERVALS:], known[-3:]
    trend = (last[-1] - last[0]) / max(last[0], 1.0)
    variance = float(np.var(recent)) / max(float(np.mean(recent)), 1.0)
    return float(np.clip(trend, -1, 1)), min(variance, 1.0)


def make_kisim(
    config: KisimConfig | Path | str | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> KisimEnv:
    """Make the environment: simulated, or on the cluster that `cluster` describes (`create_environment_config`).

    :param config: the experiment's configuration, or its JSON file; None: the fields of `cluster`, else KISim's own.
    :raises ConfigError: naming the file and the field.
    """
    if config is None:
        shared = set(Environment.model_fields) - {"objective"}
        known = KisimConfig(environment=Environment(**{k: v for k, v in (cluster or {}).items() if k in shared}))
    else:
        known = config if isinstance(config, KisimConfig) else KisimConfig.load(Path(config))
    settings = known.environment
    world: World = SimulatedWorld(settings) if cluster is None else LiveWorld(settings, cluster)
    return KisimEnv(settings, world, baselines(settings))
