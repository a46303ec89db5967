"""Tenants that share the GPUs, and their loads: recorded ones that ship, each at a phase and a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_dev.demo.load import recording
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.settings import Pool
from rlscaler_dev.exceptions import DemoError

GPUS = 16
"""GPUs of the cluster: two nodes of eight."""

REQUESTS_PER_SECOND = 4.0
"""Requests a second of one GPU replica that is fully busy: 250 ms a request."""

UTILIZATION = 0.8
"""Utilization of the GPUs of a service in its busy time, where it has as many as its size."""

BUSY_PERCENTILE = 90.0
"""The busy time of a load: the rate that it exceeds for a tenth of the time."""

COLD_START_SECONDS = (10.0, 20.0)
MOST_REPLICAS = 8

NAMESPACES = ("team-a", "team-b", "team-c")


@dataclass(frozen=True, slots=True)
class Tenant:
    """One service on GPUs alone, with its terms of the budget."""

    name: str
    namespace: str
    load: str
    """Recorded load among those that ship with rlscaler_rl."""
    phase: float
    """Part of the recording before the moment with which the demo begins."""
    gpus: float
    """GPUs that its busy time needs."""
    guaranteed: int
    """GPUs that it has whenever it asks for them."""

    @property
    def pool(self) -> Pool:
        """Deployment of the tenant."""
        return Pool("gpu", self.name, REQUESTS_PER_SECOND, 2.5, COLD_START_SECONDS, max_replicas=MOST_REPLICAS)

    def rate(self, seconds: int, speed: float) -> Float:
        """Requests/s (seconds,) of each second, `speed` seconds of the recording in each. Raises DemoError."""
        trace = recording(f"{self.load}.csv.gz")
        edges = self.phase * trace.length_s + np.arange(seconds + 1) * speed
        rate = np.diff(trace.volume(edges)) / speed
        busy = float(np.percentile(rate, BUSY_PERCENTILE))
        if busy <= 0:
            raise DemoError(f"tenant {self.name}: nothing is asked in that part of {self.load}")
        return np.asarray(rate * (self.gpus * REQUESTS_PER_SECOND * UTILIZATION / busy))


TENANTS = (
    Tenant("assistant", "team-a", "servegen_large-test", 0.05, 3.0, 3),
    Tenant("search", "team-a", "worldcup-test", 0.10, 2.0, 2),
    Tenant("autocomplete", "team-a", "azure_code", 0.20, 1.5, 1),
    Tenant("chat", "team-b", "azure_conv", 0.00, 2.0, 2),
    Tenant("summaries", "team-b", "servegen_small-test", 0.40, 1.5, 1),
    Tenant("translation", "team-b", "worldcup-train", 0.55, 1.0, 1),
    Tenant("captions", "team-c", "servegen_small-train", 0.70, 1.0, 1),
    Tenant("tagging", "team-c", "azure_code", 0.65, 1.0, 1),
)
"""Their busy times need 13 of the 16 GPUs together, and an autoscaler wants spare ones; 12 are guaranteed. Weights are
the sizes."""
