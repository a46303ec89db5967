"""Records of the demo of Kafka while it runs: replicas, rebalances, and the messages that wait."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
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
    """Follows `produced.csv` and `processed.csv`."""

    def __init__(self, produced: Path, processed: Path) -> None:
        self._produced, self._processed = Tail(produced), Tail(processed)
        self._waits: dict[Place, float] = {}
        self._early: set[Place] = set()
        """Messages that were processed before it was seen that they are there."""
        self._seen: set[Place] = set()
        self.produced = 0
        """Messages that were written so far."""

    def read(self) -> None:
        """Read the new rows of both tables."""
        self._each(self._produced, self._take_produced)
        self._each(self._processed, self._take_processed)

    @property
    def messages(self) -> int:
        """Messages that are not processed."""
        return len(self._waits)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest of them at the Unix time `now`; 0 where nothing waits."""
        return max(0.0, now - min(self._waits.values())) if self._waits else 0.0

    def _each(self, tail: Tail, take: Callable[[list[str]], None]) -> None:
        for row in csv.reader(tail.lines()):
            if row[0][:1].isdigit():  # not the head of the table
                take(row)

    def _take_produced(self, row: list[str]) -> None:
        scheduled_at, place = float(row[0]), (row[1], row[2])
        self.produced += 1
        if place in self._early:
            self._early.remove(place)
        else:
            self._waits[place] = scheduled_at

    def _take_processed(self, row: list[str]) -> None:
        place = row[2], row[3]
        if place in self._seen:
            return
        self._seen.add(place)
        if self._waits.pop(place, None) is None:
            self._early.add(place)
