"""Objects that the tests of the development cluster create."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until

Json = dict[str, Any]


def deployment(
    name: str, replicas: int, flavour: str | None = None, annotations: dict[str, str] | None = None, cpu: str = "100m"
) -> Json:
    """Pods for the pool of `flavour`; None: for CPU nodes, ready at once."""
    labels = {"app": name} | ({"rlscaler.io/flavour": flavour} if flavour else {})
    resources: Json = {"requests": {"cpu": cpu}}
    pod: Json = {"nodeSelector": {"pool": flavour or "cpu"}}
    if flavour == "gpu":
        resources["limits"] = {"nvidia.com/gpu": 1}
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    pod["containers"] = [{"name": "app", "image": "registry.k8s.io/pause:3.10", "resources": resources}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": pod},
        },
    }


def deployments(namespace: str) -> str:
    """URL path of a namespace's Deployments."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


def create(client: KubeClient, namespace: str, manifest: Json) -> None:
    """Create a Deployment."""
    client.request("POST", deployments(namespace), manifest)


def ready(client: KubeClient, namespace: str, name: str) -> int:
    """Its ready replicas."""
    return int(client.get(f"{deployments(namespace)}/{name}")["status"].get("readyReplicas", 0))


def pods(client: KubeClient, namespace: str, app: str) -> list[Json]:
    """The pods of one Deployment."""
    found: list[Json] = client.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}")["items"]
    return found


def wait_ready(client: KubeClient, namespace: str, name: str, count: int, timeout_seconds: float = 30) -> None:
    """Until exactly `count` replicas are ready."""
    wait_until(lambda: ready(client, namespace, name) == count, f"{count} ready of {name}", timeout_seconds)
