"""The page of the operator's own metrics, from the metrics themselves."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from rlscaler_dev.generate.docs.markdown import code, plain, table
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.series import LABELS, PerPolicy

INTRODUCTION = """\
# Metrics of the operator

Served on `/metrics` of [`--metrics-port`](settings.md). `namespace` and `policy` name the RLScalingPolicy; its series
go when it is deleted. A histogram has the series `_bucket`, `_sum` and `_count`. What a service has to export is on
[another page](../metrics.md), what to alert on among [the alerts](alerts.md).

"""

SUFFIX = {"counter": "_total"}


def render() -> str:
    """The page as Markdown."""
    rows = [_row(metric) for metric in vars(Metrics()).values() if isinstance(metric, MetricWrapperBase | PerPolicy)]
    return (
        INTRODUCTION
        + table(["name", "type", "labels", "meaning"], sorted(rows, key=lambda row: row[0].strip("`")))
        + "\n"
    )


def _row(metric: MetricWrapperBase | PerPolicy) -> tuple[str, str, str, str]:
    if isinstance(metric, PerPolicy):
        family, names = metric.family(), (*LABELS, *metric.labels)
    else:
        (family,), names = metric.describe(), metric._labelnames
    labels = ", ".join(map(code, names))
    return code(family.name + SUFFIX.get(family.type, "")), family.type, labels, plain(family.documentation)
