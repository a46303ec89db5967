"""What is known of the cluster at this moment, from watch events: pods and replicas of a pool, weights of the route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]


class Replicas(NamedTuple):
    """A pool at one moment, in the columns of `replicas.csv`."""

    spec: int
    existing: int
    ready: int
    starting: int


class Condition(NamedTuple):
    """Of a policy or an autoscaler."""

    type: str
    status: str
    reason: str
    message: str

    def __str__(self) -> str:
        return "True" if self.status == "True" else f"{self.status} ({self.reason})"


class PodState(NamedTuple):
    ready: bool
    terminating: bool


@dataclass(slots=True)
class PoolBook:
    """The pods of one Deployment and its spec.replicas.

    A pod exists, and is billed, from its creation until it is gone; it is starting while it is neither ready nor
    terminating, pending pods included.
    """

    spec: int | None = None
    pods: dict[str, PodState] = field(default_factory=dict)

    def scale(self, deployment: Json) -> None:
        self.spec = int(deployment["spec"].get("replicas", 1))

    def pod(self, kind: str, pod: Json) -> None:
        """Take one watch event."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = PodState(_is_ready(pod), "deletionTimestamp" in pod["metadata"])

    @property
    def replicas(self) -> Replicas | None:
        """None until the Deployment was seen."""
        if self.spec is None:
            return None
        states = self.pods.values()
        return Replicas(
            self.spec,
            len(states),
            sum(pod.ready and not pod.terminating for pod in states),
            sum(not pod.ready and not pod.terminating for pod in states),
        )


def route_weights(route: Json, gpu_backend: str, cpu_backend: str) -> tuple[int, int]:
    """Weights (gpu, cpu) of the HTTPRoute's first rule; 0 for a backend that is not there, 1 where none is given."""
    backends = route["spec"]["rules"][0].get("backendRefs", [])
    weights = {backend["name"]: int(backend.get("weight", 1)) for backend in backends}
    return weights.get(gpu_backend, 0), weights.get(cpu_backend, 0)


def read_conditions(thing: Json) -> list[Condition]:
    """`status.conditions`, empty where there are none yet."""
    found = thing.get("status", {}).get("conditions") or []
    return [Condition(c["type"], c["status"], c.get("reason", ""), c.get("message", "")) for c in found]


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
