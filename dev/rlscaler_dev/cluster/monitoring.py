"""The Prometheus operator's definitions: ServiceMonitor, PodMonitor, PrometheusRule. Nothing here acts on them."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.definitions import Definitions
from rlscaler_dev.cluster.progress import Reporter

DEFINITIONS = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd",
    tuple(f"monitoring.coreos.com_{plural}.yaml" for plural in ("servicemonitors", "podmonitors", "prometheusrules")),
    "monitoring",
)


def manifests(reporter: Reporter) -> list[dict[str, Any]]:
    """Downloads the module the first time (10 MB). Raises DevClusterError."""
    return DEFINITIONS.manifests(reporter)
