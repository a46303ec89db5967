"""Fragmentation of GPUs: how much of what is free on a node the pods that usually come cannot use.

The measure and the descent by it are those of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from rlscaler_core.placement.gpus import whole_gpus
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Int, Nodes, Pods

_SCALE = 1000.0
"""Thousandths of a GPU at which the sigmoid of the published score turns."""


class TypicalPods(NamedTuple):
    """K kinds of pods and how often each comes; the weights sum to 1."""

    cpu_milli: Float
    gpus: Float
    gpu_milli: Float
    gpu_models: Int
    weight: Float


def typical(pods: Pods, share: float = 0.95) -> TypicalPods:
    """The most frequent kinds of the pods (P), as many as cover this share of them."""
    kinds = zip(
        pods.requests[:, 0].tolist(),
        pods.gpus.tolist(),
        pods.gpu_milli.tolist(),
        pods.gpu_models.tolist(),
        strict=True,
    )
    counted = Counter(kinds).most_common()
    numbers = np.array([count for _, count in counted], float)
    upto = int(np.searchsorted(numbers.cumsum() / numbers.sum(), share)) + 1
    rows = np.array([kind for kind, _ in counted[:upto]], float)
    weight = numbers[:upto] / numbers[:upto].sum()
    return TypicalPods(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int64), weight)


DEFAULT_TYPICAL = TypicalPods(
    np.array([4000.0, 4000.0, 8000.0, 8000.0, 16000.0, 64000.0]),
    np.array([1.0, 1.0, 1.0, 1.0, 2.0, 8.0]),
    np.array([250.0, 500.0, 750.0, 1000.0, 1000.0, 1000.0]),
    np.zeros(6, np.int64),
    np.array([0.2, 0.2, 0.1, 0.4, 0.05, 0.05]),
)
"""Where nothing is known of the pods that come: shares, whole GPUs, a few large ones."""


def fragmentation(cpu_free: Float, gpu_free: Float, gpu_model: Int, kinds: TypicalPods) -> Float:
    """(...) thousandths of GPU that are free and that a typical pod cannot use, in expectation.

    cpu_free: (...) millicores. gpu_free: (..., G) thousandths. gpu_model: (...) bits.
    """
    total = gpu_free.sum(-1)[..., None]
    needs = kinds.gpu_milli
    enough = gpu_free[..., None, :] >= needs[:, None]
    usable = enough & ((kinds.gpus[:, None] == 1) | (gpu_free[..., None, :] == WHOLE_GPU))
    fits = (usable & (gpu_free[..., None, :] > 0)).sum(-1) >= kinds.gpus
    lost = np.where(enough, 0.0, gpu_free[..., None, :]).sum(-1)
    unusable = (
        (needs == 0)
        | (cpu_free[..., None] < kinds.cpu_milli)
        | ((kinds.gpu_models != 0) & ((kinds.gpu_models & gpu_model[..., None]) == 0))
        | ~fits
    )
    expected: Float = np.where(unusable, total, lost) @ kinds.weight
    return expected


def descent(nodes: Nodes, pods: Pods, kinds: TypicalPods) -> tuple[Float, Int]:
    """(..., N) by how many thousandths fragmentation falls when the pod lands on each node, and the GPU that it takes.

    For a share of a GPU every GPU that has it free is tried, and the first of the best ones is named; the GPU is -1 for
    whole GPUs and for none. Nodes that the pod does not fit give numbers without meaning.
    """
    shape = nodes.gpus.shape
    share = np.broadcast_to(pods.gpu_milli[..., None], shape)
    count = np.broadcast_to(pods.gpus[..., None], shape)
    shared = (count == 1) & (share < WHOLE_GPU)
    cpu = (nodes.allocatable - nodes.requested)[..., 0]
    cpu_after = cpu - pods.requests[..., None, 0]
    now = fragmentation(cpu, nodes.gpu_free, nodes.gpu_model, kinds)
    whole = np.where(whole_gpus(nodes.gpu_free, count), 0.0, nodes.gpu_free)
    fall = now - fragmentation(cpu_after, whole, nodes.gpu_model, kinds)
    gpu = np.full(shape, -1, np.int64)
    if not shared.any():
        return fall, gpu
    tried = nodes.gpu_free[..., None, :] - np.eye(MOST_GPUS) * share[..., None, None]
    after = fragmentation(
        np.broadcast_to(cpu_after[..., None], (*shape, MOST_GPUS)),
        np.maximum(tried, 0.0),
        np.broadcast_to(nodes.gpu_model[..., None], (*shape, MOST_GPUS)),
        kinds,
    )
    falls = np.where((nodes.gpu_free >= share[..., None]) & (nodes.gpu_free > 0), now[..., None] - after, -np.inf)
    best = falls.argmax(-1)
    there = np.take_along_axis(falls, best[..., None], -1)[..., 0]
    return np.where(shared, there, fall), np.where(shared, best, gpu)


def without_cores(cpu_free: Float, gpu_free: Float, kinds: TypicalPods) -> Float:
    """(...) thousandths of GPU that are free beyond what the free cores are enough for, as pods ask for both in all.

    Fragmentation asks whether one typical pod has its cores; this asks for how many GPUs there are cores.
    A GPU is counted for one core at least.
    cpu_free: (...) millicores. gpu_free: (...) thousandths of all GPUs of a node.
    """
    gpus = float(kinds.weight @ (kinds.gpus * kinds.gpu_milli))
    if gpus == 0:
        return np.zeros_like(gpu_free)
    cores_per_gpu = float(kinds.weight @ kinds.cpu_milli) / gpus
    beyond: Float = np.maximum(gpu_free - cpu_free / max(cores_per_gpu, 1.0), 0.0)
    return beyond


def published_score(fall: Float) -> Float:
    """The score of the published implementation: the fall through a sigmoid, 0 to 100, not rounded."""
    return 100.0 / (1.0 + np.exp(-np.clip(fall / _SCALE, -500, 500)))
