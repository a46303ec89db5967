"""Choice of the pod that answers a request: pools by weight, then a pod within the pool.

The rules are those of a gateway in front of two Services. A pool takes part while its weight is above 0 and it has a
ready pod; smooth weighted round robin shares the requests among those that do. Without any, the answer is 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from rlscaler_loadgen.service.replica import (
    FLAVOURS,
    POOLS,
    Flavour,
    Job,
    QueueFullError,
    Replica,
    ReplicaGoneError,
    ServiceTimes,
    Slowdown,
)

Routing = Literal["least-loaded", "round-robin", "power-of-two", "random"]
ROUTINGS: tuple[Routing, ...] = get_args(Routing)


class UnavailableError(Exception):
    """No pod can take the request: answer 503. `pool` is the one to which it is counted."""

    def __init__(self, pool: str, reason: str) -> None:
        super().__init__(reason)
        self.pool = pool


@dataclass(frozen=True)
class Pod:
    """Fields of a pod that the service reads."""

    name: str
    pool: str
    ready: bool = True
    terminating: bool = False
    started: bool = True  # its container runs, ready or not
    node: str = ""
    container: str = "server"
    cpu_request: float | None = None  # cores
    memory_request: float | None = None  # bytes
    gpus: int = 0

    @property
    def routable(self) -> bool:
        return self.ready and self.started and not self.terminating

    def cores(self, flavour: Flavour) -> float:
        """Cores at its disposal: requested, or the flavour's."""
        return flavour.cpu_request if self.cpu_request is None else self.cpu_request

    def memory(self, flavour: Flavour) -> float:
        """Bytes at its disposal: requested, or the flavour's."""
        return flavour.memory_request if self.memory_request is None else self.memory_request


@dataclass(frozen=True)
class Answer:
    """Pod that served a request, and the seconds of its wait and of its service."""

    pool: str
    pod: str
    waited_seconds: float
    served_seconds: float


@dataclass
class Router:
    """All pods of both pools and the requests at them. Not thread-safe: one event loop owns it.

    weights: per pool, any scale. None = share by the ready replicas' capacity.
    variation: coefficient of variation of the lognormal service times.
    slowdown: of both pools, as by a new version of the model.
    """

    flavours: Mapping[str, Flavour] = field(default_factory=lambda: dict(FLAVOURS))
    seed: int = 0
    variation: float = 0.5
    routing: Routing = "least-loaded"
    weights: dict[str, float] | None = None
    slowdown: Slowdown = field(default_factory=Slowdown)
    pods: dict[str, Pod] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times = ServiceTimes(self.seed, self.variation)
        self._rng = np.random.default_rng([self.seed, 1])
        self._credit = dict.fromkeys(POOLS, 0.0)
        self._routable: dict[str, list[Replica]] = {pool: [] for pool in POOLS}
        self._turn = dict.fromkeys(POOLS, 0)

    def apply(self, pod: Pod) -> None:
        """Add or update a pod. A terminating one gets no new requests and hands back its waiting ones."""
        self.pods[pod.name] = pod
        if pod.started and pod.name not in self.replicas:
            self.replicas[pod.name] = Replica(pod.name, self.flavours[pod.pool])
        self._rebuild(pod.pool)
        if pod.terminating and pod.name in self.replicas:
            self.replicas[pod.name].evict()

    def remove(self, name: str) -> None:
        """Remove a pod. Its requests in service still end, as after SIGTERM; its waiting ones are routed again."""
        pod = self.pods.pop(name, None)
        replica = self.replicas.pop(name, None)
        if pod is not None:
            self._rebuild(pod.pool)
        if replica is not None:
            replica.evict()

    def set_weights(self, weights: Mapping[str, float] | None) -> None:
        """Share of each pool from now on; a pool that is not named has 0."""
        self.weights = None if weights is None else {pool: float(weights.get(pool, 0.0)) for pool in POOLS}
        self._credit = dict.fromkeys(POOLS, 0.0)

    def ready(self, pool: str | None = None) -> int:
        """Pods that take requests, in one pool or in all."""
        return sum(len(self._routable[name]) for name in POOLS if pool in (None, name))

    def share(self) -> dict[str, float]:
        """The weights in force: configured, or the ready capacity."""
        if self.weights is not None:
            return self.weights
        return {pool: len(self._routable[pool]) * self.flavours[pool].requests_per_second for pool in POOLS}

    async def serve(self, routed: Callable[[str], None] | None = None) -> Answer:
        """Route one request that has just arrived and wait for its answer.

        `routed(pool)` is called once, before anything is waited for. A request whose pod terminates before it
        was begun starts again at another pod. Raises UnavailableError; when cancelled, the pod forgets the request.
        """
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        factor = next(self._times) * self.slowdown.at(arrived)
        announce = routed or (lambda pool: None)
        while True:
            try:
                pool, replica, job = self._place(factor)
            except UnavailableError as unavailable:
                announce(unavailable.pool)
                raise
            announce(pool)
            announce = lambda pool: None  # noqa: E731
            try:
                _, served = await job.done
            except ReplicaGoneError:
                continue
            except asyncio.CancelledError:
                replica.abandon(job)
                raise
            return Answer(pool, replica.name, max(0.0, loop.time() - arrived - served), served)

    def _place(self, factor: float) -> tuple[str, Replica, Job]:
        pool = self._pick_pool()
        replica = self._pick_replica(self._routable[pool])
        try:
            return pool, replica, replica.submit(factor)
        except QueueFullError:
            raise UnavailableError(pool, f"pod {replica.name}: queue of {replica.flavour.queue} is full") from None

    def _pick_pool(self) -> str:
        share = self.share()
        taking = [pool for pool in POOLS if share[pool] > 0 and self._routable[pool]]
        if not taking:
            blamed = max(POOLS, key=lambda pool: share[pool])
            raise UnavailableError(blamed, "no ready pod in a pool with a weight above 0")
        total = sum(share[pool] for pool in taking)
        for pool in taking:
            self._credit[pool] += share[pool] / total
        chosen = max(taking, key=lambda pool: self._credit[pool])
        self._credit[chosen] -= 1.0
        return chosen

    def _pick_replica(self, replicas: list[Replica]) -> Replica:
        count = len(replicas)
        if self.routing == "random":
            return replicas[int(self._rng.integers(count))]
        pool = replicas[0].flavour.name
        self._turn[pool] = (self._turn[pool] + 1) % count
        if self.routing == "round-robin":
            return replicas[self._turn[pool]]
        if self.routing == "power-of-two" and count > 2:
            first, second = self._rng.choice(count, 2, replace=False).tolist()
            first_replica, other = replicas[int(first)], replicas[int(second)]
            return first_replica if first_replica.load <= other.load else other
        # Least loaded; the turn breaks ties so that idle pods share the work.
        turn = self._turn[pool]
        return min(replicas[turn:] + replicas[:turn], key=lambda replica: replica.load)

    def _rebuild(self, pool: str) -> None:
        self._routable[pool] = [
            self.replicas[pod.name] for pod in self.pods.values() if pod.pool == pool and pod.routable
        ]
        self._credit[pool] = 0.0
