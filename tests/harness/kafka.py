"""A Kafka broker of the test run's own, without a control plane, what tests do to it, and consumers of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from rlscaler_dev.cluster import launcher, pki
from rlscaler_dev.cluster.kafka import component
from rlscaler_dev.cluster.kafka.broker import Broker
from rlscaler_dev.cluster.kafka.jars import Jars, java, provide
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.state import RUNNING, ClusterState
from rlscaler_dev.exceptions import ToolchainError
from tests.harness.waiting import until

REQUIRED = "RLSCALER_KAFKA_TESTS"
"""Set to `required`: a machine that cannot have a broker fails the tests instead of leaving them out."""

_ADMINS: list[AdminClient] = []
"""None is freed before the process ends: freeing one after its broker has gone was seen to wait for ever, which no
time limit of a test ends, since it does not come back to Python."""


def jars_or_skip() -> Jars:
    """Kafka's jars. Where Java is missing, or the jars are not cached and cannot be fetched, the tests are left out."""
    try:
        java()
        return provide(ConsoleReporter())
    except ToolchainError as error:
        if os.environ.get(REQUIRED) == "required":
            raise
        pytest.skip(f"no Kafka here: {error.message}")


class TestBroker:
    """A broker, its files and its process."""

    __test__ = False

    def __init__(self, cluster: ClusterState, jars: Jars) -> None:
        self._cluster, self._jars = cluster, jars
        self.broker = Broker(launcher.layout_of(cluster))
        self.servers = self.broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})
        _ADMINS.append(self.admin)

    @property
    def ca(self) -> Path:
        return self.broker.layout.pki.ca_cert

    def topic(self, name: str, partitions: int = 4) -> str:
        """Make a topic and wait until the broker knows it."""
        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(60)
        until(lambda: len(self.admin.list_topics(name, timeout=5).topics[name].partitions) == partitions)
        return name

    def delete(self, name: str) -> None:
        for future in self.admin.delete_topics([name]).values():
            future.result(60)
        until(lambda: name not in self.admin.list_topics(timeout=5).topics)

    def described(self, group: str) -> ConsumerGroupDescription | None:
        """None while the broker has not loaded its groups, or does not answer in time."""
        try:
            asked = self.admin.describe_consumer_groups([group], request_timeout=20)
            found: ConsumerGroupDescription = asked[group].result()
        except KafkaException:
            return None
        return found

    def fill(self, topic: str, messages: int, partitions: int = 4) -> None:
        """Write so many messages of 100 bytes, evenly."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        for number in range(messages):
            producer.produce(topic, b"x" * 100, partition=number % partitions)
            producer.poll(0)
        assert producer.flush(30) == 0

    def kill(self) -> None:
        """kill -9 the broker."""
        record = self._cluster.process(component.KAFKA)
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)
        until(lambda: record.process() is None)

    def start_again(self) -> None:
        component.start_again(self._cluster, self.broker, self._jars, lambda text: None)


class Writer:
    """A producer in a thread: so many messages of 100 bytes each 0.2 s, evenly over the partitions. While the broker is
    gone they wait with the producer; what waits when it is closed is dropped."""

    def __init__(self, servers: str, topic: str, messages: int, partitions: int = 4) -> None:
        self._over = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
        self._topic, self._messages, self._partitions = topic, messages, partitions
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for number in range(self._messages):
                self._producer.produce(self._topic, b"x" * 100, partition=number % self._partitions)
            self._producer.poll(0)

    def close(self) -> None:
        self._over.set()
        self._thread.join(20)
        self._producer.purge()
        self._producer.poll(0)


class Reader:
    """A consumer in a thread: it reads and commits each message, but for those of partitions that are `poisoned`."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.read = 0
        self.poisoned: set[int] = set()
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() or message.partition() in self.poisoned:
                continue
            self.read += 1
            self._consumer.commit(message, asynchronous=False)
        self._consumer.close()

    def close(self) -> None:
        self._over.set()
        self._thread.join(20)


@contextmanager
def broker_alone(name: str, jars: Jars) -> Iterator[ClusterState]:
    """A broker on loopback, as the only component of a cluster of that name; nothing of it is left afterwards.

    `Broker(launcher.layout_of(cluster))` says where it listens. Raises StartError with the end of its log.
    """
    cluster = ClusterState(name, phase=RUNNING)
    try:
        cluster.save()
        layout = launcher.layout_of(cluster)
        pki.create(layout.directory / "pki")
        layout.targets_dir.mkdir()
        component.start(cluster, partial(launcher.layout_of, cluster), jars, lambda text: None)
        yield cluster
    finally:
        launcher.clean(cluster.name)


@contextmanager
def own_broker(suffix: str) -> Iterator[TestBroker]:
    """A broker under the name `pytest-PID-suffix`; nothing of it is left afterwards."""
    jars = jars_or_skip()
    with broker_alone(f"pytest-{os.getpid()}-{suffix}", jars) as cluster:
        yield TestBroker(cluster, jars)
