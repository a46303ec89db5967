"""The objective of a training run, in the simulator and for an interval that was measured outside of it.

The objective `weighted` compares with default HPA, whose figures are measured in simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.config import EnvironmentConfig

WEIGHTED = "weighted"

Reward = Callable[[Mapping[str, Any], Mapping[str, Any], float], float]
"""(spent, facts, changed replicas) -> reward of one interval; `interval_reward` lists the fields of the two."""

EPISODES = 256
"""Episodes per action interval and duration: enough for every kind of load to come up."""


def objective_of(environment: EnvironmentConfig) -> str | objectives.Objective:
    """Return the objective for `SimulatorVecEnv`; `weighted` is measured before the training begins (seconds)."""
    if environment.objective != WEIGHTED:
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


def interval_reward(objective: str, weights: Mapping[str, float]) -> Reward:
    """The reward for one interval by the objective's name; `weights` belong to `weighted`.

    spent: seconds, requests, in_time, missed, dropped, billed (2,), bounds_seconds and within (B,), the histogram.
    facts: cost_per_hour (2,), max_replicas (2,), mean_rate, slo_seconds, timeout, pattern.
    `weighted` compares with the default HPA in simulation. Raises ValueError for an objective that does not exist.
    """
    known = (*objectives.OBJECTIVES, WEIGHTED)
    if objective not in known:
        raise ValueError(f"{objective!r}: there is no such objective; choose from {', '.join(known)}")
    weighted = objective == WEIGHTED
    function = objectives.Weighted(baselines(RANGES), weights) if weighted else objectives.OBJECTIVES[objective]

    def reward(spent: Mapping[str, Any], facts: Mapping[str, Any], changed: float) -> float:
        return float(function(_meters(spent), _norms(facts), np.array([changed]))[0])

    return reward


def _meters(spent: Mapping[str, Any]) -> objectives.Counters:
    finite = np.isfinite(spent["bounds_seconds"])
    edges = np.concatenate([[0.0], np.asarray(spent["bounds_seconds"])[finite]])
    counts = np.concatenate([[0.0], np.asarray(spent["within"])[finite]])
    total = spent["within"][-1] if len(spent["within"]) else 0.0
    histogram = np.concatenate([np.interp(BUCKETS_SECONDS, edges, counts), [total]])
    return objectives.Counters(
        time=np.array([max(spent["seconds"], 1e-9)]),
        requests=np.array([spent["requests"]]),
        in_time=np.array([spent["in_time"]]),
        missed=np.array([spent["missed"]]),
        billed=np.array([spent["billed"]]),
        dropped=np.array([spent["dropped"]]),
        histogram=histogram[None].astype(np.float32),
    )


def _norms(facts: Mapping[str, Any]) -> objectives.Norms:
    gpu, cpu = facts["cost_per_hour"]
    price_ratio = cpu / gpu
    # The whole service in prices of a GPU replica, as the simulator's norms have it.
    full = facts["max_replicas"][0] + facts["max_replicas"][1] * price_ratio
    return objectives.Norms(
        price_ratio=np.array([price_ratio]),
        size=np.array([objectives.NOMINAL_SIZE / full]),
        mean_rate=np.array([max(facts["mean_rate"], 1e-3)]),
        slo_seconds=np.array([facts["slo_seconds"]]),
        timeout=np.array([facts["timeout"]]),
        pattern=np.array([facts["pattern"]]),
    )
