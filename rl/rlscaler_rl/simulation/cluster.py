"""The fluid model of two pools under load, N episodes at a time, in steps of one second.

Causality runs one way: the load arrives whatever the service does (open loop); queues, latencies and
utilizations follow from it and from the pods that are ready. Arrivals are split by the traffic weights, wait
in their pool's queue and are served at `ready * requests_per_second`. What exceeds the queue limit, would
wait longer than the clients do, or finds no ready pod is dropped. Pods become ready a drawn cold start after
they were scheduled; pods beyond the nodes' capacity stay pending. A smaller target removes the newest pods
that are not ready first; then ready pods drain: they get no more requests and finish what they hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_rl.simulation.tables import CVS, SERVERS, SERVICE_SCALE, Tables, Z_SCALE, x_position

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

MAX_PODS = 64
"""Not-ready pods a pool can hold; above the largest `maxReplicas` the simulator is asked for."""

RING = 128
"""Seconds of counters that are kept: the longest scrape lag plus the longest rate window fit."""

BLOCK = 5
"""Seconds a latency block lasts: histograms are kept block by block."""

BUCKETS_SECONDS = np.array([0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
"""Upper bounds of the request-duration histogram."""

HISTOGRAMS = RING // BLOCK + 1


class Facts(NamedTuple):
    """What stays constant during an episode; N rows."""

    arrivals: Float32  # (N, T) requests in each second
    rps: Float  # (N, 2) requests/s of one replica
    slo: Float  # (N,) seconds
    cv: Int  # (N,) index into tables.CVS
    memory_seconds: Float  # (N,) time constant of the load average that utilization rho is taken from
    queue_limit: Float  # (N,) requests a ready pod can hold waiting
    timeout: Float  # (N,) seconds a client waits
    cold_start_low: Float  # (N, 2) seconds
    cold_start_high: Float  # (N, 2)
    schedulable: Int  # (N, 2) pods the nodes have room for
    key: NDArray[np.uint64]  # (N,) seed of the cold starts
    positions: Float32  # (N, 2, BUCKETS + 1) rows of Tables.delayed for the bucket bounds and, last, the SLO
    routing: Float  # (N,) factor on the probability of waiting: how far routing is from one central queue


class Cluster(NamedTuple):
    """What changes; N rows. Counters start at 0 when the episode does and never fall."""

    time: Int  # (N,) seconds since the episode began
    weight: Float  # (N, 2) fraction of the arrivals each pool gets; sums to 1
    ready: Int  # (N, 2)
    waiting: Int  # (N, 2) pods that exist and are not ready
    left: Float32  # (N, 2, MAX_PODS) cold start left of those, oldest first, seconds
    created: Int  # (N, 2) pods created so far
    queue: Float  # (N, 2) requests waiting
    draining: Int  # (N, 2) pods that finish what they hold
    drain_queue: Float  # (N, 2) requests those hold
    load: Float  # (N,) moving average of the arrivals, requests/s
    target: Int  # (N, 2) replicas asked for
    requests: Float  # (N,)
    in_time: Float  # (N,) answered within the SLO
    late: Float  # (N,) answered after the SLO
    dropped: Float  # (N,) refused or given up
    work: Float  # (N, 2) requests served by billed pods
    billed: Float  # (N, 2) replica-seconds of the target
    ready_seconds: Float  # (N, 2)
    pending_seconds: Float  # (N, 2)
    busy_seconds: Float  # (N, 2) replica-seconds that ready pods worked
    histogram: Float32  # (N, BUCKETS + 1) requests answered within each bound (cumulative), last column all
    ring_requests: Float  # (N, RING) `requests` at the end of second i, at index i % RING
    ring_busy: Float  # (N, 2, RING)
    ring_ready: Float  # (N, 2, RING)
    ring_histogram: Float32  # (N, HISTOGRAMS, BUCKETS + 1) `histogram` at the end of block i, at i % HISTOGRAMS


def bucket_positions(rps: Float, slo: Float) -> Float32:
    """(N, 2, BUCKETS + 1) for Facts.positions; rps (N, 2), slo (N,) seconds."""
    bounds = np.concatenate([np.broadcast_to(BUCKETS_SECONDS, (len(slo), len(BUCKETS_SECONDS))), slo[:, None]], axis=1)
    return x_position(bounds[:, None, :] * rps[:, :, None])


def empty(n: int) -> Cluster:
    """N rows to be filled by `begin`."""
    bounds = len(BUCKETS_SECONDS) + 1
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        "time": ((n,), np.int64),
        "ready": ((n, 2), np.int64),
        "waiting": ((n, 2), np.int64),
        "left": ((n, 2, MAX_PODS), np.float32),
        "created": ((n, 2), np.int64),
        "draining": ((n, 2), np.int64),
        "target": ((n, 2), np.int64),
        "histogram": ((n, bounds), np.float32),
        "ring_requests": ((n, RING), np.float64),
        "ring_busy": ((n, 2, RING), np.float64),
        "ring_ready": ((n, 2, RING), np.float64),
        "ring_histogram": ((n, HISTOGRAMS, bounds), np.float32),
    }
    per_row = ("load", "requests", "in_time", "late", "dropped")
    return Cluster(
        **{
            name: np.zeros(*shapes[name]) if name in shapes else np.zeros((n,) if name in per_row else (n, 2))
            for name in Cluster._fields
        }
    )


def begin(cluster: Cluster, rows: Int, ready: Int, rate: Float, rps: Float) -> None:
    """Start episodes in the given rows: `ready` (M, 2) pods, after a past of `rate` (M,) requests/s.

    Past requests were served in proportion to capacity, up to it; the counters of the past are negative, so
    that the episode's own begin at 0.
    """
    for name, array in cluster._asdict().items():
        if name not in ("ring_requests", "ring_busy", "ring_ready", "ring_histogram"):
            array[rows] = 0
    capacity = np.maximum((ready * rps).sum(1), 1e-9)
    cluster.ready[rows] = cluster.target[rows] = cluster.created[rows] = ready
    cluster.weight[rows] = ready * rps / capacity[:, None]
    cluster.load[rows] = rate
    past = np.arange(RING) - RING + 1.0  # second i is kept at index i % RING; second -1 ended at 0
    served = np.minimum(rate, capacity)
    cluster.ring_requests[rows] = rate[:, None] * past
    cluster.ring_ready[rows] = ready[:, :, None] * past
    cluster.ring_busy[rows] = (ready * (served / capacity)[:, None])[:, :, None] * past
    blocks = (np.arange(HISTOGRAMS) - HISTOGRAMS + 1.0) * BLOCK
    answered = served[:, None, None] * blocks[None, :, None]
    shape = np.searchsorted(BUCKETS_SECONDS, 2.0 / rps.max(1))[:, None] <= np.arange(len(BUCKETS_SECONDS) + 1)
    cluster.ring_histogram[rows] = answered * shape[:, None, :]


@njit(cache=True, nogil=True)
def uniform(key: np.uint64, stream: int, index: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (splitmix64)."""
    z = key + np.uint64(0x9E3779B97F4A7C15) * np.uint64(index * 8 + stream + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def scale(facts: Facts, cluster: Cluster, rows: Int, desired: Int, weights: Int) -> None:
    """Set the target replicas (M, 2) and the traffic weights (M, 2; any scale) of the given rows."""
    for m in range(len(rows)):
        n = rows[m]
        total = weights[m, 0] + weights[m, 1]
        for p in range(2):
            if total > 0:
                cluster.weight[n, p] = weights[m, p] / total
            target = desired[m, p]
            while cluster.ready[n, p] + cluster.waiting[n, p] < target:
                low, high = facts.cold_start_low[n, p], facts.cold_start_high[n, p]
                draw = uniform(facts.key[n], p, cluster.created[n, p])
                cluster.left[n, p, cluster.waiting[n, p]] = low + (high - low) * draw
                cluster.waiting[n, p] += 1
                cluster.created[n, p] += 1
            excess = cluster.ready[n, p] + cluster.waiting[n, p] - target
            if excess > 0:
                cancelled = min(excess, cluster.waiting[n, p])
                cluster.waiting[n, p] -= cancelled
                leaving = excess - cancelled
                if leaving > 0:
                    share = cluster.queue[n, p] * leaving / cluster.ready[n, p]
                    cluster.queue[n, p] -= share
                    cluster.drain_queue[n, p] += share
                    if cluster.drain_queue[n, p] > 0:
                        cluster.draining[n, p] += leaving
                    cluster.ready[n, p] -= leaving
            cluster.target[n, p] = target


@njit(cache=True, nogil=True, fastmath=True)
def advance(facts: Facts, cluster: Cluster, tables: Tables, rows: Int, seconds: int) -> None:
    """Let `seconds` pass in the given rows."""
    for m in range(len(rows)):
        n = rows[m]
        for _ in range(seconds):
            _second(facts, cluster, tables, n)


@njit(inline="always")
def _service_exceeds(service: Float32, x: float) -> float:
    """P(S > x) by interpolation; x in mean service times."""
    if x <= 0.0:
        return 1.0
    position = x * SERVICE_SCALE
    i = int(position)
    if i >= len(service) - 1:
        return 0.0
    return service[i] + (service[i + 1] - service[i]) * (position - i)


@njit(inline="always")
def _delay_integral(delayed: Float32, position: float, z: float) -> float:
    """G(x, z) by bilinear interpolation."""
    i = int(position)
    fx = position - i
    column = min(z * Z_SCALE, delayed.shape[1] - 1.001)
    j = int(column)
    fz = column - j
    low = delayed[i, j] + (delayed[i, j + 1] - delayed[i, j]) * fz
    high = delayed[i + 1, j] + (delayed[i + 1, j + 1] - delayed[i + 1, j]) * fz
    return low + (high - low) * fx


@njit(inline="always")
def _waits(erlang_c: Float32, servers: int, rho: float) -> float:
    """Probability that a request has to wait."""
    position = rho * (erlang_c.shape[1] - 1)
    i = min(int(position), erlang_c.shape[1] - 2)
    c = min(servers, erlang_c.shape[0] - 1)
    return erlang_c[c, i] + (erlang_c[c, i + 1] - erlang_c[c, i]) * (position - i)


@njit(inline="always")
def _second(facts: Facts, cluster: Cluster, tables: Tables, n: int) -> None:
    t = cluster.time[n]
    arrived = facts.arrivals[n, t]
    cluster.requests[n] += arrived
    cluster.load[n] += (arrived - cluster.load[n]) / facts.memory_seconds[n]
    index = facts.cv[n]
    service = tables.service[index]
    delayed = tables.delayed[index]
    variability = _VARIABILITY[index]
    last = facts.positions.shape[2] - 1
    block_ends = (t + 1) % BLOCK == 0
    slot = t % RING
    for p in range(2):
        rps = facts.rps[n, p]
        _start_pods(facts, cluster, n, p)
        ready = cluster.ready[n, p]
        capacity = ready * rps
        weight = cluster.weight[n, p]
        waited = cluster.queue[n, p]
        queue = waited + arrived * weight
        served = min(queue, capacity)
        queue -= served
        patience = facts.timeout[n] - 1.0 / rps
        limit = min(ready * facts.queue_limit[n], capacity * max(patience, 0.0))
        if queue > limit:
            cluster.dropped[n] += queue - limit
            queue = limit
        cluster.queue[n, p] = queue
        if served > 0.0:
            wait = 0.5 * (waited + queue) / capacity
            rho = min(cluster.load[n] * weight / capacity, 0.999)
            probability = min(1.0, _waits(tables.erlang_c, ready, rho) * facts.routing[n])
            decay = variability * (1.0 - rho) * capacity
            slo = facts.slo[n]
            tail = _service_exceeds(service, slo * rps)
            tail += probability * _delay_integral(delayed, facts.positions[n, p, last], decay * slo)
            share = max(tail, _service_exceeds(service, (slo - wait) * rps))
            share = min(share, 1.0)
            cluster.late[n] += served * share
            cluster.in_time[n] += served * (1.0 - share)
            cluster.work[n, p] += served
            cluster.busy_seconds[n, p] += served / rps
            if block_ends:
                _record(facts, cluster, tables, n, p, BLOCK * served, wait, probability, decay)
        if cluster.draining[n, p] > 0:
            _drain(facts, cluster, service, n, p)
        cluster.billed[n, p] += cluster.target[n, p]
        cluster.ready_seconds[n, p] += ready
        cluster.pending_seconds[n, p] += cluster.waiting[n, p]
        cluster.ring_busy[n, p, slot] = cluster.busy_seconds[n, p]
        cluster.ring_ready[n, p, slot] = cluster.ready_seconds[n, p]
    cluster.ring_requests[n, slot] = cluster.requests[n]
    if block_ends:
        block = (t // BLOCK) % cluster.ring_histogram.shape[1]
        for b in range(last + 1):
            cluster.ring_histogram[n, block, b] = cluster.histogram[n, b]
    cluster.time[n] = t + 1


@njit(inline="always")
def _start_pods(facts: Facts, cluster: Cluster, n: int, p: int) -> None:
    """One second of every cold start whose pod has room on a node; pods become ready in the order they finish."""
    waiting = cluster.waiting[n, p]
    if waiting == 0:
        return
    room = facts.schedulable[n, p] - cluster.ready[n, p] - cluster.draining[n, p]
    kept = 0
    for k in range(waiting):
        left = cluster.left[n, p, k]
        if k < room:
            left -= 1.0
        if left <= 0.0:
            cluster.ready[n, p] += 1
        else:
            cluster.left[n, p, kept] = left
            kept += 1
    cluster.waiting[n, p] = kept


@njit(inline="always")
def _drain(facts: Facts, cluster: Cluster, service: Float32, n: int, p: int) -> None:
    """Terminating pods finish what they hold; they are not billed and get no more requests."""
    rps = facts.rps[n, p]
    capacity = cluster.draining[n, p] * rps
    held = cluster.drain_queue[n, p]
    served = min(held, capacity)
    share = _service_exceeds(service, (facts.slo[n] - 0.5 * held / capacity) * rps)
    cluster.late[n] += served * share
    cluster.in_time[n] += served * (1.0 - share)
    cluster.drain_queue[n, p] = held - served
    if cluster.drain_queue[n, p] <= 1e-9:
        cluster.in_time[n] += cluster.drain_queue[n, p]
        cluster.drain_queue[n, p] = 0.0
        cluster.draining[n, p] = 0


@njit(inline="always")
def _record(
    facts: Facts, cluster: Cluster, tables: Tables, n: int, p: int, answered: float, wait: float,
    probability: float, decay: float,
) -> None:  # fmt: skip
    """Add a block's answered requests to the histogram."""
    rps = facts.rps[n, p]
    service = tables.service[facts.cv[n]]
    delayed = tables.delayed[facts.cv[n]]
    cluster.histogram[n, len(_BOUNDS)] += answered
    for b in range(len(_BOUNDS)):
        bound = _BOUNDS[b]
        tail = _service_exceeds(service, bound * rps)
        tail += probability * _delay_integral(delayed, facts.positions[n, p, b], decay * bound)
        tail = min(max(tail, _service_exceeds(service, (bound - wait) * rps)), 1.0)
        cluster.histogram[n, b] += answered * (1.0 - tail)


_BOUNDS = BUCKETS_SECONDS
_VARIABILITY = np.array([2.0 / (1.0 + cv * cv) for cv in CVS])
