"""Where a policy's measurements come from: `spec.metrics`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, ObjectName, Rule

QueryName = Literal["arrivalRate", "cpuUtilization", "memoryUtilization", "gpuUtilization", "p95Latency"]
"""The signals whose PromQL may be replaced."""

Query = Annotated[str, Field(min_length=1, max_length=4096)]


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
    """What TLS to Prometheus is checked with, and the client's own certificate (mTLS)."""

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


class PrometheusAuth(Model):
    """How the operator identifies itself to Prometheus."""

    bearer_token: SecretKey | None = None
    """Key that holds a bearer token; not together with `basic`."""
    basic: BasicAuth | None = None
    """HTTP basic authentication; not together with `bearerToken`."""
    tls: TLS | None = None
    """Certificate authority and client certificate."""

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


class Metrics(Model):
    """Where the measurements come from and when they are too old to act on."""

    prometheus: Prometheus = Prometheus()
    """The Prometheus that holds the service's metrics."""
    max_age_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """Age, in seconds, of the newest raw sample above which a signal counts as unknown."""
    service: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$")]
        | None
    ) = None
    """Value of the label `service` on the inference metrics; default: the policy's own name."""
    queries: dict[QueryName, Query] = Field(default_factory=dict, max_length=5)
    """PromQL that replaces the built-in query of a signal; each must give one sample in the signal's unit and is asked
    for this policy alone. The age is that of the raw sample where it names a series, and of the evaluation where it
    computes. Units: `arrivalRate` requests/s, `cpuUtilization`, `memoryUtilization` and `gpuUtilization` %,
    `p95Latency` ms."""
