"""What a user does about a tool that sets the weights of an HTTPRoute back, by the tool's field manager. Pure."""

from __future__ import annotations

from rlscaler_operator.state.ownership import tool_of

WEIGHT_PATHS = ".spec.rules[]?.backendRefs[]?.weight"
"""All weights of an HTTPRoute, as a jq path."""

REMEDIES = {
    "Argo CD": f"set ignoreDifferences with jqPathExpressions {WEIGHT_PATHS} for it, and the sync option "
    "RespectIgnoreDifferences=true",
    "Flux (Kustomization)": "set spec.ignore of the Kustomization with paths /spec/rules for it, or the annotation "
    "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent on it",
    "Flux (HelmRelease)": "set driftDetection.ignore with paths /spec/rules for it",
    "Helm": "leave the weights out of what the chart changes",
    "kubectl apply": "leave it out of what is applied again, or leave the rules out of the manifest",
    "Fleet": "set diff.comparePatches for it with remove /spec/rules",
    "kapp": "add a rebaseRule for [spec, rules]",
    "Terraform": "set lifecycle.ignore_changes for its manifest's spec",
    "Pulumi": "set ignoreChanges for spec.rules",
}
"""Remedies by the names of `ownership.TOOLS`. The rules of an HTTPRoute are one field: only a tool that can compare
below a field ignores the weights alone."""


def route_remedy(manager: str) -> str:
    """What a user does about such a tool, in words."""
    tool = tool_of(manager)
    return REMEDIES.get(tool.name, "stop it") if tool else "stop it"
