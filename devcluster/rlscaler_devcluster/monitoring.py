"""The Prometheus operator's definitions: ServiceMonitor, PodMonitor, PrometheusRule. Nothing here acts on them."""

from __future__ import annotations

from typing import Any

from rlscaler_devcluster.definitions import Definitions
from rlscaler_devcluster.progress import Reporter

DEFINITIONS = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd",
    "monitoring",
)
KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def manifests(reporter: Reporter) -> list[dict[str, Any]]:
    """Those of KINDS; downloads the module the first time (10 MB). Raises DevClusterError."""
    return [crd for crd in DEFINITIONS.manifests(reporter) if crd["spec"]["names"]["kind"] in KINDS]
