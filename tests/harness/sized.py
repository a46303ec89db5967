"""Policies whose pods are resized: what an operator before has seen them use is in their status."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rlscaler_core.vertical.recommend import FEWEST_SAMPLES, Ranges, Usage, nothing_known, recommend
from rlscaler_core.vertical.storage import to_text
from tests.harness.world import World

SMALL = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "128Mi"}, "limits": {"cpu": "600m", "memory": "128Mi"}}
RANGES = {"cpu": {"min": "100m", "max": "300m"}, "memory": {"min": "32Mi", "max": "128Mi"}}
MIB = 2.0**20
MOST = np.array([[0.3, 128 * MIB]])


def asks_for(world: World, name: str) -> list[dict[str, Any]]:
    """What the containers of a Deployment's pods ask for."""
    return [pod["spec"]["containers"][0]["resources"] for pod in world.pods(name)]


def runs_with(world: World, name: str) -> list[dict[str, Any] | None]:
    """What they run with, as their kubelets say."""
    statuses = [pod["status"].get("containerStatuses") or [{}] for pod in world.pods(name)]
    return [status[0].get("resources") for status in statuses]


def dry_run(world: World, owner: str) -> dict[str, Any]:
    """What the API server would make of the size of a new pod of a Deployment."""
    made = "5d4f8c7b6"
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{owner}-{made}", "uid": "u"}
    labels = {"app": owner, "pod-template-hash": made}
    metadata = {"generateName": f"{owner}-{made}-", "labels": labels, "ownerReferences": [replica_set]}
    spec = {"containers": [{"name": "app", "image": "app", "resources": SMALL}]}
    path = f"{world.path('pods')}?dryRun=All"
    sizes: dict[str, Any] = world.kube.request("POST", path, {"metadata": metadata, "spec": spec})["spec"]
    return dict(sizes["containers"][0]["resources"])


def seen() -> dict[str, Any]:
    """What an operator before would have left: pods that used all that the range has."""
    ranges, memory = Ranges(np.array([[0.1, 32 * MIB]]), MOST, MOST / 20), nothing_known(1)
    for number in range(FEWEST_SAMPLES):
        memory = recommend(ranges, memory, Usage(np.array([time.time() - 300 + number]), MOST))
    return {"cpu": {"cpu": "300m", "memory": "128Mi"}, "seen": to_text(memory)}


def prepared(world: World, name: str, sizing: str = "InPlace", replicas: int = 2, **spec: Any) -> None:
    """A policy of a Deployment NAME-cpu whose pods are SMALL and should be LARGE, by a mode of their sizes."""
    world.service(name, rate=4)
    world.deployment(f"{name}-cpu", "cpu", replicas, resources=SMALL)
    target = {"deployment": f"{name}-cpu", "minReplicas": replicas, "maxReplicas": replicas, "requestsPerSecond": 4}
    target["resources"] = {"mode": sizing, **RANGES}
    world.policy(name, targets={"cpu": target}, **spec)
    world.patch("rlscalingpolicies", name, {"status": {"podSizes": seen()}}, "status")
