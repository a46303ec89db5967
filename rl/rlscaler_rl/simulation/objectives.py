"""What an action interval was worth: the rewards that training can maximise, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.types import Rows
from rlscaler_rl.simulation.cluster import Cluster
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios

Float = NDArray[np.float64]

REWARD_SCALE = 0.02
CHURN_WEIGHT = 0.05
"""GPU replica equivalents that one changed replica in an interval costs: enough to settle ties."""

NOMINAL_SIZE = float(NOMINAL["max_replicas"][0] + NOMINAL["max_replicas"][1] * NOMINAL["price_ratio"])


@dataclass(slots=True)
class Meters(Rows):
    """Counters at one moment, (N,) or (N, 2)."""

    time: Float
    requests: Float
    in_time: Float
    missed: Float  # late or dropped
    billed: Float  # (N, 2) replica-seconds

    def since(self, before: Meters) -> Meters:
        return Meters(
            self.time - before.time,
            self.requests - before.requests,
            self.in_time - before.in_time,
            self.missed - before.missed,
            self.billed - before.billed,
        )


@dataclass(slots=True)
class Norms(Rows):
    """What makes rewards of services of different size and traffic comparable."""

    price_ratio: Float  # (N,) CPU over GPU
    size: Float  # (N,) NOMINAL_SIZE over the cost of all replicas that may exist
    mean_rate: Float  # (N,) requests/s over the episode


Objective = Callable[[Meters, Norms, Float], Float]


def read(cluster: Cluster) -> Meters:
    """The meters as they stand, copied."""
    row = cluster.row
    return Meters(
        row["time"].astype(np.float64),
        row["requests"].copy(),
        row["in_time"].copy(),
        row["late"] + row["dropped"],
        cluster.pool["billed"].copy(),
    )


def norms(scenarios: Scenarios) -> Norms:
    full = scenarios.max_replicas[:, 0] + scenarios.max_replicas[:, 1] * scenarios.price_ratio
    return Norms(scenarios.price_ratio, NOMINAL_SIZE / full, np.maximum(scenarios.mean_rate(), 1e-3))


def slo_cost(spent: Meters, norms: Norms, changed: Float) -> Float:
    """(N,) minus the interval's share of J = cost + 0.5 * late percent, and a small price on changes.

    Summed over an episode of equal intervals this is J's negative, up to scale: lateness counts by requests,
    so an interval weighs as much as its traffic. `changed` (N,) is the number of replicas the action moved.
    """
    cost = (spent.billed[:, 0] + norms.price_ratio * spent.billed[:, 1]) / spent.time * norms.size
    late_percent = 100 * spent.missed / (norms.mean_rate * spent.time)
    return -REWARD_SCALE * (cost + LATE_WEIGHT * late_percent + CHURN_WEIGHT * changed * norms.size)


def performance_cost(spent: Meters, norms: Norms, changed: Float) -> Float:
    """(N,) requests answered within the SLO over the cost of answering them, relative to the nominal service."""
    cost = (spent.billed[:, 0] + norms.price_ratio * spent.billed[:, 1]) / spent.time * norms.size
    goodput = spent.in_time / (norms.mean_rate * spent.time)
    return goodput / np.maximum(cost, 1e-6) - REWARD_SCALE * CHURN_WEIGHT * changed * norms.size


OBJECTIVES: dict[str, Objective] = {"slo_cost": slo_cost, "performance_cost": performance_cost}
