"""How often the group was rebalanced, as its coordinator counts: `rebalances.csv`, from the broker's own metrics."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from rlscaler_dev.cluster.dashboards.ask import Source
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS
from rlscaler_dev.demo.records import CsvWriter

COLUMNS = ("time", "rebalances")

COUNTERS = ("group_completed_rebalance_count", "consumer_group_rebalance_count")
"""Of groups of the classic protocol and of KIP-848, since the broker began."""

QUERY = " + ".join(f"sum(kafka_server_group_coordinator_metrics_{name})" for name in COUNTERS)
BEFORE_SECONDS = 4 * SCRAPE_INTERVAL_SECONDS
"""How long before the load the counter is asked for, so that it is known when that begins."""


def write_rebalances(prometheus_url: str, begun: float, data: Path) -> None:
    """Write how many rebalances there were since the broker began, from the load's begin (Unix seconds) until now.

    One row for each change. Raises DevClusterError where Prometheus does not answer.
    """
    source = Source(prometheus_url, time.time() - begun + BEFORE_SECONDS, 4 * SCRAPE_INTERVAL_SECONDS)
    with closing(CsvWriter(data / "rebalances.csv", COLUMNS)) as file:
        for series in source.series(QUERY):
            before = None
            for moment, value in zip(series.times, series.values, strict=True):
                if value != before:
                    file.row(f"{moment:.1f}", f"{value:g}")
                before = value
