"""Settings of a demo run: the user's choices, and the nominal service that every contender scales."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POOLS = ("gpu", "cpu")
DAILY = "daily"
PATTERNS = (DAILY, "ramp", "spike", "periodic", "random", "trace")
POLICIES = ("ppo", "rule")

NAMESPACE = "workloads"
HPA, POLICY = "hpa", "rlscaler"
COPIES = {HPA: "with-hpa", POLICY: "with-rlscaler"}
"""Name and namespace of the two copies of the service that one demo compares."""
SERVICE = "chat"
"""Name of the service, its policy and its HTTPRoute."""

LOW_USERS, HIGH_USERS = 10.0, 100.0
"""Bounds of the load patterns; one user sends one request a second on average."""

CLIENT_TIMEOUT_MS = 5000.0
"""After this time a client gives up. A failure enters latency percentiles with it, so that rejecting requests never
makes a service look faster."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One Deployment of the service, with the capacity and price of a replica."""

    name: str
    """`gpu` or `cpu`."""
    deployment: str
    requests_per_second: float
    """Requests a second of one replica at full utilization."""
    cost_per_hour: float
    cold_start_seconds: tuple[float, float]
    """Shortest and longest time from a pod's creation to its readiness."""
    min_replicas: int = 1
    max_replicas: int = 10

    @property
    def mean_cold_start_seconds(self) -> float:
        return sum(self.cold_start_seconds) / 2


GPU_POOL = Pool("gpu", "chat-gpu", requests_per_second=20, cost_per_hour=2.5, cold_start_seconds=(35, 55))
CPU_POOL = Pool("cpu", "chat-cpu", requests_per_second=4, cost_per_hour=0.625, cold_start_seconds=(5, 11))


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. Paths are absolute."""

    out: Path
    """Result folder."""
    pattern: str = DAILY
    duration_seconds: int = 300
    interval_seconds: int = 15
    """Action interval of the policy."""
    policy: str = "ppo"
    """The bundled policy that decides."""
    contender: str = "rl"
    """Scaler of the service: `rl` an RLScalingPolicy, `hpa` HorizontalPodAutoscalers."""
    seed: int = 1
    slo_ms: float = 1000.0
    gpu: Pool = GPU_POOL
    cpu: Pool = CPU_POOL
    capacity_error: float = 0.0
    """Requests/s of a replica over the declared number, minus 1, in %."""
    capacity_error_after: float = 0.0
    """Seconds of load until a replica answers so many; before, the declared number is right."""
    trace: Path | None = None
    """CSV of time and rate for the pattern `trace`."""
    namespace: str = NAMESPACE
    """Namespace of the service's objects."""
    cluster_name: str = "demo"
    kubeconfig: Path | None = None
    """A cluster of the user's; None = the demo starts its own control plane."""
    keep_cluster: bool = False
    kafka: bool = False
    """Whether the cluster has a Kafka broker."""
    gpu_autoscalers: bool = False
    """Whether the cluster serves GPU utilization to HorizontalPodAutoscalers."""
    gpu_nodes: int = 2
    """Nodes of eight GPUs."""

    @property
    def pools(self) -> tuple[Pool, Pool]:
        return self.gpu, self.cpu
