"""What the operator gets to see of a simulated cluster: scraped counters, late, through rate windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_rl.decision.types import SIGNALS, Samples
from rlscaler_rl.simulation.cluster import BLOCK, BUCKETS_SECONDS, HISTOGRAMS, RING, Cluster, Facts, uniform

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Sensors(NamedTuple):
    """How each episode is measured; N rows. `delay + scrape + window` must stay below `RING` seconds."""

    scrape: Float  # (N,) whole seconds between scrapes
    phase: Float  # (N,) whole seconds into the scrape interval at which the episode begins
    delay: Float  # (N,) whole seconds until a scraped sample can be queried
    window: Float  # (N,) whole seconds of the rate window
    noise: Float  # (N,) relative standard deviation of the utilizations
    cpu_factor: Float  # (N,) CPU used by a busy replica over its CPU request
    memory_base: Float  # (N,) % of the memory requests used when idle
    memory_slope: Float  # (N,) % more when all replicas are busy
    present: NDArray[np.bool_]  # (N, 2)


class Readings(NamedTuple):
    """Output of `measure`; M rows, NaN where nothing was measured."""

    time: Float  # (M,)
    arrival_rate: Float  # (M,) requests/s
    utilization: Float  # (M, 2) busy fraction of the ready replicas
    noise: Float  # (M, 2) factor to apply to it
    p95_ms: Float  # (M,)
    age: Float  # (M,) seconds


def sense(facts: Facts, sensors: Sensors, cluster: Cluster, rows: Int, *, latency: bool = True) -> Samples:
    """One sensing tick of the given rows (M,). Without `latency` p95 is NaN with an age of 0: cheaper where
    nothing reads it.
    """
    m = len(rows)
    blank = Readings(*(np.full((m, 2) if name in ("utilization", "noise") else m, np.nan) for name in Readings._fields))
    measure(facts, sensors, cluster, rows, latency, blank)
    busy = blank.utilization
    gpu, cpu = np.clip(busy * blank.noise * 100, 0, None).T
    served = np.where(sensors.present[rows], np.nan_to_num(busy), 0.0)
    memory = sensors.memory_base[rows] + sensors.memory_slope[rows] * served.max(1)
    age = np.repeat(blank.age[:, None], len(SIGNALS), axis=1)
    age[:, SIGNALS.index("replicas")] = 0.0
    return Samples(
        time=blank.time,
        arrival_rate=blank.arrival_rate,
        cpu_utilization=np.minimum(cpu * sensors.cpu_factor[rows], 100 * sensors.cpu_factor[rows]),
        memory_utilization=memory,
        gpu_utilization=np.minimum(gpu, 100.0),
        p95_ms=blank.p95_ms,
        age_seconds=age,
        spec_replicas=cluster.pool["target"][rows].astype(np.int32),
        ready_replicas=cluster.pool["ready"][rows].astype(np.int32),
        time_in_episode=np.zeros(m),
        paused=np.zeros(m, dtype=np.bool_),
        paused_replicas=np.full((m, 2), -1, dtype=np.int32),
        paused_scale_down=np.zeros(m, dtype=np.bool_),
    )


@njit(cache=True, nogil=True)
def measure(facts: Facts, sensors: Sensors, cluster: Cluster, rows: Int, latency: bool, out: Readings) -> None:
    """Fill `out` from the counters as they were at the newest scrape that can be queried."""
    for m in range(len(rows)):
        n = rows[m]
        now = cluster.row[n].time
        visible = now - sensors.delay[n] + sensors.phase[n]
        end = int(np.floor(visible / sensors.scrape[n]) * sensors.scrape[n] - sensors.phase[n])
        begin = end - int(sensors.window[n])
        out.time[m] = now
        out.age[m] = now - end
        last, first = (end - 1) % RING, (begin - 1) % RING
        requests = cluster.ring_requests[n, last] - cluster.ring_requests[n, first]
        out.arrival_rate[m] = requests / (end - begin)
        for p in range(2):
            replica_seconds = cluster.ring_ready[n, p, last] - cluster.ring_ready[n, p, first]
            if replica_seconds > 0.0:
                busy = cluster.ring_busy[n, p, last] - cluster.ring_busy[n, p, first]
                out.utilization[m, p] = busy / replica_seconds
            draw = uniform(facts.row[n].key, 4 + p, now)
            out.noise[m, p] = 1.0 + sensors.noise[n] * (2.0 * draw - 1.0) * 1.7320508
        if latency:
            out.p95_ms[m] = 1000.0 * quantile(cluster, n, end, begin, 0.95)


@njit(cache=True, nogil=True)
def quantile(cluster: Cluster, n: int, end: int, begin: int, level: float) -> float:
    """Seconds; linear within a bucket as Prometheus' histogram_quantile; NaN when nothing was answered."""
    last_block = int(np.floor(end / BLOCK))
    first_block = min(int(np.floor(begin / BLOCK)), last_block - 1)
    last, first = (last_block - 1) % HISTOGRAMS, (first_block - 1) % HISTOGRAMS
    counts = cluster.ring_histogram[n]
    buckets = counts.shape[1] - 1
    total = counts[last, buckets] - counts[first, buckets]
    if total <= 0.0:
        return np.nan
    wanted = level * total
    below, bound = 0.0, 0.0
    for b in range(buckets):
        here = counts[last, b] - counts[first, b]
        upper = _BOUNDS[b]
        if here >= wanted:
            return bound + (upper - bound) * (wanted - below) / max(here - below, 1e-12)
        below, bound = here, upper
    return bound


_BOUNDS = BUCKETS_SECONDS
