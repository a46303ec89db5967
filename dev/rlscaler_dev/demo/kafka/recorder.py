"""Records of the demo of Kafka while it runs: replicas, rebalances, and the messages that wait."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS, Prometheus
from rlscaler_dev.demo.pods import PodRecorder, Replicas
from rlscaler_dev.demo.records import REPLICA_COLUMNS, CsvWriter
from rlscaler_dev.demo.settings import NAMESPACE, Pool
from rlscaler_dev.demo.tails import Tail

REBALANCE_COLUMNS = ("time", "rebalances")

COUNTERS = ("group_completed_rebalance_count", "consumer_group_rebalance_count")
"""Broker counters of completed rebalances since its start: groups of the classic protocol, groups of KIP-848."""

QUERY = " + ".join(f"sum(kafka_server_group_coordinator_metrics_{name})" for name in COUNTERS)
BEFORE_SECONDS = 4 * SCRAPE_INTERVAL_SECONDS
"""Time before the load from which the counter is read, so that its value at the load's begin is known."""

Place = tuple[str, str]
"""Partition and offset of a message."""


Recorder = PodRecorder[Replicas]


def recorder(kube: KubeClient, pool: Pool, data: Path, namespace: str = NAMESPACE) -> Recorder:
    """Return the recorder of the consumers."""
    names = {(namespace, pool.deployment): pool.name}
    return PodRecorder(kube, data / "replicas.csv", ("pool", *REPLICA_COLUMNS), Replicas.of, names, namespace)


def write_rebalances(prometheus_url: str, begun: float, data: Path) -> None:
    """Write the number of rebalances since the broker began, from the load's begin (Unix seconds) until now.

    One row for each change. Raises DevClusterError where Prometheus does not answer.
    """
    past = time.time() - begun + BEFORE_SECONDS
    with closing(CsvWriter(data / "rebalances.csv", REBALANCE_COLUMNS)) as file:
        for series in Prometheus(prometheus_url).last(past, QUERY):
            before = None
            for moment, value in zip(series.times, series.values, strict=True):
                if value != before:
                    file.row(f"{moment:.1f}", f"{value:g}")
                before = value


class Waiting:
    """Follows `produced.csv` and `processed.csv`, of which either may be ahead of the other."""

    def __init__(self, produced: Path, processed: Path) -> None:
        self._produced, self._processed = Tail(produced), Tail(processed)
        self._waits: dict[Place, float] = {}
        self._done: set[Place] = set()

    def read(self) -> None:
        """Read the new rows of both tables."""
        self._waits |= {(row[1], row[2]): float(row[0]) for row in _rows(self._produced)}
        self._done |= {(row[2], row[3]) for row in _rows(self._processed)}
        for place in self._done & self._waits.keys():
            del self._waits[place]

    @property
    def messages(self) -> int:
        """Messages that are not processed."""
        return len(self._waits)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest of them at the Unix time `now`; 0 where nothing waits."""
        return max(0.0, now - min(self._waits.values())) if self._waits else 0.0


def _rows(tail: Tail) -> Iterator[list[str]]:
    """Yield the new rows of a table without its head."""
    return (row for row in csv.reader(tail.lines()) if row[0][:1].isdigit())
