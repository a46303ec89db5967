"""What the API server says about the objects around the policies, kept by the watch streams.

Plain dictionaries of a few numbers per object: an index in kopf or whole bodies would cost seconds and hundreds of
MiB in a large cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from statistics import median
from typing import Any

from rlscaler_operator.cluster.kube import FIELD_MANAGER

Key = tuple[str, str]
"""(namespace, name)."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Of two ready pods, a ReplicaSet deletes the one with the lower number first; without it 0."""

IDLE = "-1000"
"""What an idle pod is marked with. Others' marks are told from ours by another number, and left alone."""

COLD_STARTS_KEPT = 20
NEVER_READY_SECONDS = 5.0
"""A pod that turned un-ready later than this after it was scheduled was ready before."""
COLD_STARTS_NEEDED = 3
"""Pods that must have started before their cold start counts as learned."""


@dataclass(slots=True)
class Deployment:
    """What is read of a Deployment."""

    uid: str
    resource_version: str
    replicas: int
    ready: int
    manager: str
    """Who set `spec.replicas`, by managedFields; empty = nobody known."""
    deleting: bool = False
    rolling: bool = False
    """Is a new version of its pods being rolled out?"""
    revision: int = field(default=0, compare=False)
    """A number of the cache's own that changes with everything above but `resource_version`."""


@dataclass(slots=True)
class Autoscaler:
    """A foreign scaler: a HorizontalPodAutoscaler or a ScaledObject."""

    kind: str
    name: str
    target: str
    """The Deployment that it scales."""
    revision: int = field(default=0, compare=False)
    """As a Deployment's."""


@dataclass(slots=True)
class WatchCache:
    """Objects by (namespace, name); fed by `put_*` and `drop`, read by everybody."""

    deployments: dict[Key, Deployment] = field(default_factory=dict)
    routes: dict[Key, dict[str, Any]] = field(default_factory=dict)
    """HTTPRoutes: `{"metadata": {"resourceVersion", "annotations"}, "spec": {"rules"}}`."""
    _autoscalers: dict[tuple[str, str, str], Autoscaler] = field(default_factory=dict)
    """By (kind, namespace, name)."""
    _scaled: dict[Key, list[Autoscaler]] = field(default_factory=dict)
    """By the Deployment that they scale."""
    _starts: dict[Key, deque[float]] = field(default_factory=dict)
    _was_ready: dict[str, bool] = field(default_factory=dict)
    """By the uid of every pod."""
    _starting: dict[Key, dict[str, float]] = field(default_factory=dict)
    """By Deployment: the pods that were never ready, by uid, and since when they were seen on `clock`."""
    pods: dict[Key, dict[str, bool]] = field(default_factory=dict)
    """By Deployment: the names of its pods, and whether each carries a deletion cost of ours."""
    clock: Callable[[], float] = time.monotonic
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Revisions that were not used yet."""

    def revisions(self, deployment: Key) -> tuple[int, int]:
        """Those of a Deployment and of the foreign autoscaler that scales it; 0 where there is none."""
        found, autoscaler = self.deployments.get(deployment), self.autoscaler_of(*deployment)
        return found.revision if found else 0, autoscaler.revision if autoscaler else 0

    def put_deployment(self, body: Mapping[str, Any]) -> bool:
        """Take in a Deployment; False where it says nothing new about replicas."""
        key = _key(body)
        new = parse_deployment(body)
        old = self.deployments.get(key)
        if old is not None and old.uid == new.uid and older(new.resource_version, old.resource_version):
            return False
        same = old is not None and _reported(old) == _reported(new)
        new.revision = old.revision if old is not None and same else next(self._numbers)
        self.deployments[key] = new
        return old is None or _shown(old) != _shown(new)

    def wrote_replicas(self, key: Key, replicas: int, resource_version: str) -> None:
        """Remember a write of ours before the watch reports it."""
        deployment = self.deployments.get(key)
        if deployment is not None and not older(resource_version, deployment.resource_version):
            before = _reported(deployment)
            deployment.replicas, deployment.resource_version = replicas, resource_version
            deployment.manager = FIELD_MANAGER
            if _reported(deployment) != before:
                deployment.revision = next(self._numbers)

    def put_autoscaler(self, kind: str, body: Mapping[str, Any]) -> None:
        key = _key(body)
        old = self._autoscalers.get((kind, *key))
        self.drop_autoscaler(kind, key)
        reference = body.get("spec", {}).get("scaleTargetRef", {})
        if (reference.get("kind") or "Deployment") == "Deployment":
            autoscaler = Autoscaler(kind, key[1], reference.get("name", ""))
            autoscaler.revision = old.revision if old is not None and old == autoscaler else next(self._numbers)
            self._autoscalers[kind, *key] = autoscaler
            self._scaled.setdefault((key[0], autoscaler.target), []).append(autoscaler)

    def drop_autoscaler(self, kind: str, key: Key) -> None:
        autoscaler = self._autoscalers.pop((kind, *key), None)
        if autoscaler is not None:
            self._scaled[key[0], autoscaler.target].remove(autoscaler)

    def drop_autoscalers(self, kind: str) -> None:
        """All of a kind."""
        for found, *key in list(self._autoscalers):
            if found == kind:
                self.drop_autoscaler(kind, (key[0], key[1]))

    def autoscaler_of(self, namespace: str, deployment: str) -> Autoscaler | None:
        """The HPA or ScaledObject that scales a Deployment."""
        return next(iter(self._scaled.get((namespace, deployment), ())), None)

    def put_route(self, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata", {})
        key = _key(body)
        old = self.routes.get(key)
        version = metadata.get("resourceVersion", "")
        if old is not None and older(version, old["metadata"]["resourceVersion"]):
            return
        self.routes[key] = {
            "metadata": {"resourceVersion": version},
            "spec": {"rules": [dict(rule) for rule in body.get("spec", {}).get("rules", [])]},
        }

    def put_pod(self, body: Mapping[str, Any]) -> None:
        """Learn from a pod that becomes ready how long it took from being scheduled.

        A pod that is first seen ready, or un-ready after it was ready, teaches nothing: it is not starting.
        """
        uid, deployment = body["metadata"].get("uid", ""), deployment_of_pod(body)
        seconds = start_seconds(body)
        if deployment is None:
            return
        annotations = body["metadata"].get("annotations") or {}
        self.pods.setdefault(deployment, {})[body["metadata"]["name"]] = annotations.get(DELETION_COST) == IDLE
        before = self._was_ready.get(uid)
        self._was_ready[uid] = (was_ready(body) if before is None else before) or seconds is not None
        self._note_starting(deployment, uid, body)
        starting = before is False
        if starting and seconds is not None:
            self._starts.setdefault(deployment, deque(maxlen=COLD_STARTS_KEPT)).append(seconds)

    def _note_starting(self, deployment: Key, uid: str, body: Mapping[str, Any]) -> None:
        over = "deletionTimestamp" in body["metadata"] or body.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if over or self._was_ready[uid]:
            self._starting.get(deployment, {}).pop(uid, None)
        else:
            self._starting.setdefault(deployment, {}).setdefault(uid, self.clock())

    def drop_pod(self, body: Mapping[str, Any]) -> None:
        uid, deployment = body["metadata"].get("uid", ""), deployment_of_pod(body)
        self._was_ready.pop(uid, None)
        if deployment is not None:
            self.pods.get(deployment, {}).pop(body["metadata"]["name"], None)
        if deployment in self._starting:
            self._starting[deployment].pop(uid, None)

    def pending_seconds(self, key: Key) -> float:
        """How long the oldest pod that was never ready has been seen for; 0 where there is none.

        By our own clock, which no skew touches. Where all replicas are ready none is pending, whatever a watch that was
        interrupted has missed.
        """
        starting, deployment = self._starting.get(key), self.deployments.get(key)
        if not starting:
            return 0.0
        if deployment is None or deployment.ready >= deployment.replicas:
            del self._starting[key]
            return 0.0
        return max(0.0, self.clock() - min(starting.values()))

    def cold_start_seconds(self, key: Key) -> float | None:
        """Median time from scheduled to ready of the newest pods; None before enough were seen."""
        starts = self._starts.get(key, ())
        return float(median(starts)) if len(starts) >= COLD_STARTS_NEEDED else None


def parse_deployment(body: Mapping[str, Any]) -> Deployment:
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    replicas = spec.get("replicas")
    return Deployment(
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        replicas=1 if replicas is None else int(replicas),
        ready=int(status.get("readyReplicas") or 0),
        manager=replicas_manager(metadata.get("managedFields") or ()),
        deleting="deletionTimestamp" in metadata,
        rolling=_is_rolling(status),
    )


def _shown(deployment: Deployment) -> tuple[object, ...]:
    """What a policy looks at again for."""
    return deployment.replicas, deployment.ready, deployment.uid, deployment.rolling


def _reported(deployment: Deployment) -> tuple[object, ...]:
    """What a report depends on: also who set the replicas, and whether the Deployment is being deleted."""
    return *_shown(deployment), deployment.manager, deployment.deleting


def _is_rolling(status: Mapping[str, Any]) -> bool:
    """Are there pods of an older template while the controller makes progress?

    One that is paused, or stuck for longer than its progressDeadlineSeconds, holds nothing for ever.
    """
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    progress: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Progressing"), {})
    moving = progress.get("status") == "True" and progress.get("reason") != "NewReplicaSetAvailable"
    return moving and int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0)


def replicas_manager(managed_fields: Any) -> str:
    """Who owns `spec.replicas`; empty where nobody is recorded.

    A manager that sets another value takes the field over. Several may own one value; then it is as much ours as
    theirs. Entries of the scale subresource carry no time.
    """
    owners = [
        entry.get("manager", "")
        for entry in managed_fields
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(reversed(owners), "")


def deployment_of_pod(body: Mapping[str, Any]) -> Key | None:
    """The Deployment behind a pod, through its ReplicaSet's name."""
    metadata = body.get("metadata", {})
    template = (metadata.get("labels") or {}).get("pod-template-hash")
    for owner in metadata.get("ownerReferences") or ():
        name = owner.get("name", "")
        if owner.get("kind") == "ReplicaSet" and template and name.endswith(f"-{template}"):
            return metadata.get("namespace", ""), name[: -len(template) - 1]
    return None


def start_seconds(body: Mapping[str, Any]) -> float | None:
    """Seconds from scheduled to ready; None where the pod is not ready or was restarted since."""
    conditions = {c.get("type"): c for c in body.get("status", {}).get("conditions") or ()}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    if ready.get("status") != "True":
        return None
    if any(c.get("restartCount") for c in body.get("status", {}).get("containerStatuses") or ()):
        return None
    begin = unix(scheduled.get("lastTransitionTime")) or unix(body["metadata"].get("creationTimestamp"))
    end = unix(ready.get("lastTransitionTime"))
    return max(0.0, end - begin) if begin and end else None


def was_ready(body: Mapping[str, Any]) -> bool:
    """Was a pod ready before, by what it says now?"""
    conditions = {c.get("type"): c for c in body.get("status", {}).get("conditions") or ()}
    ready = conditions.get("Ready")
    if ready is None:
        return False
    if ready.get("status") == "True":
        return True
    scheduled = conditions.get("PodScheduled", {})
    begin = unix(scheduled.get("lastTransitionTime")) or unix(body["metadata"].get("creationTimestamp"))
    return unix(ready.get("lastTransitionTime")) - begin > NEVER_READY_SECONDS if begin else False


def older(version: str, than: str) -> bool:
    """Is a resourceVersion older? Unknown formats never are."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def unix(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _key(body: Mapping[str, Any]) -> Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
