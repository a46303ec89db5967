"""Recorder of a run's changes in the cluster: replicas, `routes.csv` and `decisions.csv`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.cluster.kube import Json, KubeClient
from rlscaler_dev.demo.pods import PodRecorder, Replicas
from rlscaler_dev.demo.records import DECISION_COLUMNS, REPLICA_COLUMNS, ROUTE_COLUMNS, CsvWriter
from rlscaler_dev.demo.settings import SERVICE, Settings
from rlscaler_dev.demo.tails import DecisionLine, Tail, read_decision
from rlscaler_dev.demo.words import change_words


class Condition(NamedTuple):
    """A condition of a policy or an autoscaler."""

    type: str
    status: str
    reason: str
    message: str

    def __str__(self) -> str:
        return "True" if self.status == "True" else f"{self.status} ({self.reason})"


class Meter:
    """Pods of one pool that are billed, over time."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._count = 0
        self._since: float | None = None

    def count(self, pods: int, now: float) -> None:
        """Take the number of pods from `now` (Unix seconds) on."""
        self._seconds, self._since, self._count = self.pod_seconds(now), now, pods

    def begin(self, now: float) -> None:
        """Forget the bill before `now`."""
        self._seconds, self._since = 0.0, now

    def pod_seconds(self, now: float) -> float:
        """Return the pod-seconds until `now`."""
        return self._seconds + (0.0 if self._since is None else self._count * max(now - self._since, 0.0))


def route_weights(route: Json, gpu_backend: str, cpu_backend: str) -> tuple[int, int]:
    """Weights (gpu, cpu) of the HTTPRoute's first rule; 0 for a backend that is not there, 1 where none is given."""
    backends = route["spec"]["rules"][0].get("backendRefs", [])
    weights = {backend["name"]: int(backend.get("weight", 1)) for backend in backends}
    return weights.get(gpu_backend, 0), weights.get(cpu_backend, 0)


def read_conditions(thing: Json) -> list[Condition]:
    """`status.conditions`, empty where there are none yet."""
    conditions = thing.get("status", {}).get("conditions") or []
    return [Condition(c["type"], c["status"], c.get("reason", ""), c.get("message", "")) for c in conditions]


class Recorder(PodRecorder[Replicas]):
    """Follows the service's objects by watches and the operator's audit log by reading its end.

    Use as a context manager; the properties show the present. `audit` is None for a contender without a log.
    """

    def __init__(self, kube: KubeClient, settings: Settings, data: Path, audit: Path | None) -> None:
        namespace = settings.namespace
        names = {(namespace, pool.deployment): pool.name for pool in settings.pools}
        super().__init__(kube, data / "replicas.csv", ("pool", *REPLICA_COLUMNS), Replicas.of, names, namespace)
        self._settings = settings
        self._meters = {pool.name: Meter() for pool in settings.pools}
        self._pool_of = {pool.deployment: pool.name for pool in settings.pools}
        self._routes = CsvWriter(data / "routes.csv", ("time", *ROUTE_COLUMNS))
        self._decisions = CsvWriter(data / "decisions.csv", DECISION_COLUMNS)
        self._audit = None if audit is None else Tail(audit)
        self.weights: tuple[int, int] | None = None
        """Weights of the HTTPRoute: GPU, CPU."""
        self.conditions: dict[str, Condition] = {}
        """Conditions of the policy by type, or of the autoscalers by pool and type."""
        self.autoscalers: dict[str, Json] = {}
        """Status of the HorizontalPodAutoscalers, by pool."""
        self.last_change = ""
        """The last change of spec.replicas in words."""
        self.last_action: DecisionLine | None = None
        """The last decision of the actor, or a later one that changes replicas."""
        self._follow("gateway.networking.k8s.io/v1", "HTTPRoute", self._http_route, namespace=namespace)
        if settings.contender == "rl":
            self._follow("rlscaler.io/v1alpha1", "RLScalingPolicy", self._policy, namespace=namespace)
        else:
            self._follow("autoscaling/v2", "HorizontalPodAutoscaler", self._autoscaler, namespace=namespace)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.read_audit()
        self._routes.close()
        self._decisions.close()

    def begin_bill(self, now: float) -> None:
        """Begin the bill at `now` (Unix seconds)."""
        with self._lock:
            for meter in self._meters.values():
                meter.begin(now)

    def cost(self, now: float) -> float:
        """Return the cost of all pods since the bill began, currency units."""
        with self._lock:
            seconds = [self._meters[pool.name].pod_seconds(now) for pool in self._settings.pools]
        return sum(pool.cost_per_hour * used for pool, used in zip(self._settings.pools, seconds, strict=True)) / 3600

    def read_audit(self) -> None:
        """Take the decisions that the operator has logged since the last call."""
        for line in self._audit.lines() if self._audit else []:
            decision = read_decision(line)
            self._decisions.row(f"{decision.time:.3f}", decision.kind, decision.placement, decision.unknown_required)
            if decision.kind == "action" or decision.base != decision.desired:
                self.last_action = decision

    def _http_route(self, event: str, route: Json) -> None:
        if route["metadata"]["name"] == SERVICE and event != "DELETED":
            weights = route_weights(route, self._settings.gpu.deployment, self._settings.cpu.deployment)
            if weights != self.weights:
                self.weights = weights
                self._routes.row(f"{time.time():.3f}", *weights)

    def _policy(self, event: str, policy: Json) -> None:
        if policy["metadata"]["name"] == SERVICE:
            self.conditions = {c.type: c for c in read_conditions(policy)}

    def _autoscaler(self, event: str, autoscaler: Json) -> None:
        pool = self._pool_of.get(autoscaler["metadata"]["name"])
        if pool and event != "DELETED":
            self.autoscalers = {**self.autoscalers, pool: autoscaler.get("status", {})}
            conditions = {f"{pool} {c.type}": c for c in read_conditions(autoscaler)}
            self.conditions = {**self.conditions, **conditions}

    def _counted(self, name: str, before: Replicas | None, counts: Replicas, now: float) -> None:
        if before and before.spec != counts.spec:
            self.last_change = change_words({name: before.spec}, {name: counts.spec})
        self._meters[name].count(counts.existing, now)
