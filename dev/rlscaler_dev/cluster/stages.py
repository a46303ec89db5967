"""kwok's configuration: when pods become ready, and what nodes report.

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
