"""Services whose metrics the test sets, scraped by the real Prometheus."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlscaler_dev.exposition import ExpositionServer

RPS = {"gpu": 20.0, "cpu": 4.0}
REQUEST = {"gpu": (4.0, 8e9), "cpu": (2.0, 2e9)}
"""Cores and bytes that one pod requests."""

BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Load:
    """What the exporter says about one service; the test changes it at any time."""

    namespace: str
    service: str
    rate: float = 0.0
    latency: float = 0.2
    dated: bool = False
    """Say when each sample was taken, as federation and cAdvisor do: Prometheus cannot tell then that it stopped."""
    fault: str = ""
    """"" | absent | nan | stale | half (of the GPU pool nothing)"""
    skew_seconds: float = 0.0
    """How far the clock is ahead that dates the samples."""
    paths: int = 0
    """Further series of the arrivals, told apart by a label `path`, as a careless release brings them."""
    pods: int = 1
    """Pods of each pool that share the usage."""
    busy: dict[str, float] = field(default_factory=dict)
    """Requests in flight at single pods, by their names."""
    _received: float = 0.0
    _at: float = field(default_factory=time.time)
    _frozen: str = ""

    def text(self) -> str:
        now = time.time()
        if self.fault == "stale":
            return self._frozen
        self._received += self.rate * (now - self._at)
        self._at = now
        if self.fault == "absent":
            return ""
        lines = self._lines(received=float("nan") if self.fault == "nan" else None)
        stamp = f" {int((now + self.skew_seconds) * 1000)}" if self.dated else ""
        self._frozen = "".join(f"{line}{stamp}\n" for line in lines)
        return self._frozen

    def restart(self) -> None:
        """Begin all counters at 0 again."""
        self._received = 0.0

    def _lines(self, received: float | None = None) -> Iterator[str]:
        total = self._received if received is None else received
        for pool in ("cpu",) if self.fault == "half" else ("gpu", "cpu"):
            labels = f'namespace="{self.namespace}",service="{self.service}",pool="{pool}"'
            yield f"inference_requests_received_total{{{labels}}} {total / 2}"
            for path in range(self.paths):
                yield f'inference_requests_received_total{{{labels},path="/v1/{path}"}} 0'
            for bound in (*BUCKETS, float("inf")):
                le = "+Inf" if bound == float("inf") else bound
                count = self._received / 2 if bound >= self.latency else 0
                yield f'inference_request_duration_seconds_bucket{{{labels},le="{le}"}} {count}'
            yield f"inference_request_duration_seconds_count{{{labels}}} {self._received / 2}"
        for pool, i in itertools.product(("gpu", "cpu"), range(self.pods)):
            cores, memory = REQUEST[pool]
            pod = f'namespace="{self.namespace}",pod="{self.service}-{pool}-6b7f-abcd{i}"'
            used = self._received / 2 / RPS[pool] * cores / self.pods
            yield f'container_cpu_usage_seconds_total{{{pod},container="app"}} {used}'
            yield f'container_memory_working_set_bytes{{{pod},container="app"}} {memory / 2}'
            for resource, value in (("cpu", cores), ("memory", memory)):
                labels = f'{pod},container="app",resource="{resource}",unit="x"'
                yield f"kube_pod_container_resource_requests{{{labels}}} {value}"
            if pool == "gpu":
                gpu = 100 * self.rate / 2 / RPS["gpu"] / self.pods
                yield f'DCGM_FI_DEV_GPU_UTIL{{{pod},gpu="0"}} {gpu}'
        for name, requests in self.busy.items():
            yield f'inference_requests_in_flight{{namespace="{self.namespace}",pod="{name}"}} {requests}'


class Exporter:
    """Serves the metrics of all services on one port."""

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self._server = ExpositionServer(self.text)
        self.address = self._server.address

    def text(self) -> str:
        """One scrape."""
        return "".join(load.text() for load in list(self.loads))

    def close(self) -> None:
        self._server.close()
