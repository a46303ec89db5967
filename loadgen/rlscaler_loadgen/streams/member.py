"""One emulated consumer: a real member of a Kafka group, in a thread of its own, with a bounded rate."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from rlscaler_loadgen.errors import ServiceError
from rlscaler_loadgen.service.replica import Flavour, ServiceTimes
from rlscaler_loadgen.streams.accounts import Account
from rlscaler_loadgen.streams.journal import ConsumerJournal, place

logger = logging.getLogger(__name__)

Protocols = Literal["range", "cooperative-sticky", "consumer"]
PROTOCOLS: tuple[Protocols, ...] = get_args(Protocols)
"""Protocols by which a group shares its partitions: two assignors of the classic protocol, the first of which stops
all members, and the protocol of KIP-848, where the broker shares them."""

POLL_SECONDS = 0.1
"""Seconds that a consumer waits for a full batch."""

CLOSE_SECONDS = 8.0
"""Seconds that leaving a group may take before the process ends all the same."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work of every consumer of the group."""

    servers: str
    """Brokers to begin with, `host:port`, separated by commas."""
    topic: str
    group: str
    protocol: Protocols = "cooperative-sticky"
    message_seconds: float = 0.01
    """Mean time of work on one message."""
    variation: float = 0.5
    """Coefficient of variation of that time."""
    batch: int = 10
    """Messages that a consumer takes at once; it takes part in a rebalance between two batches."""
    commit_seconds: float = 1.0
    """Time between two commits."""
    seed: int = 0

    def settings(self, name: str) -> dict[str, Any]:
        """Those of librdkafka for the consumer of a pod."""
        classic = {"partition.assignment.strategy": self.protocol}
        return {
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": max(1, round(1000 * self.commit_seconds)),
            # Only what was worked on is committed.
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 100,
            # Not much more is fetched than the next batches, since a rebalance throws it away.
            "queued.min.messages": max(200, 4 * self.batch),
            "fetch.queue.backoff.ms": 50,
            "log_level": 3,
            **({"group.protocol": "consumer"} if self.protocol == "consumer" else classic),
        }


def failure() -> tuple[asyncio.Future[None], Callable[[Exception], None]]:
    """Return a future that fails with the error of a consumer, and a function that takes this error from any thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def failed(error: Exception) -> None:
        loop.call_soon_threadsafe(fail, error)

    return future, failed


class Member:
    """The consumer of one pod. It joins its group at once, and leaves it at `end`."""

    def __init__(
        self, pod: str, job: Job, flavour: Flavour, journal: ConsumerJournal, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is called, from the consumer's thread, with the error that ended it."""
        self.flavour = flavour
        self._pod, self._job, self._journal, self._failed = pod, job, journal, failed
        times = ServiceTimes(zlib.crc32(f"{job.seed} {pod}".encode()), job.variation)
        self._account = Account(job.message_seconds, times)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"consumer {pod}", daemon=True)
        self._thread.start()

    @property
    def load(self) -> int:
        return self._account.load

    @property
    def running(self) -> bool:
        """Whether it has not left its group yet."""
        return self._thread.is_alive()

    def busy_seconds(self, now: float | None = None) -> float:
        return self._account.busy_seconds(now)

    def end(self) -> None:
        """As after SIGTERM: it drops the message that it works on, commits those before it, and leaves the group."""
        self._over.set()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            consumer = Consumer(self._job.settings(self._pod))
            try:
                consumer.subscribe(
                    [self._job.topic],
                    on_assign=self._said("assigned"),
                    on_revoke=self._said("revoked"),
                    on_lost=self._said("lost"),
                )
                while not self._over.is_set():
                    self._work(consumer)
            finally:
                consumer.close()
        except Exception as error:  # a thread's error is nobody's unless it is passed on
            self._failed(ServiceError(f"the consumer of pod {self._pod} in group {self._job.group} ended: {error}"))

    def _said(self, change: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def say(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._journal.assigned(self._pod, change, [partition.partition for partition in partitions])

        return say

    def _work(self, consumer: Consumer) -> None:
        """Take a batch and work on it."""
        polled = time.monotonic()
        messages = [message for message in consumer.consume(self._job.batch, POLL_SECONDS) if _usable(message)]
        if not messages:
            return
        to_unix = time.time() - time.monotonic()
        ends = self._account.begin([message.timestamp()[1] / 1000 - to_unix for message in messages], polled)
        stopped = self._over.wait(max(0.0, ends[-1] - time.monotonic()))
        count = self._account.end(time.monotonic() if stopped else None)
        done = [(to_unix + end, message) for end, message in zip(ends[:count], messages[:count], strict=True)]
        self._journal.processed(self._pod, done)
        self._store(consumer, messages[:count])

    def _store(self, consumer: Consumer, done: list[Message]) -> None:
        """Let the next commit be behind these messages. Those of a partition that was lost are another's now."""
        reached = dict(map(place, done))
        if not reached:
            return
        offsets = [TopicPartition(self._job.topic, partition, offset + 1) for partition, offset in reached.items()]
        try:
            consumer.store_offsets(offsets=offsets)
        except KafkaException as error:
            logger.warning("pod %s: offsets not stored: %s", self._pod, error)


def _usable(message: Message) -> bool:
    """True for a message; an error is logged, one that the client cannot go on from is raised as KafkaException."""
    error = message.error()
    if error is None:
        return True
    if error.fatal():
        raise KafkaException(error)
    logger.warning("consumer: %s", error)
    return False
