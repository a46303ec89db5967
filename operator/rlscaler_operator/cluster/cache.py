"""Cache of the watched objects around the policies: targets, their pods and routes.

It holds plain dictionaries with a few numbers per object: an index in kopf or whole bodies would cost seconds and
hundreds of MiB in a large cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import quote

from rlscaler_operator.cluster.autoscalers import Autoscalers
from rlscaler_operator.cluster.bodies import (
    Deployment,
    Key,
    deployment_of_pod,
    field_manager,
    is_ready,
    is_replaced,
    key_of,
    older,
    owns,
    parse_deployment,
    selector_of,
    start_seconds,
    was_ready,
    why_not_ready,
)
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKind, TargetKinds, is_other
from rlscaler_operator.cluster.kube import FIELD_MANAGER, Kube, object_path
from rlscaler_operator.cluster.lacking import Lacking
from rlscaler_operator.cluster.selectors import Selector, selects
from rlscaler_operator.cluster.sized_pods import SizedPods, remove
from rlscaler_operator.cluster.vertical_autoscalers import VerticalAutoscalers

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of pods: a ReplicaSet deletes ready pods with a lower number first; a pod without it counts as 0."""

IDLE = "-1000"
"""Deletion cost of a pod that the operator has marked as idle. Another number was set by another writer and stays."""

LATE_SECONDS = 60.0
"""Time for which an older version of an object counts as late: one that comes after it is of a restored etcd, whose
versions begin from an earlier number."""

COLD_STARTS_KEPT = 20
"""Number of remembered cold starts of a Deployment: the newest ones."""

COLD_STARTS_NEEDED = 3
"""Pods that must have started before their cold start counts as learned."""


class Seen(NamedTuple):
    """Known pod of a target."""

    uid: str
    target: Key
    ready_once: bool
    """Whether it has ever been ready."""


@dataclass(slots=True)
class WatchCache:
    """Objects by (namespace, name). Only the watch handlers call `put_*` and `drop_*`; all other code reads."""

    deployments: dict[Key, Deployment] = field(default_factory=dict)
    routes: dict[Key, dict[str, Any]] = field(default_factory=dict)
    """HTTPRoutes: `{"metadata": {"resourceVersion", "generation"}, "spec": {"rules", "parentRefs"},
    "status": {"parents"}, "manager": the field manager that set the rules, "seenAt": monotonic time}`."""
    _starts: dict[Key, deque[float]] = field(default_factory=dict)
    """Newest cold starts in seconds, by Deployment."""
    _seen: dict[Key, Seen] = field(default_factory=dict)
    """Pods of all targets."""
    _lacking: dict[Key, Lacking] = field(default_factory=dict)
    """Replicas of each target that are not ready."""
    _words: dict[Key, dict[str, str]] = field(default_factory=dict)
    """Pods of each target that are not ready, by name: why not, in Kubernetes' words."""
    pods: dict[Key, dict[str, bool]] = field(default_factory=dict)
    """Pods of each Deployment: their names, and whether each carries the operator's deletion cost. Pods that are being
    deleted are left out: their ReplicaSet does not count them."""
    holders: NodeHolders | None = None
    """Pods by the nodes that they hold; None = pods of some namespaces are not watched, or it is not needed."""
    sizes: SizedPods | None = None
    """Sizes of pods; None = they are not needed."""
    autoscalers: Autoscalers = field(default_factory=Autoscalers)
    """Other writers of replicas."""
    verticals: VerticalAutoscalers = field(default_factory=VerticalAutoscalers)
    """Other writers of the size of pods."""
    kinds: TargetKinds = field(default_factory=TargetKinds)
    """Kinds of targets besides Deployments."""
    _selectors: dict[Key, Selector] = field(default_factory=dict)
    """Selector of the pods of each target that is no Deployment."""
    _ready: dict[Key, set[str]] = field(default_factory=dict)
    """Names of the ready pods of each target that is no Deployment."""
    clock: Callable[[], float] = time.monotonic
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Unused revisions."""

    def revisions(self, target: Key) -> tuple[int, int, int]:
        """Return the revisions of a target, its autoscalers and its VerticalPodAutoscaler; 0 where there is none."""
        deployment, vertical = self.deployments.get(target), self.verticals.of(target)
        scalers = sum(scaler.revision for scaler in self.autoscalers.all_of(target))
        return deployment.revision if deployment else 0, scalers, vertical.revision if vertical else 0

    def put_deployment(self, body: Mapping[str, Any]) -> bool:
        """Take in a Deployment; return True where a policy has to react to the change."""
        return self._put(key_of(body), parse_deployment(body))

    def _put(self, key: Key, new: Deployment) -> bool:
        old = self.deployments.get(key)
        new.seen_at = self.clock()
        if (
            old is not None
            and old.uid == new.uid
            and self._late(new.resource_version, old.resource_version, old.seen_at)
        ):
            return False
        same = old is not None and _reported(old) == _reported(new)
        new.revision = old.revision if old is not None and same else next(self._numbers)
        self.deployments[key] = new
        self._note_lacking(key, new)
        return old is None or _relevant(old) != _relevant(new)

    def _late(self, version: str, known: str, seen_at: float) -> bool:
        """Return True where a version is older than the known one, which was seen a moment ago."""
        return older(version, known) and self.clock() - seen_at < LATE_SECONDS

    def put_scaled(self, key: Key, body: Mapping[str, Any], scale: Mapping[str, Any]) -> bool:
        """Take in an object that is no Deployment, with its scale; return True where a policy has to react.

        Its pods have to be read once more where `selects_anew` was True before.
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
        """Return True where a scale's selector differs from the known one."""
        return selector_of(scale) is not None and self._selectors.get(key) != selector_of(scale)

    def drop_target(self, key: Key) -> None:
        for by_target in (self.deployments, self._selectors, self._ready, self._starts, self._lacking):
            by_target.pop(key, None)

    def wrote_replicas(self, key: Key, replicas: int, resource_version: str) -> None:
        """Remember a write of the operator before the watch reports it."""
        deployment = self.deployments.get(key)
        if deployment is not None and not older(resource_version, deployment.resource_version):
            before, deployment.seen_at = _reported(deployment), self.clock()
            deployment.replicas, deployment.resource_version = replicas, resource_version
            deployment.manager = FIELD_MANAGER
            self._note_lacking(key, deployment)
            if _reported(deployment) != before:
                deployment.revision = next(self._numbers)

    def put_route(self, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata", {})
        key = key_of(body)
        old = self.routes.get(key)
        version = metadata.get("resourceVersion", "")
        if old is not None and self._late(version, old["metadata"]["resourceVersion"], old["seenAt"]):
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
            "seenAt": self.clock(),
        }

    def put_pod(self, body: Mapping[str, Any]) -> Key | None:
        """Take in a pod; when it becomes ready, remember its cold start.

        Return the target whose number of ready pods has changed, where the target is no Deployment.
        """
        key, uid, target = key_of(body), body["metadata"].get("uid", ""), self.target_of_pod(body)
        seconds, old = start_seconds(body), self._seen.get(key)
        if old is not None and (old.uid, old.target) != (uid, target):
            if old.uid != uid and "deletionTimestamp" in body["metadata"]:
                return None  # A late word of a pod whose successor has the same name.
            self.drop_pod(key)
            old = None
        if self.holders is not None:
            self.holders.put(body)
        if target is None:
            return None
        self._note_mark(target, body)
        if self.sizes is not None:
            self.sizes.put(target, body)
        # A pod that is first seen ready, or un-ready after it was ready, is not starting: its cold start is unknown.
        ready_once = (was_ready(body) if old is None else old.ready_once) or is_ready(body)
        self._seen[key] = Seen(uid, target, ready_once)
        self._note_words(target, key[1], why_not_ready(body))
        if old is not None and not old.ready_once and seconds is not None:
            self._starts.setdefault(target, deque(maxlen=COLD_STARTS_KEPT)).append(seconds)
        return self._count_ready(target, key[1], is_ready(body))

    def target_of_pod(self, body: Mapping[str, Any]) -> Key | None:
        """Return the target that owns a pod: a Deployment, or an object of another kind that selects it as well."""
        if (deployment := deployment_of_pod(body)) is not None:
            return self._owner_of(deployment)
        metadata = body.get("metadata", {})
        namespace, labels = metadata.get("namespace", ""), metadata.get("labels") or {}
        selecting = (
            key for key, selector in self._selectors.items() if key[0] == namespace and selects(selector, labels)
        )
        return next((key for key in selecting if owns(key[1], self._uid(key), body)), None)

    def _owner_of(self, deployment: Key) -> Key:
        """Return the target of another kind that owns a Deployment, or the Deployment itself."""
        known = self.deployments.get(deployment)
        if known is None or not known.owner:
            return deployment
        return next((key for key in self._selectors if self._uid(key) == known.owner), deployment)

    def _uid(self, key: Key) -> str:
        target = self.deployments.get(key)
        return "" if target is None else target.uid

    def selector_of(self, key: Key) -> Selector | None:
        """Return the selector of the pods of a target that is no Deployment; None where it is unknown."""
        return self._selectors.get(key)

    def _count_ready(self, key: Key, pod: str, ready: bool) -> Key | None:
        """Count the ready pods of a target that is no Deployment; return its key where their number has changed."""
        if key not in self._selectors:
            return None
        pods, target = self._ready.setdefault(key, set()), self.deployments.get(key)
        (pods.add if ready else pods.discard)(pod)
        if target is None or target.ready == len(pods):
            return None
        target.ready, target.revision = len(pods), next(self._numbers)
        self._note_lacking(key, target)
        return key

    def _note_mark(self, deployment: Key, body: Mapping[str, Any]) -> None:
        pods, name = self.pods.setdefault(deployment, {}), body["metadata"]["name"]
        if "deletionTimestamp" in body["metadata"]:
            remove(self.pods, deployment, name)
        else:
            pods[name] = (body["metadata"].get("annotations") or {}).get(DELETION_COST) == IDLE

    def _note_lacking(self, key: Key, target: Deployment) -> None:
        self._lacking.setdefault(key, Lacking()).note(target.replicas, target.ready, self.clock())

    def _note_words(self, key: Key, pod: str, words: str) -> None:
        """Note why a pod is not ready; a report depends on the words of the first pod of its target."""
        before = self.words(key)
        if words:
            self._words.setdefault(key, {})[pod] = words
        else:
            remove(self._words, key, pod)
        if (target := self.deployments.get(key)) is not None and self.words(key) != before:
            target.revision = next(self._numbers)

    def words(self, key: Key) -> str:
        """Return why the pods of a target are not ready, in Kubernetes' words about the first; empty = unknown."""
        return next(iter(self._words.get(key, {}).values()), "")

    def drop_pod(self, key: Key, uid: str = "") -> Key | None:
        """Forget the pod of a name, with `uid` only that very pod; return a target as `put_pod` does."""
        # The successor of a pod of a StatefulSet has its name.
        if uid and key in self._seen and self._seen[key].uid != uid:
            return None
        if self.holders is not None:
            self.holders.drop(key)
        pod = self._seen.pop(key, None)
        if pod is None:
            return None
        remove(self.pods, pod.target, key[1])
        self._note_words(pod.target, key[1], "")
        if self.sizes is not None:
            self.sizes.drop(pod.target, key[1])
        return self._count_ready(pod.target, key[1], ready=False)

    def known_pods(self) -> set[Key]:
        """Return the names of all pods that are remembered."""
        return self._seen.keys() | (self.holders.pods() if self.holders is not None else frozenset())

    def known_targets(self, kind: TargetKind) -> set[Key]:
        """Return the keys of the known targets of a kind."""
        return {key for key in self.deployments if self.kinds.of(key[1]) == kind}

    def pending_seconds(self, key: Key) -> float:
        """Return for how many seconds the oldest replica that is not ready has been asked for; 0 where all are.

        The time is measured by `clock`, so the clocks of other machines do not matter.
        """
        lacking = self._lacking.get(key)
        return 0.0 if lacking is None else lacking.seconds(self.clock())

    def stuck_replicas(self, key: Key, limit_seconds: float) -> int:
        """Return how many replicas have been asked for and not been ready for more than `limit_seconds`."""
        lacking = self._lacking.get(key)
        return 0 if lacking is None else lacking.longer_than(limit_seconds, self.clock())

    def cold_start_seconds(self, key: Key) -> float | None:
        """Return the median seconds from creation to ready of the newest pods; None before enough were seen."""
        # The wait for a node is part of it: capacity that is ordered now serves after both.
        starts = self._starts.get(key, ())
        return float(median(starts)) if len(starts) >= COLD_STARTS_NEEDED else None


def _relevant(deployment: Deployment) -> tuple[object, ...]:
    """Return the fields of a Deployment whose change a policy reacts to."""
    return deployment.replicas, deployment.ready, deployment.uid, deployment.rolling


def _reported(deployment: Deployment) -> tuple[object, ...]:
    """Return the fields of a Deployment that a report depends on."""
    return *_relevant(deployment), deployment.manager, deployment.deleting, deployment.refused


async def read_target(kube: Kube, cache: WatchCache, key: Key) -> bool:
    """Read a target into the cache; return True where a policy has to react to a change.

    For a kind besides Deployments its scale is read too, and its pods where the selector is new. Raises KubeError, and
    KeyError where the kind is not enabled.
    """
    path = cache.kinds.path(key)
    body = await kube.get(path)
    if not is_other(key[1]):
        return cache.put_deployment(body)
    scale = await kube.get(f"{path}/scale")
    anew = cache.selects_anew(key, scale)
    changed = cache.put_scaled(key, body, scale)
    if anew:
        selector = quote(scale["status"]["selector"])
        pods = await kube.get(f"{object_path('v1', 'pods', key[0])}?labelSelector={selector}")
        for pod in pods.get("items", ()):
            pod["metadata"].setdefault("namespace", key[0])
            cache.put_pod(pod)
    return changed or anew
