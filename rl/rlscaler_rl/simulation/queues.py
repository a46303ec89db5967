"""Per-pod FIFO queues of single requests, without an event heap.

A pod works on one request at a time, in order of arrival. When a request is given to a pod, the moment at which that
pod is free is known, so its beginning, its end and its outcome are known at once (Lindley's recursion: W = max(0,
free - now)); it is booked when that moment passes. The rules are those of the emulated service
(rlscaler_loadgen.service.replica): `queue_limit` requests may wait at a pod, one more is refused; a client that gives
up while its request waits takes it out of the queue, and one that was begun is worked to its end all the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS, MAX_PODS
from rlscaler_rl.simulation.compiled import inlined

Float = NDArray[np.float64]
Int = NDArray[np.int64]

HELD = 128
"""Requests a pod can hold; a power of 2, above the largest queue limit."""


class HeldRequests(NamedTuple):
    """The requests in the system, N rows, pools, pods in the order in which they became ready; times in seconds since
    the episode began.

    Requests that will be served and requests that will be given up before are stored apart, each in order of leaving.
    The last pod's slots of a pool hold the requests in service of pods that left the pool.
    """

    free: Float  # (N, 2, MAX_PODS + 1) when the pod has worked off what it will begin
    end: Float  # (N, 2, MAX_PODS + 1, HELD) when a request is done
    arrived: Float  # (N, 2, MAX_PODS + 1, HELD)
    seconds: Float  # (N, 2, MAX_PODS + 1, HELD) of service
    first: Int  # (N, 2, MAX_PODS + 1) requests ever done at this slot
    last: Int  # (N, 2, MAX_PODS + 1) requests ever put there
    lost_arrived: Float  # (N, 2, MAX_PODS, HELD) of requests whose client will give up first
    lost_seconds: Float  # (N, 2, MAX_PODS, HELD)
    lost_first: Int  # (N, 2, MAX_PODS)
    lost_last: Int  # (N, 2, MAX_PODS)
    work: Float  # (N, 2) seconds of service given to the ready pods, begun or not
    turn: Int  # (N, 2) of round robin and of ties
    credit: Float  # (N, 2) smooth weighted round robin between the pools
    routed: Int  # (N,) routing decisions made
    fresh: Float  # (N, BUCKETS + 1) requests by bucket since the latency block began


LEAVERS = MAX_PODS
"""Slot of the requests that pods which left have begun."""


def no_requests(n: int) -> HeldRequests:
    """N rows without any request. Pages that no pod touches stay unallocated."""
    pods, slots = (n, 2, MAX_PODS), (n, 2, MAX_PODS + 1)
    return HeldRequests(
        free=np.zeros(slots),
        end=np.zeros((*slots, HELD)),
        arrived=np.zeros((*slots, HELD)),
        seconds=np.zeros((*slots, HELD)),
        first=np.zeros(slots, np.int64),
        last=np.zeros(slots, np.int64),
        lost_arrived=np.zeros((*pods, HELD)),
        lost_seconds=np.zeros((*pods, HELD)),
        lost_first=np.zeros(pods, np.int64),
        lost_last=np.zeros(pods, np.int64),
        work=np.zeros((n, 2)),
        turn=np.zeros((n, 2), np.int64),
        credit=np.zeros((n, 2)),
        routed=np.zeros(n, np.int64),
        fresh=np.zeros((n, len(BUCKETS_SECONDS) + 1)),
    )


def forget(held: HeldRequests, rows: NDArray[np.intp]) -> None:
    """Begin again in the given rows."""
    for counter in (held.free, held.first, held.last, held.lost_first, held.lost_last, held.work):
        counter[rows] = 0
    for counter in (held.turn, held.credit, held.routed, held.fresh):
        counter[rows] = 0


_MASK = HELD - 1


@inlined
def load(held: HeldRequests, n: int, p: int, k: int) -> int:
    """Requests at a pod, waiting or in service, as of the last `book_departures`."""
    return held.last[n, p, k] - held.first[n, p, k] + held.lost_last[n, p, k] - held.lost_first[n, p, k]


@inlined
def enqueue(
    held: HeldRequests, pool: Any, row_fact: Any, n: int, p: int, k: int, now: float, came: float, work: float
) -> None:
    """Put a request that arrived at `came` and takes `work` seconds into the queue of pod `k`."""
    give_up = came + row_fact.timeout
    begin = max(now, held.free[n, p, k])
    pool.queue += 1.0
    if begin >= give_up:
        j = held.lost_last[n, p, k]
        while j > held.lost_first[n, p, k] and held.lost_arrived[n, p, k, (j - 1) & _MASK] > came:
            held.lost_arrived[n, p, k, j & _MASK] = held.lost_arrived[n, p, k, (j - 1) & _MASK]
            held.lost_seconds[n, p, k, j & _MASK] = held.lost_seconds[n, p, k, (j - 1) & _MASK]
            j -= 1
        held.lost_arrived[n, p, k, j & _MASK] = came
        held.lost_seconds[n, p, k, j & _MASK] = work
        held.lost_last[n, p, k] += 1
        pool.overdue += 1.0
        return
    end = begin + work
    i = held.last[n, p, k] & _MASK
    held.end[n, p, k, i] = end
    held.arrived[n, p, k, i] = came
    held.seconds[n, p, k, i] = work
    held.last[n, p, k] += 1
    held.free[n, p, k] = end
    held.work[n, p] += work
    pool.overdue += end - came > min(row_fact.slo, row_fact.timeout)


@inlined
def book_departures(held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, k: int, now: float) -> None:
    """Book everything that has left pod `k` by `now`."""
    first, last = held.first[n, p, k], held.last[n, p, k]
    while first < last and held.end[n, p, k, first & _MASK] <= now:
        i = first & _MASK
        _book(held, row, pool, row_fact, n, held.end[n, p, k, i] - held.arrived[n, p, k, i])
        pool.work += 1.0
        first += 1
    held.first[n, p, k] = first
    lost, lost_last = held.lost_first[n, p, k], held.lost_last[n, p, k]
    while lost < lost_last and held.lost_arrived[n, p, k, lost & _MASK] + row_fact.timeout <= now:
        row.dropped += 1.0
        pool.queue -= 1.0
        pool.overdue -= 1.0
        lost += 1
    held.lost_first[n, p, k] = lost


@inlined
def book_departures_of_leavers(
    held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, p: int, now: float
) -> None:
    """`book_departures` for the requests, in no order, that pods which left have begun; no pod is billed for them."""
    serving = 0
    for i in range(held.last[n, p, LEAVERS]):
        end, came = held.end[n, p, LEAVERS, i], held.arrived[n, p, LEAVERS, i]
        if end <= now:
            _book(held, row, pool, row_fact, n, end - came)
            pool.work += 1.0
        else:
            held.end[n, p, LEAVERS, serving], held.arrived[n, p, LEAVERS, serving] = end, came
            serving += 1
    held.last[n, p, LEAVERS] = serving


@inlined
def _book(held: HeldRequests, row: Any, pool: Any, row_fact: Any, n: int, latency: float) -> None:
    pool.queue -= 1.0
    pool.overdue -= latency > min(row_fact.slo, row_fact.timeout)
    if latency > row_fact.timeout:
        row.dropped += 1.0
        return
    if latency > row_fact.slo:
        row.late += 1.0
    else:
        row.in_time += 1.0
    b = 0
    while b < len(_BOUNDS) and latency > _BOUNDS[b]:
        b += 1
    held.fresh[n, b] += 1.0


@inlined
def take_back(
    held: HeldRequests,
    pool: Any,
    row_fact: Any,
    n: int,
    p: int,
    k: int,
    now: float,
    leaves: bool,
    moved: Float,
    count: int,
) -> int:
    """Take the requests that pod `k` has not begun by `now` out of its queue, after `book_departures`. Return the new
    count.

    :param moved: (.., 3) time of arrival, seconds of service, pool; rows from `count` on are filled, in order of
        arrival.
    :param leaves: requests in service go on, at no ready pod.
    """
    begun = held.first[n, p, k]
    if begun < held.last[n, p, k]:
        i = begun & _MASK
        if held.end[n, p, k, i] - held.seconds[n, p, k, i] <= now:
            begun += 1
    place = begun
    lost, lost_last = held.lost_first[n, p, k], held.lost_last[n, p, k]
    while place < held.last[n, p, k] or lost < lost_last:
        i, j = place & _MASK, lost & _MASK
        from_lost = place >= held.last[n, p, k]
        if not from_lost and lost < lost_last:
            from_lost = held.lost_arrived[n, p, k, j] < held.arrived[n, p, k, i]
        if from_lost:
            moved[count, 0], moved[count, 1] = held.lost_arrived[n, p, k, j], held.lost_seconds[n, p, k, j]
            pool.overdue -= 1.0
            lost += 1
        else:
            moved[count, 0], moved[count, 1] = held.arrived[n, p, k, i], held.seconds[n, p, k, i]
            held.work[n, p] -= held.seconds[n, p, k, i]
            pool.overdue -= held.end[n, p, k, i] - held.arrived[n, p, k, i] > min(row_fact.slo, row_fact.timeout)
            place += 1
        moved[count, 2] = p
        pool.queue -= 1.0
        count += 1
    held.lost_first[n, p, k] = lost_last
    held.last[n, p, k] = begun
    in_service = begun > held.first[n, p, k]
    held.free[n, p, k] = held.end[n, p, k, (begun - 1) & _MASK] if in_service else now
    if leaves and in_service:
        i, j = (begun - 1) & _MASK, held.last[n, p, LEAVERS]  # a pod has one in service, so HELD slots suffice
        held.work[n, p] -= held.end[n, p, k, i] - now
        held.end[n, p, LEAVERS, j], held.arrived[n, p, LEAVERS, j] = held.end[n, p, k, i], held.arrived[n, p, k, i]
        held.last[n, p, LEAVERS] = j + 1
        held.first[n, p, k] = begun
    return count


_BOUNDS = BUCKETS_SECONDS
