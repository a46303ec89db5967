"""The objects of the tenants: Deployments, policies, autoscalers and the budget."""

from __future__ import annotations

from dataclasses import dataclass

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.tenants.plan import TENANTS, Tenant

SERVICE_LABEL = "app.kubernetes.io/name"
SCALE_DOWN_SECONDS = 300
"""Kubernetes' default of a HorizontalPodAutoscaler, in seconds of the recording."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender: the objects that scale the tenants, and the arbiter that shares the GPUs."""

    name: str
    title: str
    arbiter: str | None = None
    """`spec.arbiter` of the budget; None = there is no budget."""
    autoscalers: bool = False
    """Whether HorizontalPodAutoscalers scale in place of policies."""


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("hpa", "HPA 80 %, no budget", autoscalers=True),
        Contender("policies", "forecast rule, no budget"),
        Contender("max-min", "weighted max-min", "MaxMinFair"),
        Contender("priority", "priority", "Priority"),
    )
}


def policy(tenant: Tenant, interval_seconds: int, slo_ms: float) -> Json:
    """The RLScalingPolicy of a tenant: the forecast rule as it comes."""
    labels = {SERVICE_LABEL: tenant.name}
    return manifests.scaling_policy(
        tenant.name, tenant.namespace, [tenant.pool], interval_seconds, slo_ms, labels=labels
    )


def autoscaler(tenant: Tenant, speed: float) -> Json:
    """The HorizontalPodAutoscaler of a tenant. Where time runs faster its window for scaling down is shorter."""
    hpa = manifests.autoscaler(tenant.pool, tenant.namespace)
    hpa["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": round(SCALE_DOWN_SECONDS / speed)}}
    return hpa


def budget(arbiter: str) -> Json:
    """The RLScalingBudget: the GPUs of the nodes of the pool, and every tenant with its terms."""
    members = [
        {
            "name": tenant.name,
            "namespace": tenant.namespace,
            "matchLabels": {SERVICE_LABEL: tenant.name},
            "guaranteed": tenant.guaranteed,
            "weight": tenant.gpus,
            "priority": tenant.guaranteed,
        }
        for tenant in TENANTS
    ]
    spec = {"amountFrom": {"nodes": {"matchLabels": {"pool": "gpu"}}}, "arbiter": arbiter, "members": members}
    return manifests.thing("rlscaler.io/v1alpha1", "RLScalingBudget", "gpus", spec=spec)
