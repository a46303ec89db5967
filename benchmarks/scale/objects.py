"""Objects of every service: a Deployment, and the object that has it scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.scale.load import HIGH, LOW, NAMESPACE

from rlscaler_dev.cluster.kube import PARALLEL, KubeClient

Json = dict[str, Any]

START, MOST = 1, 3
"""Replicas before the step, and the most that any contender may set: pods cost the control plane more than patches."""

CAPACITY = 10.0
"""Requests/s of one replica: far below HIGH, so that every contender asks for MOST."""

APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
POLICIES = f"/apis/rlscaler.io/v1alpha1/namespaces/{NAMESPACE}/rlscalingpolicies"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
SCALED_OBJECTS = f"/apis/keda.sh/v1alpha1/namespaces/{NAMESPACE}/scaledobjects"

TARGET_UTILIZATION = 50
IDLE_MILLICORES, BUSY_MILLICORES = 40, 200
"""CPU time of a pod before and after the step, of 100 requested: the HPA scales on CPU."""

assert LOW < CAPACITY < HIGH


def deployment(name: str) -> Json:
    pod = {
        "nodeSelector": {"pool": "cpu"},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}],
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    spec = {"replicas": START, "revisionHistoryLimit": 1, "selector": {"matchLabels": {"app": name}}}
    return {"metadata": {"name": name}, "spec": spec | {"template": template}}


def policy(name: str, sense_seconds: int, interval_seconds: int = 30) -> Json:
    """A policy in mode Auto.

    The rule acts, which keeps one replica at the load before the step: an actor may move replicas around the step by
    itself, and only the floor is timed. A forward pass more costs next to nothing (benchmarks/decision.py).
    """
    target = {"deployment": name, "maxReplicas": MOST, "requestsPerSecond": CAPACITY, "coldStartSeconds": 5}
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": name},
        "spec": {
            "mode": "Auto",
            "intervalSeconds": interval_seconds,
            "senseSeconds": sense_seconds,
            "targets": {"cpu": target},
            "slo": {"latencyMilliseconds": 1000},
            "policy": {"bundled": "rule"},
        },
    }


def autoscaler(name: str) -> Json:
    target = {"type": "Utilization", "averageUtilization": TARGET_UTILIZATION}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": START,
        "maxReplicas": MOST,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def scaled_object(name: str, prometheus_url: str, window_seconds: int) -> Json:
    labels = f'namespace="{NAMESPACE}",service="{name}"'
    query = f"sum(rate(inference_requests_received_total{{{labels}}}[{window_seconds}s]))"
    metadata = {"serverAddress": prometheus_url, "query": query, "threshold": str(CAPACITY)}
    spec = {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": START,
        "maxReplicaCount": MOST,
        "triggers": [{"type": "prometheus", "metadata": metadata}],
    }
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}


def create_all(kube: KubeClient, path: str, bodies: Iterable[Json]) -> None:
    """POST all, several at a time."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda body: kube.request("POST", path, body), bodies))


def names(kube: KubeClient, path: str, matches: Callable[[Json], bool]) -> set[str]:
    """The objects of a collection that match."""
    token, names = "", set()
    while True:
        page = kube.request("GET", f"{path}?limit=500{token and '&continue=' + token}")
        names |= {item["metadata"]["name"] for item in page["items"] if matches(item)}
        token = page["metadata"].get("continue", "")
        if not token:
            return names
