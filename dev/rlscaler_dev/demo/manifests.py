"""The objects that a demo creates, as plain dictionaries: the service, policy, autoscalers, the operator's rights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

GATEWAY_API = "gateway.networking.k8s.io/v1"
CONTROLLER_NAME = "rlscaler.io/emulated-service"
HTTP_PORT = 8000
UTILIZATION_PERCENT = 80
"""Target of both HorizontalPodAutoscalers, and of the policy's reactive floor."""

STABILIZATION_SECONDS = 60
"""Window of the policy for scaling down; upstream's default for the HorizontalPodAutoscalers is 300 s."""

GPU_METRIC = "DCGM_FI_DEV_GPU_UTIL"
REQUESTS = {"gpu": {"cpu": "4", "memory": "16Gi"}, "cpu": {"cpu": "4", "memory": "4Gi"}}


def thing(
    api_version: str, kind: str, name: str, namespace: str = "", labels: Mapping[str, str] = {}, **content: Any
) -> Manifest:
    """Return an object of a demo, in a namespace where one is named, with `content` beside its metadata."""
    where = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **where, "labels": {**PART_OF, **labels}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def namespace(name: str) -> Manifest:
    return thing("v1", "Namespace", name)


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
    pod: dict[str, Any] = {
        "nodeSelector": {"pool": pool.name},
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [
            {"name": "server", "image": IMAGE, "ports": [{"containerPort": HTTP_PORT}], "resources": resources}
        ],
    }
    if pool.name == "gpu":
        resources["limits"] = {"nvidia.com/gpu": "1"}
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    labels = {"app": pool.deployment, "rlscaler.io/flavour": pool.name}
    annotations = {"rlscaler.io/cold-start-min": low, "rlscaler.io/cold-start-max": high}
    spec = {
        "replicas": pool.min_replicas,
        "selector": {"matchLabels": {"app": pool.deployment}},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
    }
    return thing("apps/v1", "Deployment", pool.deployment, namespace, labels, spec=spec)


def service(pool: Pool, namespace: str) -> Manifest:
    ports = [{"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT}]
    spec = {"selector": {"app": pool.deployment}, "ports": ports}
    return thing("v1", "Service", pool.deployment, namespace, spec=spec)


def gateway_class() -> Manifest:
    return thing(GATEWAY_API, "GatewayClass", "rlscaler-demo", spec={"controllerName": CONTROLLER_NAME})


def gateway(namespace: str) -> Manifest:
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    spec = {"gatewayClassName": "rlscaler-demo", "listeners": listeners}
    return thing(GATEWAY_API, "Gateway", SERVICE, namespace, spec=spec)


def http_route(settings: Settings) -> Manifest:
    """The traffic split; its first weights are by the capacity of a replica."""
    backends = [
        {"name": pool.deployment, "port": HTTP_PORT, "weight": weight}
        for pool, weight in zip(settings.pools, capacity_weights(settings), strict=True)
    ]
    spec = {"parentRefs": [{"name": SERVICE}], "rules": [{"backendRefs": backends}]}
    return thing(GATEWAY_API, "HTTPRoute", SERVICE, settings.namespace, spec=spec)


def capacity_weights(settings: Settings) -> tuple[int, int]:
    """Weights (gpu, cpu) per mille in proportion to the requests/s of one replica."""
    gpu, cpu = (pool.requests_per_second for pool in settings.pools)
    gpu_weight = round(1000 * gpu / (gpu + cpu))
    return gpu_weight, 1000 - gpu_weight


def policy(settings: Settings) -> Manifest:
    """The RLScalingPolicy of the demo: the short form plus fields that cannot be read from a simulated service."""
    route = {"name": SERVICE, "gpuBackend": settings.gpu.deployment, "cpuBackend": settings.cpu.deployment}
    fields: Manifest = {
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": STABILIZATION_SECONDS}},
        "placement": {"httpRoute": route},
    }
    interval, bundled = settings.interval_seconds, settings.policy
    return scaling_policy(SERVICE, settings.namespace, settings.pools, interval, settings.slo_ms, bundled, **fields)


def scaling_policy(
    name: str,
    namespace: str,
    pools: Sequence[Pool],
    interval_seconds: int,
    slo_ms: float,
    bundled: str = "rule",
    labels: Mapping[str, str] = {},
    **fields: Any,
) -> Manifest:
    """Return an RLScalingPolicy of these pools with a bundled policy; `fields` are further ones of its spec."""
    spec = {
        "mode": "Auto",
        "intervalSeconds": interval_seconds,
        "targets": {pool.name: _target(pool) for pool in pools},
        "policy": {"bundled": bundled},
        "slo": {"latencyMilliseconds": round(slo_ms)},
        **fields,
    }
    return thing("rlscaler.io/v1alpha1", "RLScalingPolicy", name, namespace, labels, spec=spec)


def _target(pool: Pool) -> Manifest:
    """Return an entry of `spec.targets` of a policy."""
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
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool.deployment},
        "minReplicas": pool.min_replicas,
        "maxReplicas": pool.max_replicas,
        "metrics": [metrics[pool.name]],
    }
    return thing("autoscaling/v2", "HorizontalPodAutoscaler", pool.deployment, namespace, spec=spec)


def operator_roles(file: str = "rbac.yaml") -> list[Manifest]:
    """Return the operator's own roles as they ship: access to workloads, and to its Lease; or those of another file."""
    return list(yaml.safe_load_all(resources.files("rlscaler_operator").joinpath(file).read_text()))


def access(namespaces: Sequence[str] = (NAMESPACE,), budgets: bool = False) -> list[Manifest]:
    """The operator's namespace, its ServiceAccount, and the roles bound to that.

    Access to workloads is granted in `namespaces`, to its Lease in its own namespace. With `budgets` it also reads
    RLScalingBudgets, nodes and pods of the whole cluster.

    The demo's operator acts with that account's token, so a rule that is missing shows.
    """
    account = thing("v1", "ServiceAccount", OPERATOR, OPERATOR_NAMESPACE)
    where: dict[str, Sequence[str]] = {"ClusterRole": namespaces, "Role": (OPERATOR_NAMESPACE,)}
    granted = [
        thing
        for role in operator_roles()
        for name in where[role["kind"]]
        for thing in _granted("Role", role["rules"], name)
    ]
    if budgets:
        shipped = {role["metadata"]["name"]: role for role in operator_roles("rbac-optional.yaml")}
        granted += _granted("ClusterRole", shipped["rlscaler-budgets"]["rules"])
    return [namespace(OPERATOR_NAMESPACE), account, *granted]


def _granted(kind: str, rules: list[dict[str, Any]], namespace: str = "") -> list[Manifest]:
    """A role and its binding to the operator's ServiceAccount."""
    group, account = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": OPERATOR}
    binding: Manifest = {
        "roleRef": {"apiGroup": group, "kind": kind, "name": OPERATOR},
        "subjects": [{**account, "namespace": OPERATOR_NAMESPACE}],
    }
    return [
        thing(f"{group}/v1", kind, OPERATOR, namespace, rules=rules),
        thing(f"{group}/v1", f"{kind}Binding", OPERATOR, namespace, **binding),
    ]
