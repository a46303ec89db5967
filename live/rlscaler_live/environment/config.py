"""Configuration of a live environment: the cluster, the service, the load, and the length of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rlscaler_core.api.base import GROUP, KIND, VERSION
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_operator.settings import Settings

Json = dict[str, Any]

SENSE_SECONDS = 5
"""Between two looks at the cluster, as in the operator's default and in the simulator."""


class PoolConfig(BaseModel):
    """One Deployment of the service."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    deployment: str
    """Name in the namespace."""
    requests_per_second: float | None = Field(default=None, gt=0)
    """Capacity of one ready replica. While it is not known nothing is scaled down."""
    cost_per_hour: float = Field(gt=0)
    """Cost of one replica, currency units per hour."""
    cold_start_seconds: float | None = Field(default=None, gt=0)
    """Seconds from a pod's creation until it is ready; learned from the pods where it is left out."""
    start_replicas: int = Field(default=1, ge=0)
    """Replicas that an episode begins with."""


class EnvironmentConfig(BaseModel):
    """The `environment` part of a configuration file for `--env cluster`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    namespace: str = "default"
    """Namespace of the Deployments and the HTTPRoute."""
    prometheus_url: str = Field(default="http://127.0.0.1:9090", pattern=r"^https?://[^\s/]+")
    """Prometheus that scrapes the service."""
    locust_url: str | None = None
    """Web address of a running Locust that is told to send the pattern; without it and `service_url` no load is
    started and the service's own traffic counts."""
    episode_duration: int = Field(default=300, ge=10)
    """Seconds, in real time."""
    action_interval: int = Field(default=30, ge=10, le=300, multiple_of=SENSE_SECONDS)
    """Seconds between two actions."""
    min_replicas: int = Field(default=1, ge=0)
    """Fewest replicas of either pool."""
    max_replicas: int = Field(default=10, ge=1)
    """Most replicas of either pool."""
    latency_weight: float = 0.4
    """Weight in the reward of `make_kisim`, as the next three."""
    throughput_weight: float = 0.3
    efficiency_weight: float = 0.2
    stability_weight: float = 0.1
    objective: str = "slo_cost"
    """Reward of an interval, by the name that training uses."""
    kubeconfig: Path | None = None
    """File that says how the cluster is reached; kubectl's usual places where it is left out."""
    service: str = "chat"
    """Value of the label `service` of the service's metrics."""
    gpu: PoolConfig | None = PoolConfig(
        deployment="chat-gpu", requests_per_second=20.0, cost_per_hour=2.5, cold_start_seconds=45.0
    )
    """The GPU pool; null where there is none."""
    cpu: PoolConfig | None = PoolConfig(
        deployment="chat-cpu", requests_per_second=4.0, cost_per_hour=0.625, cold_start_seconds=8.0
    )
    """The CPU pool; null where there is none."""
    http_route: str | None = None
    """HTTPRoute whose backends, named as the Deployments, carry the traffic weights; without it the traffic
    preference has no effect."""
    slo_ms: int = Field(default=1000, ge=1)
    """Latency within which a request counts as answered well."""
    client_timeout_ms: float = Field(default=5000.0, gt=0)
    """Latency of a refused request in percentiles."""
    scrape_interval_seconds: float = Field(default=15.0, gt=0)
    """Scrape interval of that Prometheus; rates are over four scrapes, that of arrivals over two."""
    service_url: str | None = None
    """Base URL of the service: the load is sent there by a Locust process of its own, open loop."""
    patterns: tuple[str, ...] = Field(default=("ramp", "spike", "periodic", "random"), min_length=1)
    """Loads, taken in turn from episode to episode."""
    low_rps: float = Field(default=10.0, ge=0)
    """Lowest level of the patterns."""
    high_rps: float = Field(default=100.0, gt=0)
    """Highest level of the patterns."""
    trace: Path | None = None
    """CSV of time and rate for the pattern `trace`."""
    results: Path | None = None
    """Folder for the load process's records of each episode; a temporary one where it is left out."""
    ready_timeout_seconds: float = Field(default=300.0, gt=0)
    """Longest wait for the replicas that an episode begins with."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.gpu is None and self.cpu is None:
            raise ValueError("gpu, cpu: at least one pool is needed")
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas {self.min_replicas} is above max_replicas {self.max_replicas}")
        if self.episode_duration % self.action_interval:
            raise ValueError(
                f"episode_duration {self.episode_duration} is no multiple of action_interval {self.action_interval}"
            )
        if self.locust_url and self.service_url:
            raise ValueError("locust_url and service_url exclude each other: keep the one that sends the load")
        for name, pool in self.pools.items():
            if not self.min_replicas <= pool.start_replicas <= self.max_replicas:
                raise ValueError(f"{name}.start_replicas {pool.start_replicas} is outside min_replicas..max_replicas")
        return self

    @property
    def pools(self) -> dict[str, PoolConfig]:
        """The pools that are there, by name."""
        return {name: pool for name, pool in (("gpu", self.gpu), ("cpu", self.cpu)) if pool is not None}

    @property
    def start(self) -> tuple[int, int]:
        """Replicas (GPU, CPU) that an episode begins with."""
        return tuple(pool.start_replicas if pool else 0 for pool in (self.gpu, self.cpu))  # type: ignore[return-value]

    @classmethod
    def of(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """The configuration of a mapping as `create_environment_config` makes it.

        Raises LiveEnvironmentError that names the field.
        """
        if isinstance(given, cls):
            return given
        try:
            return cls.model_validate(dict(given or {}))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "*"
            text = first["msg"].removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                text = f"no such field; there are {', '.join(cls.model_fields)}"
            raise LiveEnvironmentError(f"environment.{field}: {text}") from error

    def policy(self) -> Json:
        """The RLScalingPolicy that describes the service to the operator's code; it is never sent to the cluster."""
        targets = {
            name: {
                "deployment": pool.deployment,
                "minReplicas": self.min_replicas,
                "maxReplicas": self.max_replicas,
                "costPerHour": pool.cost_per_hour,
                "requestsPerSecond": pool.requests_per_second,
                "coldStartSeconds": pool.cold_start_seconds,
            }
            for name, pool in self.pools.items()
        }
        spec: Json = {
            "mode": "Auto",
            "intervalSeconds": self.action_interval,
            "senseSeconds": SENSE_SECONDS,
            "targets": {n: {k: v for k, v in target.items() if v is not None} for n, target in targets.items()},
            "slo": {"latencyMilliseconds": self.slo_ms},
        }
        if self.http_route:
            spec["placement"] = {"httpRoute": {"name": self.http_route}}
        metadata = {"namespace": self.namespace, "name": self.service, "uid": "environment", "generation": 1}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": spec}

    def settings(self) -> Settings:
        """Settings of the operator's own parts for this environment."""
        return Settings(
            kubeconfig=self.kubeconfig,
            namespaces=(self.namespace,),
            prometheus_url=self.prometheus_url,
            scrape_interval_seconds=self.scrape_interval_seconds,
            lease_name=f"rlscaler-environment-{self.service}",
            lease_namespace=self.namespace,
        )


def create_environment_config(**changes: Any) -> Json:
    """Return the configuration as a plain dictionary, with `changes`, for `KubernetesEnv` and JSON files.

    Raises LiveEnvironmentError for a field that does not exist or a value that cannot be used.
    """
    return EnvironmentConfig.of(changes).model_dump(mode="json")
