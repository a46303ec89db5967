"""The latency and throughput that KISim's reward improves on: of three replicas of one pool alone, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlscaler_live.kisim.config import Environment
from rlscaler_live.kisim.world import FIRST_REPLICAS, scenarios
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.simulation import episode

EPISODES = 32
"""Episodes of each pattern."""

FIRST_SEED = 1_000_000
"""Seeds of the measured episodes; a training draws below 2^31 by its own generator."""

PATTERNS = ("ramp", "spike", "periodic", "random")

WANTED_POOLS = {"ramp": (0, 1), "spike": (0,), "periodic": (0, 1), "random": (0,)}
"""Pools whose baselines the reward improves on in the mean, by pattern: GPU is 0, CPU 1."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Latency and throughput that the reward improves on."""

    p95_ms: float
    throughput: float
    """Answers/s, late ones included."""


@lru_cache(maxsize=4)
def baselines(environment: Environment) -> dict[str, Baseline]:
    """Return the baseline of each pattern (one second of computing)."""
    return {pattern: _of(environment, pattern) for pattern in PATTERNS}


def _of(environment: Environment, pattern: str) -> Baseline:
    p95, throughput = [], []
    for pool in WANTED_POOLS[pattern]:
        alone = tuple(int(pool == other) for other in range(2))
        replicas = tuple(FIRST_REPLICAS * there for there in alone)
        bounds = {"min_replicas": replicas, "max_replicas": replicas, "initial_replicas": replicas}
        seeds = list(range(FIRST_SEED, FIRST_SEED + EPISODES))
        rows = scenarios(environment, [pattern] * EPISODES, seeds, present=tuple(map(bool, alone)), **bounds)
        result = episode.run(rows, Unscaled()).result
        p95.append(float(result.p95_ms.mean()))
        throughput.append(float((result.in_time + result.late).mean()) / environment.episode_duration)
    # Means of each baseline are taken before those of both, as KISim's are of two numbers.
    return Baseline(float(np.mean(p95)), float(np.mean(throughput)))
