"""Conditions that a starting cluster waits for."""

from __future__ import annotations

import requests

from rlscaler_dev.cluster.exceptions import ApiError
from rlscaler_dev.cluster.kube import KubeClient

NOT_READY_TAINT = "node.kubernetes.io/not-ready"


def ready_api(client: KubeClient) -> bool:
    """Whether the API server reports itself ready."""
    return str(client.get("/readyz")).strip() == "ok"


def nodes_schedulable(client: KubeClient, count: int) -> bool:
    """Whether at least `count` nodes are Ready and free of the not-ready taint that new nodes carry."""
    usable = 0
    for node in client.get("/api/v1/nodes")["items"]:
        conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        usable += conditions.get("Ready") == "True" and NOT_READY_TAINT not in taints
    return usable >= count


def settled(client: KubeClient) -> bool:
    """Whether pods can be created (the default service account is there) and all CRDs are served."""
    client.get("/api/v1/namespaces/default/serviceaccounts/default")
    definitions = client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    # A definition that was made this moment has conditions, and they are null.
    conditions = [item["status"]["conditions"] or () for item in definitions]
    return all(any(one["type"] == "Established" and one["status"] == "True" for one in each) for each in conditions)


def api_available(client: KubeClient, name: str) -> bool:
    """Whether the aggregated API, e.g. "v1beta1.metrics.k8s.io", is available."""
    try:
        service = client.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    conditions = service.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Available" and entry["status"] == "True" for entry in conditions)


def prometheus_ready(url: str) -> bool:
    """Whether Prometheus answers queries."""
    with requests.Session() as session:
        session.trust_env = False
        return session.get(f"{url}/-/ready", timeout=3).ok
