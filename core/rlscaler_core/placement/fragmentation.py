"""Fragmentation of GPUs: the free part of a node that the pods that usually come cannot use.

The measure and the descent by it are those of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent", USENIX ATC 2023.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.gpus import whole_gpus
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Bool, Float, Int, Nodes, Pods

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
    return _expected(cpu_free, _sums(_gpus_first(gpu_free), kinds), gpu_model, kinds)


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
    free = _gpus_first(nodes.gpu_free)
    sums = _sums(free, kinds)
    now = _expected(cpu, sums, nodes.gpu_model, kinds)
    fall, gpu = np.empty(shape), np.full(shape, -1, np.int64)
    if not shared.all():
        whole = np.where(whole_gpus(nodes.gpu_free, count), 0.0, nodes.gpu_free)
        fall = now - fragmentation(cpu_after, whole, nodes.gpu_model, kinds)
    if not shared.any():
        return fall, gpu
    tried = shared & (free >= share) & (free > 0) & _first_of_equals(free)
    at = np.nonzero(tried.reshape(MOST_GPUS, -1))[1]
    after = _without(_taken_at(sums, at), free[tried], share.ravel()[at], kinds)
    falls = np.full(free.shape, -np.inf)
    falls[tried] = now.ravel()[at] - _expected(cpu_after.ravel()[at], after, nodes.gpu_model.ravel()[at], kinds)
    best = falls.argmax(0)
    there = np.take_along_axis(falls, best[None], 0)[0]
    return np.where(shared, there, fall), np.where(shared, best, gpu)


# The GPUs of a node come first below, and the kinds before them: sums over a first axis are several times as fast as
# sums over a last one that is short, and equal nodes get exactly equal numbers.


class _Sums(NamedTuple):
    """Sums over the GPUs of each node."""

    total: Float
    """(...) free thousandths of all GPUs of a node."""
    serving: Int
    """(K, ...) GPUs that a pod of the kind can have."""
    too_small: Float
    """(K, ...) free part of GPUs that have less than a pod of the kind requests of one."""


def _gpus_first(gpu_free: Float) -> Float:
    """(..., G) as (G, ...)."""
    return np.ascontiguousarray(np.moveaxis(gpu_free, -1, 0))


def _first_of_equals(free: Float) -> Bool:
    """(G, ...) whether no GPU before it on the node has as much free: a share fits equal ones equally well."""
    first = np.ones(free.shape, bool)
    for index in range(1, len(free)):
        first[index] = (free[:index] != free[index]).all(0)
    return first


def _of_kinds(column: Float | Int, like: Float) -> Any:
    """(K,) as (K, 1, ...), to be compared with an array that has the dimensions of `like`."""
    return column.reshape(-1, *[1] * like.ndim)


def _serving(free: Float, kinds: TypicalPods) -> NDArray[np.int8]:
    """(K, ...) 1 where a GPU with so much free is one that a pod of the kind can have, else 0."""
    several = _of_kinds(kinds.gpus, free) != 1
    enough = (free >= _of_kinds(kinds.gpu_milli, free)) & (free > 0)
    serving: NDArray[np.int8] = (enough & ~(several & (free != WHOLE_GPU))).view(np.int8)
    return serving


def _too_small(free: Float, kinds: TypicalPods) -> Float:
    """Return (K, ...) the free part of a GPU where it is less than a pod of the kind requests of one."""
    return np.where(free >= _of_kinds(kinds.gpu_milli, free), 0.0, free)


def _sums(free: Float, kinds: TypicalPods) -> _Sums:
    """Sum over the GPUs of each node, which have `free` (G, ...) thousandths free."""
    return _Sums(free.sum(0), _serving(free, kinds).sum(1), _too_small(free, kinds).sum(1))


def _taken_at(sums: _Sums, at: Int) -> _Sums:
    """Pick the sums of M nodes; `at` (M,) are their places among all nodes in a row."""
    kinds = len(sums.serving)
    return _Sums(
        sums.total.ravel()[at],
        sums.serving.reshape(kinds, -1)[:, at],
        sums.too_small.reshape(kinds, -1)[:, at],
    )


def _without(sums: _Sums, of_one: Float, share: Float, kinds: TypicalPods) -> _Sums:
    """The sums once a share (M,) is taken of the one GPU of each node that has `of_one` (M,) free.

    The other GPUs stay as they are, so that each sum has one part exchanged.
    """
    left = of_one - share
    return _Sums(
        sums.total - share,
        sums.serving + (_serving(left, kinds) - _serving(of_one, kinds)),
        sums.too_small + (_too_small(left, kinds) - _too_small(of_one, kinds)),
    )


def _expected(cpu_free: Float, sums: _Sums, gpu_model: Int, kinds: TypicalPods) -> Float:
    """Return (...) the part of a node's free GPUs that a typical pod cannot use, from its free millicores and GPUs."""
    total = sums.total
    models, needs = _of_kinds(kinds.gpu_models, total), _of_kinds(kinds.gpu_milli, total)
    useless = (needs == 0) | (cpu_free < _of_kinds(kinds.cpu_milli, total))
    useless = useless | ((models != 0) & (models & gpu_model == 0))
    unusable = useless | (sums.serving < _of_kinds(kinds.gpus, total))
    expected: Float = (np.where(unusable, total, sums.too_small) * _of_kinds(kinds.weight, total)).sum(0)
    return expected


def without_cores(cpu_free: Float, gpu_free: Float, kinds: TypicalPods) -> Float:
    """Return (...) thousandths of free GPU for which the node lacks free cores, by the total requests of pods.

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
