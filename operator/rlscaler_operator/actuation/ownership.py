"""Who holds a Deployment's replicas: nobody else, another autoscaler, an older policy, or a foreign writer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlscaler_operator.sensing.cache import Deployment, Key, WatchCache

FOREIGN_INTERVALS = 5
"""The same foreign manager twice within this many action intervals is a conflict; once is a person at work."""


NOT_ACTING = "~"
"""In place of the creation time of a policy that does not act: everybody who does goes before it."""


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


@dataclass(slots=True)
class ForeignWrites:
    """Watches one Deployment for replicas that somebody else set after our own last write."""

    written: int | None = None
    written_at: float = 0.0
    last_manager: str = ""
    last_at: float = 0.0
    conflict_until: float = 0.0
    _reported: tuple[str, float] = field(default=("", 0.0))

    def wrote(self, replicas: int, now: float) -> None:
        """We set the replicas ourselves."""
        self.written, self.written_at = replicas, now

    def look(self, deployment: Deployment, own_manager: str, interval_seconds: float, now: float) -> str | None:
        """The manager that has just set another value than we did, once per write; else None.

        Times in managedFields have whole seconds, so a write in the second of our own counts as later than ours.
        """
        manager, at = deployment.manager, deployment.written_at
        if self.written is None or deployment.replicas == self.written or not manager or manager == own_manager:
            return None
        if at < int(self.written_at) or (manager, at) == self._reported:
            return None
        self._reported = (manager, at)
        if manager == self.last_manager and at - self.last_at <= FOREIGN_INTERVALS * interval_seconds:
            self.conflict_until = now + FOREIGN_INTERVALS * interval_seconds
        self.last_manager, self.last_at = manager, at
        self.written = deployment.replicas
        return manager

    def conflict(self, name: str, now: float) -> Conflict | None:
        """A foreign manager that keeps setting the replicas holds them for a while."""
        if now >= self.conflict_until:
            return None
        return Conflict(
            "ForeignWriter",
            f"{self.last_manager} keeps setting spec.replicas of Deployment {name}: stop it, or keep this policy in "
            "mode Shadow",
            None,
        )
