"""Static replicas of one pool alone at exactly the policy's mean cost: what its money buys without scaling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.types import CPU, GPU
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.simulation.cluster import MAX_PODS
from rlscaler_rl.simulation.scenario import Scenarios

GPU_ONLY, CPU_ONLY = "static_gpu_only", "static_cpu_only"
POOLS = {GPU_ONLY: GPU, CPU_ONLY: CPU}
LABELS = {GPU_ONLY: "Static GPU only, same cost", CPU_ONLY: "Static CPU only, same cost"}
ROLE = "equal_cost"

controller = Unscaled
"""Who plays the scenarios below: the replicas that they begin with stay."""


def scenarios_at(scenarios: Scenarios, pool: int, cost: float) -> Scenarios:
    """The same arrivals and service times with `pool` alone, ready from the first second at a mean cost of `cost`.

    `cost` is in GPU replica equivalents. Replicas are whole, so some episodes have one more than others, spread evenly
    over the rows; limits on replicas and nodes are lifted as far as the cost needs.
    """
    price = scenarios.price_ratio if pool == CPU else np.ones(len(scenarios))
    replicas = np.clip(_spread(cost / price), 1, MAX_PODS)
    chosen = np.zeros((len(scenarios), 2), np.int64)
    chosen[:, pool] = replicas
    return replace(
        scenarios.copy(),
        present=chosen > 0,
        initial=chosen,
        min_replicas=chosen,
        max_replicas=chosen,
        schedulable=np.maximum(scenarios.schedulable, chosen),
    )


def _spread(wanted: np.ndarray) -> np.ndarray:
    """(N,) whole numbers whose running sum follows that of `wanted` (N,)."""
    return np.diff(np.floor(np.cumsum(wanted) + 0.5), prepend=0.0).astype(np.int64)
