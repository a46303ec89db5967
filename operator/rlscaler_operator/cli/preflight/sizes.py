"""Preflight of the size of pods: the operator may resize running ones, and new ones begin with their size.

A policy scales without either, so no check here fails.
"""

from __future__ import annotations

from rlscaler_core.api import GROUP, KIND, VERSION, RLScalingPolicy
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cli.verify import ACCOUNTS, Act, lacks, not_reviewed, reviewed
from rlscaler_operator.cluster.kube import Json, Kube
from rlscaler_operator.exceptions import KubeError

POLICIES = "/apis/admissionregistration.k8s.io/{}/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/{}/mutatingadmissionpolicybindings"
VERSIONS = ("v1", "v1beta1")

AS_TEMPLATE = "new pods begin as their template says and are resized when they run"


async def check_sizes(kube: Kube, account: str, policy: RLScalingPolicy) -> list[Check]:
    """Check the requirements of pools `InPlace`; `account` is the operator's, NAMESPACE/SERVICEACCOUNT."""
    targets = {pool: policy.spec.targets.pool(pool) for pool in POOLS}
    pools = [p for p, target in targets.items() if target and target.resources and target.resources.mode == "InPlace"]
    if not pools:
        return []
    fields = " and ".join(f"spec.targets.{pool}.resources.mode" for pool in pools)
    act = Act("patch", "", "pods/resize", policy.metadata.namespace)
    try:
        allowed = await reviewed(kube, [act], ACCOUNTS + account.replace("/", ":"))
        trouble = lacks({act} - allowed, "set operator.resize of the chart")
    except KubeError as error:
        trouble = not_reviewed(error)
    resize = Check(f"the operator may resize running pods ({fields} InPlace)", trouble, "resize", stops=False)
    return [resize, await _new_pods(kube)]


async def _new_pods(kube: Kube) -> Check:
    try:
        trouble = await _admission(kube)
    except KubeError as error:
        trouble = f"not checked: {error}"
    return Check("new pods begin with the size of those that run", trouble, "new-pods", stops=False)


async def _admission(kube: Kube) -> str:
    """Return the trouble with the chart's MutatingAdmissionPolicy and its binding; empty = none. Raises KubeError."""
    for version in VERSIONS:
        try:
            policies = await _specs(kube, POLICIES.format(version))
            bindings = await _specs(kube, BINDINGS.format(version))
        except KubeError as error:
            if error.status == 404:
                continue
            raise
        ours = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}
        names = {name for name, spec in policies if spec.get("paramKind") == ours}
        if any(spec.get("policyName") in names for _, spec in bindings):
            return ""
        return (
            f"no MutatingAdmissionPolicy with a binding is there for it, so {AS_TEMPLATE}: set operator.resizeNewPods"
        )
    return f"this cluster serves no MutatingAdmissionPolicies (Kubernetes 1.36 or newer does), so {AS_TEMPLATE}"


async def _specs(kube: Kube, path: str) -> list[tuple[str, Json]]:
    """Return name and spec of each object. Raises KubeError."""
    items = (await kube.get(path)).get("items") or ()
    return [(item["metadata"]["name"], item.get("spec") or {}) for item in items]
