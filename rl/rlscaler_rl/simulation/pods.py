"""Pods: their targets, their cold starts and the nodes' room, alike at both levels.

Pods become ready a drawn cold start after they were scheduled, at the end of that second; pods beyond the nodes'
capacity stay pending. A smaller target removes the newest pods that are not ready first, then the newest ready ones, as
a ReplicaSet does. A ready pod that leaves ends the requests in service; its waiting requests are routed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

_exact = njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
_fast = njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
"""Every flag is set, because both levels call these functions: numba takes an unset flag from the first caller that it
compiles, and results would depend on the level that was compiled first. `_fast`: called every second of every row."""


@_exact
def uniform(key: np.uint64, stream: int, index: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (splitmix64).

    Streams: 0 and 1 cold starts of the pools, 2 arrival times, 3 and 6 service times, 4 and 5 noise of the
    measurements, 7 choices of the router.
    """
    z = key + np.uint64(0x9E3779B97F4A7C15) * np.uint64(index * 8 + stream + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_exact
def set_target(pool: Any, fact: Any, left: Float32, key: np.uint64, p: int, target: int) -> int:
    """Create or remove the pods of pool `p`; returns how many ready pods leave. left (MAX_PODS,) of this pool."""
    pool.target = target
    while pool.ready + pool.waiting < target:
        low, high = fact.cold_start_low, fact.cold_start_high
        left[pool.waiting] = low + (high - low) * uniform(key, p, pool.created)
        pool.waiting += 1
        pool.created += 1
        pool.start_billed += fact.start_seconds
    pool.waiting -= min(max(pool.ready + pool.waiting - target, 0), pool.waiting)
    leaving = max(pool.ready + pool.waiting - target, 0)
    pool.ready -= leaving
    return leaving


@_exact
def set_weights(pools: Any, first: int, second: int) -> None:
    """Set the traffic weights of the two pools, in any scale; both 0 leaves them as they are."""
    total = first + second
    if total > 0:
        pools[0].weight = first / total
        pools[1].weight = second / total


@_fast
def shares(pools: Any) -> tuple[float, float]:
    """The arrivals' fractions: the weights of the pools that have a ready pod. Both are 0 where no pod is ready.

    A gateway sends nothing to a pool without a ready pod; see rlscaler_loadgen.service.router.
    """
    first = pools[0].weight if pools[0].ready > 0 else 0.0
    second = pools[1].weight if pools[1].ready > 0 else 0.0
    total = first + second
    if total <= 0.0:
        return 0.0, 0.0
    return first / total, second / total


@_fast
def start_pods(pool: Any, fact: Any, left: Float32) -> int:
    """Let a second pass of every cold start whose pod has room on a node; returns how many pods became ready."""
    room = fact.schedulable - pool.ready
    waiting, starting = pool.waiting, 0
    for k in range(waiting):
        remaining = left[k]
        if k < room:
            remaining -= 1.0
        if remaining <= 0.0:
            pool.ready += 1
        else:
            left[starting] = remaining
            starting += 1
    pool.waiting = starting
    return waiting - starting
