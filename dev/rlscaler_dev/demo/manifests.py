"""The objects that a demo creates, as plain dictionaries: the service, policy, autoscalers, the operator's rights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

import yaml

from rlscaler_dev.demo.settings import NAMESPACE, SERVICE, Pool, Settings

Manifest = dict[str, Any]

OPERATOR_NAMESPACE = "rlscaler-system"
OPERATOR = "rlscaler-operator"
PART_OF = {"app.kubernetes.io/part-of": "rlscaler-demo"}
IMAGE = "registry.k8s.io/pause:3.10"
"""Stands in for a model server: the emulated service answers for every ready pod."""

CONTROLLER_NAME = "rlscaler.io/emulated-service"
HTTP_PORT = 8000
UTILIZATION_PERCENT = 80
"""Target of both HorizontalPodAutoscalers, and of the policy's reactive floor."""

STABILIZATION_SECONDS = 60
"""Window of the policy for scaling down; upstream's default for the HorizontalPodAutoscalers is 300 s."""

GPU_METRIC = "DCGM_FI_DEV_GPU_UTIL"
REQUESTS = {"gpu": {"cpu": "4", "memory": "16Gi"}, "cpu": {"cpu": "4", "memory": "4Gi"}}


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": PART_OF}}


def workload(settings: Settings) -> list[Manifest]:
    """The service: two Deployments with their Services, and the route that splits the traffic between them."""
    objects = [namespace(settings.namespace)]
    for pool in settings.pools:
        objects += [deployment(pool, settings.namespace), service(pool, settings.namespace)]
    return [*objects, gateway_class(), gateway(settings.namespace), http_route(settings)]


def deployment(pool: Pool, namespace: str = NAMESPACE) -> Manifest:
    """A pool with its fewest replicas; the annotations tell a simulated node how long a pod takes to be ready."""
    low, high = (f"{round(seconds * 1000)}ms" for seconds in pool.cold_start_seconds)
    resources: dict[str, Any] = {"requests": REQUESTS[pool.name]}
    spec: dict[str, Any] = {
        "nodeSelector": {"pool": pool.name},
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [
            {"name": "server", "image": IMAGE, "ports": [{"containerPort": HTTP_PORT}], "resources": resources}
        ],
    }
    if pool.name == "gpu":
        resources["limits"] = {"nvidia.com/gpu": "1"}
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    labels = {"app": pool.deployment, "rlscaler.io/flavour": pool.name}
    annotations = {"rlscaler.io/cold-start-min": low, "rlscaler.io/cold-start-max": high}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": pool.deployment, "namespace": namespace, "labels": {**PART_OF, **labels}},
        "spec": {
            "replicas": pool.min_replicas,
            "selector": {"matchLabels": {"app": pool.deployment}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


def service(pool: Pool, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": pool.deployment, "namespace": namespace, "labels": PART_OF},
        "spec": {
            "selector": {"app": pool.deployment},
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT}],
        },
    }


def gateway_class() -> Manifest:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "rlscaler-demo", "labels": PART_OF},
        "spec": {"controllerName": CONTROLLER_NAME},
    }


def gateway(namespace: str) -> Manifest:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": PART_OF},
        "spec": {
            "gatewayClassName": "rlscaler-demo",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        },
    }


def http_route(settings: Settings) -> Manifest:
    """The traffic split; its first weights are by the capacity of a replica."""
    gpu_weight, cpu_weight = capacity_weights(settings)
    backends = [
        {"name": pool.deployment, "port": HTTP_PORT, "weight": weight}
        for pool, weight in zip(settings.pools, (gpu_weight, cpu_weight), strict=True)
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": SERVICE, "namespace": settings.namespace, "labels": PART_OF},
        "spec": {"parentRefs": [{"name": SERVICE}], "rules": [{"backendRefs": backends}]},
    }


def capacity_weights(settings: Settings) -> tuple[int, int]:
    """Weights (gpu, cpu) per mille in proportion to the requests/s of one replica."""
    gpu, cpu = (pool.requests_per_second for pool in settings.pools)
    gpu_weight = round(1000 * gpu / (gpu + cpu))
    return gpu_weight, 1000 - gpu_weight


def policy(settings: Settings) -> Manifest:
    """The RLScalingPolicy of the demo: the short form plus fields that cannot be read from a simulated service."""
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": SERVICE, "namespace": settings.namespace, "labels": PART_OF},
        "spec": {
            "mode": "Auto",
            "intervalSeconds": settings.interval_seconds,
            "targets": {pool.name: target(pool) for pool in settings.pools},
            "policy": {"bundled": settings.policy},
            "slo": {"latencyMilliseconds": round(settings.slo_ms)},
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": STABILIZATION_SECONDS}},
            "placement": {
                "httpRoute": {
                    "name": SERVICE,
                    "gpuBackend": settings.gpu.deployment,
                    "cpuBackend": settings.cpu.deployment,
                }
            },
        },
    }


def target(pool: Pool) -> Manifest:
    """One of `spec.targets` of a policy."""
    return {
        "deployment": pool.deployment,
        "minReplicas": pool.min_replicas,
        "maxReplicas": pool.max_replicas,
        "costPerHour": pool.cost_per_hour,
        "requestsPerSecond": pool.requests_per_second,
        "coldStartSeconds": math.ceil(pool.mean_cold_start_seconds),
    }


def autoscalers(settings: Settings) -> list[Manifest]:
    """One HorizontalPodAutoscaler a pool."""
    return [autoscaler(pool, settings.namespace) for pool in settings.pools]


def autoscaler(pool: Pool, namespace: str = NAMESPACE) -> Manifest:
    """The HorizontalPodAutoscaler of a pool, with the bounds of the policy and upstream's default behavior."""
    utilization = {"type": "Utilization", "averageUtilization": UTILIZATION_PERCENT}
    average = {"type": "AverageValue", "averageValue": str(UTILIZATION_PERCENT)}
    metrics = {
        "gpu": {"type": "Pods", "pods": {"metric": {"name": GPU_METRIC}, "target": average}},
        "cpu": {"type": "Resource", "resource": {"name": "cpu", "target": utilization}},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": pool.deployment, "namespace": namespace, "labels": PART_OF},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool.deployment},
            "minReplicas": pool.min_replicas,
            "maxReplicas": pool.max_replicas,
            "metrics": [metrics[pool.name]],
        },
    }


def operator_roles(file: str = "rbac.yaml") -> list[Manifest]:
    """Return the operator's own roles as they ship: access to workloads, and to its Lease; or those of another file."""
    return list(yaml.safe_load_all(resources.files("rlscaler_operator").joinpath(file).read_text()))


def access(namespaces: Sequence[str] = (NAMESPACE,), budgets: bool = False) -> list[Manifest]:
    """The operator's namespace, its ServiceAccount, and the roles bound to that.

    Access to workloads is granted in `namespaces`, to its Lease in its own namespace. With `budgets` it also reads
    RLScalingBudgets, nodes and pods of the whole cluster.

    The demo's operator acts with that account's token, so a rule that is missing shows.
    """
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": OPERATOR, "namespace": OPERATOR_NAMESPACE, "labels": PART_OF},
    }
    where: dict[str, Sequence[str]] = {"ClusterRole": namespaces, "Role": (OPERATOR_NAMESPACE,)}
    granted = [
        thing
        for role in operator_roles()
        for name in where[role["kind"]]
        for thing in _granted("Role", role["rules"], {"namespace": name})
    ]
    if budgets:
        shipped = {role["metadata"]["name"]: role for role in operator_roles("rbac-optional.yaml")}
        granted += _granted("ClusterRole", shipped["rlscaler-budgets"]["rules"])
    return [namespace(OPERATOR_NAMESPACE), account, *granted]


def _granted(kind: str, rules: list[dict[str, Any]], where: Manifest | None = None) -> list[Manifest]:
    """A role and its binding to the operator's ServiceAccount."""
    metadata = {"name": OPERATOR, "labels": PART_OF, **(where or {})}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": OPERATOR_NAMESPACE}],
        },
    ]
