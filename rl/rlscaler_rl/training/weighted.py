"""The objective of a training run; for `weighted`, the figures of default HPA that it is compared with."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.config import EnvironmentConfig

EPISODES = 256
"""Per action interval and duration: enough for every kind of load to come up."""


def objective_of(environment: EnvironmentConfig) -> str | objectives.Objective:
    """What `SimulatorVecEnv` takes; `weighted` is measured before the training begins (seconds)."""
    if environment.objective != "weighted":
        return environment.objective
    return objectives.Weighted(baselines(environment.ranges()), environment.weights())


@lru_cache(maxsize=4)
def baselines(ranges: Ranges, episodes: int = EPISODES, seed: int = 0) -> dict[str, dict[str, float]]:
    """Default HPA on the training distribution: pattern -> mean figures of an interval, and `all`.

    Measured with the reward's own figures, so that default HPA's reward is 0 on average on every kind of load.
    """
    rng = np.random.default_rng([seed, 11])
    names, tables = [], []
    for interval in ranges.intervals:
        for duration in ranges.durations:
            scenarios = randomised(episodes, rng, interval, duration, ranges)
            names.append(scenarios.pattern)
            tables.append(_figures(scenarios, duration // interval))
    patterns, figures = np.concatenate(names), np.concatenate(tables)
    groups = {name: patterns == name for name in np.unique(patterns).tolist()}
    return {
        name: dict(zip(objectives.WEIGHTS, np.nanmean(figures[rows], axis=0).tolist(), strict=True))
        for name, rows in {**groups, "all": np.ones(len(patterns), np.bool_)}.items()
    }


def _figures(scenarios: Scenarios, intervals: int) -> Float:
    """(N, 4) means over the intervals of every episode, columns as `objectives.WEIGHTS`; NaN where nothing came."""
    batch, hpa, rng = Batch(scenarios), Hpa(), np.random.default_rng(0)
    hpa.reset(batch.params)
    norms = objectives.norms(scenarios)
    seen = []
    for _ in range(intervals):
        before, changed = objectives.read(batch.cluster), np.zeros(len(scenarios))
        for _ in range(batch.interval // SENSE_SECONDS):
            held = batch.cluster.pool["target"].copy()
            batch.scale_unshielded(*hpa(batch.params, batch.state, batch.sense(), rng))
            changed += np.abs(batch.cluster.pool["target"] - held).sum(axis=1)
            batch.advance()
        figures = objectives.interval_figures(objectives.read(batch.cluster).since(before), norms, changed)
        seen.append(np.stack([figures[name] for name in objectives.WEIGHTS], axis=1))
    stacked = np.stack(seen)
    known = np.isfinite(stacked)
    return np.where(
        known.any(axis=0), np.where(known, stacked, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), np.nan
    )
