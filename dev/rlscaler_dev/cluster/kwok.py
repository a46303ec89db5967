"""What kwok plays: its nodes, and when their pods become ready.

The label `rlscaler.io/flavour: gpu|cpu` of a pod selects its cold start, drawn uniformly from the flavour's range;
the annotations `rlscaler.io/cold-start-min` and `-max` (durations such as "1.5s") override the range for one pod.
A pod without the label is ready at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import manifests

FLAVOUR_LABEL = "rlscaler.io/flavour"
COLD_START_MIN = "rlscaler.io/cold-start-min"
COLD_START_MAX = "rlscaler.io/cold-start-max"

COLD_START_SECONDS: dict[str, tuple[float, float]] = {"gpu": (35.0, 55.0), "cpu": (5.0, 11.0)}
"""Flavour -> (shortest, longest) time from scheduled to ready."""

GPU_RESOURCE = "nvidia.com/gpu"
PODS_PER_NODE = 2000
CPU_CORES, MEMORY = "1000", "1Ti"
"""More than any test asks for: only GPUs are scarce."""
FAKE_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Beside a real node, so that a pod which is meant to run lands there unless it tolerates being played."""

_READY = """\
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ with PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs: [{ip: {{ index . 0 | Quote }}}]
{{ end }}
"""


def pod_ready_stage(flavour: str | None, seconds: tuple[float, float] = (0.0, 0.0)) -> dict[str, Any]:
    """The Stage that makes pending pods of `flavour` ready after a delay drawn from `seconds`; None: without label."""
    label = {"key": f'.metadata.labels["{FLAVOUR_LABEL}"]'}
    chosen = (
        {**label, "operator": "NotIn", "values": sorted(COLD_START_SECONDS)}
        if flavour is None
        else {**label, "operator": "In", "values": [flavour]}
    )
    lowest, highest = f'.metadata.annotations["{COLD_START_MIN}"]', f'.metadata.annotations["{COLD_START_MAX}"]'
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"pod-ready-{flavour or 'at-once'}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchExpressions": [
                    {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                    {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
                    chosen,
                ]
            },
            "delay": {
                "durationMilliseconds": round(seconds[0] * 1000),
                "durationFrom": {"expressionFrom": lowest},
                # kwok's jitter is the upper end of the range, not an addition to the lower end.
                "jitterDurationMilliseconds": round(seconds[1] * 1000),
                "jitterDurationFrom": {"expressionFrom": f"{highest} // {lowest}"},
            },
            "next": {"statusTemplate": _READY},
        },
    }


def write_config(path: Path, cold_start_seconds: dict[str, tuple[float, float]] | None = None) -> None:
    """Write the file that kwok reads with --config."""
    ranges = COLD_START_SECONDS | (cold_start_seconds or {})
    stages = [pod_ready_stage(None), *(pod_ready_stage(flavour, seconds) for flavour, seconds in ranges.items())]
    path.write_text(yaml.safe_dump_all(stages, sort_keys=False) + "\n" + manifests.text("kwok.yaml"))


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
