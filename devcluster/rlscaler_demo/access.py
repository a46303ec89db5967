"""What the operator may do in the demo's cluster, and nothing else; it acts with a ServiceAccount's token."""

from __future__ import annotations

from .manifests import OPERATOR, OPERATOR_NAMESPACE, PART_OF, Manifest, namespace
from .settings import NAMESPACE

READ = ["get", "list", "watch"]

CLUSTER_RULES = [
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": READ},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": READ},
]
"""Which resources the API server serves, and which namespaces there are."""

POLICY_RULES = [
    {"apiGroups": ["rlscaler.io"], "resources": ["rlscalingpolicies"], "verbs": [*READ, "patch"]},
    {"apiGroups": ["rlscaler.io"], "resources": ["rlscalingpolicies/status"], "verbs": ["get", "patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": READ},
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": READ},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": READ},
    {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": READ},
    {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes"], "verbs": [*READ, "patch"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]
"""In the namespace of the policies."""

LEASE_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update", "patch"],
    }
]
"""In the operator's own namespace."""


def access() -> list[Manifest]:
    """Namespace, ServiceAccount, and roles bound to it."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": OPERATOR, "namespace": OPERATOR_NAMESPACE, "labels": PART_OF},
    }
    return [
        namespace(OPERATOR_NAMESPACE),
        account,
        *_granted("ClusterRole", None, CLUSTER_RULES),
        *_granted("Role", NAMESPACE, POLICY_RULES),
        *_granted("Role", OPERATOR_NAMESPACE, LEASE_RULES),
    ]


def _granted(kind: str, where: str | None, rules: list[dict[str, list[str]]]) -> list[Manifest]:
    """A role and its binding to the operator's ServiceAccount."""
    metadata = {"name": OPERATOR, "labels": PART_OF, **({"namespace": where} if where else {})}
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
