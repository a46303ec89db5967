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


WEIGHTS = {"latency": 0.4, "throughput": 0.3, "efficiency": 0.2, "stability": 0.1}
"""Weights of the parts of the `weighted` objective."""

FEWEST_CHANGES = 0.1
"""Changes an interval below which a baseline counts as this, so that one that never changes does not divide by 0."""


def improvements(figures: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Improvements over the measured `baseline` of the same load: 0 is its equal, 1 the best thinkable, unclipped.

    Both hold latency (p95), throughput (goodput), efficiency (cost) and stability (number of changes).
    """
    return {
        "latency": 1 - figures["latency"] / baseline["latency"],
        "throughput": figures["throughput"] / baseline["throughput"] - 1,
        "efficiency": 1 - figures["efficiency"] / baseline["efficiency"],
        "stability": 1 - figures["stability"] / np.maximum(baseline["stability"], FEWEST_CHANGES),
    }


def interval_figures(spent: Counters, norms: Norms, changed: Float) -> dict[str, Float]:
    """Figures that `improvements` compares, (N,) each, free of the service's size: p95 over SLO, share of the episode's
    mean rate answered in time, cost in nominal sizes, changed replicas in nominal sizes. NaN where there are no
    requests."""
    cost = (spent.billed[:, 0] + norms.price_ratio * spent.billed[:, 1]) / spent.time * norms.size
    silent = norms.mean_rate <= LEAST_RATE
    return {
        "latency": p95_seconds(spent, norms.timeout) / norms.slo_seconds,
        "throughput": np.where(silent, np.nan, spent.in_time / (norms.mean_rate * spent.time)),
        "efficiency": cost,
        "stability": changed * norms.size,
    }


def p95_seconds(spent: Counters, timeout: Float) -> Float:
    """(N,) seconds, the 95th percentile of the latencies as clients see them; linear within a bucket.

    A dropped request counts as its client's `timeout` (N,) in seconds, and no request as longer than that. The result
    is NaN where nothing was answered or dropped.
    """
    total = spent.histogram[:, -1] + spent.dropped
    shares = spent.histogram[:, :-1] / np.where(total > 0, total, np.nan)[:, None]
    waited = np.minimum(quantile(shares, BUCKETS_SECONDS, 0.95, narrowest=1e-9), timeout)
    return np.where(total > 0, waited, np.nan)


class Weighted:
    """Weighted improvement over the baseline measured for the same kind of load; an `Objective`.

    Without requests neither latency nor throughput is better or worse. Unclipped: an interval at the timeout costs many
    times the gain of a good one, as the definition has it.
    """

    def __init__(self, baselines: Mapping[str, Mapping[str, float]], weights: Mapping[str, float] = WEIGHTS) -> None:
        """`baselines`: pattern -> figures as `interval_figures` has them; `all` serves patterns that have none."""
        self.baselines, self.weights = baselines, dict(weights)

    def __call__(self, spent: Counters, norms: Norms, changed: Float) -> Float:
        chosen = [self.baselines.get(name, self.baselines["all"]) for name in norms.pattern.tolist()]
        baseline = {name: np.array([values[name] for values in chosen]) for name in self.weights}
        gains = improvements(interval_figures(spent, norms, changed), baseline)
        return np.asarray(sum(weight * np.nan_to_num(gains[name]) for name, weight in self.weights.items()))


OBJECTIVES: dict[str, Objective] = {"slo_cost": slo_cost, "performance_cost": performance_cost}


def named(objective: str | Objective) -> Objective:
    """The objective itself, or the one of that name; `Weighted` is made from measured baselines and has none."""
    return OBJECTIVES[objective] if isinstance(objective, str) else objective
