"""Load, replicas and lateness in each second of the load: `timeline.csv`."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_dev.demo.records import (
    PLACEMENTS,
    REPLICA_COLUMNS,
    ROUTE_COLUMNS,
    UNKNOWN_PLACEMENT,
    Float,
    Records,
    Requests,
)
from rlscaler_dev.demo.settings import POOLS

SPEC, EXISTING, READY, STARTING = (REPLICA_COLUMNS.index(name) for name in ("spec", "existing", "ready", "starting"))
GPU_WEIGHT, CPU_WEIGHT = (ROUTE_COLUMNS.index(name) for name in ROUTE_COLUMNS)
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One entry a second of load; requests count in the second for which they were scheduled.

    Replicas, weights and placement are those in force at the second's end; NaN where nothing was recorded yet.
    Percentiles count a failure with the client's timeout; NaN in a second without requests.
    """

    t: Float  # (n,) seconds since the load began: 0, 1, 2, …
    offered_rps: Float  # (n,) requests/s of the pattern
    sent: Float  # (n,) requests
    ok: Float  # (n,) answered, in time or late
    failed: Float  # (n,) rejected, timed out or broken
    late: Float  # (n,) answered, but slower than the SLO
    p50_ms: Float  # (n,)
    p95_ms: Float  # (n,)
    p99_ms: Float  # (n,)
    gpu_spec: Float  # (n,) spec.replicas
    gpu_ready: Float  # (n,)
    gpu_starting: Float  # (n,) pods that exist and are neither ready nor terminating
    cpu_spec: Float  # (n,)
    cpu_ready: Float  # (n,)
    cpu_starting: Float  # (n,)
    gpu_weight: Float  # (n,) traffic weights of the HTTPRoute
    cpu_weight: Float  # (n,)
    placement: Float  # (n,) index in PLACEMENTS, -1 = no placement
    cost: Float  # (n,) so far, currency units
    capacity_ratio: Float  # (n,) requests/s of a replica over the declared number

    def __len__(self) -> int:
        return len(self.t)

    def write(self, path: Path) -> None:
        """`timeline.csv`: the columns of this class; placement by name, unknown cells empty."""
        names = [f.name for f in fields(self)]
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            for i in range(len(self)):
                writer.writerow([_cell(name, getattr(self, name)[i]) for name in names])


def build_timeline(records: Records) -> Timeline:
    """Assemble the timeline, as long as the pattern."""
    n = len(records.offered_rps)
    start = records.run.started_at
    edges = start + np.arange(n + 1, dtype=float)
    requests = records.requests.between(edges[0], edges[-1])
    second = np.minimum((requests.scheduled_at - start).astype(int), n - 1)
    late = requests.ok & (requests.latency_ms > records.run.slo_ms)
    percentiles = _percentiles(requests, second, n)
    gpu, cpu = (records.replicas[pool] for pool in POOLS)
    gpu_now, cpu_now, route = gpu.at(edges[1:]), cpu.at(edges[1:]), records.routes.at(edges[1:])
    price = [records.run.cost_per_hour.get(pool, np.nan) / 3600 for pool in POOLS]
    seconds = np.arange(n, dtype=float)
    changed = seconds >= records.run.capacity_error_after
    cost = price[0] * gpu.integral(edges)[:, EXISTING] + price[1] * cpu.integral(edges)[:, EXISTING]
    return Timeline(
        t=seconds,
        offered_rps=records.offered_rps,
        sent=_count(second, n),
        ok=_count(second[requests.ok], n),
        failed=_count(second[~requests.ok], n),
        late=_count(second[late], n),
        p50_ms=percentiles[0],
        p95_ms=percentiles[1],
        p99_ms=percentiles[2],
        gpu_spec=gpu_now[:, SPEC],
        gpu_ready=gpu_now[:, READY],
        gpu_starting=gpu_now[:, STARTING],
        cpu_spec=cpu_now[:, SPEC],
        cpu_ready=cpu_now[:, READY],
        cpu_starting=cpu_now[:, STARTING],
        gpu_weight=route[:, GPU_WEIGHT],
        cpu_weight=route[:, CPU_WEIGHT],
        placement=np.nan_to_num(records.decisions.placements.at(edges[1:])[:, 0], nan=UNKNOWN_PLACEMENT),
        cost=np.cumsum(cost),
        capacity_ratio=np.where(changed, 1 + records.run.capacity_error / 100, 1.0),
    )


def _count(second: NDArray[np.int64], n: int) -> Float:
    return np.bincount(second, minlength=n).astype(float)


def _percentiles(requests: Requests, second: NDArray[np.int64], n: int) -> Float:
    """(3, n): the PERCENTILES of the requests of each second."""
    latency = requests.latency_ms[np.argsort(second, kind="stable")]
    groups = np.split(latency, np.cumsum(_count(second, n)).astype(int)[:-1])
    empty = np.full(len(PERCENTILES), np.nan)
    return np.array([np.percentile(group, PERCENTILES) if len(group) else empty for group in groups]).T


def _cell(name: str, value: float) -> str:
    if name == "placement":
        return PLACEMENTS[int(value)] if value >= 0 else ""
    return "" if np.isnan(value) else f"{value:.6g}"
