"""Records of consumers and producer: tables of one row a message or a change, and counters for Prometheus."""

from __future__ import annotations

import asyncio
import csv
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from prometheus_client import CollectorRegistry, Counter, Histogram

PRODUCED = ("scheduled_at", "partition", "offset")
"""Columns of `produced.csv`: when the schedule wanted a message sent (Unix seconds), and where the broker has it."""
PROCESSED = ("time", "pod", "partition", "offset")
"""Columns of `processed.csv`: when the work on a message ended (Unix seconds), and whose it was."""
ASSIGNMENTS = ("time", "pod", "change", "partitions")
"""Columns of `assignments.csv`: partitions `assigned` to a consumer, `revoked` from it or `lost`, and their number."""

FLUSH_SECONDS = 0.5
"""Seconds between two flushes of the tables, for readers during the run."""
AGE_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


def place(message: Message) -> tuple[int, int]:
    """Partition and offset of a message that a broker has. Raises ValueError for one that it has not."""
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise ValueError("the message has no place in a partition")
    return partition, offset


class Table:
    """A CSV file that several threads append to; readers see the rows of the last `flush`."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self._file = path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self._lock = threading.Lock()
        self.rows([columns])

    def rows(self, rows: Iterable[Iterable[Any]]) -> None:
        """Append rows."""
        with self._lock:
            self._writer.writerows(rows)

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class ConsumerJournal:
    """Counts the consumers' messages and changes, and writes them to a folder, if there is one."""

    def __init__(self, registry: CollectorRegistry, namespace: str, group: str, folder: Path | None = None) -> None:
        labels = ("namespace", "group")
        processed = Counter(
            "stream_messages_processed", "Messages that were worked on to their end", labels, registry=registry
        )
        age = Histogram(
            "stream_message_age_seconds",
            "Time from a message's own timestamp to the end of the work on it",
            labels,
            buckets=AGE_BUCKETS,
            registry=registry,
        )
        changes = Counter(
            "stream_assignments", "Changes of who reads which partitions", (*labels, "change"), registry=registry
        )
        self._processed, self._age = processed.labels(namespace, group), age.labels(namespace, group)
        self._changes = {name: changes.labels(namespace, group, name) for name in ("assigned", "revoked", "lost")}
        self._tables: tuple[Table, Table] | None = None
        if folder is not None:
            self._tables = (
                Table(folder / "processed.csv", PROCESSED),
                Table(folder / "assignments.csv", ASSIGNMENTS),
            )

    def processed(self, pod: str, done: list[tuple[float, Message]]) -> None:
        """A pod's consumer worked on these messages, on each until that Unix time. May be called from any thread."""
        self._processed.inc(len(done))
        for ended, message in done:
            self._age.observe(max(0.0, ended - message.timestamp()[1] / 1000))
        if self._tables:
            self._tables[0].rows((f"{ended:.3f}", pod, *place(message)) for ended, message in done)

    def assigned(self, pod: str, change: str, partitions: list[int]) -> None:
        """Partitions were `assigned` to a pod's consumer, `revoked` from it, or are `lost` to it."""
        self._changes[change].inc()
        if self._tables:
            self._tables[1].rows([(f"{time.time():.3f}", pod, change, len(partitions))])

    def flush(self) -> None:
        """Write the buffered rows."""
        for table in self._tables or ():
            table.flush()

    def close(self) -> None:
        for table in self._tables or ():
            table.close()


async def flushing(journal: ConsumerJournal) -> None:
    """Write the buffered rows now and then, without end."""
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        journal.flush()
