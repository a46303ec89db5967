"""The fluid model of two pools under load, N episodes at a time, in steps of one second.

Causality runs one way: the load arrives whatever the service does (open loop); queues, latencies and
utilizations follow from it and from the pods that are ready. Arrivals are split by the traffic weights, wait
in their pool's queue and are served at `ready * requests_per_second`. What exceeds the queue limit, would
wait longer than the clients do, or finds no ready pod is dropped. Pods become ready a drawn cold start after
they were scheduled; pods beyond the nodes' capacity stay pending. A smaller target removes the newest pods
that are not ready first; then ready pods drain: they get no more requests and finish what they hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_rl.simulation.tables import CVS, SERVICE_SCALE, Z_SCALE, Tables, x_position

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

MAX_PODS = 64
"""Not-ready pods a pool can hold; above the largest `maxReplicas` the simulator is asked for."""

RING = 128
"""Seconds of counters that are kept, a power of 2: the longest scrape lag plus the longest rate window fit."""

BLOCK = 5
"""Seconds a latency block lasts: histograms are kept block by block."""

BUCKETS_SECONDS = np.array([0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
"""Upper bounds of the request-duration histogram."""

HISTOGRAMS = RING // BLOCK + 1


ROW_FACTS = np.dtype(
    [
        ("slo", "f8"),  # seconds
        ("cv", "i8"),  # index into tables.CVS
        ("memory_seconds", "f8"),  # time constant of the averages of load and of utilization rho
        ("queue_limit", "f8"),  # requests a ready pod can hold waiting
        ("timeout", "f8"),  # seconds a client waits
        ("routing", "f8"),  # factor on the probability of waiting: how far routing is from one central queue
        ("key", "u8"),  # seed of the cold starts
    ]
)

POOL_FACTS = np.dtype(
    [
        ("rps", "f8"),  # requests/s of one replica
        ("cold_start_low", "f8"),  # seconds
        ("cold_start_high", "f8"),
        ("schedulable", "i8"),  # pods the nodes have room for
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
        ("queue", "f8"),  # requests waiting
        ("draining", "i8"),  # pods that finish what they hold
        ("drain_queue", "f8"),  # requests those hold
        ("tail", "f8"),  # share of the requests that are late in the steady state of the present load
        ("work", "f8"),  # requests served by billed pods
        ("work_before", "f8"),  # `work` when the latency block began
        ("billed", "f8"),  # replica-seconds of the target
        ("ready_seconds", "f8"),
        ("pending_seconds", "f8"),
        ("busy_seconds", "f8"),  # replica-seconds that ready pods worked
    ]
)


class Facts(NamedTuple):
    """What stays constant during an episode; N rows."""

    row: NDArray[Any]  # (N,) ROW_FACTS
    pool: NDArray[Any]  # (N, 2) POOL_FACTS
    arrivals: Float32  # (N, T) requests in each second
    positions: Float32  # (N, 2, BUCKETS + 1) rows of Tables.delayed for the bucket bounds and, last, the SLO


class Cluster(NamedTuple):
    """What changes; N rows. Counters start at 0 when the episode does and never fall."""

    row: NDArray[Any]  # (N,) ROW
    pool: NDArray[Any]  # (N, 2) POOL
    left: Float32  # (N, 2, MAX_PODS) cold start left of the waiting pods, oldest first, seconds
    histogram: Float32  # (N, BUCKETS + 1) requests answered within each bound (cumulative), last column all
    ring_requests: Float  # (N, RING) `requests` at the end of second i, at index i % RING
    ring_busy: Float  # (N, 2, RING) `busy_seconds`
    ring_ready: Float  # (N, 2, RING) `ready_seconds`
    ring_histogram: Float32  # (N, HISTOGRAMS, BUCKETS + 1) `histogram` at the end of block i, at i % HISTOGRAMS


def bucket_positions(rps: Float, slo: Float) -> Float32:
    """(N, 2, BUCKETS + 1) for Facts.positions; rps (N, 2), slo (N,) seconds."""
    bounds = np.concatenate([np.broadcast_to(BUCKETS_SECONDS, (len(slo), len(BUCKETS_SECONDS))), slo[:, None]], axis=1)
    return x_position(bounds[:, None, :] * rps[:, :, None])


def records(dtype: np.dtype[Any], shape: tuple[int, ...], **columns: Any) -> NDArray[Any]:
    """A structured array from its columns; what is left out is 0."""
    table = np.zeros(shape, dtype)
    for name, values in columns.items():
        table[name] = values
    return table


def empty(n: int) -> Cluster:
    """N rows to be filled by `begin`."""
    bounds = len(BUCKETS_SECONDS) + 1
    return Cluster(
        row=np.zeros(n, ROW),
        pool=np.zeros((n, 2), POOL),
        left=np.zeros((n, 2, MAX_PODS), np.float32),
        histogram=np.zeros((n, bounds), np.float32),
        ring_requests=np.zeros((n, RING)),
        ring_busy=np.zeros((n, 2, RING)),
        ring_ready=np.zeros((n, 2, RING)),
        ring_histogram=np.zeros((n, HISTOGRAMS, bounds), np.float32),
    )


def begin(cluster: Cluster, rows: Int, ready: Int, rate: Float, rps: Float) -> None:
    """Start episodes in the given rows: `ready` (M, 2) pods, after a past of `rate` (M,) requests/s.

    Past requests were served in proportion to capacity, up to it; the counters of the past are negative, so
    that the episode's own begin at 0.
    """
    capacity = np.maximum((ready * rps).sum(1), 1e-9)
    weight = ready * rps / capacity[:, None]
    cluster.row[rows] = records(ROW, rate.shape, load=rate)
    rho = np.minimum(rate[:, None] / capacity[:, None], 1.0)
    cluster.pool[rows] = records(POOL, ready.shape, ready=ready, target=ready, created=ready, weight=weight, rho=rho)
    cluster.histogram[rows] = 0
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
            pool = cluster.pool[n, p]
            if total > 0:
                pool.weight = weights[m, p] / total
            target = desired[m, p]
            pool.target = target
            while pool.ready + pool.waiting < target:
                low, high = facts.pool[n, p].cold_start_low, facts.pool[n, p].cold_start_high
                draw = uniform(facts.row[n].key, p, pool.created)
                cluster.left[n, p, pool.waiting] = low + (high - low) * draw
                pool.waiting += 1
                pool.created += 1
            cancelled = min(max(pool.ready + pool.waiting - target, 0), pool.waiting)
            pool.waiting -= cancelled
            leaving = pool.ready + pool.waiting - target
            if leaving > 0:
                share = pool.queue * leaving / pool.ready
                pool.queue -= share
                pool.drain_queue += share
                if pool.drain_queue > 0:
                    pool.draining += leaving
                pool.ready -= leaving


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def advance(facts: Facts, cluster: Cluster, tables: Tables, rows: Int, seconds: int) -> None:
    """Let `seconds` pass in the given rows."""
    row_facts, pool_facts, arrivals, positions = facts.row, facts.pool, facts.arrivals, facts.positions
    row_states, pool_states, left, histogram = cluster.row, cluster.pool, cluster.left, cluster.histogram
    ring_requests, ring_histogram = cluster.ring_requests, cluster.ring_histogram
    ring_busy, ring_ready = cluster.ring_busy, cluster.ring_ready
    delayed, service, erlang_c = tables.delayed, tables.service, tables.erlang_c
    bounds = histogram.shape[1] - 1
    for m in range(len(rows)):
        n = rows[m]
        row, row_fact = row_states[n], row_facts[n]
        memory = 1.0 / row_fact.memory_seconds
        for _ in range(seconds):
            t = row.time
            row.time = t + 1
            arrived = arrivals[n, t]
            row.requests += arrived
            row.load += (arrived - row.load) * memory
            phase = t % BLOCK
            block_begins, block_ends = phase == 0, phase == BLOCK - 1
            slot = t & (RING - 1)
            ring_requests[n, slot] = row.requests
            for p in range(2):
                pool, fact = pool_states[n, p], pool_facts[n, p]
                changed = pool.waiting > 0 and _start_pods(pool, fact, left, n, p)
                if block_begins or changed:
                    slo_position = positions[n, p, bounds]
                    pool.tail = _steady_tail(row, pool, row_fact, fact, delayed, service, erlang_c, slo_position)
                if block_begins:
                    pool.work_before = pool.work
                wait = _serve(row, pool, row_fact, fact, service, arrived * pool.weight, memory)
                if pool.draining > 0:
                    _drain(row, pool, row_fact, fact, service)
                answered = pool.work - pool.work_before
                if block_ends and answered > 0.0:
                    probability, decay = _waiting(row, pool, row_fact, fact, erlang_c)
                    tail = 1.0
                    for b in range(bounds):
                        if tail > _NEGLIGIBLE:
                            bound = _BOUNDS[b]
                            tail = _service_exceeds(service, row_fact.cv, bound * fact.rps)
                            steady = _delay_integral(delayed, row_fact.cv, positions[n, p, b], decay * bound)
                            tail += probability * steady
                            if wait > 0.0:
                                tail = max(tail, _service_exceeds(service, row_fact.cv, (bound - wait) * fact.rps))
                        histogram[n, b] += answered * (1.0 - min(tail, 1.0))
                    histogram[n, bounds] += answered
                pool.billed += pool.target
                pool.ready_seconds += pool.ready
                pool.pending_seconds += pool.waiting
                ring_busy[n, p, slot] = pool.busy_seconds
                ring_ready[n, p, slot] = pool.ready_seconds
            if block_ends:
                block = (t // BLOCK) % HISTOGRAMS
                for b in range(bounds + 1):
                    ring_histogram[n, block, b] = histogram[n, b]


_inner = njit(fastmath=True, error_model="numpy", inline="never")


@_inner
def _service_exceeds(service: Float32, cv: int, x: float) -> float:
    """P(S > x) by interpolation; x in mean service times."""
    if x <= 0.0:
        return 1.0
    position = x * SERVICE_SCALE
    i = int(position)
    if i >= service.shape[1] - 1:
        return 0.0
    return service[cv, i] + (service[cv, i + 1] - service[cv, i]) * (position - i)


@_inner
def _delay_integral(delayed: Float32, cv: int, position: float, z: float) -> float:
    """G(x, z) by bilinear interpolation."""
    i = int(position)
    fx = position - i
    column = min(z * Z_SCALE, delayed.shape[2] - 1.001)
    j = int(column)
    fz = column - j
    low = delayed[cv, i, j] + (delayed[cv, i, j + 1] - delayed[cv, i, j]) * fz
    high = delayed[cv, i + 1, j] + (delayed[cv, i + 1, j + 1] - delayed[cv, i + 1, j]) * fz
    return low + (high - low) * fx


@_inner
def _waits(erlang_c: Float32, servers: int, rho: float) -> float:
    """Probability that a request has to wait."""
    position = rho * (erlang_c.shape[1] - 1)
    i = min(int(position), erlang_c.shape[1] - 2)
    c = min(servers, erlang_c.shape[0] - 1)
    return erlang_c[c, i] + (erlang_c[c, i + 1] - erlang_c[c, i]) * (position - i)


@_inner
def _serve(row: Any, pool: Any, row_fact: Any, fact: Any, service: Float32, arrived: float, memory: float) -> float:
    """One second of one pool; the wait in seconds that a backlog causes, -1 when nothing was served."""
    capacity = pool.ready * fact.rps
    service_seconds = 1.0 / fact.rps
    present = min(arrived / capacity, 1.0) if capacity > 0.0 else 1.0
    pool.rho += (present - pool.rho) * memory
    waited = pool.queue
    queue = waited + arrived
    if queue <= 0.0:
        return -1.0
    served = min(queue, capacity)
    queue -= served
    share, wait = pool.tail, 0.0
    if waited + queue > 0.0:
        patience = max(row_fact.timeout - service_seconds, 0.0)
        limit = min(pool.ready * row_fact.queue_limit, capacity * patience)
        if queue > limit:
            row.dropped += queue - limit
            queue = limit
        pool.queue = queue
        if capacity <= 0.0:
            return -1.0
        wait = 0.5 * (waited + queue) / capacity
        share = max(share, _service_exceeds(service, row_fact.cv, (row_fact.slo - wait) * fact.rps))
    row.late += served * share
    row.in_time += served * (1.0 - share)
    pool.work += served
    pool.busy_seconds += served * service_seconds
    return wait


@_inner
def _steady_tail(
    row: Any, pool: Any, row_fact: Any, fact: Any, delayed: Float32, service: Float32, erlang_c: Float32, place: float
) -> float:
    """The late share in the steady state of the present load: taken once a block, and when a pod becomes ready."""
    probability, decay = _waiting(row, pool, row_fact, fact, erlang_c)
    late = _service_exceeds(service, row_fact.cv, row_fact.slo * fact.rps)
    return min(late + probability * _delay_integral(delayed, row_fact.cv, place, decay * row_fact.slo), 1.0)


@_inner
def _waiting(row: Any, pool: Any, row_fact: Any, fact: Any, erlang_c: Float32) -> tuple[float, float]:
    """Probability of waiting, and the rate (1/s) at which the wait's tail decays.

    The average of rho keeps what was the case when load and capacity fall together, the average load over the
    present capacity gives relief as soon as capacity arrives; the lower one counts. Real overload is the queue's.
    """
    capacity = pool.ready * fact.rps
    if capacity <= 0.0:
        return 1.0, 0.0
    rho = min(pool.rho, row.load * pool.weight / capacity, 0.999)
    probability = min(1.0, _waits(erlang_c, pool.ready, rho) * row_fact.routing)
    return probability, _VARIABILITY[row_fact.cv] * (1.0 - rho) * capacity


@_inner
def _start_pods(pool: Any, fact: Any, left: Float32, n: int, p: int) -> bool:
    """One second of every cold start whose pod has room on a node; true when a pod became ready."""
    room = fact.schedulable - pool.ready - pool.draining
    waiting, kept = pool.waiting, 0
    for k in range(waiting):
        remaining = left[n, p, k]
        if k < room:
            remaining -= 1.0
        if remaining <= 0.0:
            pool.ready += 1
        else:
            left[n, p, kept] = remaining
            kept += 1
    pool.waiting = kept
    return kept < waiting


@_inner
def _drain(row: Any, pool: Any, row_fact: Any, fact: Any, service: Float32) -> None:
    """Terminating pods finish what they hold; they are not billed and get no more requests."""
    capacity = pool.draining * fact.rps
    held = pool.drain_queue
    served = min(held, capacity)
    share = _service_exceeds(service, row_fact.cv, (row_fact.slo - 0.5 * held / capacity) * fact.rps)
    row.late += served * share
    row.in_time += served * (1.0 - share)
    pool.drain_queue = held - served
    if pool.drain_queue <= 1e-9:
        row.in_time += pool.drain_queue
        pool.drain_queue = 0.0
        pool.draining = 0


_BOUNDS = BUCKETS_SECONDS
_NEGLIGIBLE = 1e-4
"""A tail below this is 0 in all longer buckets."""
_VARIABILITY = np.array([2.0 / (1.0 + cv * cv) for cv in CVS])
