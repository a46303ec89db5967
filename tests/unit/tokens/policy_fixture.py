"""A policy of a token service, as a file."""

from pathlib import Path
from typing import Any

import yaml

SPEC: dict[str, Any] = {
    "targets": {"gpu": {"deployment": "chat", "maxReplicas": 8, "coldStartSeconds": 120}},
    "capacity": {"unit": "tokens", "perReplica": {"gpu": 1500}},
    "slo": {"latencyMilliseconds": 2500, "signal": "ttft", "timePerOutputTokenMilliseconds": 150},
    "metrics": {"preset": "vllm"},
}


def write_policy(path: Path, interval_seconds: int) -> Path:
    """Write the policy `chat` with an action interval."""
    about = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": "chat"}}
    path.write_text(yaml.safe_dump({**about, "spec": {**SPEC, "intervalSeconds": interval_seconds}}))
    return path
