"""What besides a policy sets its Deployments' replicas: an autoscaler, an older policy, a foreign writer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlscaler_core.api.status import Originals
from rlscaler_operator.cluster.cache import Deployment, Key, WatchCache

FOREIGN_INTERVALS = 5
"""The same foreign manager twice within this many action intervals is a conflict; once is a person at work."""


NOT_ACTING = "~"
"""Stands in place of the creation time of a policy that does not act: every policy that acts goes before it."""


LEAVE_OUT = "leave spec.replicas out of the manifest"


class Tool(NamedTuple):
    """A tool that puts replicas back to what is declared elsewhere, known by the field manager that it writes with."""

    prefix: str
    """Beginning of its field manager, in lower case."""
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
    """What a user does about such a tool, in words."""
    tool = tool_of(manager)
    return tool.remedy if tool else "stop it"


class Claim(NamedTuple):
    """A policy that acts on Deployments; claims sort by age."""

    created: str
    namespace: str
    name: str
    deployments: tuple[str, ...]


class Conflict(NamedTuple):
    """Why a policy may not patch. `holder` is (kind, name) of the object that holds the target."""

    reason: str
    message: str
    holder: tuple[str, str] | None


def find_conflict(claim: Claim, others: Mapping[Key, list[Claim]], cache: WatchCache) -> Conflict | None:
    """The first object besides `claim` that holds one of its Deployments.

    `others` are the policies that act (mode Auto), by (namespace, Deployment); the oldest of them holds it.
    """
    for deployment in claim.deployments:
        autoscaler = cache.autoscaler_of(claim.namespace, deployment)
        if autoscaler is not None:
            kind = {"HorizontalPodAutoscaler": "HPA"}.get(autoscaler.kind, autoscaler.kind)
            return Conflict(
                f"{autoscaler.kind}Exists",
                f"{kind} {autoscaler.name} scales Deployment {deployment}: delete it, or keep this policy in "
                "mode Shadow",
                (autoscaler.kind, autoscaler.name),
            )
    for deployment in claim.deployments:
        oldest = min(others.get((claim.namespace, deployment), ()), default=claim)
        if oldest.name != claim.name and oldest < claim:
            return Conflict(
                "OlderPolicyExists",
                f"RLScalingPolicy {oldest.name} scales Deployment {deployment} already: delete one of the two, "
                "or keep this one in mode Shadow",
                ("RLScalingPolicy", oldest.name),
            )
    return None


def declared(claim: Claim, cache: WatchCache) -> str:
    """Which tools own the replicas of the claim's Deployments and will set them again; empty where none does.

    No conflict before it happens: a manifest that names the replicas is often applied once and never again.
    """
    found = []
    for name in claim.deployments:
        deployment = cache.deployments.get((claim.namespace, name))
        if deployment is not None and tool_of(deployment.manager) is not None:
            text = f"{who(deployment.manager)} owns spec.replicas of Deployment {name} and may set it again"
            found.append(f"{text}: {remedy(deployment.manager)}")
    return "; ".join(found)


@dataclass(slots=True)
class ForeignWrites:
    """Watches one Deployment for replicas that another writer set after our last write, or since we took over."""

    written: int
    """Replicas that we set, found or adopted last."""
    manager: str = ""
    """Who set another value last."""
    seen_at: float = float("-inf")
    conflict_until: float = float("-inf")

    def look(self, deployment: Deployment, own_manager: str, interval_seconds: float, now: float) -> str | None:
        """The manager that has just set another value than we did, once per write; else None.

        The watch cache never goes back in time, so another value is always a later one. A manifest that merely owns
        `replicas` without changing them is none.
        """
        if deployment.replicas == self.written or deployment.manager in ("", own_manager):
            return None
        if deployment.manager == self.manager and now - self.seen_at <= FOREIGN_INTERVALS * interval_seconds:
            self.conflict_until = now + FOREIGN_INTERVALS * interval_seconds
        self.manager, self.seen_at, self.written = deployment.manager, now, deployment.replicas
        return deployment.manager

    def conflict(self, name: str, now: float) -> Conflict | None:
        """A foreign manager that keeps setting the replicas holds them for a while."""
        if now >= self.conflict_until:
            return None
        return Conflict(
            "ForeignWriter",
            f"{who(self.manager)} keeps setting spec.replicas of Deployment {name}: {remedy(self.manager)}; or keep "
            "this policy in mode Shadow",
            None,
        )


@dataclass(slots=True)
class Ownership:
    """What is remembered about a policy's targets since it took them over.

    `loop/diagnose.py` writes what it finds, and `actuation/apply.py` what it does: the originals and its own writes.
    The registry forgets the originals where an edit names other Deployments.
    """

    originals: Originals | None = None
    """What was there before the first change."""
    foreign: dict[str, ForeignWrites] = field(default_factory=dict)
    """Foreign writes by the name of the Deployment."""
    holder_asked_at: float = float("-inf")
    """Monotonic time of the last question whether the object that holds the targets still exists."""

    def wrote(self, deployment: str, replicas: int) -> None:
        """Replicas of our own: another value from now on is a foreign write."""
        self.foreign.setdefault(deployment, ForeignWrites(replicas)).written = replicas
