"""Every setting of the operator: from the command line, or from the environment as `RLSCALER_<NAME>`."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

SCRAPES_PER_WINDOW = 4
"""Scrapes in a rate window: a rate over fewer swings with their timing and is unknown when a single one is missed."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder that the kubelet puts a pod's own credentials and namespace into."""


class Settings(BaseSettings):
    """Settings of one operator process. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="RLSCALER_", frozen=True, use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """Kubeconfig of the cluster; default: the service account of the pod, else `$KUBECONFIG` or `~/.kube/config`."""

    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces whose policies are served, comma-separated in the environment; empty = the whole cluster."""

    prometheus_url: str = Field(default="http://127.0.0.1:9090", pattern=r"^https?://[^\s/]+")
    """Prometheus of the policies that name none in `spec.metrics.prometheus.url`."""

    allowed_prometheus_urls: Annotated[tuple[str, ...], NoDecode] = ()
    """Prefixes of the URLs that policies may name besides `prometheus_url`; `*` allows any. Policies make the operator
    send requests and credentials to that address, so the default allows none."""

    scrape_interval_seconds: float = Field(default=15.0, gt=0)
    """How often Prometheus scrapes the service's metrics; rate windows span four scrapes or more."""

    resource_scrape_interval_seconds: float | None = Field(default=None, gt=0)
    """How often Prometheus scrapes container and GPU metrics; default: as often as the service's."""

    minimum_window_seconds: float = Field(default=10.0, ge=1)
    """Shortest rate window, however often Prometheus scrapes."""

    prometheus_timeout_seconds: float = Field(default=4.0, gt=0)
    """Longest wait for one query; a Prometheus that misses it counts as unreachable until the next tick."""

    gather_seconds: float = Field(default=0.05, ge=0)
    """Policies that fall due within this time of one another are sensed and decided in one batch."""

    model_dir: Path | None = None
    """Folder with `ppo.onnx` and `ppo.json` in place of the bundled ones."""

    policy_dir: Path | None = None
    """Folder that `spec.policy.path` is relative to; default: policies may name no file."""

    reload_seconds: float = Field(default=30.0, ge=1)
    """How often the ConfigMaps and Secrets that policies name are looked at again."""

    metrics_host: str = "127.0.0.1"
    """Address that `/metrics`, `/healthz` and `/readyz` are served on; in a pod `0.0.0.0` or `::`."""

    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of the operator's own metrics and of its probes: `/metrics`, `/healthz` (the loop turns) and `/readyz`
    (watches in sync and the bundled policy loaded, on a standby too); default: not served."""

    external_scaler_host: str = "127.0.0.1"
    """Address of the external scaler for KEDA."""

    external_scaler_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of the external scaler for KEDA (gRPC; needs the extra `keda`); default: not served."""

    external_scaler_tls_dir: Path | None = None
    """Folder with `tls.crt` and `tls.key` of the external scaler, and with `ca.crt` where clients have to show a
    certificate; default: no TLS."""

    audit_log: Path | None = None
    """File of one JSON line per decision; default: none."""

    audit_max_bytes: int = Field(default=64 * 2**20, ge=0)
    """Size at which the audit log is rotated and the old file compressed (to about a sixth); 0 = never."""

    audit_files: int = Field(default=9, ge=0, le=999)
    """Rotated audit logs that are kept: PATH.1.gz is the newest."""

    lease_name: str = "rlscaler"
    """Name of the coordination.k8s.io Lease; operators with the same Lease never act at the same time."""

    lease_namespace: str = Field(default_factory=lambda: own_namespace())
    """Namespace of the Lease; default: the pod's own, outside of a cluster `default`."""

    lease_seconds: float = Field(default=10.0, ge=2, le=300)
    """How long a holder that says nothing keeps the Lease. It renews every fifth of that, and another operator acts at
    most 1.2 times that after it died."""

    shards: int = Field(default=1, ge=1, le=64)
    """Parts into which the policies are split by consistent hash, each acted for by one operator at a time. Every
    operator of a Lease needs the same number; run as many operators."""

    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    """Name of this process in the Lease."""

    write_timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for one write to the API server; shorter when the lease runs out before."""

    write_concurrency: int = Field(default=16, ge=1, le=256)
    """Requests under way at the same time. Replicas go before statuses and Events."""

    pod_deletion_cost: bool = False
    """Mark the idlest pods with `controller.kubernetes.io/pod-deletion-cost` before a pool shrinks, so that they go
    first. Needs the right to patch pods (`rbac-optional.yaml`)."""

    policy_deadline_seconds: float = Field(default=30.0, ge=1)
    """Longest time for writing and reporting one policy's tick."""

    status_interval_seconds: float = Field(default=300.0, ge=1)
    """How often a status in which only measured values moved is written; changes of replicas, conditions or guards are
    written at once."""

    verbose: bool = False
    """Log every tick."""

    @field_validator("namespaces", "allowed_prometheus_urls", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def window_seconds(self) -> int:
        """Rate window of the service's metrics, in seconds."""
        return round(max(self.minimum_window_seconds, SCRAPES_PER_WINDOW * self.scrape_interval_seconds))

    @property
    def resource_window_seconds(self) -> int:
        """Rate window of the containers' metrics, in seconds."""
        scrape = self.resource_scrape_interval_seconds or self.scrape_interval_seconds
        return round(max(self.minimum_window_seconds, SCRAPES_PER_WINDOW * scrape))

    def may_query(self, url: str) -> bool:
        """Return True where a policy may name the Prometheus at this URL."""
        allowed = (self.prometheus_url, *self.allowed_prometheus_urls)
        return "*" in allowed or any(_within(url, prefix) for prefix in allowed)


def _within(url: str, prefix: str) -> bool:
    """Return True where a URL is below a prefix; a path that leads out of it again, plainly or escaped, is not."""
    prefix = prefix.rstrip("/")
    if url.rstrip("/") == prefix:
        return True
    path = unquote(urlsplit(url).path)
    return url.startswith(prefix + "/") and not {".", ".."} & set(path.replace("\\", "/").split("/"))


def own_namespace() -> str:
    """Return the namespace of the pod, and `default` outside of a cluster."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"
