"""What the operator reads of the bodies of Kubernetes objects: replicas, pods, and who set a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.cluster.selectors import Selector, parse_selector

Key = tuple[str, str]
"""(namespace, name); the name of a target that is no Deployment begins with its kind (`reference` of the API)."""

OVER = ("Succeeded", "Failed")
"""Phases of pods that hold nothing any more."""

NEVER_READY_SECONDS = 5.0
"""A pod that turned un-ready later than this after it was scheduled was ready before."""

SHORTAGE_SECONDS = 600.0
"""A pod that waited for a node for longer than this waited for capacity that was not to be had: no cold start."""


@dataclass(slots=True)
class Deployment:
    """The parts of a Deployment, or of another object with replicas, that the operator reads."""

    uid: str
    resource_version: str
    replicas: int
    ready: int
    manager: str
    """Field manager that set `spec.replicas`; empty = not known."""
    deleting: bool = False
    rolling: bool = False
    """True while a new version of its pods is rolled out."""
    refused: str = ""
    """Why the API server takes no new pods of it; empty = it does."""
    revision: int = field(default=0, compare=False)
    """A number of the cache's own that changes with everything above but `resource_version`."""
    requests: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What a pod of its template takes of a node, by resource."""


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
        refused=_refused(status),
        requests=requests_of((spec.get("template") or {}).get("spec") or {}),
    )


def _is_rolling(status: Mapping[str, Any]) -> bool:
    """Return True while there are pods of an older template and the Deployment's controller makes progress.

    A rollout that is paused, or stuck for longer than its progressDeadlineSeconds, must not hold a policy for ever.
    """
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    progress: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Progressing"), {})
    moving = progress.get("status") == "True" and progress.get("reason") != "NewReplicaSetAvailable"
    return moving and int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0)


def _refused(status: Mapping[str, Any]) -> str:
    """Return what a Deployment's controller says of pods that the API server does not take."""
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    failure = next((c for c in conditions if c.get("type") == "ReplicaFailure" and c.get("status") == "True"), {})
    message = str(failure.get("message") or "")
    return message.partition("is forbidden: ")[2] or message


def is_replaced(status: Mapping[str, Any]) -> bool:
    """Return True while a StatefulSet has pods of an older template; other kinds do not say so in a common way."""
    revisions = status.get("currentRevision"), status.get("updateRevision")
    outdated = int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0)
    return None not in revisions and revisions[0] != revisions[1] and outdated


def selector_of(scale: Mapping[str, Any]) -> Selector | None:
    """Return the selector of a scale's pods; None where it has none that can be read."""
    return parse_selector(scale.get("status", {}).get("selector") or "")


def replicas_manager(managed_fields: Any) -> str:
    """Return the field manager that owns `spec.replicas`; empty where none is recorded."""
    return field_manager(managed_fields, "f:replicas")


def field_manager(managed_fields: Any, name: str) -> str:
    """Return the field manager that owns a field of the spec, such as `f:replicas`; empty where none is recorded.

    A manager that sets another value takes the field over. Several managers may own the same value; if the operator is
    among them, it is returned. Entries of the scale subresource carry no time.
    """
    owners = [
        entry.get("manager", "")
        for entry in managed_fields
        if name in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
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
    """Return the seconds from a pod's creation to ready; None where it is not ready or was restarted since.

    A pod that waited for a node for longer than `SHORTAGE_SECONDS` says nothing about cold starts: None.
    """
    conditions = {c.get("type"): c for c in body.get("status", {}).get("conditions") or ()}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    if not is_ready(body):
        return None
    if any(c.get("restartCount") for c in body.get("status", {}).get("containerStatuses") or ()):
        return None
    begin, end = unix(body["metadata"].get("creationTimestamp")), unix(ready.get("lastTransitionTime"))
    if unix(scheduled.get("lastTransitionTime")) - begin > SHORTAGE_SECONDS:
        return None
    return max(0.0, end - begin) if begin and end else None


def is_ready(body: Mapping[str, Any]) -> bool:
    """Return True where the conditions of a pod, or of a node, say that it is ready now."""
    conditions = body.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_over(body: Mapping[str, Any]) -> bool:
    """Return True where a pod has ended or is on its way out."""
    return "deletionTimestamp" in body["metadata"] or (body.get("status") or {}).get("phase") in OVER


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


def request_of(container: Mapping[str, Any], resource: str) -> float:
    """Return what a container asks for of a resource; a limit without a request is the request as well."""
    resources = container.get("resources") or {}
    return quantity((resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource)))


def requests_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return what a pod takes of its node by resource: what its containers ask for, or more while it starts."""
    running, starting = spec.get("containers") or (), spec.get("initContainers") or ()
    found: dict[str, float] = {}
    for name in {name for container in (*running, *starting) for name in _requested(container)}:
        together = sum(request_of(container, name) for container in running)
        found[name] = max([together, *(request_of(container, name) for container in starting)])
    return found


def _requested(container: Mapping[str, Any]) -> set[str]:
    """Return the resources that a container names."""
    resources = container.get("resources") or {}
    return {name for part in ("requests", "limits") for name in resources.get(part) or ()}


def quantity(text: Any) -> float:
    """Read a quantity of Kubernetes such as 4, 500m or 2Gi; what is absent or cannot be read is none."""
    try:
        return 0.0 if text is None else float(parse_quantity(text))
    except ValueError:
        return 0.0


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
