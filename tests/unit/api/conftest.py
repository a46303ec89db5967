"""The shortest policy, and ways to change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Body = dict[str, Any]


def shortest() -> Body:
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": "chat", "namespace": "workloads", "resourceVersion": "7"},
        "spec": {
            "targets": {
                "gpu": {"deployment": "chat-gpu", "maxReplicas": 10},
                "cpu": {"deployment": "chat-cpu", "maxReplicas": 10},
            },
            "slo": {"latencyMilliseconds": 1000},
        },
    }


@pytest.fixture
def body() -> Callable[..., Body]:
    """`body({"targets.gpu.minReplicas": 2, "slo": None})`: the shortest policy with values set or removed (None)."""

    def changed(values: dict[str, Any] | None = None) -> Body:
        policy = shortest()
        for path, value in (values or {}).items():
            *parents, last = path.split(".")
            place = policy["spec"]
            for part in parents:
                place = place.setdefault(part, {})
            if value is None:
                del place[last]
            else:
                place[last] = value
        return policy

    return changed
