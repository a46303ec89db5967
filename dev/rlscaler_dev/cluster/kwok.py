"""Nodes that kwok plays, and the time after which their pods become ready.

The label `rlscaler.io/flavour: gpu|cpu` of a pod selects its cold start, drawn uniformly from the flavour's range;
the annotations `rlscaler.io/cold-start-min` and `-max` (durations such as "1.5s") override the range for one pod.
A pod without the label is ready at once.

A resize of a running pod is done a moment later; the annotation `rlscaler.io/resize: Deferred|Infeasible` of a pod says
that its node has no room for it, now or ever.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import manifests

FLAVOUR_LABEL = "rlscaler.io/flavour"

COLD_START_SECONDS: dict[str, tuple[float, float]] = {"gpu": (35.0, 55.0), "cpu": (5.0, 11.0)}
"""Flavour -> (shortest, longest) time from scheduled to ready."""

GPU_RESOURCE = "nvidia.com/gpu"
PODS_PER_NODE = 2000
CPU_CORES, MEMORY = "1000", "1Ti"
"""More than any test asks for: only GPUs are scarce."""
FAKE_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Beside a real node, so that a pod which is meant to run lands there unless it tolerates being played."""


def write_config(path: Path, cold_start_seconds: dict[str, tuple[float, float]] | None = None) -> None:
    """Write the file that kwok reads with --config."""
    ranges = COLD_START_SECONDS | (cold_start_seconds or {})
    ready, *resized = yaml.safe_load_all(manifests.text("stages.yaml"))
    label = {"key": f'.metadata.labels["{FLAVOUR_LABEL}"]'}
    at_once = _ready(ready, "at-once", (0, 0), {**label, "operator": "NotIn", "values": sorted(COLD_START_SECONDS)})
    flavours = [
        _ready(ready, flavour, seconds, {**label, "operator": "In", "values": [flavour]})
        for flavour, seconds in ranges.items()
    ]
    stages = yaml.safe_dump_all([at_once, *flavours, *resized], sort_keys=False)
    path.write_text(stages + "\n" + manifests.text("kwok.yaml"))


def _ready(stage: dict[str, Any], name: str, seconds: tuple[float, float], pods: dict[str, Any]) -> dict[str, Any]:
    """Return the Stage that makes the `pods` of one flavour ready after a delay drawn from `seconds`."""
    stage = copy.deepcopy(stage)
    stage["metadata"]["name"] += f"-{name}"
    stage["spec"]["selector"]["matchExpressions"].append(pods)
    low, high = (round(1000 * bound) for bound in seconds)
    stage["spec"]["delay"] |= {"durationMilliseconds": low, "jitterDurationMilliseconds": high}
    return stage


def node(name: str, pool: str, gpus: int = 0) -> dict[str, Any]:
    """A node of `pool`; with GPUs it carries the usual taint, so only pods that tolerate it land there."""
    capacity = {"cpu": CPU_CORES, "memory": MEMORY, "pods": str(PODS_PER_NODE)}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "pool": pool}
    spec: dict[str, Any] = {}
    if gpus:
        capacity[GPU_RESOURCE] = str(gpus)
        labels["nvidia.com/gpu.present"] = "true"
        spec["taints"] = [{"key": GPU_RESOURCE, "value": "true", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
            },
        },
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def nodes(gpu_nodes: int, gpus_per_node: int, cpu_nodes: int, beside_real: bool = False) -> list[dict[str, Any]]:
    """gpu-1, gpu-2, ..., cpu-1, cpu-2, ...; with a taint of their own beside a real node."""
    played = [node(f"gpu-{index}", "gpu", gpus_per_node) for index in range(1, gpu_nodes + 1)]
    played += [node(f"cpu-{index}", "cpu") for index in range(1, cpu_nodes + 1)]
    for manifest in played if beside_real else ():
        manifest["spec"].setdefault("taints", []).append(FAKE_TAINT)
    return played
