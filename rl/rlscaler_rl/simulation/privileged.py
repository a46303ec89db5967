"""What the critic may see in training and the actor never does: the scenario's hidden facts and its near future.

An asymmetric critic (Pinto et al. 2018) explains away most of the return's variance that no policy can do anything
about: whether a spike comes, how long this GPU's cold start is, what lateness costs here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.types import Float32
from rlscaler_rl.simulation.cluster import Cluster
from rlscaler_rl.simulation.scenario import Scenarios

Float = NDArray[np.float64]

WINDOWS_SECONDS = ((0, 15), (15, 30), (30, 60), (60, 120))
"""From now, over which the coming mean rate is shown."""

WIDTH = len(WINDOWS_SECONDS) + 22


class Privileged:
    """The extra columns of N running episodes."""

    def __init__(self, scenarios: Scenarios) -> None:
        n = len(scenarios)
        self.volume = np.zeros((n, scenarios.rate.shape[1] + 1))
        self.fixed = np.zeros((n, 12))
        self.capacity = np.ones(n)
        self.last = np.zeros(n, np.int64)
        self.restart(np.arange(n), scenarios)

    def restart(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        """New episodes in the given rows (M,)."""
        s = scenarios
        capacity = (s.max_replicas * s.rps).sum(1)
        self.capacity[rows] = capacity
        self.last[rows] = s.duration
        self.volume[rows, 1:] = np.cumsum(s.rate, axis=1)
        columns = [
            s.slo_ms / 1000,
            s.price_ratio * 4,
            s.rps[:, 0] / s.rps[:, 1] / 5,
            (s.cold_start_low + s.cold_start_high)[:, 0] / 90,
            (s.cold_start_low + s.cold_start_high)[:, 1] / 16,
            s.interval_seconds / 30,
            s.mean_rate() / capacity,
            1000 / (s.slo_ms * s.rps[:, 1]),
            (s.believed_rps / s.rps).mean(1) - 1,
            s.max_replicas[:, 0] / 10,
            s.max_replicas[:, 1] / 10,
            s.routing - 1,
        ]
        self.fixed[rows] = np.stack(columns, axis=1)

    def read(self, cluster: Cluster, scenarios: Scenarios, rows: NDArray[np.intp]) -> Float32:
        """(M, WIDTH) of the given rows. After the episode's end the rate counts as what it was at the end."""
        row, pool = cluster.row[rows], cluster.pool[rows]
        capacity, last, index = self.capacity[rows], self.last[rows], np.arange(len(rows))
        volume = self.volume[rows] if len(rows) != len(self.last) else self.volume
        final = volume[index, last] - volume[index, last - 1]
        edges = row["time"][:, None] + np.array([0, *(end for _, end in WINDOWS_SECONDS)])
        inside = np.minimum(edges, last[:, None])
        passed = np.take_along_axis(volume, inside, axis=1) + (edges - inside) * final[:, None]
        coming = np.diff(passed, axis=1) / np.diff(edges, axis=1) / capacity[:, None]
        size = np.maximum(scenarios.max_replicas[rows], 1)
        rps = scenarios.rps[rows]
        ready, waiting, queue = pool["ready"] / size, pool["waiting"] / size, pool["queue"] / (size * rps)
        share = row["load"][:, None] * pool["weight"] / np.maximum(pool["ready"] * rps, 1e-6)
        parts = [
            coming,
            self.fixed[rows],
            ready,
            waiting,
            np.minimum(queue, 5),
            np.minimum(share, 3) / 2,
            pool["weight"],
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)
