"""Preflight of the size of pods: may the operator resize running ones, and do new ones begin with their size?

Nothing of it keeps a policy from scaling, so nothing of it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlscaler_core.api import RLScalingPolicy
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cli.findings import Finding
from rlscaler_operator.cli.verify import ACCOUNTS, Act, reviewed
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.state.new_pods import LABEL

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
    return [resize, await _new_pods(kube, user, space)]


async def _new_pods(kube: Kube, user: str, space: str) -> Finding:
    what, about = "new pods begin with the size of those that run", "new-pods"
    try:
        trouble = await _admission(kube)
    except KubeError as error:
        trouble = f"not checked: {error}"
    if not trouble:
        acts = [Act(verb, "", "configmaps", space) for verb in ("create", "patch", "delete")]
        trouble = await _missing(kube, user, acts, "operator.resizeNewPods")
    return Finding(what, trouble, about, stops=False)


async def _admission(kube: Kube) -> str:
    """Look for the MutatingAdmissionPolicyBinding that the chart makes. Raises KubeError."""
    for version in VERSIONS:
        try:
            found = await kube.get(BINDINGS.format(version))
        except KubeError as error:
            if error.status == 404:
                continue
            raise
        if any(_sizes_pods(one) for one in found.get("items") or ()):
            return ""
        return f"no MutatingAdmissionPolicyBinding is there for it, so {AS_TEMPLATE}: set operator.resizeNewPods"
    return f"this cluster serves no MutatingAdmissionPolicies (Kubernetes 1.36 or newer does), so {AS_TEMPLATE}"


def _sizes_pods(binding: Mapping[str, Any]) -> bool:
    parameters = (binding.get("spec") or {}).get("paramRef") or {}
    return LABEL in ((parameters.get("selector") or {}).get("matchLabels") or {})


async def _missing(kube: Kube, user: str, acts: list[Act], value: str) -> str:
    """Say which rights an account lacks; empty = none."""
    answers = await reviewed(kube, acts, user)
    if isinstance(answers, str):
        return f"not checked: {answers}"
    missing = [str(act) for act, may in zip(acts, answers, strict=True) if not may]
    return f"it may not {'; '.join(missing)}: set {value} of the chart" if missing else ""
