"""The action space: MultiDiscrete([5, 5, 3]) as network heads and as deltas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Bool, Float32, Int

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
