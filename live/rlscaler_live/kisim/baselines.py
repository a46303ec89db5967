"""The baselines of KISim, measured in the simulator: three replicas of the GPU or of the CPU pool alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_live.kisim.config import Environment
from rlscaler_live.kisim.world import FIRST_REPLICAS, scenarios
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.simulation import episode

EPISODES = 32
"""Episodes of each pattern."""

FIRST_SEED = 1_000_000
"""Seeds of the measured episodes; a training draws below 2^31 by its own generator."""

SPEEDUPS = {"ramp": 1.16, "spike": 1.27, "periodic": 1.0, "random": 1.96}
"""p95 latency of the CPU baseline over that of the GPU baseline, as KISim has measured them, by pattern."""

WANTED_POOL = {"ramp": None, "spike": 0, "periodic": None, "random": 0}
"""Pool whose baseline the reward improves on; None: the mean of both."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Latency and throughput that the reward improves on."""

    p95_ms: float
    throughput: float


@dataclass(frozen=True, slots=True)
class OnePool:
    """Figures of the two baselines on the episodes of a pattern, (2, `EPISODES`) of GPU and CPU."""

    p95_ms: Float
    throughput: Float
    """Answers/s, late ones included."""
    cost: Float
    """GPU replica equivalents."""
    aim: Baseline


@lru_cache(maxsize=4)
def baselines(environment: Environment) -> dict[str, OnePool]:
    """Return the figures of both baselines by pattern (one second of computing)."""
    return {pattern: _of(environment, pattern) for pattern in SPEEDUPS}


def seeds() -> list[int]:
    """Return the seeds of the episodes that baselines and agents are measured on."""
    return list(range(FIRST_SEED, FIRST_SEED + EPISODES))


def _of(environment: Environment, pattern: str) -> OnePool:
    p95, throughput, cost = (np.empty((2, EPISODES)) for _ in range(3))
    for pool in range(2):
        alone = tuple(int(pool == other) for other in range(2))
        replicas = tuple(FIRST_REPLICAS * there for there in alone)
        bounds = {"min_replicas": replicas, "max_replicas": replicas, "initial_replicas": replicas}
        rows = scenarios(environment, [pattern] * EPISODES, seeds(), present=tuple(map(bool, alone)), **bounds)
        result = episode.run(rows, Unscaled()).result
        p95[pool], cost[pool] = result.p95_ms, result.cost
        throughput[pool] = (result.in_time + result.late) / environment.episode_duration
    wanted = WANTED_POOL[pattern]
    chosen = slice(None) if wanted is None else slice(wanted, wanted + 1)
    # Means of each baseline are taken before those of both, as KISim's are of two numbers.
    aim = Baseline(float(p95[chosen].mean(axis=1).mean()), float(throughput[chosen].mean(axis=1).mean()))
    return OnePool(p95, throughput, cost, aim)
