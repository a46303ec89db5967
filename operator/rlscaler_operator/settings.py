"""Settings of the operator: from the command line, or from the environment as `RLSCALER_<NAME>`.

The first sentence of a field's docstring is the help of its option.
"""

from __future__ import annotations

import math
import os
import socket
import uuid
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

SCRAPES_PER_WINDOW = 4
"""Scrapes in a rate window. A rate over fewer scrapes swings with their timing, and is unknown after a missed one."""

SCRAPES_OF_ARRIVALS = 2
"""Scrapes in the window of arrivals, for which replicas wait; after a missed scrape the longer window is used. A
shorter window would have a single sample now and then. With one above 2.1 scrapes, `rate` would extrapolate over half
of the gap of a missed scrape only."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder for a pod's own credentials and namespace, filled by the kubelet."""


LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
"""Name of a label in Prometheus."""

CLUSTER_LABELS = (
    "cluster",
    "cluster_name",
    "cluster_id",
    "k8s_cluster",
    "k8s_cluster_name",
    "kubernetes_cluster",
    "prometheus",
)

LabelText = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*=[-a-zA-Z0-9_.:/ ]+$")]
"""Name and value of a label in Prometheus."""

HeaderText = Annotated[str, Field(pattern=r"^[-A-Za-z0-9_]+=[!-~]+$")]
"""Name and value of an HTTP header."""

NamespaceName = Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)$")]
"""Name of a namespace; `*` = all."""


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

    prometheus_headers: Annotated[tuple[HeaderText, ...], NoDecode] = ()
    """Headers of queries to `prometheus_url` and `own_query_url`, such as the tenant of Mimir and Cortex
    (`X-Scope-OrgID=team-a`), comma-separated in the environment. `{namespace}` stands for the policy's. Policies cannot
    replace them."""

    scrape_interval_seconds: float = Field(default=15.0, gt=0)
    """Seconds between two scrapes of the service's metrics; rate windows span four scrapes or more, that of arrivals
    two."""

    resource_scrape_interval_seconds: float | None = Field(default=None, gt=0)
    """Seconds between two scrapes of container and GPU metrics; default: as for the service's."""

    minimum_window_seconds: float = Field(default=10.0, ge=1)
    """Shortest rate window, however often Prometheus scrapes."""

    replica_labels: Annotated[tuple[LabelName, ...], NoDecode] = ("prometheus_replica",)
    """External labels that differ between replicas of one Prometheus (an HA pair), comma-separated in the environment:
    series that differ by them only count once. Name `replica` if yours has this name; else rates are ambiguous."""

    match_labels: Annotated[tuple[LabelText, ...], NoDecode] = ()
    """Labels that all series at `prometheus_url` must have, comma-separated in the environment: `cluster=eu` where it
    holds the series of several clusters. Policies cannot replace them."""

    cluster_labels: Annotated[tuple[LabelName, ...], NoDecode] = CLUSTER_LABELS
    """External labels that tell clusters apart, comma-separated in the environment: a service or Deployment whose
    series differ by them is ambiguous until `match_labels` says which ones are meant. Add yours, such as `region`."""

    exporter_namespaces: Annotated[tuple[NamespaceName, ...], NoDecode] = ("*",)
    """Namespaces whose targets are believed when they say (`exported_namespace`) of which namespace a series is: those
    of gateways, dcgm-exporter and kube-state-metrics scraped without `honor_labels`; `*` = all, empty = none."""

    prometheus_timeout_seconds: float = Field(default=4.0, gt=0)
    """Longest wait for one query; a Prometheus that misses it counts as unreachable until the next tick."""

    answer_bytes: int = Field(default=16 * 2**20, ge=64 * 2**10)
    """Largest answer to a query that policies share; more is not read. It takes about seven times that in memory. A
    policy's own query, which must give one sample, may answer with 64 KiB."""

    answer_series: int = Field(default=50_000, ge=100)
    """Most series in such an answer: 6 for each policy, and where a Prometheus serves more than 250 policies, for each
    service and Deployment in their namespaces. It is sent as `limit`."""

    allow_own_queries: bool = True
    """Whether policies may bring queries of their own (`spec.metrics.queries`)."""

    own_query_url: str = Field(default="", pattern=r"^(https?://[^\s/]+.*)?$")
    """Where own queries go in place of `prometheus_url`: a proxy that keeps them to one namespace, such as
    prom-label-proxy or the tenancy port of OpenShift's Thanos."""

    own_query_parameter: str = Field(default="", pattern=r"^([^\s=&]+=[^\s&]*\{namespace\}[^\s&]*)?$")
    """Parameter with the policy's namespace for that server, such as `namespace={namespace}` for prom-label-proxy, or
    `extra_label=namespace={namespace}` for VictoriaMetrics. With it, policies that name a Prometheus of their own may
    bring no queries. Without it an own query may read all that Prometheus holds."""

    allowed_kafka_servers: Annotated[tuple[str, ...], NoDecode] = ()
    """Brokers, `host:port`, that policies may name in `spec.signal.kafka.bootstrapServers`; `*` allows any. Policies
    make the operator connect and send credentials there, so the default allows none."""

    kafka_timeout_seconds: float = Field(default=4.0, ge=1)
    """Longest wait for an answer of a broker; one that misses it counts as unreachable until the next tick."""

    gather_seconds: float = Field(default=0.05, ge=0)
    """Policies that fall due within this time of one another are sensed and decided in one batch."""

    model_dir: Path | None = None
    """Folder with `ppo.onnx` and `ppo.json`, `streams.onnx` and `streams.json` in place of the bundled ones."""

    policy_dir: Path | None = None
    """Folder that `spec.policy.path` is relative to; default: policies may name no file."""

    reload_seconds: float = Field(default=30.0, ge=1)
    """Seconds between two looks at the ConfigMaps and Secrets that policies name."""

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
    """Folder with `tls.crt` and `tls.key` of the external scaler, and with the `ca.crt` of its clients' certificates;
    default: no TLS."""

    external_scaler_anonymous: bool = False
    """Answer clients of other machines that show no certificate. Without it, an address other than the loopback needs a
    `ca.crt` in `external_scaler_tls_dir`."""

    external_scaler_max_calls: int = Field(default=1024, ge=8, le=65536)
    """Calls of the external scaler under way at the same time; further ones are refused. An `external-push` trigger
    holds one open for as long as its ScaledObject exists, and such streams get three quarters of them at most."""

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
    """Seconds for which a silent holder keeps the Lease. It renews every fifth of that, and another operator acts at
    most 1.2 times that after it died."""

    shards: int = Field(default=1, ge=1, le=64)
    """Parts into which the policies are split by consistent hash, each acted for by one operator at a time; run as many
    operators. Operators with another number stand by until the last one of the old number has ended."""

    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    """Name of this process in the Lease."""

    write_timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for one write to the API server; shorter when the lease runs out before."""

    drain_seconds: float = Field(default=5.0, ge=0, le=600)
    """Seconds for which the old weights of an HTTPRoute may still be in use after a change: until then, and for one
    sensing tick at least, a pool keeps the replicas that its old share needs."""

    write_concurrency: int = Field(default=16, ge=1, le=256)
    """Requests under way at the same time. Replicas go before statuses and Events."""

    budgets: bool = False
    """Let RLScalingBudgets bound the policies that they select. Needs their CustomResourceDefinition, the right to list
    and watch them and to patch their status (`rbac-optional.yaml`)."""

    target_kinds: Annotated[tuple[str, ...], NoDecode] = ()
    """Kinds of objects that may be scaled besides Deployments, separated by commas, each as apiVersion/plural/Kind:
    `apps/v1/statefulsets/StatefulSet`. The operator needs the right to get, list and watch them, and to get and patch
    their scale (`targetKinds` of the chart)."""

    pod_deletion_cost: bool = False
    """Mark the idlest pods, and among equals those that empty a node, with
    `controller.kubernetes.io/pod-deletion-cost` before a pool shrinks, so that they go first. Needs the right to patch
    pods (`rbac-optional.yaml`). With `namespaces` nodes are left out, since pods of others are not seen."""

    resize: bool = False
    """Resize running pods in place for policies that ask for it (`spec.targets.*.resources.mode: InPlace`). Needs the
    right to patch the `resize` subresource of pods (`rbac-optional.yaml`), and Kubernetes 1.34 or newer."""

    resize_new_pods: bool = False
    """Have new pods begin with the size that running ones got by `resize`: it is in `status.newPods`, which the
    MutatingAdmissionPolicy of `admission/new-pods.yaml` reads. Needs Kubernetes 1.36 or newer (1.34 with
    the API's v1beta1)."""

    policy_deadline_seconds: float = Field(default=30.0, ge=1)
    """Longest time for writing and reporting one policy's tick."""

    status_interval_seconds: float = Field(default=300.0, ge=1)
    """Seconds between two writes of a status in which only measured values changed; changes of replicas, conditions or
    guards are written at once."""

    verbose: bool = False
    """Log every tick."""

    @field_validator(
        "namespaces",
        "allowed_prometheus_urls",
        "allowed_kafka_servers",
        "prometheus_headers",
        "replica_labels",
        "match_labels",
        "cluster_labels",
        "exporter_namespaces",
        "target_kinds",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _resizes(self) -> Self:
        if self.resize_new_pods and not self.resize:
            raise ValueError("resize_new_pods needs resize: new pods get the size that running ones got before")
        return self

    @property
    def lease(self) -> str:
        """Namespace and name of the Lease: the name by which operators with another one know this one."""
        return f"{self.lease_namespace}/{self.lease_name}"

    @property
    def window_seconds(self) -> int:
        """Rate window of the service's metrics, in seconds."""
        return math.ceil(max(self.minimum_window_seconds, SCRAPES_PER_WINDOW * self.scrape_interval_seconds))

    @property
    def arrival_window_seconds(self) -> float:
        """Window of the rate of arrivals, in whole milliseconds, where its series have two samples in it."""
        scrapes = math.ceil(1000 * SCRAPES_OF_ARRIVALS * self.scrape_interval_seconds) / 1000
        return max(self.minimum_window_seconds, scrapes)

    @property
    def resource_window_seconds(self) -> int:
        """Rate window of the containers' metrics, in seconds."""
        scrape = self.resource_scrape_interval_seconds or self.scrape_interval_seconds
        return math.ceil(max(self.minimum_window_seconds, SCRAPES_PER_WINDOW * scrape))

    def may_query(self, url: str) -> bool:
        """Return True where a policy may name the Prometheus at this URL."""
        allowed = (self.prometheus_url, *self.allowed_prometheus_urls)
        return "*" in allowed or any(_within(url, prefix) for prefix in allowed)

    def headers_of(self, url: str, namespace: str) -> dict[str, str]:
        """Return the headers for a Prometheus; none for one that is not the operator's own."""
        if not _within(url, self.prometheus_url):
            return {}
        pairs = (text.partition("=") for text in self.prometheus_headers)
        return {name: value.replace("{namespace}", namespace) for name, _, value in pairs}

    def labels_of(self, url: str) -> dict[str, str]:
        """Return the labels of all series at a Prometheus; none for one that is not the operator's own."""
        pairs = (text.partition("=") for text in self.match_labels) if _within(url, self.prometheus_url) else ()
        return {name: value for name, _, value in pairs}

    def may_read_kafka(self, server: str) -> bool:
        """Return True where a policy may name the broker at this `host:port`."""
        return bool({"*", server} & set(self.allowed_kafka_servers))


def _within(url: str, prefix: str) -> bool:
    """Return True where a URL is below a prefix; a path that leads out of it again, plainly or escaped, is not."""
    prefix = prefix.rstrip("/")
    if url.rstrip("/") == prefix:
        return True
    try:
        path = urlsplit(url).path
    except ValueError:
        return False  # a text that is no URL is below none
    # Servers differ in how often they decode a path, and whether they cut parameters off its parts.
    while (decoded := unquote(path)) != path:
        path = decoded
    parts = {part.partition(";")[0] for part in path.replace("\\", "/").split("/")}
    return url.startswith(prefix + "/") and not {".", ".."} & parts


def own_namespace() -> str:
    """Return the namespace of the pod, and `default` outside of a cluster."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"
