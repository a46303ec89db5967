"""Choice of a GPU of a node for a pod, and the free GPUs afterwards."""

from __future__ import annotations

import numpy as np

from rlscaler_core.placement.types import WHOLE_GPU, Bool, Float, Nodes, Pods


def best_fit_gpu(free: Float, share: Float) -> Bool:
    """(..., G) which one GPU takes a share: the fullest that has it free, the first of equals.

    free: (..., G) thousandths. share: (...). All False where none has it free.
    """
    left = np.where((free >= share[..., None]) & (free > 0), free, np.inf)
    first = left.argmin(-1)
    chosen: Bool = (np.arange(free.shape[-1]) == first[..., None]) & np.isfinite(left)
    return chosen


def whole_gpus(free: Float, count: Float) -> Bool:
    """(..., G) the first `count` GPUs that nothing runs on."""
    unused = free == WHOLE_GPU
    chosen: Bool = unused & (unused.cumsum(-1) <= count[..., None])
    return chosen


def taken(nodes: Nodes, pods: Pods) -> Float:
    """(..., N, MOST_GPUS) thousandths that the pod would take of each GPU of each node, by best fit."""
    share = np.broadcast_to(pods.gpu_milli[..., None], nodes.gpus.shape)
    count = np.broadcast_to(pods.gpus[..., None], nodes.gpus.shape)
    shared = (count == 1) & (share < WHOLE_GPU)
    chosen = np.where(shared[..., None], best_fit_gpu(nodes.gpu_free, share), whole_gpus(nodes.gpu_free, count))
    amount: Float = chosen * np.where(count > 0, share, 0.0)[..., None]
    return amount
