"""Where a policy's measurements come from: `spec.metrics`."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from rlscaler_core.api.base import Model, ObjectName, Rule

QueryName = Literal["arrivalRate", "load", "cpuUtilization", "memoryUtilization", "gpuUtilization", "p95Latency"]
"""The signals whose PromQL may be replaced."""

Query = Annotated[str, Field(min_length=1, max_length=4096)]

ServerName = Literal["vllm", "sglang", "rayserve", "llamacpp", "tgi", "triton", "torchserve"]
"""Servers of models whose own series are known."""

FrontDoorName = Literal["knative", "istio", "envoy", "nginx", "traefik", "epp"]
"""Gateways and proxies in front of a service whose series are known."""

PresetName = Literal[ServerName, FrontDoorName]
"""Presets for sources of request counts, other than a service that exports the series of this project."""

COUNT_TOKENS = ("vllm", "sglang", "tgi")
"""Presets with counters of tokens and of requests."""

COUNT_RUNNING = ("vllm", "sglang", "rayserve", "llamacpp", "tgi", "envoy", "epp")
"""Presets with a gauge of the requests that run; the series of this project have one, too."""

TIME_FIRST_TOKEN = ("vllm", "sglang", "epp")
"""Presets with a histogram of the time to first token."""

TIME_OUTPUT_TOKEN = ("vllm", "sglang", "tgi")
"""Presets with a histogram of the time per output token."""


def _label_name(name: str) -> str:
    if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name):
        raise ValueError(f"{name!r} is no name of a label in Prometheus: use letters, digits and _")
    return name


# A pattern of a map's keys has no form in a CustomResourceDefinition.
SeriesLabel = Annotated[str, Field(max_length=128), AfterValidator(_label_name)]
"""Name of a label in Prometheus."""

SeriesValue = Annotated[str, Field(max_length=128, pattern=r"^[-a-zA-Z0-9_.:/ ]+$")]
"""Value of a label in Prometheus, without characters that PromQL would have to escape."""


class SecretKey(Model):
    """One key of a Secret in the policy's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in the Secret's data."""


class BasicAuth(Model):
    """User name and password for HTTP basic authentication."""

    username: SecretKey
    """Key that holds the user name."""
    password: SecretKey
    """Key that holds the password."""


class TLS(Model):
    """CA that TLS to a server is checked with, and the client's own certificate (mTLS)."""

    ca: SecretKey | None = None
    """Key that holds the certificate authorities in PEM; default: those of the operator's system."""
    certificate: SecretKey | None = None
    """Key that holds the client's certificate in PEM; needs `privateKey`."""
    private_key: SecretKey | None = None
    """Key that holds the client's private key in PEM; needs `certificate`."""

    rules = (
        Rule(
            cel="has(self.certificate) == has(self.privateKey)",
            holds=lambda tls: (tls.certificate is None) == (tls.private_key is None),
            message="certificate and privateKey go together: set both for mTLS, or neither",
            field="",
        ),
    )


class Tenant(Model):
    """Tenant of a server that holds series of several: Mimir, Cortex, Thanos."""

    header: Literal["X-Scope-OrgID", "THANOS-TENANT"] = "X-Scope-OrgID"
    """Header that names the tenant: `X-Scope-OrgID` for Mimir, Cortex and Grafana Cloud, `THANOS-TENANT` for Thanos."""
    id: SecretKey
    """Key that holds the tenant."""


class PrometheusAuth(Model):
    """Credentials of the operator for Prometheus."""

    bearer_token: SecretKey | None = None
    """Key that holds a bearer token; not together with `basic`."""
    basic: BasicAuth | None = None
    """HTTP basic authentication; not together with `bearerToken`."""
    tls: TLS | None = None
    """Certificate authority and client certificate."""
    tenant: Tenant | None = None
    """Tenant that is named with each query; default: none, or the one of the operator's own Prometheus."""

    rules = (
        Rule(
            cel="!(has(self.bearerToken) && has(self.basic))",
            holds=lambda auth: auth.bearer_token is None or auth.basic is None,
            message="bearerToken and basic exclude each other: remove one of them",
            field="bearerToken",
        ),
    )


class Prometheus(Model):
    """The Prometheus that holds the service's metrics."""

    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s/]+")] | None = None
    """Base URL of the Prometheus HTTP API, such as `http://prometheus.monitoring:9090`; default: the operator's
    `--prometheus-url`."""
    auth: PrometheusAuth | None = None
    """Credentials, read from Secrets in the policy's namespace; default: none."""
    match_labels: dict[SeriesLabel, SeriesValue] = Field(default_factory=dict, max_length=8)
    """Labels that all series must have, such as `cluster: eu` where one Prometheus holds the series of several
    clusters; at the operator's own Prometheus beside those of `--match-label`. Queries of your own have to name
    them themselves."""


class Metrics(Model):
    """Where the measurements come from and when they are too old to act on."""

    prometheus: Prometheus = Prometheus()
    """The Prometheus that holds the service's metrics."""
    max_age_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """Age, in seconds, of the newest raw sample above which a signal counts as unknown."""
    preset: PresetName | None = None
    """Source of the series: a model server (`vllm`, `sglang`, `rayserve`, `llamacpp`, `tgi`, `triton`, `torchserve`) or
    a proxy in front of the service (`knative`, `istio`, `envoy`, `nginx`, `traefik`, `epp`); default: the series
    `inference_*` that docs/metrics.md describes."""
    front_door: FrontDoorName | None = None
    """Beside the preset of a model server: the proxy that counts requests and latencies, in place of the server."""
    service: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$")]
        | None
    ) = None
    """Value of the label `service` on the inference metrics, or of the label by which a preset finds the service;
    default: the policy's own name."""
    queries: dict[QueryName, Query] = Field(default_factory=dict, max_length=6)
    """PromQL that replaces the query of a signal, built in or of the preset; each must give one sample in the signal's
    unit. The administrator may forbid them, or have them kept to this namespace. The age is that of the raw sample
    where it names a series, and of the evaluation where it computes. Units: `arrivalRate` requests/s, `load` that of
    `capacity.unit` where it is not requests, `cpuUtilization`, `memoryUtilization` and `gpuUtilization` %, `p95Latency`
    ms."""

    rules = (
        Rule(
            cel=f"!has(self.frontDoor) || (has(self.preset) && !(self.preset in {list(get_args(FrontDoorName))}))",
            holds=lambda metrics: (
                metrics.front_door is None
                or (metrics.preset is not None and metrics.preset not in get_args(FrontDoorName))
            ),
            message="frontDoor goes with the preset of a model server: set preset to the server, or use preset alone "
            "for the front door",
            field="frontDoor",
        ),
    )
