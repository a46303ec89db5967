"""Inputs that the critic may see in training and the actor never does: the scenario's hidden facts and its near future.

An asymmetric critic (Pinto et al. 2018) explains away most of the return's variance that no policy can do anything
about: whether a spike comes, how long this GPU's cold start is, the price of lateness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float32, Rows
from rlscaler_rl.simulation.cluster import ClusterState
from rlscaler_rl.simulation.scenario import Scenarios

Float = NDArray[np.float64]
Int = NDArray[np.int64]

WINDOWS_SECONDS = ((0, 15), (15, 30), (30, 60), (60, 120))
"""Windows of the near future, in seconds from now, whose mean rate is shown."""

WIDTH = len(WINDOWS_SECONDS) + 22


@dataclass(slots=True)
class Hidden(Rows):
    """Constants of N episodes that are fixed before they begin."""

    volume: Float  # (N, T + 1) requests until each second
    fixed: Float32  # (N, 12)
    capacity: Float  # (N,) requests/s of all replicas that may exist
    last: Int  # (N,) seconds


def hidden(scenarios: Scenarios) -> Hidden:
    """The hidden facts of N episodes."""
    s = scenarios
    capacity = (s.max_replicas * s.rps).sum(1)
    volume = np.zeros((len(s), s.rate.shape[1] + 1))
    np.cumsum(s.rate, axis=1, out=volume[:, 1:])
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
    return Hidden(volume, np.stack(columns, axis=1).astype(np.float32), capacity, s.duration.copy())


def reveal(hidden: Hidden, cluster: ClusterState, scenarios: Scenarios, rows: Int) -> Float32:
    """(M, WIDTH) of the given rows (M,) of running episodes."""
    shown = np.empty((len(rows), WIDTH), np.float32)
    shown[:, len(WINDOWS_SECONDS) : len(WINDOWS_SECONDS) + 12] = hidden.fixed[rows]
    facts = hidden.volume, hidden.capacity, hidden.last, scenarios.max_replicas, scenarios.rps
    _reveal(*facts, cluster.row, cluster.pool, rows, shown)
    return shown


@njit(cache=True, nogil=True)
def _reveal(
    volume: Float,
    capacity: Float,
    last: Int,
    max_replicas: Int,
    rps: Float,
    row_states: NDArray[Any],
    pool_states: NDArray[Any],
    rows: Int,
    out: Float32,
) -> None:
    """Fill the columns that change; after the episode's end the rate counts as that at the end."""
    windows = len(_ENDS)
    for m in range(len(rows)):
        n = rows[m]
        row, end = row_states[n], last[n]
        final = volume[n, end] - volume[n, end - 1]
        before = row.time
        passed = volume[n, min(before, end)] + (before - min(before, end)) * final
        for w in range(windows):
            after = row.time + _ENDS[w]
            until = volume[n, min(after, end)] + (after - min(after, end)) * final
            out[m, w] = (until - passed) / (after - before) / capacity[n]
            before, passed = after, until
        for p in range(2):
            pool, size = pool_states[n, p], max(max_replicas[n, p], 1)
            column = windows + 12 + p
            out[m, column] = pool.ready / size
            out[m, column + 2] = pool.waiting / size
            out[m, column + 4] = min(pool.queue / (size * rps[n, p]), 5.0)
            out[m, column + 6] = min(row.load * pool.weight / max(pool.ready * rps[n, p], 1e-6), 3.0) / 2
            out[m, column + 8] = pool.weight


_ENDS = np.array([end for _, end in WINDOWS_SECONDS])
