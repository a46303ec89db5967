"""What the operator's account may do, asked of the API server itself: what is missing, and what is too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import yaml

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.settings import Settings

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Act:
    """One verb on one resource; namespace "" = in all of them, name "" = any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"in {self.namespace}" if self.namespace else "in all namespaces"
        return " ".join(part for part in (self.verb, what, self.name, where) if part)


TOO_MUCH = (
    Act("get", "", "secrets"),
    Act("list", "", "secrets"),
    Act("get", "", "configmaps"),
    Act("create", "", "pods"),
    Act("delete", "", "pods"),
    Act("create", "", "pods/exec"),
    Act("create", "", "serviceaccounts/token"),
    Act("patch", "", "nodes"),
    Act("update", "apps", "deployments"),
    Act("patch", "apps", "deployments"),
    Act("delete", "apps", "deployments"),
    Act("create", "rlscaler.io", "rlscalingpolicies"),
    Act("delete", "rlscaler.io", "rlscalingpolicies"),
    Act("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Act("create", "rbac.authorization.k8s.io", "rolebindings"),
    Act("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    Act("bind", "rbac.authorization.k8s.io", "clusterroles"),
    Act("impersonate", "", "users"),
)
"""What an operator must not be able to do: with any of these it could take over workloads, or the cluster."""


def needed(settings: Settings) -> list[Act]:
    """What the roles that ship with the operator allow, where these settings need it."""
    acts = [act for act in _role("rbac.yaml", "rlscaler-operator") for act in _everywhere(act, settings)]
    if settings.pod_deletion_cost:
        acts += [
            a for act in _role("rbac-optional.yaml", "rlscaler-pod-deletion-cost") for a in _everywhere(act, settings)
        ]
    leases = Act("", "coordination.k8s.io", "leases", settings.lease_namespace)
    acts += [replace(leases, verb=verb, name=name) for name in lease_names(settings) for verb in ("get", "update")]
    acts.append(Act("get", "", "namespaces", settings.lease_namespace, settings.lease_namespace))
    if settings.shards > 1:
        acts += [replace(leases, verb=verb) for verb in ("create", "list", "delete")]
    return acts


def too_much(settings: Settings) -> list[Act]:
    """What these settings do not need, in the served namespaces and beyond."""
    namespaces = (*settings.namespaces, settings.lease_namespace, "")
    return [replace(act, namespace=namespace) for act in TOO_MUCH for namespace in dict.fromkeys(namespaces)]


async def allowed(kube: Kube, act: Act) -> bool:
    """Raises KubeError."""
    resource, _, subresource = act.resource.partition("/")
    attributes = {
        "verb": act.verb,
        "group": act.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": act.namespace,
        "name": act.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await kube.create(REVIEWS, review)
    return bool(answer["status"].get("allowed"))


def _role(file: str, name: str) -> Iterator[Act]:
    text = resources.files("rlscaler_operator").joinpath(file).read_text(encoding="utf-8")
    role: dict[str, Any] = next(role for role in yaml.safe_load_all(text) if role["metadata"]["name"] == name)
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Act(verb, group, resource)


def _everywhere(act: Act, settings: Settings) -> Iterator[Act]:
    for namespace in settings.namespaces or ("",):
        yield replace(act, namespace=namespace)
