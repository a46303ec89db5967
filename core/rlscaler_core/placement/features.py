"""Inputs of a network for each node: numbers around 0 to 1, the same for 3 nodes and for 5,000."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.fragmentation import DEFAULT_TYPICAL, TypicalPods, descent
from rlscaler_core.placement.gpus import taken
from rlscaler_core.placement.mask import above_hard
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy
from rlscaler_core.placement.rules import GPU_RULES, RULES, UNKNOWN_LIFETIME_S, used_share
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Bool, Float, Nodes, Pods

Float32 = NDArray[np.float32]

CONTRACT = "placement/2"
"""Changes whenever a column or its meaning does: a network of another contract is refused."""

COMMON = (
    "rule",
    "used_cpu",
    "used_memory",
    "asked_cpu",
    "asked_memory",
    "in_use",
    "pods",
    "size",
    "below_soft",
    "below_hard",
    "latency",
    "empty_in",
    "lifetime",
    "extension",
)
"""Columns of every scoring policy. The first is the score of its rule, 0 to 1 over the allowed nodes."""

OF_GPUS = ("gpu_free", "gpus_unused", "gpu_asked", "gpu_left_over", "fragmentation")
"""Further columns of the scoring policy GPU."""

MOST = 5.0
"""No column is larger, and none smaller than its opposite: a node that is down has no room, whatever is asked."""

_PODS = 20.0
_LATENCY_MS = 100.0


def columns(policy: Policy) -> tuple[str, ...]:
    """Names of the columns, in order."""
    return COMMON + OF_GPUS if policy is Policy.GPU else COMMON


def features(
    policy: Policy,
    nodes: Nodes,
    pods: Pods,
    among: Bool,
    kinds: TypicalPods = DEFAULT_TYPICAL,
    rule: str | None = None,
) -> Float32:
    """Return (..., N, columns) float32. Unknown values (latency, lifetimes) have the value in the middle, never NaN.

    rule: the rule of the first column, by its name in `RULES`; None = the scoring policy's default.
    """
    name = rule or DEFAULT_RULE[policy]
    by_rule = GPU_RULES[name](kinds) if name in GPU_RULES else RULES[name]
    used = used_share(nodes)
    requested = np.minimum(pods.requests[..., None, :] / np.maximum(nodes.allocatable, 1.0), MOST)
    cpu = nodes.allocatable[..., 0]
    lifetime = _time(pods.lifetime_s)[..., None]
    empty_in = _time(nodes.empty_in_s)
    columns = [
        scaled(by_rule(nodes, pods), among),
        used[..., 0],
        used[..., 1],
        requested[..., 0],
        requested[..., 1],
        nodes.pods > 0,
        np.minimum(nodes.pods / _PODS, MOST),
        cpu / np.maximum(cpu.max(-1, keepdims=True), 1.0),
        np.isnan(pods.soft_ms)[..., None] | (nodes.latency_ms <= pods.soft_ms[..., None]),
        ~above_hard(nodes, pods),
        np.minimum(np.nan_to_num(nodes.latency_ms, nan=_LATENCY_MS) / _LATENCY_MS, MOST),
        empty_in,
        np.broadcast_to(lifetime, cpu.shape),
        np.maximum(lifetime - empty_in, 0.0),
    ]
    if policy is Policy.GPU:
        columns += _of_gpus(nodes, pods, kinds)
    return np.stack([column.astype(np.float32) for column in columns], -1)


def scaled(scores: Float, among: Bool) -> Float:
    """(..., N) scores between 0, the worst of `among`, and 1, the best; 0 for the others, .5 where all are equal."""
    low = np.where(among, scores, np.inf).min(-1, keepdims=True)
    high = np.where(among, scores, -np.inf).max(-1, keepdims=True)
    width = high - low
    some = np.isfinite(width) & (width > 0)
    part = (scores - np.where(some, low, 0.0)) / np.where(some, width, 1.0)
    return np.where(among, np.where(some, part, 0.5), 0.0)


def _time(seconds: Float) -> Float:
    """Convert seconds to hours, at most MOST; an unknown time counts as UNKNOWN_LIFETIME_S."""
    hours: Float = np.minimum(np.where(np.isnan(seconds), UNKNOWN_LIFETIME_S, seconds) / 3600.0, MOST)
    return hours


def _of_gpus(nodes: Nodes, pods: Pods, kinds: TypicalPods) -> list[Float]:
    total = float(MOST_GPUS * WHOLE_GPU)
    free = nodes.gpu_free.sum(-1)
    fall, _ = descent(nodes, pods, kinds)
    takes = taken(nodes, pods)
    left = np.where(takes > 0, nodes.gpu_free - takes, 0.0).sum(-1)
    return [
        free / total,
        (nodes.gpu_free == WHOLE_GPU).sum(-1) / MOST_GPUS,
        np.broadcast_to((pods.gpus * pods.gpu_milli)[..., None] / total, free.shape),
        left / WHOLE_GPU,
        np.clip(fall / WHOLE_GPU, -MOST, MOST),
    ]
