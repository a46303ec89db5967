"""Cache of what the watch streams say about the objects around the policies: Deployments, pods, scalers and routes.

It keeps plain dictionaries with a few numbers per object: an index in kopf or whole bodies would cost seconds and
hundreds of MiB in a large cluster.
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
"""Annotation of pods: a ReplicaSet deletes ready pods with a lower number first; a pod without it counts as 0."""

IDLE = "-1000"
"""Deletion cost of a pod that the operator has marked as idle. Another number is another writer's, and left alone."""

COLD_STARTS_KEPT = 20
"""Cold starts of a Deployment that are kept: the newest ones."""

NEVER_READY_SECONDS = 5.0
"""A pod that turned un-ready later than this after it was scheduled was ready before."""

COLD_STARTS_NEEDED = 3
"""Pods that must have started before their cold start counts as learned."""


@dataclass(slots=True)
class Deployment:
    """The parts of a Deployment that the operator reads."""

    uid: str
    resource_version: str
    replicas: int
    ready: int
    manager: str
    """Field manager that set `spec.replicas`; empty = not known."""
    deleting: bool = False
    rolling: bool = False
    """True while a new version of its pods is rolled out."""
    revision: int = field(default=0, compare=False)
    """A number of the cache's own that changes with everything above but `resource_version`."""


@dataclass(slots=True)
class Autoscaler:
    """A scaler besides rlscaler: a HorizontalPodAutoscaler or a ScaledObject."""

    kind: str
    name: str
    target: str
    """Name of the Deployment that it scales."""
    revision: int = field(default=0, compare=False)
    """A number like that of a Deployment."""


@dataclass(slots=True)
class WatchCache:
    """Objects by (namespace, name). The watch handlers call `put_*` and `drop_*`; the rest of the operator reads."""

    deployments: dict[Key, Deployment] = field(default_factory=dict)
    routes: dict[Key, dict[str, Any]] = field(default_factory=dict)
    """HTTPRoutes: `{"metadata": {"resourceVersion", "annotations"}, "spec": {"rules"}}`."""
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
    """Pods of each Deployment: their names, and whether each carries the operator's deletion cost."""
    clock: Callable[[], float] = time.monotonic
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Revisions that were not used yet."""

    def revisions(self, deployment: Key) -> tuple[int, int]:
        """Those of a Deployment and of the foreign autoscaler that scales it; 0 where there is none."""
        found, autoscaler = self.deployments.get(deployment), self.autoscaler_of(*deployment)
        return found.revision if found else 0, autoscaler.revision if autoscaler else 0

    def put_deployment(self, body: Mapping[str, Any]) -> bool:
        """Take in a Deployment; return False where nothing changed that a policy reacts to."""
        key = key_of(body)
        new = parse_deployment(body)
        old = self.deployments.get(key)
        if old is not None and old.uid == new.uid and older(new.resource_version, old.resource_version):
            return False
        same = old is not None and _reported(old) == _reported(new)
        new.revision = old.revision if old is not None and same else next(self._numbers)
        self.deployments[key] = new
        return old is None or _relevant(old) != _relevant(new)

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
        """Forget all scalers of a kind."""
        for found, *key in list(self._autoscalers):
            if found == kind:
                self.drop_autoscaler(kind, (key[0], key[1]))

    def autoscaler_of(self, namespace: str, deployment: str) -> Autoscaler | None:
        """Return the HorizontalPodAutoscaler or ScaledObject that scales a Deployment; None where there is none."""
        return next(iter(self._scaled.get((namespace, deployment), ())), None)

    def put_route(self, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata", {})
        key = key_of(body)
        old = self.routes.get(key)
        version = metadata.get("resourceVersion", "")
        if old is not None and older(version, old["metadata"]["resourceVersion"]):
            return
        self.routes[key] = {
            "metadata": {"resourceVersion": version},
            "spec": {"rules": [dict(rule) for rule in body.get("spec", {}).get("rules", [])]},
        }

    def put_pod(self, body: Mapping[str, Any]) -> None:
        """Take in a pod; when it becomes ready, learn how long that took from being scheduled.

        Nothing is learned from a pod that is first seen ready, or un-ready after it was ready: it is not starting.
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

    def cold_start_seconds(self, key: Key) -> float | None:
        """Return the median seconds from scheduled to ready of the newest pods; None before enough were seen."""
        starts = self._starts.get(key, ())
        return float(median(starts)) if len(starts) >= COLD_STARTS_NEEDED else None


def parse_deployment(body: Mapping[str, Any]) -> Deployment:
    """Read the parts of a Deployment object that the operator uses."""
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


def _relevant(deployment: Deployment) -> tuple[object, ...]:
    """Return the parts of a Deployment whose change a policy reacts to."""
    return deployment.replicas, deployment.ready, deployment.uid, deployment.rolling


def _reported(deployment: Deployment) -> tuple[object, ...]:
    """What a report depends on: also who set the replicas, and whether the Deployment is being deleted."""
    return *_relevant(deployment), deployment.manager, deployment.deleting


def _is_rolling(status: Mapping[str, Any]) -> bool:
    """Return True while there are pods of an older template and the Deployment's controller makes progress.

    A rollout that is paused, or stuck for longer than its progressDeadlineSeconds, must not hold a policy for ever.
    """
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    progress: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Progressing"), {})
    moving = progress.get("status") == "True" and progress.get("reason") != "NewReplicaSetAvailable"
    return moving and int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0)


def replicas_manager(managed_fields: Any) -> str:
    """Return the field manager that owns `spec.replicas`; empty where none is recorded.

    A manager that sets another value takes the field over. Several managers may own the same value; if the operator is
    among them, it is returned. Entries of the scale subresource carry no time.
    """
    owners = [
        entry.get("manager", "")
        for entry in managed_fields
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(reversed(owners), "")


def deployment_of_pod(body: Mapping[str, Any]) -> Key | None:
    """Return the Deployment of a pod by the name of its ReplicaSet; None where it has none."""
    metadata = body.get("metadata", {})
    template = (metadata.get("labels") or {}).get("pod-template-hash")
    for owner in metadata.get("ownerReferences") or ():
        name = owner.get("name", "")
        if owner.get("kind") == "ReplicaSet" and template and name.endswith(f"-{template}"):
            return metadata.get("namespace", ""), name[: -len(template) - 1]
    return None


def start_seconds(body: Mapping[str, Any]) -> float | None:
    """Return the seconds from scheduled to ready; None where the pod is not ready or was restarted since."""
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
    """Return True where the conditions of a pod say that it is ready or was ready before."""
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
    """Return True where a resourceVersion is older than another; one of an unknown format never is."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def unix(text: str | None) -> float:
    """Return the unix seconds of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def key_of(body: Mapping[str, Any]) -> Key:
    """Return the namespace and the name of an object; the namespace is empty where the object has none."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
