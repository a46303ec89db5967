"""Running pods are resized on the real node: by their use, to a floor, beyond the node, and when there is room."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import Json, collection, path_of
from rlscaler_dev.cluster.network import NODE_NAME
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.e2e.cluster import Cluster
from rlscaler_dev.e2e.installation import PROMETHEUS, Installation
from rlscaler_dev.e2e.settings import DEMO_NAMESPACE, OPERATOR_NAMESPACE, OPERATOR_RELEASE
from rlscaler_dev.e2e.sizes import plan
from rlscaler_dev.e2e.sizes.observe import Trail, Trails, delay_seconds
from rlscaler_dev.e2e.sizes.plan import FILLER, GROWS, NAMESPACE, SHRINKS, TOO_LARGE, WAITS, Case
from rlscaler_dev.exceptions import DemoError

READY_SECONDS = 300.0
"""Eight containers begin at once, and with as little CPU as they ask for."""
DECIDED_SECONDS = 900.0
"""Twenty measurements take 200 s; where the machine is busy each of them may come late."""
ROOM_SECONDS = 120.0
"""A kubelet tries a deferred resize again when a pod goes, and else every ten seconds."""
REFUSED_SECONDS = 60.0
CADVISOR = "prometheus.resourceScrapeIntervalSeconds=10"
"""Interval at which the demo's Prometheus scrapes cAdvisor: a rate needs a window that is longer. The emulated service
exports its use itself, as often as everything else."""
MEASURING = (
    (DEMO_NAMESPACE, f"app={PROMETHEUS}", "prometheus"),
    (OPERATOR_NAMESPACE, f"app.kubernetes.io/name={OPERATOR_RELEASE}", "operator"),
)
"""Namespace, label and container of the pods that measure and decide."""
MEASURING_CPU = "250m"
MIB = 2.0**20
KUBELET_REFUSED = "PodResizeInProgress"
"""The condition in which a kubelet says that it cannot lower the memory of a container that uses more."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Plays the part on one cluster, whose operator may resize."""

    cluster: Cluster
    installation: Installation
    say: Callable[[str], None]

    def play(self) -> dict[str, Any]:
        """Play all cases and return limits and delays. Raises DemoError, or StartError after a timeout."""
        self.installation.operator("upgrade", "--reuse-values", "--set", CADVISOR)
        self._share()
        cases = self._start()
        with Trails(self.cluster.kube, self.cluster.info.name) as trails:
            wait_until(lambda: trails.synced, "the list of the pods", READY_SECONDS)
            with trails.looking():
                for case in cases:
                    self._apply(plan.policy(case))
                cases_played = self._decided(trails) | self._room(trails) | self._new_pod(trails)
                for case in cases:
                    self.cluster.kube.delete(path_of(plan.policy(case)))
                cases_played |= self._by_hand(trails)
            _untouched(trails, cases)
        self.cluster.commands.run("kubectl", "delete", "namespace", NAMESPACE, "--timeout=120s")
        return cases_played

    def _share(self) -> None:
        """Raise the CPU requests of the pods that measure and decide, which those that work would starve."""
        for namespace, label, container in MEASURING:
            patch = {"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": MEASURING_CPU}}}]}}
            named = self.cluster.commands.run("kubectl", "get", "pods", "-n", namespace, "-l", label, "-o", "name")
            for pod in named.split():
                resize = ("kubectl", "patch", pod, "-n", namespace, "--subresource=resize", "-p", json.dumps(patch))
                self.cluster.commands.run(*resize, check=False)  # one of before the upgrade may just go

    def _start(self) -> list[Case]:
        """All Deployments, ready."""
        kube = self.cluster.kube
        node = kube.get(f"/api/v1/nodes/{NODE_NAME}")
        cases = plan.cases(node)
        self._apply(objects.namespace(NAMESPACE))
        for case in cases:
            self._apply(plan.deployment(case))
        wait_until(
            lambda: all(self._ready(case.name) == case.replicas for case in cases), "pods to size", READY_SECONDS
        )
        room = float(parse_quantity(node["status"]["allocatable"]["cpu"])) - self._asked_cores()
        if room <= plan.FILLED_LEAVES_CORES:
            raise DemoError(
                f"{NODE_NAME} has {room:.2f} cores that no pod asks for: the part sizes needs more than "
                f"{plan.FILLED_LEAVES_CORES}"
            )
        self._apply(plan.filler(room - plan.FILLED_LEAVES_CORES))
        wait_until(lambda: self._ready(FILLER) == 1, "the pod that fills the node", READY_SECONDS)
        return cases

    def _decided(self, trails: Trails) -> dict[str, Any]:
        """Wait until every policy's pods have the size that they can have."""
        self.say(f"sizes: {GROWS.replicas} pods that need more, one that needs less, one too large for the node, one "
                 "that waits for room")  # fmt: skip
        grows = trails.of(GROWS.name)
        wait_until(lambda: all(_resized(trail) for trail in grows), "a larger size in the cgroups", DECIDED_SECONDS)
        (shrinks,) = trails.of(SHRINKS.name)
        wait_until(lambda: _resized(shrinks), "a smaller size in the cgroup", DECIDED_SECONDS)
        wait_until(lambda: self._decided_memory() is not None, "a size in the policy's status", DECIDED_SECONDS)
        wait_until(lambda: self._reason(TOO_LARGE) != "", "a refusal in the policy's status", DECIDED_SECONDS)
        (too_large,) = trails.of(TOO_LARGE.name)
        wait_until(lambda: _as_at_first(too_large), "the first size of the pod that was refused", REFUSED_SECONDS)
        delays = [delay for trail in grows if (delay := delay_seconds(trail)) is not None]
        self.say(
            f"sizes: {len(delays)} pods larger, from the patch to the cgroup {min(delays):.2f}-{max(delays):.2f} s"
        )
        given = shrinks.given[-1][1].memory
        if given < SHRINKS.memory_mib * MIB:
            raise DemoError(f"pod {shrinks.name} was given {given / MIB:.0f} MiB and holds {SHRINKS.memory_mib}")
        return {
            "grows": [_row(trail) for trail in grows],
            "shrinks": {**_row(shrinks), "decided": self._decided_memory()},
            "too_large": {**_row(too_large), "reason": self._reason(TOO_LARGE), "message": self._message(TOO_LARGE)},
        }

    def _room(self, trails: Trails) -> dict[str, Any]:
        """Make room on the node, and wait until the kubelet resizes the pod that it had deferred."""
        (waits,) = trails.of(WAITS.name)
        wait_until(lambda: waits.condition("PodResizePending") is not None, "a resize put off", DECIDED_SECONDS)
        pending = waits.condition("PodResizePending") or {}
        before = waits.given[-1][1]
        self.say(f"sizes: {waits.name} waits ({pending['reason']}); making room")
        self.cluster.commands.run("kubectl", "delete", "deploy", FILLER, "-n", NAMESPACE, "--timeout=60s")
        wait_until(lambda: _resized(waits), "the size that waited for room", ROOM_SECONDS)
        return {"waits": {**_row(waits), "said": pending["reason"], "cores_while_it_waited": before.cores}}

    def _new_pod(self, trails: Trails) -> dict[str, Any]:
        """A pod that is begun later has the size from its first moment."""
        old = {trail.name for trail in trails.of(GROWS.name)}
        self.cluster.commands.run("kubectl", "delete", "pod", sorted(old)[0], "-n", NAMESPACE, "--wait=false")
        new = f"a new pod of {GROWS.name}"
        wait_until(
            lambda: any(trail.name not in old and trail.given for trail in trails.of(GROWS.name)), new, READY_SECONDS
        )
        (pod,) = (trail for trail in trails.of(GROWS.name) if trail.name not in old)
        return {"new_pod": {**_row(pod), "first": pod.asked[0][1]}}

    def _by_hand(self, trails: Trails) -> dict[str, Any]:
        """Check that a kubelet does not lower memory below the use of its container."""
        (pod,) = trails.of(SHRINKS.name)
        amounts = {"memory": "64Mi"}
        lower = {
            "spec": {"containers": [{"name": plan.CONTAINER, "resources": {"requests": amounts, "limits": amounts}}]}
        }
        before = pod.given[-1][1]
        self.cluster.commands.run(
            *("kubectl", "patch", "pod", pod.name, "-n", NAMESPACE, "--subresource=resize", "-p", json.dumps(lower))
        )
        wait_until(
            lambda: (pod.condition(KUBELET_REFUSED) or {}).get("reason") == "Error", "a refusal", REFUSED_SECONDS
        )
        refusal = pod.condition(KUBELET_REFUSED) or {}
        after = pod.given[-1][1]
        if after.memory < before.memory:
            raise DemoError(f"the kubelet lowered the memory of pod {pod.name} to {after.memory / MIB:.0f} MiB")
        return {"by_hand": {**_row(pod), "reason": refusal.get("reason"), "message": refusal.get("message")}}

    def _apply(self, manifest: Json) -> None:
        self.cluster.kube.apply(manifest)

    def _ready(self, name: str) -> int:
        path = f"{collection('apps/v1', 'Deployment', NAMESPACE)}/{name}"
        return int(self.cluster.kube.get(path)["status"].get("readyReplicas", 0))

    def _asked_cores(self) -> float:
        """Return the CPU requests of all running pods of the node, in cores."""
        pods = self.cluster.kube.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE_NAME}")["items"]
        containers = (
            container
            for pod in pods
            if pod["status"].get("phase") == "Running"
            for container in pod["spec"]["containers"]
        )
        asked = (container.get("resources", {}).get("requests", {}).get("cpu", "0") for container in containers)
        return sum(float(parse_quantity(cpu)) for cpu in asked)

    def _status(self, case: Case) -> Json:
        return dict(self.cluster.kube.get(path_of(plan.policy(case))).get("status") or {})

    def _decided_memory(self) -> str | None:
        """Return the memory in the policy's status; None while nothing was written."""
        pods = self._status(SHRINKS).get("podSizes") or {}
        return (pods.get("cpu") or {}).get("memory")

    def _active(self, case: Case) -> Json:
        conditions = self._status(case).get("conditions") or ()
        return next((condition for condition in conditions if condition["type"] == "Active"), {})

    def _reason(self, case: Case) -> str:
        """Why pods do not get their size; empty while nothing is said of it."""
        reason = str(self._active(case).get("reason", ""))
        return reason if reason.startswith("Resize") else ""

    def _message(self, case: Case) -> str:
        return str(self._active(case).get("message", ""))


def _resized(trail: Trail) -> bool:
    """Whether the container has another size than at first, by the kernel and by its kubelet."""
    if len(trail.asked) < 2 or delay_seconds(trail) is None:
        return False
    status = next(
        container for container in trail.body["status"]["containerStatuses"] if container["name"] == plan.CONTAINER
    )
    return bool(status.get("resources", {}).get("limits") == trail.asked[-1][1].get("limits"))


def _as_at_first(trail: Trail) -> bool:
    """Whether spec and cgroup are as before the first patch."""
    return trail.asked[-1][1] == trail.asked[0][1] and trail.given[-1][1][:3] == trail.given[0][1][:3]


def _row(trail: Trail) -> dict[str, Any]:
    """A pod, for the summary."""
    first, last = trail.given[0][1], trail.given[-1][1]
    delay = delay_seconds(trail) if len(trail.asked) > 1 else None
    return {
        "pod": trail.name,
        "asked_at_first": trail.asked[0][1],
        "asked": trail.asked[-1][1],
        "cgroup_at_first": _shown(first),
        "cgroup": _shown(last),
        "patch_to_cgroup_seconds": None if delay is None else round(delay, 3),
        "containers": sorted(trail.containers),
        "restarts": trail.restarts,
    }


def _shown(amounts: Any) -> dict[str, float | None]:
    """Return the amounts for JSON, which has no infinity: without a limit the value is null."""
    cores, memory = (None if math.isinf(value) else value for value in (amounts.cores, amounts.memory))
    return {"weight": amounts.weight, "cores": cores, "memory_mib": None if memory is None else round(memory / MIB, 1),
            "used_mib": round(amounts.used / MIB, 1)}  # fmt: skip


def _untouched(trails: Trails, cases: list[Case]) -> None:
    """Raises DemoError where a container was replaced or restarted."""
    for trail in (one for case in cases for one in trails.of(case.name)):
        if len(trail.containers) != 1 or trail.restarts:
            raise DemoError(
                f"pod {trail.name} ran {len(trail.containers)} containers and was restarted {trail.restarts} x"
            )
