"""The action space, MultiDiscrete([5, 5, 3]), as network heads, as deltas, and as a split of the traffic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Bool, Float, Float32, Int, either

HEADS = (5, 5, 3)
LOGITS = sum(HEADS)
REACH = 2
"""The most steps a pool moves in one action."""

POOL_HEADS, PLACEMENT_HEAD = (slice(0, 5), slice(5, 10)), slice(10, 13)


def from_indices(indices: NDArray[np.integer]) -> Int:
    """Turn indices (N, 3) of MultiDiscrete([5, 5, 3]) into steps -2..2, -2..2 and the traffic preference (N, 3)."""
    action: Int = (indices - np.array([REACH, REACH, 0])).astype(np.int32)
    return action


def to_indices(action: Int) -> Int:
    """Turn steps and traffic preference (N, 3) into indices: the inverse of `from_indices`."""
    indices: Int = (action + np.array([REACH, REACH, 0])).astype(np.int32)
    return indices


def head_probabilities(logits: Float32) -> Float32:
    """Return the probabilities (N, 13) of `logits` (N, 13): a softmax within each head."""
    columns = np.array(logits.T, order="C")
    for head in (*POOL_HEADS, PLACEMENT_HEAD):
        part = np.exp(columns[head] - columns[head].max(axis=0))
        columns[head] = part / part.sum(axis=0)
    return np.ascontiguousarray(columns.T)


def mask_absent(probabilities: Float32, present: Bool) -> Float32:
    """Return `probabilities` (N, 13) with nothing but "no change" for pools that are not `present` (N, 2)."""
    if present.all():
        return probabilities
    masked = probabilities.copy()
    for pool, head in enumerate(POOL_HEADS):
        masked[~present[:, pool], head] = np.eye(HEADS[pool], dtype=np.float32)[REACH]
    return masked


def most_likely(probabilities: Float32) -> Int:
    """Return the most probable action of each head, (N, 3) steps and traffic preference; the first of equal ones."""
    columns = np.ascontiguousarray(probabilities.T)
    chosen = [columns[head].argmax(axis=0) for head in (*POOL_HEADS, PLACEMENT_HEAD)]
    return from_indices(np.stack(chosen, axis=1))


def one_hot(action: Int) -> Float32:
    """Return probabilities (N, 13) that leave no choice but `action` (N, 3)."""
    probabilities = np.zeros((len(action), LOGITS), np.float32)
    offsets = np.array([0, HEADS[0], HEADS[0] + HEADS[1]])
    np.put_along_axis(probabilities, (to_indices(action) + offsets).astype(np.int64), 1.0, axis=1)
    return probabilities


PREFERENCE = np.array([[4.0, 1.0], [1.0, 1.0], [1.0, 4.0]])
"""Relative traffic of (GPU, CPU) for a unit of capacity, by traffic preference: GPU, balanced, CPU."""

WHOLE = 1000


def traffic_weights(ready: Int, rps: Float, placement: Int, last: Int, preference: Float | None = None) -> Int:
    """Split the traffic: (N, 2) per mille, summing to 1000, in proportion to ready * rps * preference of each pool.

    `ready` (N, 2) are replicas, `rps` (N, 2) the requests/s that one of them answers, `placement` is (N,), `preference`
    (N,) the factor of the preferred pool; None = as in `PREFERENCE`. A pool with no ready pod gets 0 and one with a
    ready pod at least 1; with none ready at all, `last` (N, 2) stays. Where the capacity of a pool is not known (NaN),
    every pod counts the same.
    """
    unknown = np.isnan(rps)
    capacity = np.where(either(unknown)[:, None], 1.0, rps) if unknown.any() else rps
    factors = PREFERENCE[placement]
    if preference is not None:
        factors = np.where(factors > 1, preference[:, None], 1.0)
    share = np.maximum(ready, 0) * capacity * factors
    total = share[:, 0] + share[:, 1]
    served = total > 0
    gpu = np.rint(WHOLE * share[:, 0] / np.where(served, total, 1.0)).astype(np.int32)
    serving = ready > 0
    weights = np.empty((len(gpu), 2), np.int32)
    np.minimum(np.maximum(gpu, serving[:, 0]), WHOLE - serving[:, 1], out=weights[:, 0])
    np.subtract(WHOLE, weights[:, 0], out=weights[:, 1])
    return weights if served.all() else np.where(served[:, None], weights, last)
