"""Recorder of a run's changes in the cluster: `replicas.csv`, `routes.csv`, `decisions.csv`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.cluster.kube import Json, KubeClient, has_condition
from rlscaler_dev.cluster.watch import Watches
from rlscaler_dev.demo.records import DECISION_COLUMNS, REPLICA_COLUMNS, ROUTE_COLUMNS, CsvWriter
from rlscaler_dev.demo.settings import POOLS, SERVICE, Settings
from rlscaler_dev.demo.tails import DecisionLine, Tail, read_decision
from rlscaler_dev.demo.words import change_words


class Replicas(NamedTuple):
    """A pool at one moment, in the columns of `replicas.csv`."""

    spec: int
    existing: int
    ready: int
    starting: int


class Condition(NamedTuple):
    """A condition of a policy or an autoscaler."""

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
            self.pods[uid] = PodState(has_condition(pod, "Ready"), "deletionTimestamp" in pod["metadata"])

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


class Recorder(Watches):
    """Follows the service's objects by watches and the operator's audit log by reading its end.

    Use as a context manager; the properties show the present. `audit` is None for a contender without a log.
    """

    def __init__(self, kube: KubeClient, settings: Settings, data: Path, audit: Path | None) -> None:
        super().__init__(kube)
        self._settings = settings
        self._books = {pool: PoolBook() for pool in POOLS}
        self._meters = {pool.name: Meter() for pool in settings.pools}
        self._pool_of = {pool.deployment: pool.name for pool in settings.pools}
        self._replicas = CsvWriter(data / "replicas.csv", ("time", "pool", *REPLICA_COLUMNS))
        self._routes = CsvWriter(data / "routes.csv", ("time", *ROUTE_COLUMNS))
        self._decisions = CsvWriter(data / "decisions.csv", DECISION_COLUMNS)
        self._written: dict[str, Replicas | None] = dict.fromkeys(POOLS)
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
        namespace = settings.namespace
        self._follow("apps/v1", "Deployment", self._deployment, namespace=namespace)
        self._follow("v1", "Pod", self._pod, self._forget_pods, namespace)
        self._follow("gateway.networking.k8s.io/v1", "HTTPRoute", self._http_route, namespace=namespace)
        if settings.contender == "rl":
            self._follow("rlscaler.io/v1alpha1", "RLScalingPolicy", self._policy, namespace=namespace)
        else:
            self._follow("autoscaling/v2", "HorizontalPodAutoscaler", self._autoscaler, namespace=namespace)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.read_audit()
        for file in (self._replicas, self._routes, self._decisions):
            file.close()

    @property
    def replicas(self) -> dict[str, Replicas | None]:
        with self._lock:
            return {pool: book.replicas for pool, book in self._books.items()}

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

    def _deployment(self, event: str, deployment: Json) -> None:
        pool = self._pool_of.get(deployment["metadata"]["name"])
        if pool and event != "DELETED":
            self._books[pool].scale(deployment)

    def _pod(self, event: str, pod: Json) -> None:
        pool = self._pool_of.get(pod["metadata"].get("labels", {}).get("app", ""))
        if pool:
            self._books[pool].pod(event, pod)

    def _forget_pods(self) -> None:
        for book in self._books.values():
            book.pods.clear()

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

    def _changed(self) -> None:
        now = time.time()
        for pool, book in self._books.items():
            replicas = book.replicas
            before = self._written[pool]
            if replicas and replicas != before:
                if before and before.spec != replicas.spec:
                    self.last_change = change_words({pool: before.spec}, {pool: replicas.spec})
                self._meters[pool].count(replicas.existing, now)
                self._written[pool] = replicas
                self._replicas.row(f"{now:.3f}", pool, *replicas)
