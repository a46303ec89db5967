"""Settings of the suggestion server and of the latency meter: from the command line, or the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rlscaler_core.placement.policies import RULES_OF, Policy
from rlscaler_scheduler.probes import Target

NODE_QUERIES = ("cpu", "memory", "disk", "network_bytes_per_s", "tcp_connections", "running_pods", "sampled")
"""Names of the queries for node metrics."""


class SchedulerError(Exception):
    """Raised when a program of this package cannot start; the message names the remedy."""


class Settings(BaseSettings):
    """Settings of one server, in the environment `RLSCALER_SCHEDULER_<NAME>`. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="RLSCALER_SCHEDULER_", frozen=True, use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """Kubeconfig of the cluster; default: the service account of the pod, else `$KUBECONFIG` or `~/.kube/config`."""

    host: str = "127.0.0.1"
    """Address that is listened on. Only kube-scheduler and Prometheus have to reach it."""

    port: int = Field(default=8899, ge=0, le=65535)
    """Port for kube-scheduler, suggestions, metrics and probes; 0 = any free one, which the log names."""

    policy: Policy = Policy.EE
    """Policy of pods that name none, nor their namespace."""

    scheduler_names: Annotated[tuple[str, ...], NoDecode] = ()
    """Pods of these `spec.schedulerName` are scored, comma-separated in the environment; empty = all. An extender is
    asked about the pods of every profile of its kube-scheduler."""

    model_dir: Path | None = None
    """Folder of networks, POLICY.onnx and POLICY.json; a policy without one is decided by its rule."""

    rules: dict[Policy, str] = {}
    """Rules that act in place of the default ones, by policy: `least-extension` or `pack-and-extension` for EE,
    `latency-fit` for EL, `fragmentation-and-cores` or `best-fit` for GPU; JSON in the environment."""

    gpu_resource: str = "nvidia.com/gpu"
    """Extended resource that counts whole GPUs."""

    gpu_milli_resource: str = "rlscaler.io/gpu-milli"
    """Extended resource that counts thousandths of GPUs, 1000 for each GPU of a node; a pod's share is of one GPU."""

    prometheus_url: str = ""
    """Prometheus that node metrics are read from; empty = none are read."""

    prometheus_credentials: Path | None = None
    """Folder with the credentials for it: a file token, or username and password; ca.crt; tls.crt and tls.key. They
    are read anew before each question."""

    node_queries: dict[str, str] = {}
    """PromQL in place of that of the same name: cpu, memory, disk, network_bytes_per_s, tcp_connections, running_pods,
    sampled. Each gives one series a node, with the label node or instance; JSON in the environment."""

    node_metrics_seconds: float = Field(default=30.0, ge=1)
    """Time between two readings of node metrics."""

    node_metrics_age_seconds: float = Field(default=120.0, gt=0)
    """Age of its samples at which the metrics of a node are no longer believed."""

    balance: Literal["requests", "use"] = "requests"
    """Quantity that the rule of the scoring policy LB balances: requested CPU, or CPU and memory that are really used.
    """

    tls_folder: Path | None = None
    """Folder with tls.crt and tls.key, by which the server speaks HTTPS, and ca.crt, the authority of the certificates
    of callers that are let in; without ca.crt a caller needs the token. The files are read anew when they change."""

    caller_token_file: Path | None = None
    """File with the token that kube-scheduler's plugin sends as its bearer token; it is read anew when it changes. With
    neither this nor a ca.crt everyone may ask, and so move placements; an extender can show a certificate alone."""

    token_file: Path | None = None
    """File with the token that `PUT /suggestions` has to bring; without one overrides are refused."""

    decision_log: Path | None = None
    """Write a JSON line for each decision."""

    decision_log_inputs: bool = False
    """Write the inputs of the decision in each line, so that `rlscaler scheduler replay` can repeat it: 5 to 15 bytes
    for each node."""

    budget_seconds: float = Field(default=0.05, gt=0)
    """Longest time for scoring one pod with a network; after three longer ones, or three faults, the rule acts."""

    breaker_seconds: float = Field(default=30.0, gt=0)
    """Seconds for which the rule acts then, before the network is tried again."""

    most_waiting: int = Field(default=64, ge=1)
    """Calls of kube-scheduler under way at once; further ones are answered at once, without an opinion."""

    largest_call_mib: float = Field(default=4.0, gt=0, le=256)
    """Mebibytes of a call of kube-scheduler; a longer one is refused with 413. 4 are names of 100,000 nodes, or some
    hundred whole nodes; the server needs up to 50 times as much memory while it reads one."""

    assumed_seconds: float = Field(default=30.0, gt=0)
    """Seconds for which a node counts as holding a suggested pod, until the API server says where the pod is."""

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.balance == "use" and not self.prometheus_url:
            raise ValueError("balance use needs prometheus_url: name the Prometheus that has the metrics of nodes")
        if self.prometheus_credentials and not self.prometheus_url:
            raise ValueError("prometheus_credentials needs prometheus_url: name the Prometheus that they are for")
        unknown = sorted(set(self.node_queries) - set(NODE_QUERIES))
        if unknown:
            raise ValueError(f"node_queries: {', '.join(unknown)} is none of {', '.join(NODE_QUERIES)}")
        return self

    @field_validator("rules")
    @classmethod
    def _known(cls, value: dict[Policy, str]) -> dict[Policy, str]:
        for policy, rule in value.items():
            if rule not in RULES_OF[policy]:
                raise ValueError(f"{rule!r} is no rule of {policy}: name one of {', '.join(RULES_OF[policy])}")
        return value

    @field_validator("scheduler_names", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return _parts(value)


class LatencySettings(BaseSettings):
    """Settings of the latency meter of one node, in the environment `RLSCALER_LATENCY_<NAME>`. Durations are in
    seconds."""

    model_config = SettingsConfigDict(env_prefix="RLSCALER_LATENCY_", frozen=True, use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """Kubeconfig of the cluster; default: the service account of the pod, else `$KUBECONFIG` or `~/.kube/config`."""

    node: str = Field(min_length=1)
    """Name of the node that this runs on, and that the value is written to."""

    targets: Annotated[tuple[Target, ...], NoDecode] = Field(min_length=1)
    """Where users are, each as NAME=HOST:PORT for TCP or NAME=URL for HTTP, separated by commas in the environment."""

    interval_seconds: float = Field(default=30.0, ge=1)
    """Time between the beginnings of two rounds of measuring."""

    samples: int = Field(default=5, ge=1, le=50)
    """Round trips of a round to each target; their median counts."""

    timeout_seconds: float = Field(default=2.0, gt=0, le=30)
    """Longest wait for a round trip."""

    expire_seconds: float = Field(default=300.0, ge=1)
    """Seconds until a written value expires. It is written again when it has moved, or after half of this."""

    host: str = "127.0.0.1"
    """Address that is listened on."""

    port: int = Field(default=9811, ge=0, le=65535)
    """Port for metrics and probes; 0 = any free one, which the log names."""

    @field_validator("targets", mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        parts = _parts(value)
        return tuple(map(Target.parse, parts)) if isinstance(parts, tuple) else parts

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.expire_seconds < 2 * self.interval_seconds:
            raise ValueError(
                "expire_seconds has to be at least twice interval_seconds: a value would expire between rounds"
            )
        names = [target.name for target in self.targets]
        if len(set(names)) < len(names):
            raise ValueError("two targets have the same name: give each its own")
        return self


def _parts(value: object) -> object:
    """Split a text at commas; return anything but a text as it is."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value
