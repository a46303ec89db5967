"""Tools that keep `spec.replicas` as a manifest says, by the field manager that they write with. Pure."""

from __future__ import annotations

from typing import NamedTuple

LEAVE_OUT = "leave spec.replicas out of the manifest"


class Tool(NamedTuple):
    """Somebody who puts replicas back to what is declared elsewhere."""

    prefix: str
    """How its field manager begins, in lower case."""
    name: str
    remedy: str


TOOLS = (
    Tool(
        "argocd",
        "Argo CD",
        f"{LEAVE_OUT}, or set ignoreDifferences with jsonPointers /spec/replicas and the sync option "
        "RespectIgnoreDifferences=true",
    ),
    Tool("kustomize-controller", "Flux (Kustomization)", LEAVE_OUT),
    Tool(
        "helm-controller",
        "Flux (HelmRelease)",
        "leave replicas out of the chart's values, and set driftDetection.ignore with paths /spec/replicas",
    ),
    Tool("helm", "Helm", "leave spec.replicas out of the chart's template"),
    Tool("kubectl-client-side-apply", "kubectl apply", LEAVE_OUT),
    Tool("fleetagent", "Fleet", f"{LEAVE_OUT}, or set diff.comparePatches with remove /spec/replicas"),
    Tool("kapp", "kapp", f"{LEAVE_OUT}, or add a rebaseRule for [spec, replicas]"),
    Tool("terraform", "Terraform", "set lifecycle.ignore_changes for spec[0].replicas"),
    Tool("hashicorp", "Terraform", "set lifecycle.ignore_changes for spec[0].replicas"),
    Tool("pulumi", "Pulumi", "set ignoreChanges for spec.replicas"),
    Tool("kube-controller-manager", "a HorizontalPodAutoscaler", "delete it"),
)


def tool_of(manager: str) -> Tool | None:
    """The tool behind a field manager; None for people and for what is not known."""
    return next((tool for tool in TOOLS if manager.lower().startswith(tool.prefix)), None)


def who(manager: str) -> str:
    """`Argo CD (argocd-controller)`, or the field manager where the tool is not known."""
    tool = tool_of(manager)
    return f"{tool.name} ({manager})" if tool else manager


def remedy(manager: str) -> str:
    """What to do about it."""
    tool = tool_of(manager)
    return tool.remedy if tool else "stop it"
