"""The fluid level: queues as volumes, lateness by queueing formulas, one second at a time. For training and screening.

Arrivals are split by the traffic weights, wait in their pool's queue and are served at `ready * requests_per_second`.
Requests are dropped that exceed the queue limit, that would wait longer than the clients do, or that find no ready pod.
The share of late requests is that of the router's steady state at the present load, or that of the backlog: the larger
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_rl.simulation.cluster import BLOCK, BUCKETS_SECONDS, HISTOGRAMS, RING, ClusterFacts, ClusterState
from rlscaler_rl.simulation.pods import set_target, set_weights, shares, start_pods
from rlscaler_rl.simulation.tables import CVS, SERVICE_SCALE, Z_SCALE, LatencyTables, tables

Float32 = NDArray[np.float32]
Int = NDArray[np.int64]


class FluidLevel:
    """The `levels.Level` of this module; its whole state is in the cluster."""

    def __init__(self) -> None:
        self.tables = tables()

    def begin(self, facts: ClusterFacts, rows: NDArray[np.intp]) -> None:
        """Nothing to prepare."""

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
        _scale(facts, cluster, rows, desired, weights)

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, seconds: int) -> None:
        _advance(facts, cluster, self.tables, rows, seconds)

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Int) -> None:
        _count_latencies(facts, cluster, self.tables, rows)


@njit(cache=True, nogil=True)
def _scale(facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
    """Set the target replicas (M, 2) and the traffic weights (M, 2; any scale) of the given rows."""
    for m in range(len(rows)):
        n = rows[m]
        set_weights(cluster.pool[n], weights[m, 0], weights[m, 1])
        for p in range(2):
            set_target(cluster.pool[n, p], facts.pool[n, p], cluster.left[n, p], facts.row[n].key, p, desired[m, p])
        for p in range(2):
            pool, other = cluster.pool[n, p], cluster.pool[n, 1 - p]
            if pool.ready == 0 and other.ready > 0 and other.weight > 0.0:
                other.queue += pool.queue
                other.overdue += pool.overdue
                pool.queue, pool.overdue = 0.0, 0.0


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _advance(facts: ClusterFacts, cluster: ClusterState, tables: LatencyTables, rows: Int, seconds: int) -> None:
    """Let `seconds` pass in the given rows."""
    row_facts, pool_facts, arrivals, positions = facts.row, facts.pool, facts.arrivals, facts.positions
    row_states, pool_states, left, blocks = cluster.row, cluster.pool, cluster.left, cluster.blocks
    ring_requests = cluster.ring_requests
    ring_busy, ring_ready = cluster.ring_busy, cluster.ring_ready
    delayed, service, waiting = tables.delayed, tables.service, tables.waiting
    slo_column = positions.shape[2] - 1
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
            split = shares(pool_states[n])
            if split[0] + split[1] <= 0.0:
                row.dropped += arrived
            for p in range(2):
                pool, fact = pool_states[n, p], pool_facts[n, p]
                if block_begins:
                    slo_position = positions[n, p, slo_column]
                    pool.tail = _tail(
                        row, pool, row_fact, fact, delayed, service, waiting, slo_position, split[p], BLOCK
                    )
                if block_begins:
                    pool.work_before = pool.work
                wait = _serve(row, pool, row_fact, fact, service, arrived * split[p], memory)
                answered = pool.work - pool.work_before
                if block_ends:
                    probability, decay, _ = _waiting(row, pool, row_fact, fact, waiting, split[p])
                    block = blocks[n, (t // BLOCK) % HISTOGRAMS, p]
                    block[0], block[1], block[2], block[3] = answered, probability, decay, wait
                pool.billed += pool.target
                pool.ready_seconds += pool.ready
                pool.pending_seconds += pool.waiting
                ring_busy[n, p, slot] = pool.busy_seconds
                ring_ready[n, p, slot] = pool.ready_seconds
                if pool.waiting > 0 and start_pods(pool, fact, left[n, p]):
                    slo_position = positions[n, p, slo_column]
                    pool.tail = _tail(row, pool, row_fact, fact, delayed, service, waiting, slo_position, split[p], 1)


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _count_latencies(facts: ClusterFacts, cluster: ClusterState, tables: LatencyTables, rows: Int) -> None:
    """Add the latencies of the block that has just ended to the episodes' histograms."""
    bounds = cluster.histogram.shape[1] - 1
    for m in range(len(rows)):
        n = rows[m]
        block = (cluster.row[n].time // BLOCK - 1) % HISTOGRAMS
        for b in range(bounds + 1):
            cluster.histogram[n, b] += within(facts, cluster, tables, n, block, b)


_counting = njit(fastmath=True, error_model="numpy", inline="never")
_inner = njit(fastmath=True, error_model="numpy", inline="never", _nrt=False)
"""`_inner` borrows its arguments as `compiled.inlined` does, but is not forced into its callers: fast arithmetic that
is inlined elsewhere has other last bits, and so has every network that is trained on it. `_counting` leaves inlining to
the compiler."""


@_inner
def within(facts: ClusterFacts, cluster: ClusterState, tables: LatencyTables, n: int, block: int, b: int) -> float:
    """Requests of a latency block (index into the ring) that were answered within bucket `b`; the last is all."""
    total = 0.0
    for p in range(2):
        state = cluster.blocks[n, block, p]
        answered, probability, decay, wait = state[0], state[1], state[2], state[3]
        if answered > 0.0:
            if b == cluster.histogram.shape[1] - 1:
                total += answered
                continue
            bound, rps, cv = _BOUNDS[b], facts.pool[n, p].rps, facts.row[n].cv
            tail = _service_exceeds(tables.service, cv, bound * rps)
            tail += probability * _delay_integral(tables.delayed, cv, facts.positions[n, p, b], decay * bound)
            if wait > 0.0:
                tail = max(tail, _service_exceeds(tables.service, cv, (bound - wait) * rps))
            total += answered * (1.0 - min(tail, 1.0))
    return total


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
def _serve(row: Any, pool: Any, row_fact: Any, fact: Any, service: Float32, arrived: float, memory: float) -> float:
    """Serve one second of one pool; returns the wait in seconds that a backlog causes, -1 when nothing was served."""
    capacity = pool.ready * fact.rps
    service_seconds = 1.0 / fact.rps
    present = min(arrived / capacity, _RHO_CAP) if capacity > 0.0 else 1.0
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
        pool.overdue = queue
        if capacity <= 0.0:
            return -1.0
        wait = 0.5 * (waited + queue) / capacity
        share = max(share, _service_exceeds(service, row_fact.cv, (row_fact.slo - wait) * fact.rps))
    row.late += served * share
    row.in_time += served * (1.0 - share)
    pool.work += served
    pool.busy_seconds += served * service_seconds
    return wait


@_counting
def _tail(
    row: Any,
    pool: Any,
    row_fact: Any,
    fact: Any,
    delayed: Float32,
    service: Float32,
    waiting: Float32,
    place: float,
    share: float,
    dt: int,
) -> float:
    """The late share of the requests `dt` seconds on, on its way to the steady state of the present load.

    A queue forgets at the rate mu (1 - sqrt(rho))^2 (the relaxation time of M/M/1; Cohen, "The single server queue",
    1982), here with mu the capacity of all ready pods: slowly near saturation, at once far from it.
    """
    probability, decay, rho = _waiting(row, pool, row_fact, fact, waiting, share)
    late = _service_exceeds(service, row_fact.cv, row_fact.slo * fact.rps)
    steady = min(late + probability * _delay_integral(delayed, row_fact.cv, place, decay * row_fact.slo), 1.0)
    pace = pool.ready * fact.rps * (1.0 - np.sqrt(rho)) ** 2
    return pool.tail + (steady - pool.tail) * (1.0 - np.exp(-pace * dt))


@_inner
def _waiting(
    row: Any, pool: Any, row_fact: Any, fact: Any, waiting: Float32, share: float
) -> tuple[float, float, float]:
    """Probability of waiting, the rate (1/s) at which the wait's tail decays, and utilization.

    The average of rho remembers the time before load and capacity fell together; the average load over the present
    capacity gives relief as soon as capacity arrives; the lower one counts. Real overload is in the queue.
    """
    capacity = pool.ready * fact.rps
    if capacity <= 0.0:
        return 1.0, 0.0, 1.0
    rho = min(pool.rho, row.load * share / capacity, 0.999)
    spread = _SQUARED_CVS[row_fact.cv]
    place = waiting[row_fact.router, row_fact.cv, min(pool.ready, waiting.shape[2] - 1)]
    position = rho * (waiting.shape[3] - 1)
    i = int(position)
    part = position - i
    probability = place[i, 0] + (place[i + 1, 0] - place[i, 0]) * part
    decay = place[i, 1] + (place[i + 1, 1] - place[i, 1]) * part
    # Sharing out in turn makes a pool's arrivals more regular than Poisson ones. Decay by two moments (Whitt 1993),
    # probability of waiting as Kraemer and Langenbach-Belz (1976).
    irregular = 1.0 - _REGULARITY * (1.0 - share)
    regular = (1.0 - irregular) * (1.0 - rho) * (1.0 + irregular + rho * spread)
    probability *= 1.0 - regular / (1.0 + rho * (spread - 1.0) + rho * rho * (4.0 * irregular + spread))
    decay *= (1.0 + spread) / (irregular + spread)
    return min(1.0, probability * row_fact.routing), decay * (1.0 - rho) * fact.rps, rho


_BOUNDS = BUCKETS_SECONDS
_SQUARED_CVS = np.array(CVS) ** 2
_RHO_CAP = 1.1
"""Most that one second adds to the average of rho: fitted, with the table, to the request level's late share between
rho .7 and .95. At 1 the average would hardly see the bursts, far above it one second of overload would last."""
_REGULARITY = 0.4
"""Squared coefficient of variation that arrivals lose by being shared out in turn, over the share that goes elsewhere:
1 for a pool of one pod that never changes, less for more pods; fitted to whole episodes of the four patterns."""
