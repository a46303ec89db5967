"""Nodes that kwok plays, and the time after which their pods become ready.

The label `rlscaler.io/flavour: gpu|cpu` of a pod selects its cold start, drawn uniformly from the flavour's range;
the annotations `rlscaler.io/cold-start-min` and `-max` (durations such as "1.5s") override the range for one pod.
A pod without the label is ready at once.

A resize of a running pod is done a moment later; the annotation `rlscaler.io/resize: Deferred|Infeasible` of a pod says
that its node has no room for it, now or ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import manifests

FLAVOUR_LABEL = "rlscaler.io/flavour"
COLD_START_MIN = "rlscaler.io/cold-start-min"
COLD_START_MAX = "rlscaler.io/cold-start-max"
RESIZE = "rlscaler.io/resize"
NO_ROOM = ("Deferred", "Infeasible")
RESIZE_MILLISECONDS = 200
"""Time until a kubelet reports that a container runs with its new size, about."""

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
observedGeneration: {{ .metadata.generation }}
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
  resources: {{ YAML (or .resources dict) 2 }}
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

_OBSERVED = """\
observedGeneration: {{ .metadata.generation }}
conditions:
- {type: PodResizePending, $patch: delete}
"""

_RESIZED = (
    _OBSERVED
    + """\
containerStatuses:
{{ range $i, $said := .status.containerStatuses }}
- name: {{ $said.name | Quote }}
  image: {{ $said.image | Quote }}
  imageID: {{ or $said.imageID "" | Quote }}
  ready: {{ $said.ready }}
  started: {{ $said.started }}
  restartCount: {{ $said.restartCount }}
  resources: {{ YAML (or (index $.spec.containers $i).resources dict) 2 }}
  state: {{ YAML $said.state 2 }}
{{ end }}
"""
)

_PENDING = f"""\
observedGeneration: {{{{ .metadata.generation }}}}
conditions:
- type: PodResizePending
  status: "True"
  reason: {{{{ index .metadata.annotations "{RESIZE}" | Quote }}}}
  message: Node did not have enough capacity
  lastTransitionTime: {{{{ Now | Quote }}}}
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


def resize_stages() -> list[dict[str, Any]]:
    """Return the Stages that act as a kubelet does after a patch of a running pod's size."""
    key = f'.metadata.annotations["{RESIZE}"]'
    fits = {"key": key, "operator": "NotIn", "values": list(NO_ROOM)}
    does_not = {"key": key, "operator": "In", "values": list(NO_ROOM)}
    differs, same = (
        {
            "key": "([.spec.containers[].resources] == [.status.containerStatuses[]?.resources]) | tostring",
            "operator": "In",
            "values": [text],
        }
        for text in ("false", "true")
    )
    unseen = {
        "key": "(.metadata.generation == .status.observedGeneration) | tostring",
        "operator": "In",
        "values": ["false"],
    }
    return [
        _resize_stage("pod-resized", [fits, differs], _RESIZED),
        _resize_stage("pod-resize-pending", [does_not, differs, unseen], _PENDING),
        _resize_stage("pod-observed", [same, unseen], _OBSERVED),
    ]


def _resize_stage(name: str, where: list[dict[str, Any]], status: str) -> dict[str, Any]:
    running = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [*running, *where]},
            "delay": {"durationMilliseconds": RESIZE_MILLISECONDS},
            "next": {"statusTemplate": status},
        },
    }


def write_config(path: Path, cold_start_seconds: dict[str, tuple[float, float]] | None = None) -> None:
    """Write the file that kwok reads with --config."""
    ranges = COLD_START_SECONDS | (cold_start_seconds or {})
    stages = [pod_ready_stage(None), *(pod_ready_stage(flavour, seconds) for flavour, seconds in ranges.items())]
    stages += resize_stages()
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
