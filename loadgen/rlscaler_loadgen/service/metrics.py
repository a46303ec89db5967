"""Metrics for Prometheus: the service's own counters, and each pod under the names that users already have.

cAdvisor, kube-state-metrics and DCGM names are exported for every pod that exists, so that the queries of a real
cluster work unchanged; a pod's series end with the pod. A rejected or abandoned request counts as received: received
requests are the load signal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlscaler_loadgen.service.replica import POOLS, Flavour
from rlscaler_loadgen.service.router import Pod

BUCKETS_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9,
    1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0,
)  # fmt: skip
CODES = ("200", "499", "503")
"""Answered; the client went away (nginx's code); rejected."""
GPU_WINDOW_SECONDS, CPU_WINDOW_SECONDS = 5, 15
"""The averages behind DCGM_FI_DEV_GPU_UTIL and the CPU usage that metrics-server sees."""
RESIDENT_SHARE = 0.4
"""Memory of an idle replica (the loaded model), as part of its request; a full queue takes as much again."""


class Worker(Protocol):
    """Worker in a pod: a replica of the service, or a consumer of a stream."""

    @property
    def flavour(self) -> Flavour: ...

    @property
    def load(self) -> int:
        """Requests that wait or are in service."""

    def busy_seconds(self, now: float | None = None) -> float:
        """Seconds of work since it began, at the moment `now` of the monotonic clock (None = this moment)."""


class Workers(Protocol):
    """Pods by name, and the workers of those that have started."""

    @property
    def pods(self) -> Mapping[str, Pod]: ...

    @property
    def replicas(self) -> Mapping[str, Worker]: ...


class ServiceMetrics:
    """Counters, histogram and gauge of the service, by pool; every series exists at 0 from the start.

    The histogram holds answered and abandoned requests (for the time that they had waited), so that a service
    whose clients have given up does not look fast. Rejections take no time and are left out.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        namespace: str,
        service: str,
        slo_seconds: float = 1.0,
        pools: tuple[str, ...] = POOLS,
    ) -> None:
        labels = ("namespace", "service", "pool")
        buckets = sorted({*BUCKETS_SECONDS, slo_seconds})
        received = Counter(
            "inference_requests_received", "Requests that arrived, rejected ones too", labels, registry=registry
        )
        finished = Counter("inference_requests", "Requests that ended, by code", (*labels, "code"), registry=registry)
        duration = Histogram(
            "inference_request_duration_seconds",
            "Time from arrival to the answer, or until the client went away",
            labels,
            buckets=buckets,
            registry=registry,
        )
        in_flight = Gauge("inference_requests_in_flight", "Requests waiting or worked on", labels, registry=registry)
        self._received = {pool: received.labels(namespace, service, pool) for pool in pools}
        self._finished = {
            (pool, code): finished.labels(namespace, service, pool, code) for pool in pools for code in CODES
        }
        self._duration = {pool: duration.labels(namespace, service, pool) for pool in pools}
        self._in_flight = {pool: in_flight.labels(namespace, service, pool) for pool in pools}

    def arrived(self, pool: str) -> None:
        self._received[pool].inc()
        self._in_flight[pool].inc()

    def ended(self, pool: str, code: str, seconds: float | None) -> None:
        """A request that `arrived` is over; `seconds` None = no duration to count."""
        self._in_flight[pool].dec()
        self._finished[pool, code].inc()
        if seconds is not None:
            self._duration[pool].observe(seconds)


@dataclass
class Usage:
    """CPU, memory and GPU use of each replica, sampled once a second."""

    router: Workers
    _samples: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample(asyncio.get_running_loop().time())
            await asyncio.sleep(1.0)

    def sample(self, now: float) -> None:
        for name in self._samples.keys() - self.router.replicas.keys():
            del self._samples[name]
        for name, replica in self.router.replicas.items():
            history = self._samples.setdefault(name, deque(maxlen=CPU_WINDOW_SECONDS + 1))
            history.append((now, replica.busy_seconds(now)))

    def busy(self, name: str, window_seconds: int) -> float | None:
        """Busy part of the replica, 0-1, over the window (or its shorter life); None before two samples."""
        history = self._samples.get(name)
        if history is None or len(history) < 2:
            return None
        (begin, first), (end, last) = history[max(0, len(history) - 1 - window_seconds)], history[-1]
        concurrency = self.router.replicas[name].flavour.concurrency if name in self.router.replicas else 1
        return min(1.0, (last - first) / max(end - begin, 1e-9) / concurrency)


def cpu_seconds(pod: Pod, replica: Worker, now: float | None = None) -> float:
    """CPU seconds used so far: the busy part of the cores, times the share of them that a busy replica uses."""
    flavour = replica.flavour
    return replica.busy_seconds(now) / flavour.concurrency * pod.cores(flavour) * flavour.cpu_share


def memory_bytes(pod: Pod, replica: Worker) -> float:
    """Resident model plus the memory of the requests at the replica, in bytes."""
    flavour = replica.flavour
    fill = min(1.0, replica.load / (flavour.queue + flavour.concurrency))
    return pod.memory(flavour) * RESIDENT_SHARE * (1 + fill)


class PodCollector(Collector):
    """The pods' series, made at each scrape from the router."""

    def __init__(self, router: Workers, usage: Usage, namespace: str) -> None:
        self.router, self.usage, self.namespace = router, usage, namespace

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        container = ["namespace", "pod", "container"]
        cpu = CounterMetricFamily("container_cpu_usage_seconds", "CPU time used", labels=container)
        memory = GaugeMetricFamily("container_memory_working_set_bytes", "Memory in use", labels=container)
        requests = GaugeMetricFamily(
            "kube_pod_container_resource_requests", "Requested resources", labels=[*container, "resource", "unit"]
        )
        gpu = GaugeMetricFamily("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (%)", labels=["namespace", "pod", "gpu"])
        for pod in self.router.pods.values():
            self._requests(pod, requests)
            replica = self.router.replicas.get(pod.name)
            if replica is None:
                continue
            labels = [self.namespace, pod.name, pod.container]
            cpu.add_metric(labels, cpu_seconds(pod, replica))
            memory.add_metric(labels, memory_bytes(pod, replica))
            busy = self.usage.busy(pod.name, GPU_WINDOW_SECONDS)
            if busy is not None:
                for index in range(pod.gpus):
                    gpu.add_metric([self.namespace, pod.name, str(index)], 100 * busy)
        yield from (cpu, memory, requests, gpu)

    def _requests(self, pod: Pod, requests: GaugeMetricFamily) -> None:
        amounts = [
            ("cpu", "core", pod.cpu_request),
            ("memory", "byte", pod.memory_request),
            ("nvidia_com_gpu", "integer", pod.gpus or None),
        ]
        for resource, unit, amount in amounts:
            if amount is not None:
                requests.add_metric([self.namespace, pod.name, pod.container, resource, unit], amount)
