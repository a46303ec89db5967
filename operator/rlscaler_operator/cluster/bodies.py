"""Parts of the bodies of Kubernetes objects that the operator reads: replicas, pods, and the managers of fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from rlscaler_core.api.targets import reference
from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.cluster.selectors import Selector, parse_selector

Key = tuple[str, str]
"""(namespace, name); the name of a target that is no Deployment begins with its kind (`reference` of the API)."""

Json = Mapping[str, Any]

OVER = ("Succeeded", "Failed")
"""Phases of pods that hold no resources any more."""

NEVER_SCALED = ("Job", "DaemonSet", "Node")
"""Kinds of controllers whose pods no target has, whatever their labels."""

WORDS = 300
"""Most characters of a message of Kubernetes that are shown in a condition."""

NEVER_READY_SECONDS = 5.0
"""A pod that turned un-ready later than this after it was scheduled was ready before."""

SHORTAGE_SECONDS = 600.0
"""Longest wait for a node that counts as part of a cold start; a longer one means that the cluster had no capacity."""


@dataclass(slots=True)
class Deployment:
    """Read parts of a Deployment, or of another object with replicas."""

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
    """Reason why the API server refuses new pods of it; empty = it accepts them."""
    revision: int = field(default=0, compare=False)
    """Number of the cache's own that changes with every field above except `resource_version`."""
    requests: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Requests of one pod of its template, by resource."""
    owner: str = ""
    """Uid of the object that controls it; empty = none."""
    seen_at: float = field(default=0.0, compare=False)
    """Monotonic time at which this version was taken in."""


def parse_deployment(body: Json) -> Deployment:
    """Return the read parts of a Deployment object."""
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
        owner=controller_of(body).get("uid", ""),
    )


def condition(status: Json, type_: str) -> Json:
    """Return a condition of an object's status; empty where it has none of this type."""
    return next((row for row in status.get("conditions") or () if row.get("type") == type_), {})


def _is_rolling(status: Json) -> bool:
    """Return True while there are pods of an older template and the Deployment's controller makes progress."""
    progress = condition(status, "Progressing")
    # A rollout that is paused, or stuck for longer than its progressDeadlineSeconds, must not hold a policy for ever.
    moving = progress.get("status") == "True" and progress.get("reason") != "NewReplicaSetAvailable"
    return moving and _outdated(status)


def _outdated(status: Json) -> bool:
    return int(status.get("updatedReplicas") or 0) < int(status.get("replicas") or 0)


def _refused(status: Json) -> str:
    """Return the Deployment controller's message about refused pods; empty where none is refused."""
    failure = condition(status, "ReplicaFailure")
    message = str(failure.get("message") or "") if failure.get("status") == "True" else ""
    return message.partition("is forbidden: ")[2] or message


def is_replaced(status: Json) -> bool:
    """Return True while a StatefulSet has pods of an older template; other kinds have no common field for it."""
    revisions = status.get("currentRevision"), status.get("updateRevision")
    return None not in revisions and revisions[0] != revisions[1] and _outdated(status)


def selector_of(scale: Json) -> Selector | None:
    """Return the selector of a scale's pods; None where it has none, or one of an unknown form."""
    return parse_selector(scale.get("status", {}).get("selector") or "")


def replicas_manager(managed_fields: Any) -> str:
    """Return the field manager that owns `spec.replicas`; empty where none is recorded."""
    return field_manager(managed_fields, "f:replicas")


def field_manager(managed_fields: Any, name: str) -> str:
    """Return the field manager that owns a field of the spec, such as `f:replicas`; empty where none is recorded."""
    # A manager that sets another value takes the field over. Several managers may own the same value; the operator is
    # preferred among them. Entries of the scale subresource carry no time, so the last entry counts as the newest.
    owners = [
        entry.get("manager", "")
        for entry in managed_fields
        if name in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return FIELD_MANAGER if FIELD_MANAGER in owners else next(reversed(owners), "")


def controller_of(body: Json) -> Json:
    """Return the reference to the controller of an object, or to its first owner; empty where it has none."""
    owners: list[Json] = body.get("metadata", {}).get("ownerReferences") or [{}]
    return next((owner for owner in owners if owner.get("controller")), owners[0])


def deployment_of_pod(body: Json) -> Key | None:
    """Return the Deployment of a pod by the name of its ReplicaSet; None where it has none."""
    metadata, owner = body.get("metadata", {}), controller_of(body)
    template = (metadata.get("labels") or {}).get("pod-template-hash")
    name = owner.get("name", "")
    if owner.get("kind") == "ReplicaSet" and template and name.endswith(f"-{template}"):
        return metadata.get("namespace", ""), name[: -len(template) - 1]
    return None


def owns(target: str, uid: str, pod: Json) -> bool:
    """Return True where the target with this reference and uid, no Deployment, may own a pod that it selects."""
    owner, labels = controller_of(pod), (pod["metadata"].get("labels") or {})
    kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
    wanted_kind, _, wanted = target.partition("/")
    if referenced(owner).partition("/")[0] == wanted_kind:
        return name == wanted and uid in {"", owner.get("uid", "")}
    if kind == "ReplicaSet":
        # Argo Rollouts names its ReplicaSets as Deployments do, by a label of its own.
        return name == f"{wanted}-{labels.get('rollouts-pod-template-hash')}"
    if kind == "StatefulSet":
        # A LeaderWorkerSet has one StatefulSet of its name for the leaders and one for the workers of each.
        return re.fullmatch(rf"{re.escape(wanted)}(-\d+)?", name) is not None
    # A controller of its own kind may make pods without naming itself; Kubernetes' own ones never do.
    return kind not in NEVER_SCALED and (bool(owner) or not wanted_kind.endswith(".apps"))


def start_seconds(body: Json) -> float | None:
    """Return the seconds from a pod's creation to ready.

    None where it is not ready, was restarted since, or waited for a node for longer than `SHORTAGE_SECONDS`.
    """
    status = body.get("status", {})
    if not is_ready(body) or any(c.get("restartCount") for c in status.get("containerStatuses") or ()):
        return None
    ready, scheduled = (unix(condition(status, name).get("lastTransitionTime")) for name in ("Ready", "PodScheduled"))
    created = unix(body["metadata"].get("creationTimestamp"))
    if scheduled - created > SHORTAGE_SECONDS:
        return None
    return max(0.0, ready - created) if created and ready else None


def is_ready(body: Json) -> bool:
    """Return True where a pod, or a node, has the condition Ready now."""
    return condition(body.get("status", {}), "Ready").get("status") == "True"


def is_over(body: Json) -> bool:
    """Return True where a pod has ended or is being deleted."""
    return "deletionTimestamp" in body["metadata"] or (body.get("status") or {}).get("phase") in OVER


def why_not_ready(body: Json) -> str:
    """Return why a pod is not ready, in the words of the scheduler or the kubelet; empty where it is or none says."""
    status = body.get("status") or {}
    if is_ready(body) or is_over(body):
        return ""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    waiting = [(container.get("state") or {}).get("waiting") or {} for container in containers]
    for words in (condition(status, "PodScheduled"), *waiting):
        # A container that waits for its turn says no more than that.
        if words.get("status") != "True" and words.get("message"):
            return f"{words.get('reason', 'Pending')}: {' '.join(str(words['message']).split())[:WORDS]}"
    return ""


def was_ready(body: Json) -> bool:
    """Return True where a pod is ready or, by the times of its conditions, was ready before."""
    status = body.get("status", {})
    ready, scheduled = condition(status, "Ready"), condition(status, "PodScheduled")
    if not ready or ready.get("status") == "True":
        return bool(ready)
    begin = unix(scheduled.get("lastTransitionTime")) or unix(body["metadata"].get("creationTimestamp"))
    return unix(ready.get("lastTransitionTime")) - begin > NEVER_READY_SECONDS if begin else False


def request_of(container: Json, resource: str) -> float:
    """Return the request of a container; a limit without a request is the request as well."""
    resources = container.get("resources") or {}
    return quantity((resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource)))


def requests_of(spec: Json) -> dict[str, float]:
    """Return the requests of a pod by resource: the sum of its containers, or more while it starts."""
    running, starting = spec.get("containers") or (), spec.get("initContainers") or ()
    requests: dict[str, float] = {}
    for name in {name for container in (*running, *starting) for name in _requested(container)}:
        # Init containers run one after another before the containers, so the scheduler takes the larger of both.
        together = sum(request_of(container, name) for container in running)
        requests[name] = max([together, *(request_of(container, name) for container in starting)])
    return requests


def _requested(container: Json) -> set[str]:
    """Return the resources that a container names."""
    resources = container.get("resources") or {}
    return {name for part in ("requests", "limits") for name in resources.get(part) or ()}


def quantity(text: Any) -> float:
    """Return a quantity of Kubernetes such as 4, 500m or 2Gi as a number; 0 for none, and for a malformed one."""
    try:
        number = 0.0 if text is None else float(parse_quantity(text))
    except ValueError:
        return 0.0
    return number if 0 <= number < math.inf else 0.0


def older(version: str, than: str) -> bool:
    """Return True where a resourceVersion is older than another; False for an unknown format."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def unix(text: str | None) -> float:
    """Return the unix seconds of an RFC 3339 time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def key_of(body: Json) -> Key:
    """Return the namespace and the name of an object; the namespace is empty where the object has none."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def referenced(target: Json) -> str:
    """Return the reference of the API to the target that a scaler names, a Deployment by default."""
    kind = target.get("kind") or "Deployment"
    return reference(target.get("apiVersion") or "apps/v1", kind, target.get("name", ""))
