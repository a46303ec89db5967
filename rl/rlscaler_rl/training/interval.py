"""The objectives for one interval that was measured outside the simulator, such as on a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.training.weighted import baselines

WEIGHTED = "weighted"

Reward = Callable[[Mapping[str, Any], Mapping[str, Any], float], float]


def make(objective: str, weights: Mapping[str, float]) -> Reward:
    """(spent, facts, changed replicas) -> reward, by the objective's name; `weights` belong to `weighted`.

    spent: seconds, requests, in_time, missed, dropped, billed (2,), bounds_seconds and within (B,), the histogram.
    facts: cost_per_hour (2,), max_replicas (2,), mean_rate, slo_seconds, timeout, pattern.
    What `weighted` compares with is default HPA in simulation. Raises ValueError for an objective that does not exist.
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
    full = facts["max_replicas"][0] + facts["max_replicas"][1] * price_ratio
    return objectives.Norms(
        price_ratio=np.array([price_ratio]),
        size=np.array([objectives.NOMINAL_SIZE / full]),
        mean_rate=np.array([max(facts["mean_rate"], 1e-3)]),
        slo_seconds=np.array([facts["slo_seconds"]]),
        timeout=np.array([facts["timeout"]]),
        pattern=np.array([facts["pattern"]]),
    )
