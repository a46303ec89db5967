"""A producer that follows a load pattern: open loop, with keys of unequal frequency."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Message, Producer
from numpy.typing import NDArray

from rlscaler_loadgen.errors import LoadError
from rlscaler_loadgen.results import LATE_GENERATOR_MS
from rlscaler_loadgen.settings import LoadSettings
from rlscaler_loadgen.streams.journal import FLUSH_SECONDS, PRODUCED, Table, place

KEYS, MESSAGE_BYTES = 1000, 100
TICK_SECONDS = 0.02
"""Longest sleep between two looks at the schedule."""
TAKE_SECONDS = 60.0
"""Seconds after the end that the brokers may take to acknowledge the last messages."""


def draw_keys(messages: int, keys: int, skew: float, seed: int) -> NDArray[np.int64]:
    """Return the key (messages,), 0 to `keys` - 1, of each message.

    Key k is drawn in proportion to 1 / (k + 1) ** skew (Zipf): 0 makes all equally frequent, at 1 the first of 1,000
    keys has an eighth of the messages. Equal seeds give equal keys.
    """
    weights = 1.0 / np.arange(1, keys + 1) ** skew
    return np.random.default_rng([seed, 2]).choice(keys, messages, p=weights / weights.sum())


@dataclass(frozen=True, slots=True)
class Production:
    """Messages, topic and times of a production."""

    servers: str
    """Brokers to begin with, `host:port`, separated by commas."""
    topic: str
    load: LoadSettings
    """Pattern, length, levels and seed; a request of it is a message."""
    out: Path
    """Folder of `produced.csv` and `produced.json`."""
    skew: float = 0.0
    """Exponent of `draw_keys`."""

    def run(self) -> dict[str, Any]:
        """Write all messages at their times; return the content of `produced.json`.

        :raises LoadError: the brokers have not taken all of them a minute after the end.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with closing(Table(self.out / "produced.csv", PRODUCED)) as table:
            writing = _Writing(self, table)
            result = writing.run()
        (self.out / "produced.json").write_text(json.dumps(result, indent=2) + "\n")
        return result


@dataclass
class _Writing:
    """One run of the producer."""

    production: Production
    table: Table
    failed: Counter[str] = field(default_factory=Counter)
    partitions: Counter[int] = field(default_factory=Counter)

    def run(self) -> dict[str, Any]:
        load = self.production.load
        times = load.arrival_times()
        keys = draw_keys(len(times), KEYS, self.production.skew, load.seed)
        late = np.zeros(len(times))
        producer = self._producer()
        begun = time.time()
        if load.started is not None:
            load.started.write_text(json.dumps({"started_at": begun}))
        sent, flushed = 0, begun
        while (now := time.time() - begun) < load.duration:
            due = int(np.searchsorted(times, now, side="right"))
            for number in range(sent, due):
                self._send(producer, begun + times[number], f"key-{keys[number]}")
            late[sent:due] = now - times[sent:due]
            sent = due
            producer.poll(0)
            if begun + now - flushed >= FLUSH_SECONDS:
                self.table.flush()
                flushed = begun + now
            ahead = times[sent] - now if sent < len(times) else load.duration - now
            time.sleep(min(TICK_SECONDS, max(0.0, ahead)))
        for number in range(sent, len(times)):
            self._send(producer, begun + times[number], f"key-{keys[number]}")
        if left := producer.flush(TAKE_SECONDS):
            raise LoadError(f"{left} messages were not taken by {self.production.servers}: do its brokers answer?")
        lag = 1000 * float(np.percentile(late, 99)) if len(late) else 0.0
        return {
            "started_at": begun,
            "scheduled": len(times),
            "produced": sum(self.partitions.values()),
            "failed": dict(self.failed),
            "partitions": {str(partition): count for partition, count in sorted(self.partitions.items())},
            "dispatch_lag_p99_ms": round(lag, 2),
            "generator_late": lag > LATE_GENERATOR_MS,
        }

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.production.servers,
                # Each message is written once, though it is sent again when an answer is lost.
                "enable.idempotence": True,
                # The same key, the same partition, as in Java.
                "partitioner": "murmur2_random",
                "linger.ms": 10,
                "log_level": 3,
            }
        )

    def _send(self, producer: Producer, at: float, key: str) -> None:
        """Hand a message to the client; its timestamp is the schedule's, so that its age counts from there."""
        body = b"x" * MESSAGE_BYTES
        while True:
            try:
                producer.produce(
                    self.production.topic, body, key, timestamp=round(1000 * at), on_delivery=self._delivered
                )
                return
            except BufferError:  # the client holds as much as it may
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed[error.name()] += 1
            return
        partition, offset = place(message)
        self.partitions[partition] += 1
        self.table.rows([(f"{message.timestamp()[1] / 1000:.3f}", partition, offset)])
