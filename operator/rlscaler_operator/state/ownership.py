"""Other writers of a policy's Deployments: an autoscaler, an older policy, a foreign writer; and remedies. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlscaler_core.api import Spec
from rlscaler_core.api.status_memory import Originals
from rlscaler_operator.cluster.bodies import Deployment, Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.state.refusals import Refusal

FOREIGN_INTERVALS = 5
"""The same foreign manager twice within this many action intervals is a conflict, and so are three writes of any within
twice as many; once is a person at work. The first pause of the policy is as long."""

PERIOD_SECONDS = 21600.0
"""Longest period of a tool that puts replicas back; three times with less between two are a conflict."""

ALIKE = 1.5
"""Factor between two periods of a writer that is no known controller: deployments by people come less regularly."""

WRITES_KEPT = 12

LONGEST_HOLD_SECONDS = 3600.0
"""Longest pause of a policy beside a foreign writer; each one that follows another soon is twice as long."""

NOT_ACTING = "~"
"""Stands in place of the creation time of a policy that does not act: every policy that acts goes before it."""


SIZED = "VerticalPodAutoscalerExists"
"""Reason where another object sizes the pods of a target."""

LEAVE_OUT = "leave spec.replicas out of the manifest"


class Tool(NamedTuple):
    """A tool that sets replicas back to a manifest, known by the field manager that it writes with."""

    prefix: str
    """Beginning of its field manager, in lower case."""
    name: str
    remedy: str
    reconciles: bool = False
    """Whether it sets replicas back by itself, again and again."""


TOOLS = (
    Tool(
        "argocd",
        "Argo CD",
        f"{LEAVE_OUT}, or set ignoreDifferences with jsonPointers /spec/replicas and the sync option "
        "RespectIgnoreDifferences=true",
        reconciles=True,
    ),
    Tool("kustomize-controller", "Flux (Kustomization)", LEAVE_OUT, reconciles=True),
    Tool(
        "helm-controller",
        "Flux (HelmRelease)",
        "leave replicas out of the chart's values, and set driftDetection.ignore with paths /spec/replicas",
        reconciles=True,
    ),
    Tool("helm", "Helm", "leave spec.replicas out of the chart's template"),
    Tool("kubectl-client-side-apply", "kubectl apply", LEAVE_OUT),
    Tool("fleetagent", "Fleet", f"{LEAVE_OUT}, or set diff.comparePatches with remove /spec/replicas", True),
    Tool("kapp", "kapp", f"{LEAVE_OUT}, or add a rebaseRule for [spec, replicas]", True),
    Tool("terraform", "Terraform", "set lifecycle.ignore_changes for spec[0].replicas"),
    Tool("hashicorp", "Terraform", "set lifecycle.ignore_changes for spec[0].replicas"),
    Tool("pulumi", "Pulumi", "set ignoreChanges for spec.replicas"),
    Tool("kube-controller-manager", "a HorizontalPodAutoscaler", "delete it"),
)


def tool_of(manager: str) -> Tool | None:
    """Return the tool behind a field manager; None for people and unknown writers."""
    return next((tool for tool in TOOLS if manager.lower().startswith(tool.prefix)), None)


def who(manager: str) -> str:
    """Return `Argo CD (argocd-controller)`, or the field manager where the tool is unknown."""
    tool = tool_of(manager)
    return f"{tool.name} ({manager})" if tool else manager


def remedy(manager: str) -> str:
    """Return the remedy for such a tool, in words."""
    tool = tool_of(manager)
    return tool.remedy if tool else "stop it"


AUTOSCALERS = ("keda", "kube-controller-manager")
"""Field managers, or beginnings of them, for which 0 replicas are a size like any other."""


def turned_off(spec: Spec, deployments: Mapping[str, Deployment | None]) -> tuple[str, ...]:
    """Return the pools whose Deployment has 0 replicas that another writer set: as with an HPA that means off.

    0 that the operator set itself, or an autoscaler before it, is not. Where Kubernetes has not recorded who set it, it
    is taken for another writer's unless `minReplicas` is 0 too.
    """
    off = []
    for pool, deployment in deployments.items():
        target = spec.targets.pool(pool)
        if deployment is None or deployment.replicas != 0 or target is None:
            continue
        manager = deployment.manager
        if manager == FIELD_MANAGER or manager.startswith(AUTOSCALERS) or (not manager and target.min_replicas == 0):
            continue
        off.append(pool)
    return tuple(off)


class Claim(NamedTuple):
    """A policy that acts on Deployments; claims sort by age."""

    created: str
    namespace: str
    name: str
    deployments: tuple[str, ...]


class Conflict(NamedTuple):
    """Another writer of a policy's Deployments: a policy that should act may not patch them."""

    reason: str
    fact: str
    """The other writer and the Deployment, in words."""
    remedy: str
    """The remedy of a user who wants the policy to act, in words."""
    holder: tuple[str, str] | None
    """(kind, name) of the object that holds the target; None where it is no object but a writer."""

    @property
    def message(self) -> str:
        return f"{self.fact}: {self.remedy}"


def find_conflict(claim: Claim, others: Mapping[Key, list[Claim]], cache: WatchCache) -> Conflict | None:
    """Return the first object besides `claim` that holds one of its Deployments.

    `others` are the policies that act (mode Auto), by (namespace, Deployment); the oldest of them holds it.
    """
    for deployment in claim.deployments:
        autoscaler = cache.autoscalers.of((claim.namespace, deployment))
        if autoscaler is not None:
            kind = {"HorizontalPodAutoscaler": "HPA"}.get(autoscaler.kind, autoscaler.kind)
            command = f"kubectl -n {claim.namespace} delete {kind.lower()} {autoscaler.name}"
            return Conflict(
                f"{autoscaler.kind}Exists",
                f"{kind} {autoscaler.name} scales {titled(deployment)}",
                f"delete it ({command}), or set this policy to mode Shadow",
                (autoscaler.kind, autoscaler.name),
            )
    for deployment in claim.deployments:
        # Claims sort by creation time, so that all operators agree on one holder.
        oldest = min(others.get((claim.namespace, deployment), ()), default=claim)
        if oldest.name != claim.name and oldest < claim:
            return Conflict(
                "OlderPolicyExists",
                f"RLScalingPolicy {oldest.name} scales {titled(deployment)} already",
                "delete one of the two, or set this one to mode Shadow",
                ("RLScalingPolicy", oldest.name),
            )
    return None


def find_sizer(target: Key, cache: WatchCache) -> Conflict | None:
    """Return the VerticalPodAutoscaler that changes the size of a target's pods; None where there is none."""
    autoscaler = cache.verticals.of(target)
    if autoscaler is None:
        return None
    space, name = target[0], autoscaler.name
    patch = """-p '{"spec":{"updatePolicy":{"updateMode":"Off"}}}'"""
    return Conflict(
        SIZED,
        f"VerticalPodAutoscaler {name} (updateMode {autoscaler.mode}) sizes the pods of {titled(target[1])}",
        f"delete it (kubectl -n {space} delete vpa {name}), or have it only recommend (kubectl -n {space} patch vpa "
        f"{name} --type merge {patch})",
        ("VerticalPodAutoscaler", name),
    )


def declared(claim: Claim, cache: WatchCache) -> str:
    """Return the tools that own the replicas of the claim's Deployments and will set them again; empty where none does.

    No conflict before it happens: a manifest that names the replicas is often applied once and never again.
    """
    owners = []
    for name in claim.deployments:
        deployment = cache.deployments.get((claim.namespace, name))
        if deployment is not None and tool_of(deployment.manager) is not None:
            text = f"{who(deployment.manager)} owns spec.replicas of {titled(name)} and may set it again"
            owners.append(f"{text}: {remedy(deployment.manager)}")
    return "; ".join(owners)


class ForeignWrite(NamedTuple):
    """Replicas that another writer has set."""

    at: float
    """Unix seconds."""
    manager: str
    replicas: int


@dataclass(slots=True)
class ForeignWrites:
    """Watches one Deployment for replicas that another writer set after our last write, or since we took over.

    A writer that keeps setting them holds them: the policy pauses, tries once more, and pauses twice as long each time
    that it is overwritten again, up to `LONGEST_HOLD_SECONDS`. Once the writer was quiet for as long as the last pause
    after its end, everything begins anew.
    """

    written: int
    """Replicas that we set, found or adopted last."""
    manager: str = ""
    """The manager that set another value last."""
    writes: deque[ForeignWrite] = field(default_factory=lambda: deque(maxlen=WRITES_KEPT))
    """The last foreign writes, oldest first."""
    hold_seconds: float = 0.0
    """Length of the present or the last pause; 0 = there was none lately."""
    hold_until: float = float("-inf")
    """When it ends, in Unix seconds."""
    overwritten: int = 0
    """Pauses in a row."""

    def adopt(self, deployment: Deployment) -> None:
        """Take the replicas as they are, whoever set them: the policy writes none at the moment."""
        self.written = deployment.replicas

    def look(self, deployment: Deployment, own_manager: str, interval_seconds: float, now: float) -> str | None:
        """Return the manager that has just set another value than the operator did, once per write; else None.

        The watch cache never goes back in time, so another value is always a later one. A manifest that merely owns
        `replicas` without changing them is none.
        """
        if deployment.replicas == self.written or deployment.manager in ("", own_manager):
            return None
        first = FOREIGN_INTERVALS * interval_seconds
        # Quiet for as long as the last pause: begin anew.
        if self.hold_seconds and now >= self.hold_until + self.hold_seconds:
            self.hold_seconds, self.overwritten = 0.0, 0
            self.writes.clear()
        self.writes.append(ForeignWrite(now, deployment.manager, deployment.replicas))
        if self.hold_seconds and now >= self.hold_until:
            self._hold(min(2 * self.hold_seconds, max(first, LONGEST_HOLD_SECONDS)), now)
        elif self.hold_seconds:
            self.hold_until = now + self.hold_seconds
        elif _in_a_row(self.writes, first):
            self._hold(first, now)
        # After a pause of two periods the next overwriting is seen as one that follows it.
        elif period := _period(self.writes):
            self._hold(min(max(first, 2 * period), LONGEST_HOLD_SECONDS), now)
        self.manager, self.written = deployment.manager, deployment.replicas
        return deployment.manager

    def _hold(self, seconds: float, now: float) -> None:
        self.hold_seconds, self.hold_until = seconds, now + seconds
        self.overwritten += 1

    def conflict(self, name: str, now: float) -> Conflict | None:
        """Return the conflict with a foreign manager that keeps setting the replicas; None while it holds none."""
        if now >= self.hold_until:
            return None
        pause = (
            f"pause number {self.overwritten}: this policy sets none for {self.hold_seconds:.0f} s after its last write"
        )
        return Conflict(
            "ForeignWriter",
            f"{who(self.manager)} keeps setting spec.replicas of {titled(name)} ({pause})",
            f"{remedy(self.manager)}; or set this policy to mode Shadow",
            None,
        )


def _in_a_row(writes: Sequence[ForeignWrite], seconds: float) -> bool:
    """Return whether the last writer writes again within `seconds`, or three writes of any came within twice that."""
    *earlier, last = writes
    again = bool(earlier) and earlier[-1].manager == last.manager and last.at - earlier[-1].at <= seconds
    return again or (len(earlier) > 1 and last.at - earlier[-2].at <= 2 * seconds)


def _period(writes: Sequence[ForeignWrite]) -> float:
    """Return the period in which the last writer puts the same replicas back; 0 where it has not done so three times.

    A tool writes only where the replicas differ, so that of a controller's periods some may be several in one.
    """
    last = writes[-1]
    times = [write.at for write in writes if (write.manager, write.replicas) == (last.manager, last.replicas)][-3:]
    if len(times) < 3:
        return 0.0
    periods = sorted((times[1] - times[0], times[2] - times[1]))
    tool = tool_of(last.manager)
    regular = (tool is not None and tool.reconciles) or periods[1] <= ALIKE * periods[0]
    return periods[1] if regular and periods[1] <= PERIOD_SECONDS else 0.0


@dataclass(slots=True)
class Ownership:
    """State of a policy's targets since it took them over.

    `loop/diagnose.py` writes findings, and `actuation/apply.py` the originals and its own writes. The registry forgets
    the originals where an edit names other Deployments.
    """

    originals: Originals | None = None
    """Replicas and weights before the first change."""
    foreign: dict[str, ForeignWrites] = field(default_factory=dict)
    """Foreign writes by the name of the Deployment."""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    """Scale writes that the API server refused, by the name of the Deployment."""
    holder: tuple[str, str] | None = None
    """(kind, name) of the object that was last found to hold the targets."""
    holder_asked_at: float = float("-inf")
    """Monotonic time of the last question whether it still exists."""
    sizers_asked_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """The same of other sizers of the pods of targets, by (kind, name)."""

    def wrote(self, deployment: str, replicas: int) -> None:
        """Note replicas of the operator's own: another value from now on is a foreign write."""
        self.foreign.setdefault(deployment, ForeignWrites(replicas)).written = replicas


WEIGHT_PATHS = ".spec.rules[]?.backendRefs[]?.weight"
"""All weights of an HTTPRoute, as a jq path."""

ROUTE_REMEDIES = {
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
    """Return the remedy for such a tool, in words."""
    tool = tool_of(manager)
    return ROUTE_REMEDIES.get(tool.name, "stop it") if tool else "stop it"
