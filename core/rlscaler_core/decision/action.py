"""The action space, MultiDiscrete([5, 5, 3]), as network heads, as deltas, and as a split of the traffic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Bool, Float, Float32, Int, either

HEADS = (5, 5, 3)
LOGITS = sum(HEADS)
REACH = 2
"""The most steps a pool moves in one action."""

_GPU_HEAD, _CPU_HEAD, _PLACEMENT_HEAD = slice(0, 5), slice(5, 10), slice(10, 13)


def from_indices(indices: NDArray[np.integer]) -> Int:
    """(N, 3) indices of MultiDiscrete([5, 5, 3]) to deltas -2..2, -2..2 and the Placement."""
    action: Int = (indices - np.array([REACH, REACH, 0])).astype(np.int32)
    return action


def to_indices(action: Int) -> Int:
    """The inverse of `from_indices`."""
    indices: Int = (action + np.array([REACH, REACH, 0])).astype(np.int32)
    return indices


def head_probabilities(logits: Float32) -> Float32:
    """(N, 13) softmax within each head."""
    columns = np.array(logits.T, order="C")
    for head in (_GPU_HEAD, _CPU_HEAD, _PLACEMENT_HEAD):
        part = np.exp(columns[head] - columns[head].max(axis=0))
        columns[head] = part / part.sum(axis=0)
    return np.ascontiguousarray(columns.T)


def mask_absent(probabilities: Float32, present: Bool) -> Float32:
    """The head of a pool that is not there holds nothing but "no change"."""
    if present.all():
        return probabilities
    masked = probabilities.copy()
    for pool, head in enumerate((_GPU_HEAD, _CPU_HEAD)):
        masked[~present[:, pool], head] = np.eye(HEADS[pool], dtype=np.float32)[REACH]
    return masked


def most_likely(probabilities: Float32) -> Int:
    """(N, 3) the live choice: the argmax of each head, as deltas and Placement; the first of equals."""
    columns = np.ascontiguousarray(probabilities.T)
    chosen = [columns[head].argmax(axis=0) for head in (_GPU_HEAD, _CPU_HEAD, _PLACEMENT_HEAD)]
    return from_indices(np.stack(chosen, axis=1))


def one_hot(action: Int) -> Float32:
    """(N, 13) probabilities that leave no choice but `action`."""
    probabilities = np.zeros((len(action), LOGITS), np.float32)
    offsets = np.array([0, HEADS[0], HEADS[0] + HEADS[1]])
    np.put_along_axis(probabilities, (to_indices(action) + offsets).astype(np.int64), 1.0, axis=1)
    return probabilities


PREFERENCE = np.array([[4.0, 1.0], [1.0, 1.0], [1.0, 4.0]])
"""How much more a pool gets for each unit of its capacity, by Placement: prefer GPU, balanced, prefer CPU."""

WHOLE = 1000


def traffic_weights(ready: Int, rps: Float, placement: Int, last: Int) -> Int:
    """(N, 2) per mille, summing to 1000: weight_p proportional to ready_p * rps_p * k_p.

    A pool with no ready pod gets 0 and one with a ready pod at least 1; with none ready at all, `last` stays.
    Where the capacity of a pool is not known (NaN), every pod counts the same.
    """
    unknown = np.isnan(rps)
    capacity = np.where(either(unknown)[:, None], 1.0, rps) if unknown.any() else rps
    share = np.maximum(ready, 0) * capacity * PREFERENCE[placement]
    total = share[:, 0] + share[:, 1]
    served = total > 0
    gpu = np.rint(WHOLE * share[:, 0] / np.where(served, total, 1.0)).astype(np.int32)
    serving = ready > 0
    weights = np.empty((len(gpu), 2), np.int32)
    np.minimum(np.maximum(gpu, serving[:, 0]), WHOLE - serving[:, 1], out=weights[:, 0])
    np.subtract(WHOLE, weights[:, 0], out=weights[:, 1])
    return weights if served.all() else np.where(served[:, None], weights, last)
