"""State of two pools under load, N episodes at a time, that both levels of the simulator read and write.

Causality runs one way: the load does not depend on the service (open loop); queues, latencies and utilizations follow
from it and from the ready pods. `simulation.fluid` moves this state second by second with formulas,
`simulation.requests` request by request; sensing, ledger and rewards cannot tell them apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.tables import x_position

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

MAX_PODS = 200
"""Not-ready pods a pool can hold; above the largest `maxReplicas` the simulator is asked for."""

RING = 256
"""Seconds of counters that are kept, a power of 2: the longest scrape lag plus the longest rate window fit."""

BLOCK = 5
"""Seconds a latency block lasts: histograms are kept block by block."""

BUCKETS_SECONDS = np.array([0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
"""Upper bounds of the request-duration histogram."""

HISTOGRAMS = RING // BLOCK + 1
"""Latency blocks that are kept."""

ROUTERS = ("least_loaded", "random", "round_robin", "power_of_two", "central")
"""Rules by which a pool's router chooses the pod for a request, as in rlscaler_loadgen.service.router.

`least_loaded`: fewest requests waiting or in service (the emulated service's default). `random`: as kube-proxy does.
`round_robin`: in turn. `power_of_two`: the less loaded of two at random. `central`: one queue for the whole pool, which
no router reaches and against which every router is measured."""

LEAST_LOADED, RANDOM, ROUND_ROBIN, POWER_OF_TWO, CENTRAL = range(len(ROUTERS))


ROW_FACTS = np.dtype(
    [
        ("slo", "f8"),  # seconds
        ("cv", "i8"),  # index into tables.CVS
        ("memory_seconds", "f8"),  # time constant of the averages of load and of utilization rho
        ("queue_limit", "f8"),  # requests a ready pod can hold waiting
        ("timeout", "f8"),  # seconds a client waits
        ("router", "i8"),  # index into ROUTERS
        ("routing", "f8"),  # further factor on the probability of waiting at the fluid level (randomisation)
        ("key", "u8"),  # seed of the cold starts
    ]
)

POOL_FACTS = np.dtype(
    [
        ("rps", "f8"),  # requests/s of one replica at present
        ("cold_start_low", "f8"),  # seconds
        ("cold_start_high", "f8"),
        ("schedulable", "i8"),  # pods the nodes have room for
        ("start_seconds", "f8"),  # seconds of its price that a start costs beside the time that the pod is there
    ]
)

ROW = np.dtype(
    [
        ("time", "i8"),  # seconds since the episode began
        ("load", "f8"),  # moving average of the arrivals, requests/s
        ("requests", "f8"),  # received
        ("in_time", "f8"),  # answered within the SLO
        ("late", "f8"),  # answered after the SLO
        ("dropped", "f8"),  # refused or given up
    ]
)

POOL = np.dtype(
    [
        ("weight", "f8"),  # fraction of the arrivals this pool gets
        ("rho", "f8"),  # moving average of arrivals over capacity
        ("target", "i8"),  # replicas asked for
        ("ready", "i8"),
        ("waiting", "i8"),  # pods that exist and are not ready
        ("created", "i8"),  # pods created so far
        ("queue", "f8"),  # requests that are neither answered nor dropped yet
        ("overdue", "f8"),  # those of them that will be late or dropped
        ("tail", "f8"),  # share of the requests that are late in the steady state of the present load
        ("work", "f8"),  # requests worked off, whether or not their clients waited for it
        ("work_before", "f8"),  # `work` when the latency block began
        ("billed", "f8"),  # replica-seconds of the target
        ("start_billed", "f8"),  # replica-seconds that the starts cost
        ("ready_seconds", "f8"),
        ("pending_seconds", "f8"),
        ("busy_seconds", "f8"),  # replica-seconds that ready pods worked
    ]
)


class ClusterFacts(NamedTuple):
    """Constants of an episode; N rows."""

    row: NDArray[Any]  # (N,) ROW_FACTS
    pool: NDArray[Any]  # (N, 2) POOL_FACTS
    arrivals: Float32  # (N, T) requests in each second
    positions: Float32  # (N, 2, BUCKETS + 1) rows of LatencyTables.delayed for the bucket bounds and, last, the SLO


class Sensors(NamedTuple):
    """Measurement of each episode; N rows. `delay + scrape + window` must stay below `RING` seconds."""

    scrape: Float  # (N,) whole seconds between scrapes
    phase: Float  # (N,) whole seconds into the scrape interval at which the episode begins
    delay: Float  # (N,) whole seconds until a scraped sample can be queried
    window: Float  # (N,) whole seconds of the rate window of utilization and latency
    arrival_window: Float  # (N,) whole seconds of that of arrivals
    noise: Float  # (N,) relative standard deviation of the utilizations
    cpu_factor: Float  # (N,) CPU used by a busy replica over its CPU request
    memory_base: Float  # (N,) % of the memory requests used when idle
    memory_slope: Float  # (N,) % more when all replicas are busy


class ClusterState(NamedTuple):
    """Variables of an episode; N rows. Counters start at 0 with the episode and never fall."""

    row: NDArray[Any]  # (N,) ROW
    pool: NDArray[Any]  # (N, 2) POOL
    left: Float32  # (N, 2, MAX_PODS) cold start left of the waiting pods, oldest first, seconds
    histogram: Float32  # (N, BUCKETS + 1) requests answered within each bound (cumulative), last column all; at the
    # fluid level only where `count_latencies` is called
    ring_requests: Float  # (N, RING) `requests` at the end of second i, at index i % RING
    ring_busy: Float  # (N, 2, RING) `busy_seconds`
    ring_ready: Float  # (N, 2, RING) `ready_seconds`
    ring_histogram: Float32  # (N, HISTOGRAMS, BUCKETS + 1) `histogram` at the end of block i, at i % HISTOGRAMS; at the
    # fluid level of the past before the episode only
    blocks: (
        Float32  # (N, HISTOGRAMS or 0, 2, 4) fluid level: what the latencies of block i follow from, see fluid.within
    )


def bucket_positions(rps: Float, slo: Float) -> Float32:
    """(N, 2, BUCKETS + 1) for ClusterFacts.positions; rps (N, 2), slo (N,) seconds."""
    bounds = np.concatenate([np.broadcast_to(BUCKETS_SECONDS, (len(slo), len(BUCKETS_SECONDS))), slo[:, None]], axis=1)
    return x_position(bounds[:, None, :] * rps[:, :, None])


def records(dtype: np.dtype[Any], shape: tuple[int, ...], **columns: Any) -> NDArray[Any]:
    """Structured array from its columns; missing columns are 0."""
    table = np.zeros(shape, dtype)
    for name, values in columns.items():
        table[name] = values
    return table


def empty(n: int, *, formulas: bool) -> ClusterState:
    """N rows to be filled by `begin`; with `formulas` the parameters of latencies are stored instead of histograms."""
    bounds = len(BUCKETS_SECONDS) + 1
    return ClusterState(
        row=np.zeros(n, ROW),
        pool=np.zeros((n, 2), POOL),
        left=np.zeros((n, 2, MAX_PODS), np.float32),
        histogram=np.zeros((n, bounds), np.float32),
        ring_requests=np.zeros((n, RING)),
        ring_busy=np.zeros((n, 2, RING)),
        ring_ready=np.zeros((n, 2, RING)),
        ring_histogram=np.zeros((n, HISTOGRAMS, bounds), np.float32),
        blocks=np.zeros((n, HISTOGRAMS if formulas else 0, 2, 4), np.float32),
    )


def begin(cluster: ClusterState, rows: Int, ready: Int, rate: Float, rps: Float, past: Float32 | None = None) -> None:
    """Start episodes in the given rows: `ready` (M, 2) pods, after a past of `rate` (M,) requests/s.

    `past` (M, P) are the requests of each second before, the last one last; where one is NaN, or all are left out, they
    came at that constant `rate`. Where P < RING, as many came in each second before as in the first of them. They were
    served in proportion to capacity, up to it; the counters of the past are negative, so that the episode's own begin
    at 0.
    """
    requests = np.repeat(rate[:, None], RING, axis=1)
    known = np.zeros(len(rate), np.bool_)
    if past is not None:
        known[:] = ~np.isnan(past).any(axis=1)
        recent = past[:, -RING:]
        requests[known] = np.pad(recent[known], ((0, 0), (RING - recent.shape[1], 0)), mode="edge")
        rate = np.where(known, requests[:, -RECENT_SECONDS:].mean(axis=1), rate)
    capacity = np.maximum((ready * rps).sum(1), 1e-9)
    weight = ready * rps / capacity[:, None]
    cluster.row[rows] = records(ROW, rate.shape, load=rate)
    rho = np.minimum(rate[:, None] / capacity[:, None], 1.0)
    cluster.pool[rows] = records(POOL, ready.shape, ready=ready, target=ready, created=ready, weight=weight, rho=rho)
    cluster.histogram[rows] = 0
    seconds = np.arange(RING) - RING + 1.0  # second i is kept at index i % RING; second -1 ended at 0
    served = np.minimum(rate, capacity)
    counted = np.where(known[:, None], _counted_back(requests), rate[:, None] * seconds)
    cluster.ring_requests[rows] = counted
    cluster.ring_ready[rows] = ready[:, :, None] * seconds
    cluster.ring_busy[rows] = (ready * (served / capacity)[:, None])[:, :, None] * seconds
    blocks = (np.arange(HISTOGRAMS) - HISTOGRAMS + 1.0) * BLOCK
    answered = served[:, None, None] * blocks[None, :, None]
    shape = np.searchsorted(BUCKETS_SECONDS, 2.0 / rps.max(1))[:, None] <= np.arange(len(BUCKETS_SECONDS) + 1)
    cluster.ring_histogram[rows] = answered * shape[:, None, :]


RECENT_SECONDS = 30
"""Seconds before an episode whose mean is the load that its replicas were busy with."""


def _counted_back(requests: Float) -> Float:
    """(M, RING) a counter that is 0 at the end of the last second, from the `requests` (M, RING) of every second."""
    after = np.zeros_like(requests)
    after[:, :-1] = requests[:, :0:-1].cumsum(axis=1)[:, ::-1]
    return -after
