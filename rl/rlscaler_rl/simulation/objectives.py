"""Rewards of an action interval that training can maximise, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Rows
from rlscaler_core.queueing.histogram import quantile
from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS, ClusterState
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios

Float = NDArray[np.float64]

REWARD_SCALE = 0.02
CHURN_WEIGHT = 0.05
"""GPU replica equivalents that one changed replica in an interval costs: enough to settle ties."""

LEAST_RATE = 1e-3
"""Requests/s that an episode without any counts as."""

NOMINAL_SIZE = float(NOMINAL["max_replicas"][0] + NOMINAL["max_replicas"][1] * NOMINAL["price_ratio"])


@dataclass(slots=True)
class Counters(Rows):
    """Counters at one moment, (N,) or (N, 2)."""

    time: Float
    requests: Float
    in_time: Float
    missed: Float  # late or dropped
    billed: Float  # (N, 2) replica-seconds, those that starts cost included
    dropped: Float
    histogram: NDArray[np.float32]  # (N, BUCKETS + 1) answered within each bound, last column all

    def since(self, before: Counters) -> Counters:
        """Counts since an earlier moment."""
        return Counters(
            self.time - before.time,
            self.requests - before.requests,
            self.in_time - before.in_time,
            self.missed - before.missed,
            self.billed - before.billed,
            self.dropped - before.dropped,
            self.histogram - before.histogram,
        )


@dataclass(slots=True)
class Norms(Rows):
    """Factors that make the rewards of services of different size and traffic comparable."""

    price_ratio: Float  # (N,) CPU over GPU
    size: Float  # (N,) NOMINAL_SIZE over the cost of all replicas that may exist
    mean_rate: Float  # (N,) requests/s over the day that the episode is cut from, or over the episode
    slo_seconds: Float  # (N,)
    timeout: Float  # (N,) seconds a client waits
    pattern: NDArray[Any]  # (N,) name of the load


Objective = Callable[[Counters, Norms, Float], Float]


def read(cluster: ClusterState) -> Counters:
    """The counters as they stand, copied."""
    row = cluster.row
    return Counters(
        row["time"].astype(np.float64),
        row["requests"].copy(),
        row["in_time"].copy(),
        row["late"] + row["dropped"],
        cluster.pool["billed"] + cluster.pool["start_billed"],
        row["dropped"].copy(),
        cluster.histogram.copy(),
    )


def norms(scenarios: Scenarios) -> Norms:
    """The norms of N scenarios."""
    full = scenarios.max_replicas[:, 0] + scenarios.max_replicas[:, 1] * scenarios.price_ratio
    return Norms(
        scenarios.price_ratio,
        NOMINAL_SIZE / full,
        np.maximum(np.where(np.isnan(scenarios.daily_mean), scenarios.mean_rate(), scenarios.daily_mean), LEAST_RATE),
        scenarios.slo_ms / 1000,
        scenarios.timeout,
        scenarios.pattern,
    )


def slo_cost(spent: Counters, norms: Norms, changed: Float) -> Float:
    """(N,) rewards: minus the interval's share of J = cost + 0.5 * late percent, and a small price on changes.

    Summed over an episode of equal intervals this is J's negative, up to scale: lateness counts by requests,
    so an interval weighs as much as its traffic. `changed` (N,) is the number of replicas the action moved.
    """
    cost = (spent.billed[:, 0] + norms.price_ratio * spent.billed[:, 1]) / spent.time * norms.size
    late_percent = 100 * spent.missed / (norms.mean_rate * spent.time)
    return -REWARD_SCALE * (cost + LATE_WEIGHT * late_percent + CHURN_WEIGHT * changed * norms.size)


def performance_cost(spent: Counters, norms: Norms, changed: Float) -> Float:
    """(N,) requests answered within the SLO over the cost of answering them, relative to the nominal service."""
    cost = (spent.billed[:, 0] + norms.price_ratio * spent.billed[:, 1]) / spent.time * norms.size
    goodput = spent.in_time / (norms.mean_rate * spent.time)
    return goodput / np.maximum(cost, 1e-6) - REWARD_SCALE * CHURN_WEIGHT * changed * norms.size


def p95_seconds(spent: Counters, timeout: Float) -> Float:
    """(N,) seconds, the 95th percentile of the latencies as clients see them; linear within a bucket.

    A dropped request counts as its client's `timeout` (N,) in seconds, and no request as longer than that. The result
    is NaN where nothing was answered or dropped.
    """
    total = spent.histogram[:, -1] + spent.dropped
    shares = spent.histogram[:, :-1] / np.where(total > 0, total, np.nan)[:, None]
    waited = np.minimum(quantile(shares, BUCKETS_SECONDS, 0.95, narrowest=1e-9), timeout)
    return np.where(total > 0, waited, np.nan)


OBJECTIVES: dict[str, Objective] = {"slo_cost": slo_cost, "performance_cost": performance_cost}


def named(objective: str | Objective) -> Objective:
    """Return the objective itself, or the one of that name. Raises ValueError for a name that does not exist."""
    if not isinstance(objective, str):
        return objective
    if objective not in OBJECTIVES:
        raise ValueError(f"{objective!r}: there is no such objective; choose from {', '.join(OBJECTIVES)}")
    return OBJECTIVES[objective]


Reward = Callable[[Mapping[str, Any], Mapping[str, Any], float], float]
"""(spent, facts, changed replicas) -> reward of an interval that was measured; `interval_reward` lists the fields."""


def interval_reward(objective: str) -> Reward:
    """Return the reward for an interval that was measured on a cluster.

    spent: seconds, requests, in_time, missed, dropped, billed (2,), bounds_seconds and within (B,), the histogram.
    facts: cost_per_hour (2,), max_replicas (2,), mean_rate, slo_seconds, timeout, pattern. Raises ValueError.
    """
    function = named(objective)

    def reward(spent: Mapping[str, Any], facts: Mapping[str, Any], changed: float) -> float:
        return float(function(counters_of(spent), _norms_of(facts), np.array([changed]))[0])

    return reward


def counters_of(spent: Mapping[str, Any]) -> Counters:
    """Return the counters (one row) of an interval that was measured; `interval_reward` lists the fields."""
    finite = np.isfinite(spent["bounds_seconds"])
    edges = np.concatenate([[0.0], np.asarray(spent["bounds_seconds"])[finite]])
    counts = np.concatenate([[0.0], np.asarray(spent["within"])[finite]])
    total = spent["within"][-1] if len(spent["within"]) else 0.0
    histogram = np.concatenate([np.interp(BUCKETS_SECONDS, edges, counts), [total]])
    return Counters(
        time=np.array([max(spent["seconds"], 1e-9)]),
        requests=np.array([spent["requests"]]),
        in_time=np.array([spent["in_time"]]),
        missed=np.array([spent["missed"]]),
        billed=np.array([spent["billed"]]),
        dropped=np.array([spent["dropped"]]),
        histogram=histogram[None].astype(np.float32),
    )


def _norms_of(facts: Mapping[str, Any]) -> Norms:
    gpu, cpu = facts["cost_per_hour"]
    price_ratio = cpu / gpu
    # The whole service in prices of a GPU replica, as `norms` has it.
    full = facts["max_replicas"][0] + facts["max_replicas"][1] * price_ratio
    return Norms(
        price_ratio=np.array([price_ratio]),
        size=np.array([NOMINAL_SIZE / full]),
        mean_rate=np.array([max(facts["mean_rate"], LEAST_RATE)]),
        slo_seconds=np.array([facts["slo_seconds"]]),
        timeout=np.array([facts["timeout"]]),
        pattern=np.array([facts["pattern"]]),
    )
