"""The request level: every request by itself, at the pod the router gives it to. For judging and fine-tuning.

The same arrivals a second as at the fluid level, placed inside the second by the scenario's key; service times are
lognormal and drawn for the i-th request from the key and i. So every contender meets equally heavy requests at the
same moments, whatever it does. Within a second the load comes first, then cold starts end.
"""

from __future__ import annotations

from math import cos, exp, log, pi, sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rlscaler_rl.simulation.cluster import (
    BLOCK,
    CENTRAL,
    HISTOGRAMS,
    MAX_PODS,
    POWER_OF_TWO,
    RANDOM,
    RING,
    ROUND_ROBIN,
    ClusterFacts,
    ClusterState,
)
from rlscaler_rl.simulation.compiled import inlined
from rlscaler_rl.simulation.pods import set_target, set_weights, shares, start_pods, uniform
from rlscaler_rl.simulation.queues import (
    HELD,
    HeldRequests,
    book_departures,
    book_departures_of_leavers,
    enqueue,
    forget,
    load,
    no_requests,
    take_back,
)
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tables import CVS, lognormal_parameters

Float = NDArray[np.float64]
Int = NDArray[np.int64]

_LOGNORMAL = np.array([lognormal_parameters(cv) for cv in CVS])
_MOST_HELD = 2 * 2 * MAX_PODS * HELD


class RequestLevel:
    """The `levels.Level` of this module for `n` rows; it holds the requests that are in the system."""

    def __init__(self, n: int) -> None:
        self.held = no_requests(n)

    def begin(self, facts: ClusterFacts, rows: NDArray[np.intp]) -> None:
        """Check and forget; raises ScenarioError for parts of requests, and for queues longer than a pod can hold."""
        arrivals = facts.arrivals[rows]
        if (arrivals != np.floor(arrivals)).any():
            raise ScenarioError("arrivals: the request level needs whole requests a second; draw or round them")
        if (facts.row["queue_limit"][rows] >= HELD).any():
            raise ScenarioError(f"queue_limit: below {HELD} at the request level")
        forget(self.held, rows)

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
        _scale(facts, cluster, self.held, rows, desired, weights)

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, seconds: int) -> None:
        _advance(facts, cluster, self.held, rows, seconds)

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Int) -> None:
        """Nothing to do: every latency is counted when its request is answered."""


@njit(cache=True, nogil=True, error_model="numpy")
def _scale(
    facts: ClusterFacts, cluster: ClusterState, held: HeldRequests, rows: Int, desired: Int, weights: Int
) -> None:
    """Set the target replicas (M, 2) and the traffic weights (M, 2; any scale) of the given rows."""
    moved = np.empty((_MOST_HELD, 3))
    for m in range(len(rows)):
        n = rows[m]
        row, row_fact, now = cluster.row[n], facts.row[n], float(cluster.row[n].time)
        before = cluster.pool[n, 0].weight
        set_weights(cluster.pool[n], weights[m, 0], weights[m, 1])
        if cluster.pool[n, 0].weight != before:
            held.credit[n, 0], held.credit[n, 1] = 0.0, 0.0
        count = 0
        for p in range(2):
            pool = cluster.pool[n, p]
            leaving = set_target(pool, facts.pool[n, p], cluster.left[n, p], row_fact.key, p, desired[m, p])
            if leaving > 0:
                held.credit[n, p] = 0.0
                first = 0 if row_fact.router == CENTRAL else pool.ready
                for k in range(first, pool.ready + leaving):
                    book_departures(held, row, pool, row_fact, n, p, k, now)
                    count = take_back(held, pool, row_fact, n, p, k, now, k >= pool.ready, moved, count)
        if count > 0:
            _route_again(facts, cluster, held, n, now, moved, count)


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(facts: ClusterFacts, cluster: ClusterState, held: HeldRequests, rows: Int, seconds: int) -> None:
    """Let `seconds` pass in the given rows."""
    ring_requests, ring_busy, ring_ready = cluster.ring_requests, cluster.ring_busy, cluster.ring_ready
    moments, moved = np.empty(1024), np.empty((_MOST_HELD, 3))
    for m in range(len(rows)):
        n = rows[m]
        row, row_fact = cluster.row[n], facts.row[n]
        for _ in range(seconds):
            t = row.time
            row.time = t + 1
            arrived = int(facts.arrivals[n, t])
            if arrived > len(moments):
                moments = np.empty(2 * arrived)
            _arrivals(facts, cluster, held, n, t, arrived, moments)
            row.load += (arrived - row.load) / row_fact.memory_seconds
            slot = t & (RING - 1)
            ring_requests[n, slot] = row.requests
            for p in range(2):
                pool = cluster.pool[n, p]
                _count_second(held, row, pool, row_fact, n, p, t + 1.0)
                ring_busy[n, p, slot] = pool.busy_seconds
                ring_ready[n, p, slot] = pool.ready_seconds
                if pool.waiting > 0:
                    started = start_pods(pool, facts.pool[n, p], cluster.left[n, p])
                    for k in range(pool.ready - started, pool.ready):
                        held.free[n, p, k] = 0.0
                    if started > 0:
                        held.credit[n, p] = 0.0
                        if row_fact.router == CENTRAL:
                            count = 0
                            for k in range(pool.ready - started):
                                count = take_back(held, pool, row_fact, n, p, k, t + 1.0, False, moved, count)
                            _route_again(facts, cluster, held, n, t + 1.0, moved, count)
            if t % BLOCK == BLOCK - 1:
                _close_block(cluster, held, n, (t // BLOCK) % HISTOGRAMS)


@inlined
def _arrivals(
    facts: ClusterFacts, cluster: ClusterState, held: HeldRequests, n: int, t: int, arrived: int, moments: Float
) -> None:
    """Route one second of requests, uniform in it and in order, by exponential gaps (Devroye 1986, V.2)."""
    row, row_fact = cluster.row[n], facts.row[n]
    key, index = row_fact.key, int(row.requests)
    total = 0.0
    for i in range(arrived):
        total -= log(1.0 - uniform(key, 2, index + i))
        moments[i] = total
    total -= log(1.0 - uniform(key, 2, -1 - t))
    mu, sigma = _LOGNORMAL[row_fact.cv, 0], _LOGNORMAL[row_fact.cv, 1]
    row.requests += arrived
    for i in range(arrived):
        now = t + moments[i] / total
        radius = sqrt(-2.0 * log(1.0 - uniform(key, 3, index + i)))
        factor = exp(mu + sigma * radius * cos(2.0 * pi * uniform(key, 6, index + i)))
        _route(facts, cluster, held, n, now, now, factor)


@inlined
def _route(
    facts: ClusterFacts, cluster: ClusterState, held: HeldRequests, n: int, now: float, came: float, factor: float
) -> None:
    """Route one request to a pod or refuse it; `factor` is its service time over the mean of its pool."""
    row, row_fact, pools = cluster.row[n], facts.row[n], cluster.pool[n]
    split = shares(pools)
    if split[0] + split[1] <= 0.0:
        row.dropped += 1.0
        return
    held.credit[n, 0] += split[0]
    held.credit[n, 1] += split[1]
    p = 0 if split[1] <= 0.0 or (split[0] > 0.0 and held.credit[n, 0] >= held.credit[n, 1]) else 1
    held.credit[n, p] -= 1.0
    pool = pools[p]
    k, room = pick(held, row, pool, row_fact, n, p, now)
    if room:
        enqueue(held, pool, row_fact, n, p, k, now, came, factor / facts.pool[n, p].rps)
    else:
        row.dropped += 1.0


@inlined
def pick(held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, now: float) -> tuple[int, bool]:
    """The pod that the router gives the next request to, and whether it has room."""
    count, router = pool.ready, row_fact.router
    limit = int(row_fact.queue_limit) + 1
    draw = held.routed[n]
    held.routed[n] = draw + 1
    if router == CENTRAL:
        return _earliest(held, row, pool, row_fact, n, p, now, limit)
    if router == RANDOM:
        k = int(uniform(row_fact.key, 7, 2 * draw) * count)
    else:
        held.turn[n, p] = (held.turn[n, p] + 1) % count
        k = held.turn[n, p]
    if router in (RANDOM, ROUND_ROBIN):
        book_departures(held, row, pool, row_fact, n, p, k, now)
    elif router == POWER_OF_TWO and count > 2:
        k = int(uniform(row_fact.key, 7, 2 * draw) * count)
        other = int(uniform(row_fact.key, 7, 2 * draw + 1) * (count - 1))
        other += other >= k
        book_departures(held, row, pool, row_fact, n, p, k, now)
        book_departures(held, row, pool, row_fact, n, p, other, now)
        if load(held, n, p, other) < load(held, n, p, k):
            k = other
    else:
        k = _least_loaded(held, row, pool, row_fact, n, p, now, k)
    return k, load(held, n, p, k) < limit


@inlined
def _least_loaded(held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, now: float, turn: int) -> int:
    """The pod with the fewest requests; among equals the first from `turn` on."""
    best, fewest = turn, HELD * 4
    k = turn
    for _ in range(pool.ready):
        book_departures(held, row, pool, row_fact, n, p, k, now)
        there = load(held, n, p, k)
        if there < fewest:
            best, fewest = k, there
            if there == 0:
                break
        k = k + 1 if k + 1 < pool.ready else 0
    return best


@inlined
def _earliest(
    held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, now: float, limit: int
) -> tuple[int, bool]:
    """The pod that is free first, as with one queue for all; there is room below the sum of all pods' limits."""
    best, total = 0, 0
    for k in range(pool.ready):
        book_departures(held, row, pool, row_fact, n, p, k, now)
        total += load(held, n, p, k)
        if held.free[n, p, k] < held.free[n, p, best]:
            best = k
    return best, total < limit * pool.ready and load(held, n, p, best) < HELD


@inlined
def _route_again(
    facts: ClusterFacts, cluster: ClusterState, held: HeldRequests, n: int, now: float, moved: Float, count: int
) -> None:
    """Route the requests of pods that left, pod by pod; each keeps its time of arrival and its service time."""
    if facts.row[n].router == CENTRAL:
        _sort_by_arrival(moved, count)
    for i in range(count):
        factor = moved[i, 1] * facts.pool[n, int(moved[i, 2])].rps
        _route(facts, cluster, held, n, now, moved[i, 0], factor)


@inlined
def _sort_by_arrival(moved: Float, count: int) -> None:
    """Sort by insertion, because the rows are a few runs that are in order already."""
    for i in range(1, count):
        came, seconds, p = moved[i, 0], moved[i, 1], moved[i, 2]
        j = i
        while j > 0 and moved[j - 1, 0] > came:
            moved[j, 0], moved[j, 1], moved[j, 2] = moved[j - 1, 0], moved[j - 1, 1], moved[j - 1, 2]
            j -= 1
        moved[j, 0], moved[j, 1], moved[j, 2] = came, seconds, p


@inlined
def _count_second(held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, now: float) -> None:
    """Count the second that ends `now` on the counters of one pool."""
    unfinished = 0.0
    for k in range(pool.ready):
        book_departures(held, row, pool, row_fact, n, p, k, now)
        unfinished += max(held.free[n, p, k] - now, 0.0)
    if held.last[n, p, MAX_PODS] > 0:
        book_departures_of_leavers(held, row, pool, row_fact, n, p, now)
    pool.busy_seconds = held.work[n, p] - unfinished
    pool.billed += pool.target
    pool.ready_seconds += pool.ready
    pool.pending_seconds += pool.waiting


@inlined
def _close_block(cluster: ClusterState, held: HeldRequests, n: int, block: int) -> None:
    """Add the block's requests to the cumulative histogram and remember it."""
    below = 0.0
    for b in range(held.fresh.shape[1]):
        below += held.fresh[n, b]
        held.fresh[n, b] = 0.0
        cluster.histogram[n, b] += below
        cluster.ring_histogram[n, block, b] = cluster.histogram[n, b]
