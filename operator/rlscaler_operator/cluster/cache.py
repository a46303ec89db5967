"""Cache of what the watch streams say about the objects around the policies: targets, pods, scalers and routes.

It keeps plain dictionaries with a few numbers per object: an index in kopf or whole bodies would cost seconds and
hundreds of MiB in a large cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from rlscaler_core.api.targets import reference
from rlscaler_operator.cluster.bodies import (
    Deployment,
    Key,
    deployment_of_pod,
    field_manager,
    is_over,
    is_ready,
    is_replaced,
    key_of,
    older,
    parse_deployment,
    selector_of,
    start_seconds,
    was_ready,
)
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.cluster.selectors import Selector, selects
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.cluster.vertical_autoscalers import VerticalAutoscalers

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of pods: a ReplicaSet deletes ready pods with a lower number first; a pod without it counts as 0."""

IDLE = "-1000"
"""Deletion cost of a pod that the operator has marked as idle. Another number is another writer's, and left alone."""

COLD_STARTS_KEPT = 20
"""Cold starts of a Deployment that are kept: the newest ones."""


COLD_STARTS_NEEDED = 3
"""Pods that must have started before their cold start counts as learned."""


@dataclass(slots=True)
class Autoscaler:
    """A scaler besides rlscaler: a HorizontalPodAutoscaler or a ScaledObject."""

    kind: str
    name: str
    target: str
    """What it scales: the name of a Deployment, or a reference to an object of another kind."""
    revision: int = field(default=0, compare=False)
    """A number like that of a Deployment."""


@dataclass(slots=True)
class WatchCache:
    """Objects by (namespace, name). The watch handlers call `put_*` and `drop_*`; the rest of the operator reads."""

    deployments: dict[Key, Deployment] = field(default_factory=dict)
    routes: dict[Key, dict[str, Any]] = field(default_factory=dict)
    """HTTPRoutes: `{"metadata": {"resourceVersion", "generation"}, "spec": {"rules", "parentRefs"},
    "status": {"parents"}, "manager": the field manager that set the rules}`."""
    _autoscalers: dict[tuple[str, str, str], Autoscaler] = field(default_factory=dict)
    """Scalers by (kind, namespace, name)."""
    _scaled: dict[Key, list[Autoscaler]] = field(default_factory=dict)
    """Scalers by the Deployment that they scale."""
    _starts: dict[Key, deque[float]] = field(default_factory=dict)
    """Newest cold starts in seconds, by Deployment."""
    _was_ready: dict[str, bool] = field(default_factory=dict)
    """Whether each pod, by its uid, has ever been ready."""
    _starting: dict[Key, dict[str, float]] = field(default_factory=dict)
    """Pods of each Deployment that were never ready: their uids and the times by `clock` when they were first seen."""
    pods: dict[Key, dict[str, bool]] = field(default_factory=dict)
    """Pods of each Deployment: their names, and whether each carries the operator's deletion cost. A pod that is on its
    way out is not among them: its ReplicaSet does not count it."""
    holders: NodeHolders | None = None
    """Which pods hold which nodes; None = pods of some namespaces are not seen, or it is not asked for."""
    sizes: SizedPods | None = None
    """How large pods are; None = it is not asked for."""
    verticals: VerticalAutoscalers = field(default_factory=VerticalAutoscalers)
    """What else changes the size of pods."""
    kinds: TargetKinds = field(default_factory=TargetKinds)
    """Kinds of targets besides Deployments."""
    _selectors: dict[Key, Selector] = field(default_factory=dict)
    """Which pods are those of each target that is no Deployment."""
    _ready: dict[Key, set[str]] = field(default_factory=dict)
    """Ready pods of each of them, by name."""
    clock: Callable[[], float] = time.monotonic
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Revisions that were not used yet."""

    def revisions(self, deployment: Key) -> tuple[int, int, int]:
        """Those of a Deployment, and of the foreign autoscalers of its replicas and its pods; 0 where there is none."""
        found, autoscaler = self.deployments.get(deployment), self.autoscaler_of(*deployment)
        others = (found, autoscaler, self.verticals.of(deployment))
        first, second, third = (0 if one is None else one.revision for one in others)
        return first, second, third

    def put_deployment(self, body: Mapping[str, Any]) -> bool:
        """Take in a Deployment; return False where nothing changed that a policy reacts to."""
        return self._put(key_of(body), parse_deployment(body))

    def _put(self, key: Key, new: Deployment) -> bool:
        old = self.deployments.get(key)
        if old is not None and old.uid == new.uid and older(new.resource_version, old.resource_version):
            return False
        same = old is not None and _reported(old) == _reported(new)
        new.revision = old.revision if old is not None and same else next(self._numbers)
        self.deployments[key] = new
        return old is None or _relevant(old) != _relevant(new)

    def put_scaled(self, key: Key, body: Mapping[str, Any], scale: Mapping[str, Any]) -> bool:
        """Take in an object that is no Deployment, with its scale; return False where nothing changed.

        Its pods have to be read once more where it is new or selects others: `selects_anew` says so before.
        """
        selector = selector_of(scale)
        if self._selectors.get(key) != selector:
            self._ready.pop(key, None)
            self.pods.pop(key, None)
            self._selectors.pop(key, None)
            if selector is not None:
                self._selectors[key] = selector
        new = parse_deployment(body)
        new.replicas = int(scale.get("spec", {}).get("replicas") or 0)
        new.ready = len(self._ready.get(key, ()))
        new.rolling = is_replaced(body.get("status", {}))
        return self._put(key, new)

    def selects_anew(self, key: Key, scale: Mapping[str, Any]) -> bool:
        """Return True where a scale selects other pods than are known."""
        return selector_of(scale) is not None and self._selectors.get(key) != selector_of(scale)

    def drop_target(self, key: Key) -> None:
        for found in (self.deployments, self._selectors, self._ready):
            found.pop(key, None)

    def drop_targets(self, prefix: str) -> None:
        """Forget all targets of a kind."""
        for key in [key for key in self.deployments if key[1].startswith(prefix)]:
            self.drop_target(key)

    def wrote_replicas(self, key: Key, replicas: int, resource_version: str) -> None:
        """Remember a write of the operator before the watch reports it."""
        deployment = self.deployments.get(key)
        if deployment is not None and not older(resource_version, deployment.resource_version):
            before = _reported(deployment)
            deployment.replicas, deployment.resource_version = replicas, resource_version
            deployment.manager = FIELD_MANAGER
            if _reported(deployment) != before:
                deployment.revision = next(self._numbers)

    def put_autoscaler(self, kind: str, body: Mapping[str, Any]) -> None:
        key = key_of(body)
        old = self._autoscalers.get((kind, *key))
        self.drop_autoscaler(kind, key)
        scaled = body.get("spec", {}).get("scaleTargetRef", {})
        api_version, scaled_kind = scaled.get("apiVersion") or "apps/v1", scaled.get("kind") or "Deployment"
        autoscaler = Autoscaler(kind, key[1], reference(api_version, scaled_kind, scaled.get("name", "")))
        autoscaler.revision = old.revision if old is not None and old == autoscaler else next(self._numbers)
        self._autoscalers[kind, *key] = autoscaler
        self._scaled.setdefault((key[0], autoscaler.target), []).append(autoscaler)

    def drop_autoscaler(self, kind: str, key: Key) -> None:
        autoscaler = self._autoscalers.pop((kind, *key), None)
        if autoscaler is not None:
            self._scaled[key[0], autoscaler.target].remove(autoscaler)

    def drop_autoscalers(self, kind: str) -> None:
        """Forget all scalers of a kind."""
        for found, *key in list(self._autoscalers):
            if found == kind:
                self.drop_autoscaler(kind, (key[0], key[1]))

    def autoscaler_of(self, namespace: str, deployment: str) -> Autoscaler | None:
        """Return the HorizontalPodAutoscaler or ScaledObject that scales a target; None where there is none.

        A ScaledObject goes first: the HorizontalPodAutoscaler beside it is KEDA's, which would make it again.
        """
        found = self._scaled.get((namespace, deployment), ())
        return next((one for one in found if one.kind == "ScaledObject"), next(iter(found), None))

    def put_route(self, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata", {})
        key = key_of(body)
        old = self.routes.get(key)
        version = metadata.get("resourceVersion", "")
        if old is not None and older(version, old["metadata"]["resourceVersion"]):
            return
        spec, status = body.get("spec", {}), body.get("status", {})
        self.routes[key] = {
            "metadata": {"resourceVersion": version, "generation": int(metadata.get("generation") or 0)},
            "spec": {
                "rules": [dict(rule) for rule in spec.get("rules") or ()],
                "parentRefs": [dict(ref) for ref in spec.get("parentRefs") or ()],
            },
            "status": {"parents": [dict(parent) for parent in status.get("parents") or ()]},
            "manager": field_manager(metadata.get("managedFields") or (), "f:rules"),
        }

    def put_pod(self, body: Mapping[str, Any]) -> Key | None:
        """Take in a pod; when it becomes ready, learn how long that took from its creation.

        Return the target whose ready pods have changed by it, where they are counted by pods. Nothing is learned from
        a pod that is first seen ready, or un-ready after it was ready: it is not starting.
        """
        uid, deployment = body["metadata"].get("uid", ""), self.target_of_pod(body)
        seconds = start_seconds(body)
        if self.holders is not None:
            self.holders.put(body)
        if deployment is None:
            return None
        self._note_mark(deployment, body)
        if self.sizes is not None:
            self.sizes.put(deployment, body)
        before = self._was_ready.get(uid)
        self._was_ready[uid] = (was_ready(body) if before is None else before) or is_ready(body)
        self._note_starting(deployment, uid, body)
        starting = before is False
        if starting and seconds is not None:
            self._starts.setdefault(deployment, deque(maxlen=COLD_STARTS_KEPT)).append(seconds)
        return self._count_ready(deployment, body["metadata"]["name"], is_ready(body))

    def target_of_pod(self, body: Mapping[str, Any]) -> Key | None:
        """Return the target that a pod is of: by the selectors of scales, and else the Deployment that made it."""
        metadata = body.get("metadata", {})
        namespace, labels = metadata.get("namespace", ""), metadata.get("labels") or {}
        found = (key for key, one in self._selectors.items() if key[0] == namespace and selects(one, labels))
        return next(found, None) or deployment_of_pod(body)

    def selector_of(self, key: Key) -> Selector | None:
        """Return which pods are those of a target that is no Deployment; None where that is not known."""
        return self._selectors.get(key)

    def _count_ready(self, key: Key, pod: str, ready: bool) -> Key | None:
        """Note whether a pod of a target is ready that counts by pods; return it where their number has changed."""
        if key not in self._selectors:
            return None
        pods, target = self._ready.setdefault(key, set()), self.deployments.get(key)
        (pods.add if ready else pods.discard)(pod)
        if target is None or target.ready == len(pods):
            return None
        target.ready, target.revision = len(pods), next(self._numbers)
        return key

    def _note_mark(self, deployment: Key, body: Mapping[str, Any]) -> None:
        pods, name = self.pods.setdefault(deployment, {}), body["metadata"]["name"]
        if "deletionTimestamp" in body["metadata"]:
            pods.pop(name, None)
        else:
            pods[name] = (body["metadata"].get("annotations") or {}).get(DELETION_COST) == IDLE

    def _note_starting(self, deployment: Key, uid: str, body: Mapping[str, Any]) -> None:
        if is_over(body) or self._was_ready[uid]:
            self._starting.get(deployment, {}).pop(uid, None)
        else:
            self._starting.setdefault(deployment, {}).setdefault(uid, self.clock())

    def drop_pod(self, body: Mapping[str, Any]) -> Key | None:
        """Forget a pod; return the target whose ready pods have changed by it, where they are counted by pods."""
        uid, deployment = body["metadata"].get("uid", ""), self.target_of_pod(body)
        self._was_ready.pop(uid, None)
        if self.holders is not None:
            self.holders.drop(key_of(body))
        if deployment is not None:
            self.pods.get(deployment, {}).pop(body["metadata"]["name"], None)
            if self.sizes is not None:
                self.sizes.drop(deployment, body["metadata"]["name"])
        if deployment in self._starting:
            self._starting[deployment].pop(uid, None)
        return None if deployment is None else self._count_ready(deployment, body["metadata"]["name"], ready=False)

    def pending_seconds(self, key: Key) -> float:
        """Return how many seconds the oldest pod that was never ready has been seen for; 0 where there is none.

        The time is measured by `clock`, which no clock skew touches. No pod is pending where all replicas are ready, no
        matter what an interrupted watch has missed.
        """
        starting, deployment = self._starting.get(key), self.deployments.get(key)
        if not starting:
            return 0.0
        if deployment is None or deployment.ready >= deployment.replicas:
            del self._starting[key]
            return 0.0
        return max(0.0, self.clock() - min(starting.values()))

    def stuck_pods(self, key: Key, limit_seconds: float) -> int:
        """Return how many pods that were never ready have been seen for more than `limit_seconds`.

        Ask `pending_seconds` first, which forgets what an interrupted watch has missed.
        """
        began = self.clock() - limit_seconds
        return sum(since < began for since in self._starting.get(key, {}).values())

    def cold_start_seconds(self, key: Key) -> float | None:
        """Return the median seconds from creation to ready of the newest pods; None before enough were seen.

        The time until there is a node for a pod is part of it: capacity that is ordered now serves after both.
        """
        starts = self._starts.get(key, ())
        return float(median(starts)) if len(starts) >= COLD_STARTS_NEEDED else None


def _relevant(deployment: Deployment) -> tuple[object, ...]:
    """Return the parts of a Deployment whose change a policy reacts to."""
    return deployment.replicas, deployment.ready, deployment.uid, deployment.rolling


def _reported(deployment: Deployment) -> tuple[object, ...]:
    """What a report depends on: also who set the replicas, and whether the Deployment is being deleted."""
    return *_relevant(deployment), deployment.manager, deployment.deleting
