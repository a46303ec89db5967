"""Mask of the nodes that may take a pod. Taints, affinity and volumes are kube-scheduler's to filter."""

from __future__ import annotations

import numpy as np

from rlscaler_core.placement.types import Bool, Nodes, Pods


def fits(nodes: Nodes, pods: Pods) -> Bool:
    """(..., N): requests, the number of pods, and GPUs of a model that the pod may run on."""
    room = nodes.allocatable - nodes.requested >= pods.requests[..., None, :]
    return room.all(-1) & (nodes.pods < nodes.pod_limit) & fits_gpus(nodes, pods)


def fits_gpus(nodes: Nodes, pods: Pods) -> Bool:
    """(..., N): as many GPUs as the pod asks for have the share free that it asks for on each."""
    share = pods.gpu_milli[..., None, None]
    enough = ((nodes.gpu_free >= share) & (nodes.gpu_free > 0)).sum(-1) >= pods.gpus[..., None]
    allowed = (pods.gpu_models[..., None] == 0) | ((pods.gpu_models[..., None] & nodes.gpu_model) != 0)
    taken: Bool = (pods.gpus[..., None] == 0) | (enough & allowed)
    return taken


def near_enough(nodes: Nodes, pods: Pods) -> Bool:
    """(..., N): not measured to be above the pod's hard latency. A node that was not measured is not refused."""
    return ~(nodes.latency_ms > pods.hard_ms[..., None])


def above_hard(nodes: Nodes, pods: Pods) -> Bool:
    """(..., N): the pod has a hard latency, and the node is above it or was not measured."""
    return ~np.isnan(pods.hard_ms)[..., None] & ~(nodes.latency_ms <= pods.hard_ms[..., None])
