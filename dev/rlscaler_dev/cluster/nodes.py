"""Node objects that kwok plays."""

from __future__ import annotations

from typing import Any

GPU_RESOURCE = "nvidia.com/gpu"
PODS_PER_NODE = 2000
CPU_CORES, MEMORY = "1000", "1Ti"
"""More than any test asks for: only GPUs are scarce."""


FAKE_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Beside a real node, so that a pod which is meant to run lands there unless it tolerates being played."""


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


def pools(gpu_nodes: int, gpus_per_node: int, cpu_nodes: int, beside_real: bool = False) -> list[dict[str, Any]]:
    """gpu-1, gpu-2, ..., cpu-1, cpu-2, ...; with a taint of their own beside a real node."""
    played = [node(f"gpu-{index}", "gpu", gpus_per_node) for index in range(1, gpu_nodes + 1)]
    played += [node(f"cpu-{index}", "cpu") for index in range(1, cpu_nodes + 1)]
    for manifest in played if beside_real else ():
        manifest["spec"].setdefault("taints", []).append(FAKE_TAINT)
    return played
