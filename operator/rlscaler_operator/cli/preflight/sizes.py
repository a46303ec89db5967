"""Preflight of the size of pods: may the operator resize running ones, and do new ones begin with their size?

Nothing of it keeps a policy from scaling, so nothing of it fails.
"""

from __future__ import annotations

from rlscaler_core.api import GROUP, KIND, VERSION, RLScalingPolicy
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cli.findings import Finding
from rlscaler_operator.cli.verify import ACCOUNTS, Act, reviewed
from rlscaler_operator.cluster.kube import Json, Kube
from rlscaler_operator.exceptions import KubeError

POLICIES = "/apis/admissionregistration.k8s.io/{}/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/{}/mutatingadmissionpolicybindings"
VERSIONS = ("v1", "v1beta1")

AS_TEMPLATE = "new pods begin as their template says and are resized when they run"


async def check_sizes(kube: Kube, account: str, policy: RLScalingPolicy) -> list[Finding]:
    """Ask for what a policy with pools `InPlace` needs; `account` is the operator's, NAMESPACE/SERVICEACCOUNT."""
    named = {pool: policy.spec.targets.pool(pool) for pool in POOLS}
    pools = [pool for pool, one in named.items() if one and one.resources and one.resources.mode == "InPlace"]
    if not pools:
        return []
    space, user = policy.metadata.namespace, ACCOUNTS + account.replace("/", ":")
    fields = " and ".join(f"spec.targets.{pool}.resources.mode" for pool in pools)
    resize = Finding(
        f"the operator may resize running pods ({fields} InPlace)",
        await _missing(kube, user, [Act("patch", "", "pods/resize", space)], "operator.resize"),
        "resize",
        stops=False,
    )
    return [resize, await _new_pods(kube)]


async def _new_pods(kube: Kube) -> Finding:
    try:
        trouble = await _admission(kube)
    except KubeError as error:
        trouble = f"not checked: {error}"
    return Finding("new pods begin with the size of those that run", trouble, "new-pods", stops=False)


async def _admission(kube: Kube) -> str:
    """Look for the MutatingAdmissionPolicy that the chart makes, and its binding. Raises KubeError."""
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
    return [(one["metadata"]["name"], one.get("spec") or {}) for one in items]


async def _missing(kube: Kube, user: str, acts: list[Act], value: str) -> str:
    """Say which rights an account lacks; empty = none."""
    answers = await reviewed(kube, acts, user)
    if isinstance(answers, str):
        return f"not checked: {answers}"
    missing = [str(act) for act, may in zip(acts, answers, strict=True) if not may]
    return f"it may not {'; '.join(missing)}: set {value} of the chart" if missing else ""
