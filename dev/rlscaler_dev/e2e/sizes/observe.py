"""Observation of pods that are resized: their specs by a watch, their containers by the cgroup file system."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kubernetes.utils.quantity import parse_quantity

from rlscaler_dev.cluster.kube import Json, KubeClient
from rlscaler_dev.cluster.realnode.cgroups import Amounts, ContainerCgroup
from rlscaler_dev.cluster.watch import Watches
from rlscaler_dev.e2e.sizes.plan import CONTAINER, NAMESPACE
from rlscaler_dev.exceptions import DevClusterError

LOOK_SECONDS = 0.01
"""Time between two looks at the cgroups."""


@dataclass(slots=True)
class Trail:
    """Observations of one pod, in the order of time. Times are Unix seconds."""

    name: str
    app: str
    body: Json
    """The pod's object, as the watch showed it last."""
    asked: list[tuple[float, Json]] = field(default_factory=list)
    """Each value of the container's `resources` in the spec, and the time at which it was first seen."""
    given: list[tuple[float, Amounts]] = field(default_factory=list)
    """Each value of its cgroup, and the time at which it was first seen; used bytes do not count as a change."""
    containers: set[str] = field(default_factory=set)
    """Identities of the containers that ran."""
    restarts: int = 0

    def take(self, body: Json, now: float) -> None:
        """Note changes of the pod."""
        self.body = body
        resources = next(
            container["resources"] for container in body["spec"]["containers"] if container["name"] == CONTAINER
        )
        if not self.asked or resources != self.asked[-1][1]:
            self.asked.append((now, resources))
        for status in body["status"].get("containerStatuses") or ():
            if status["name"] == CONTAINER and (identity := status.get("containerID")):
                self.containers.add(identity.rpartition("//")[2])
                self.restarts = max(self.restarts, int(status["restartCount"]))

    def look(self, amounts: Amounts, now: float) -> None:
        """Note a change of the cgroup."""
        if not self.given or amounts[:3] != self.given[-1][1][:3]:
            self.given.append((now, amounts))

    def condition(self, type_: str) -> Json | None:
        """A condition of the pod that holds."""
        conditions = self.body["status"].get("conditions") or ()
        return next(
            (condition for condition in conditions if condition["type"] == type_ and condition["status"] == "True"),
            None,
        )


class Trails(Watches):
    """Follows the pods that are resized. Use it as a context manager."""

    def __init__(self, kube: KubeClient, cluster: str) -> None:
        super().__init__(kube)
        self._cluster = cluster
        self._trails: dict[str, Trail] = {}
        self._cgroups: dict[str, ContainerCgroup] = {}
        self._follow("v1", "Pod", self._pod, namespace=NAMESPACE)

    def of(self, app: str) -> list[Trail]:
        """Return the observations of the pods of one Deployment, deleted pods included."""
        with self._lock:
            return sorted((trail for trail in self._trails.values() if trail.app == app), key=lambda trail: trail.name)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at the cgroups of all containers until the context ends."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                self._look()

        thread = threading.Thread(target=look, name="cgroups", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _pod(self, event: str, pod: Json) -> None:
        name, app = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
        if all(container["name"] != CONTAINER for container in pod["spec"]["containers"]):
            return
        trail = self._trails.setdefault(name, Trail(name, app, pod))
        trail.take(pod, time.time())

    def _changed(self) -> None:
        """Do nothing: `_pod` has noted the change."""

    def _look(self) -> None:
        with self._lock:
            known = {identity: trail for trail in self._trails.values() for identity in trail.containers}
        for identity, trail in known.items():
            try:
                if identity not in self._cgroups:
                    self._cgroups[identity] = ContainerCgroup.of(self._cluster, identity)
                amounts, now = self._cgroups[identity].read(), time.time()
            except (DevClusterError, OSError):
                continue  # it has not begun, or it has ended
            with self._lock:
                trail.look(amounts, now)


LEAST_CORES = 0.01
"""Lowest limit that a kubelet writes."""
PAGE_BYTES = 4096
"""The kernel rounds a limit down to whole pages."""


def delay_seconds(trail: Trail) -> float | None:
    """Return the seconds from the last change of the spec until the cgroup had its limits.

    None where the cgroup does not have them. A cgroup may have been seen a moment before the watch told of its cause.
    """
    changed_at, wanted = trail.asked[-1]
    if not trail.given or not holds(trail.given[-1][1], wanted):
        return None
    since = changed_at
    for moment, amounts in reversed(trail.given):
        if not holds(amounts, wanted):
            break
        since = moment
    return since - changed_at


def holds(amounts: Amounts, resources: Json) -> bool:
    """Whether a cgroup has the limits of a container's `resources`."""
    limits = {name: float(parse_quantity(value)) for name, value in (resources.get("limits") or {}).items()}
    cores = max(limits["cpu"], LEAST_CORES) if "cpu" in limits else math.inf
    return _near(amounts.cores, cores, LEAST_CORES / 2) and _near(
        amounts.memory, limits.get("memory", math.inf), PAGE_BYTES
    )


def _near(value: float, wanted: float, by: float) -> bool:
    return value == wanted or abs(value - wanted) < by
