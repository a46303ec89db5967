"""Hand-written rules that score nodes for a pod: higher is better, and only the order counts.

Each is a pure function of arrays. A rule that looks at all nodes (`spread`) has to be given all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlscaler_core.placement.fragmentation import (
    DEFAULT_TYPICAL,
    TypicalPods,
    descent,
    published_score,
    without_cores,
)
from rlscaler_core.placement.mask import above_hard
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Nodes, Pods

Rule = Callable[[Nodes, Pods], Float]

LARGEST_CPU_MILLI = 128_000.0
"""Divisor of free CPU in best fit, as published: the largest node of the trace."""

BEST_FIT_WEIGHT = 3.0
"""Weight of best fit beside the fragmentation score, which has 100 points."""

CORES_WEIGHT = 5.0
"""Points for a GPU that a placement leaves without cores, beside the fragmentation score."""

LATENCY_FIT_MS = 50.0
"""Milliseconds by which a node has to be farther to be worth one point of `pack` in `latency_fit`."""

UNKNOWN_LIFETIME_S = 1800.0
"""Stands in for a lifetime or a node's last end that is not known."""

EXTENSION_WEIGHT = 1.0
"""Points of `pack` that an extension without end costs in `pack_and_extension`; one of half an hour costs half."""


def used_share(nodes: Nodes) -> Float:
    """(..., N, 2) share of CPU and memory that is requested; 1 where a node has none to give."""
    has = nodes.allocatable > 0
    share: Float = np.where(has, nodes.requested / np.where(has, nodes.allocatable, 1.0), 1.0)
    return share


def _mean_share(nodes: Nodes) -> Float:
    """(..., N) mean of the shares of CPU and memory; the same as `mean(-1)`, several times as fast over two columns."""
    share = used_share(nodes)
    mean: Float = (share[..., 0] + share[..., 1]) / 2.0
    return mean


def _relative_size(nodes: Nodes) -> Float:
    cpu = nodes.allocatable[..., 0]
    size: Float = cpu / np.maximum(cpu.max(-1, keepdims=True), 1.0)
    return size


def best_fit(nodes: Nodes, pods: Pods) -> Float:
    """Least left over, CPU and GPU weighed alike; 1 where nothing would be left."""
    cpu = (nodes.allocatable - nodes.requested)[..., 0] - pods.requests[..., None, 0]
    gpu = nodes.gpu_free.sum(-1) - (pods.gpus * pods.gpu_milli)[..., None]
    left: Float = 1.0 - 0.5 * cpu / LARGEST_CPU_MILLI - 0.5 * gpu / (MOST_GPUS * WHOLE_GPU)
    return left


def pack(nodes: Nodes, pods: Pods) -> Float:
    """Nodes in use first, the larger and then the fuller; where one must be opened, the biggest."""
    del pods
    used, size = nodes.pods > 0, _relative_size(nodes)
    score: Float = np.where(used, 10.0 + size + 0.5 * _mean_share(nodes), size)
    return score


def most_allocated(nodes: Nodes, pods: Pods) -> Float:
    """The fullest node, as kube-scheduler's MostAllocated."""
    del pods
    return _mean_share(nodes)


def spread(nodes: Nodes, pods: Pods) -> Float:
    """The node that makes the shares of requested CPU differ least over all nodes: an exact look at one step."""
    share = used_share(nodes)[..., 0]
    cpu = nodes.allocatable[..., 0]
    added = pods.requests[..., None, 0] / np.maximum(cpu, 1.0)
    count = share.shape[-1]
    total, squares = share.sum(-1, keepdims=True), (share**2).sum(-1, keepdims=True)
    variance: Float = (squares + 2 * share * added + added**2) / count - ((total + added) / count) ** 2
    return -variance


def least_used(nodes: Nodes, pods: Pods) -> Float:
    """Most room by measured usage: 1 minus the fuller of CPU and memory, with the pod's requests added.

    A node whose usage is not known counts with its requests, so that it is not taken for an empty one.
    """
    added = pods.requests[..., None, :] / np.maximum(nodes.allocatable, 1.0)
    used = np.where(np.isnan(nodes.in_use), used_share(nodes), nodes.in_use)
    room: Float = 1.0 - (used + added).max(-1)
    return room


def least_allocated(nodes: Nodes, pods: Pods) -> Float:
    """The emptiest node, as kube-scheduler's LeastAllocated."""
    return -most_allocated(nodes, pods)


def _latency_class(nodes: Nodes, pods: Pods) -> Float:
    """(..., N) 2 below the soft limit, 1 below the hard one, 0 above it or not measured; without limits 2."""
    soft = np.isnan(pods.soft_ms)[..., None] | (nodes.latency_ms <= pods.soft_ms[..., None])
    return 2.0 * (soft & ~above_hard(nodes, pods)) + 1.0 * (~soft & ~above_hard(nodes, pods))


def latency_first(nodes: Nodes, pods: Pods) -> Float:
    """The best class of latency (below soft, below hard, above), then the lowest latency."""
    return 10.0 * _latency_class(nodes, pods) - np.nan_to_num(nodes.latency_ms, nan=1e4) / 1e4


def latency_then_pack(nodes: Nodes, pods: Pods) -> Float:
    """The best class of latency, then `pack`."""
    return 20.0 * _latency_class(nodes, pods) + pack(nodes, pods)


def latency_fit(nodes: Nodes, pods: Pods) -> Float:
    """The best class of latency; of its nodes rather one that is far, and used: near ones are for pods that need them.

    Nodes in use still come before the others, and among them one that is 50 ms farther before the biggest.
    """
    far: Float = np.minimum(np.nan_to_num(nodes.latency_ms, nan=0.0) / LATENCY_FIT_MS, 8.0)
    return 20.0 * _latency_class(nodes, pods) + pack(nodes, pods) + far


def least_extension(nodes: Nodes, pods: Pods) -> Float:
    """The node that the pod keeps in use for the least time beyond its last pod; node-hours grow by just this.

    Of the nodes that outlast the pod the one that ends soonest, so that those that stay longer keep their room for
    pods that stay longer. Equals as `pack` has them, which is its order where no lifetime is known: one that is not
    counts as UNKNOWN_LIFETIME_S.
    """
    bent = _outlasts(nodes, pods)
    score: Float = np.where(bent >= 0, 2.0 - bent, bent) + 1e-6 * pack(nodes, pods)
    return score


def pack_and_extension(nodes: Nodes, pods: Pods) -> Float:
    """`pack`, with up to a point less for the time by which the pod keeps the node in use beyond its last pod.

    Half an hour weighs as much as the largest node does over one of half its size. Stated lifetimes of pods may be
    wrong: unlike in `least_extension`, a node in use always comes before one that is not.
    """
    extension = np.minimum(_outlasts(nodes, pods), 0.0)
    return pack(nodes, pods) + EXTENSION_WEIGHT * extension


def _outlasts(nodes: Nodes, pods: Pods) -> Float:
    """(..., N) 0 to 1 for nodes whose last pod ends after the pod, 0 to -1 for the others.

    It is bent so that minutes and weeks have the same scale; half an hour is one half.
    """
    lifetime = np.where(np.isnan(pods.lifetime_s), UNKNOWN_LIFETIME_S, pods.lifetime_s)[..., None]
    left = np.where(np.isnan(nodes.empty_in_s), UNKNOWN_LIFETIME_S, nodes.empty_in_s)
    outlasts = left - lifetime
    bent: Float = outlasts / (np.abs(outlasts) + UNKNOWN_LIFETIME_S)
    return bent


def fragmentation_rule(kinds: TypicalPods) -> Rule:
    """A rule that lets fragmentation of GPUs grow least for pods of these kinds, with best fit as second term."""

    def fragmentation(nodes: Nodes, pods: Pods) -> Float:
        """Least growth of the GPU thousandths that typical pods cannot use (FGD, ATC'23), then best fit."""
        fall, _ = descent(nodes, pods, kinds)
        return published_score(fall) + BEST_FIT_WEIGHT * best_fit(nodes, pods)

    return fragmentation


def fragmentation_and_cores_rule(kinds: TypicalPods) -> Rule:
    """The rule `fragmentation` that also lets free GPUs keep the cores which pods of these kinds need beside them."""
    by_fragmentation = fragmentation_rule(kinds)

    def fragmentation_and_cores(nodes: Nodes, pods: Pods) -> Float:
        """Least growth of the part that typical pods cannot use, of GPUs without cores, then best fit."""
        cpu, gpu = (nodes.allocatable - nodes.requested)[..., 0], nodes.gpu_free.sum(-1)
        cpu_after, gpu_after = cpu - pods.requests[..., None, 0], gpu - (pods.gpus * pods.gpu_milli)[..., None]
        growth = without_cores(cpu_after, gpu_after, kinds) - without_cores(cpu, gpu, kinds)
        return by_fragmentation(nodes, pods) - CORES_WEIGHT * growth / WHOLE_GPU

    return fragmentation_and_cores


GPU_RULES: dict[str, Callable[[TypicalPods], Rule]] = {
    "fragmentation": fragmentation_rule,
    "fragmentation-and-cores": fragmentation_and_cores_rule,
}
"""The rules that go by the pods that usually come, by their names."""

RULES: dict[str, Rule] = {
    "pack": pack,
    "most-allocated": most_allocated,
    "best-fit": best_fit,
    "spread": spread,
    "least-allocated": least_allocated,
    "least-used": least_used,
    "latency-first": latency_first,
    "latency-then-pack": latency_then_pack,
    "latency-fit": latency_fit,
    "least-extension": least_extension,
    "pack-and-extension": pack_and_extension,
} | {name: of_kinds(DEFAULT_TYPICAL) for name, of_kinds in GPU_RULES.items()}
"""Every rule by its name."""
