"""Measurement of a simulated cluster as the operator sees it: scraped counters, late, through rate windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_core.decision.forecast import MEMORY_LIMIT_SECONDS
from rlscaler_core.decision.types import SIGNALS, Rows, Samples
from rlscaler_rl.simulation.cluster import BLOCK, BUCKETS_SECONDS, HISTOGRAMS, RING, ClusterFacts, ClusterState, Sensors
from rlscaler_rl.simulation.compiled import inlined
from rlscaler_rl.simulation.fluid import within
from rlscaler_rl.simulation.pods import uniform
from rlscaler_rl.simulation.tables import LatencyTables, tables

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Readings(NamedTuple):
    """The measured columns of `Samples`, to be filled by `measure`; M rows."""

    time: Float  # (M,)
    arrival_rate: Float  # (M,)
    cpu_utilization: Float  # (M,)
    memory_utilization: Float  # (M,)
    gpu_utilization: Float  # (M,)
    p95_ms: Float  # (M,)
    age_seconds: Float  # (M, len(SIGNALS))
    spec_replicas: NDArray[np.int32]  # (M, 2)
    ready_replicas: NDArray[np.int32]  # (M, 2)


def sense(facts: ClusterFacts, sensors: Sensors, cluster: ClusterState, rows: Int, *, latency: bool = True) -> Samples:
    """Measure the given rows (M,) at a sensing tick.

    Without `latency` p95 is NaN with an age of 0, which is cheaper where nothing reads it.
    """
    m = len(rows)
    readings = Readings(
        time=np.empty(m),
        arrival_rate=np.empty(m),
        cpu_utilization=np.empty(m),
        memory_utilization=np.empty(m),
        gpu_utilization=np.empty(m),
        p95_ms=np.empty(m),
        age_seconds=np.empty((m, len(SIGNALS))),
        spec_replicas=np.empty((m, 2), np.int32),
        ready_replicas=np.empty((m, 2), np.int32),
    )
    measure(facts, sensors, cluster, tables(), rows, latency, readings)
    return Samples(
        **readings._asdict(),
        pending_seconds=np.zeros((m, 2)),
        stuck_replicas=np.zeros((m, 2), dtype=np.int32),
        paused=np.zeros(m, dtype=np.bool_),
        paused_replicas=np.full((m, 2), -1, dtype=np.int32),
        paused_scale_down=np.zeros(m, dtype=np.bool_),
        granted_replicas=np.full((m, 2), -1, dtype=np.int32),
        counted_requests=np.full(m, np.nan),
        counted_late=np.full(m, np.nan),
        lag_messages=np.full(m, np.nan),
        partitions=np.zeros(m, dtype=np.int32),
        settling=np.zeros(m, dtype=np.bool_),
        processed=np.full(m, np.nan),
    )


SENSE_SECONDS = 5
"""Seconds between two sensing ticks."""

REMEMBERED = int(MEMORY_LIMIT_SECONDS) // SENSE_SECONDS
"""Samples of the past that a forecast looks at."""


@dataclass(slots=True)
class RateMemory(Rows):
    """Arrival rates that were measured before an episode, oldest first; NaN = none."""

    time: Float  # (N, REMEMBERED) seconds since the episode's begin, negative
    value: Float  # (N, REMEMBERED) requests/s


def remembered(sensors: Sensors, past: NDArray[np.float32]) -> RateMemory:
    """Rates that the sensing ticks before the episodes measured of `past` (N, P), the requests of each second before
    them."""
    seconds = past.shape[1]
    total = np.concatenate([np.zeros((len(past), 1)), np.cumsum(past, axis=1, dtype=np.float64)], axis=1)
    window = sensors.arrival_window.astype(np.int64)
    time, value = np.full((len(past), REMEMBERED), np.nan), np.full((len(past), REMEMBERED), np.nan)
    newest = np.full(len(past), np.inf)
    column = np.full(len(past), REMEMBERED - 1)
    for tick in range(1, REMEMBERED + 1):
        visible = -SENSE_SECONDS * tick - sensors.delay + sensors.phase
        end = (np.floor(visible / sensors.scrape) * sensors.scrape - sensors.phase).astype(np.int64)
        rows = np.flatnonzero((end < newest) & (end - window >= -seconds))
        last = seconds + end[rows]
        counted = total[rows, last] - total[rows, last - window[rows]]
        time[rows, column[rows]], value[rows, column[rows]] = end[rows], counted / window[rows]
        newest[rows] = end[rows]
        column[rows] -= 1
    unknown = np.isnan(value)
    time[unknown] = np.nan
    return RateMemory(time, value)


@njit(cache=True, nogil=True)
def measure(
    facts: ClusterFacts,
    sensors: Sensors,
    cluster: ClusterState,
    tables: LatencyTables,
    rows: Int,
    latency: bool,
    out: Readings,
) -> None:
    """Fill `out` from the counters as they were at the newest scrape that can be queried; NaN where nothing was
    measured.
    """
    busy = np.empty(2)
    for m in range(len(rows)):
        n = rows[m]
        now = cluster.row[n].time
        visible = now - sensors.delay[n] + sensors.phase[n]
        end = int(np.floor(visible / sensors.scrape[n]) * sensors.scrape[n] - sensors.phase[n])
        begin, counted = end - int(sensors.window[n]), int(sensors.arrival_window[n])
        last, first = (end - 1) % RING, (begin - 1) % RING
        requests = cluster.ring_requests[n, last] - cluster.ring_requests[n, (end - counted - 1) % RING]
        busiest = 0.0
        for p in range(2):
            replica_seconds = cluster.ring_ready[n, p, last] - cluster.ring_ready[n, p, first]
            busy[p] = np.nan
            if replica_seconds > 0.0:
                busy[p] = (cluster.ring_busy[n, p, last] - cluster.ring_busy[n, p, first]) / replica_seconds
                busiest = max(busiest, busy[p])
                draw = uniform(facts.row[n].key, 4 + p, now)
                busy[p] = min(busy[p] * (1.0 + sensors.noise[n] * (2.0 * draw - 1.0) * _UNIT_DEVIATION), 1.0)
            out.spec_replicas[m, p] = cluster.pool[n, p].target
            out.ready_replicas[m, p] = cluster.pool[n, p].ready
        out.time[m] = now
        out.arrival_rate[m] = requests / counted
        out.gpu_utilization[m] = 100.0 * busy[0]
        out.cpu_utilization[m] = 100.0 * sensors.cpu_factor[n] * busy[1]
        out.memory_utilization[m] = sensors.memory_base[n] + sensors.memory_slope[n] * busiest
        out.p95_ms[m] = 1000.0 * quantile(facts, cluster, tables, n, end, begin, 0.95) if latency else np.nan
        out.age_seconds[m, :] = now - end
        out.age_seconds[m, _REPLICAS] = 0.0


@inlined
def quantile(
    facts: ClusterFacts, cluster: ClusterState, tables: LatencyTables, n: int, end: int, begin: int, level: float
) -> float:
    """The quantile `level` of the latencies in seconds, of the answers of row `n` between `begin` and `end`.

    It is linear within a bucket, as Prometheus' histogram_quantile is, and NaN when nothing was answered.
    """
    last = int(np.floor(end / BLOCK))
    first = min(int(np.floor(begin / BLOCK)), last - 1)
    buckets = cluster.ring_histogram.shape[2] - 1
    total = _answered(facts, cluster, tables, n, first, last, buckets)
    if total <= 0.0:
        return np.nan
    wanted = level * total
    low, high, below, here = 0, buckets, 0.0, total
    while low < high:  # the first bucket that holds enough, by bisection
        middle = (low + high) // 2
        counted = _answered(facts, cluster, tables, n, first, last, middle)
        if counted >= wanted:
            high, here = middle, counted
        else:
            low, below = middle + 1, counted
    bound = _BOUNDS[low - 1] if low > 0 else 0.0
    if low == buckets:
        return bound
    return bound + (_BOUNDS[low] - bound) * (wanted - below) / max(here - below, 1e-12)


@inlined
def _answered(
    facts: ClusterFacts, cluster: ClusterState, tables: LatencyTables, n: int, first: int, last: int, b: int
) -> float:
    """Requests of the blocks [first, last) that were answered within bucket `b`."""
    counted = last if cluster.blocks.shape[1] == 0 else min(last, 0)
    total = 0.0
    if first < counted:
        counts = cluster.ring_histogram[n]
        total += counts[(counted - 1) % HISTOGRAMS, b] - counts[(first - 1) % HISTOGRAMS, b]
    for block in range(max(first, counted), last):
        total += within(facts, cluster, tables, n, block % HISTOGRAMS, b)
    return total


_BOUNDS = BUCKETS_SECONDS
_REPLICAS = SIGNALS.index("replicas")
_UNIT_DEVIATION = 3**0.5
"""Half the width of a uniform distribution of standard deviation 1."""
