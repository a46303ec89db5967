"""Series that the operator exports, by the names that queries use, and the panels of its dashboards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.series import PerPolicy

CHART = Path(__file__).parents[2] / "helm" / "rlscaler"
RULES = CHART / "rules" / "rlscaler.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def families() -> dict[str, str]:
    """The operator's metrics: name -> type."""
    found = [metric for metric in vars(Metrics()).values() if isinstance(metric, MetricWrapperBase | PerPolicy)]
    families = [metric.family() if isinstance(metric, PerPolicy) else next(iter(metric.describe())) for metric in found]
    return {family.name: family.type for family in families}


def exported() -> set[str]:
    """The names of all series."""
    return {name + suffix for name, kind in families().items() for suffix in SUFFIXES[kind]}


def panels(path: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard in the order of reading, without the headings of rows."""
    every = (panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row")
    return sorted(every, key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"]))
