"""What the operator reads from a real broker: groups of every protocol, and a reason with a remedy for each fault."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from rlscaler_core.api.kafka import Kafka
from rlscaler_operator.sensing.access import Certificates
from rlscaler_operator.sensing.kafka_access import KafkaAccess
from rlscaler_operator.sensing.streams import Asker, Stream, Streams
from tests.harness.kafka import TestBroker
from tests.harness.waiting import until

KEY = ("workloads", "orders")

OPENED: list[Streams] = []


@pytest.fixture(autouse=True)
def no_client_outlives_its_test() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


class Looking:
    """One policy's stream, looked at as often as a test asks."""

    def __init__(self, broker: TestBroker, group: str, topic: str, access: KafkaAccess | None = None) -> None:
        self._access = access or KafkaAccess((broker.servers,))
        self.kafka = Kafka(bootstrap_servers=[broker.servers], topics=[topic], group=group, offset_reset="earliest")
        self._streams = Streams(4.0)
        OPENED.append(self._streams)
        self.ready = 0

    def look(self) -> Stream:
        asyncio.run(self._streams.look(self._access, [Asker(KEY, self.kafka, self.ready)]))
        return self._streams.latest(KEY)

    def reason(self) -> str:
        return self.look().arrival_rate.reason

    def notes(self) -> list[str]:
        return [reason for reason, _ in self.look().notes]


PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_of_any_protocol_is_read(broker: TestBroker, reader: Any, protocol: str) -> None:
    topic = broker.topic(f"orders-{protocol}")
    broker.fill(topic, 200)
    looking = Looking(broker, f"billing-{protocol}", topic)
    until(lambda: looking.reason() == "WindowEmpty")
    assert looking.notes() == ["GroupMissing"]
    one = reader(f"billing-{protocol}", topic, **PROTOCOLS[protocol])
    until(lambda: one.read == 200 and looking.look().lag_messages == 0)
    looking.ready = 1
    until(lambda: not looking.look().settling)
    stream = looking.look()
    assert stream.partitions == 4
    assert stream.arrival_rate.known
    assert stream.p95_latency.value == 0
    assert stream.notes == ()
    looking.ready = 2
    assert looking.look().settling, "a consumer that is ready has not joined"
    reader(f"billing-{protocol}", topic, **PROTOCOLS[protocol])
    until(lambda: not looking.look().settling, 60)


def test_what_is_missing_is_named(broker: TestBroker) -> None:
    assert Looking(broker, "nobody", "no-such-topic").reason() == "TopicMissing"
    closed = KafkaAccess(("127.0.0.1:1",))
    assert Looking(broker, "nobody", "orders", closed).reason() == "BrokerUnreachable"
    refused = KafkaAccess((broker.servers,), refused=("KafkaNotAllowed", "no"))
    assert Looking(broker, "nobody", "orders", refused).reason() == "KafkaNotAllowed"


def test_login_and_rights_are_told_apart(broker: TestBroker) -> None:
    topic = broker.topic("guarded")
    servers, pem = (broker.broker.protected,), Certificates(broker.ca.read_text())
    password = broker.broker.password.read_text()

    def looking(certificates: Certificates, word: str) -> Looking:
        return Looking(broker, "guards", topic, KafkaAccess(servers, certificates, ("PLAIN", "rlscaler", word)))

    wrong, unknown, mine = looking(pem, "wrong"), looking(Certificates(), password), looking(pem, password)
    until(lambda: wrong.reason() == "BrokerAuthenticationFailed")
    until(lambda: unknown.reason() == "BrokerTLSFailed")  # the system does not know this authority
    until(lambda: mine.reason() == "TopicForbidden")

    def grant(kind: ResourceType, name: str) -> None:
        allowed = AclPermissionType.ALLOW
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:rlscaler", "*", AclOperation.DESCRIBE, allowed
        )
        for future in broker.admin.create_acls([binding]).values():
            future.result(60)

    grant(ResourceType.TOPIC, topic)
    until(lambda: mine.reason() == "GroupForbidden")
    assert "--operation Describe --group" in mine.look().arrival_rate.message
    grant(ResourceType.GROUP, "guards")
    until(lambda: mine.look().arrival_rate.known)


def test_a_topic_that_is_made_again_or_grows_is_measured_anew(broker: TestBroker, reader: Any) -> None:
    topic = broker.topic("renewed")
    broker.fill(topic, 40)
    one = reader("renewers", topic)
    looking = Looking(broker, "renewers", topic)
    until(lambda: one.read == 40 and looking.look().lag_messages == 0)
    for future in broker.admin.create_partitions([NewPartitions(topic, 6)]).values():
        future.result(60)
    until(lambda: looking.look().partitions == 6)
    broker.delete(topic)
    until(lambda: looking.reason() == "TopicMissing")
    broker.topic(topic, 2)
    until(lambda: looking.look().arrival_rate.known, 60)
    assert looking.look().partitions == 2
    assert not looking.look().arrival_rate.value < 0


def test_offsets_that_are_set_back_are_no_lag_of_the_moment(broker: TestBroker, reader: Any) -> None:
    topic = broker.topic("reset", 1)
    broker.fill(topic, 50, 1)
    one = reader("resetters", topic)
    looking = Looking(broker, "resetters", topic)
    until(lambda: one.read == 50 and looking.look().lag_messages == 0)
    one.close()
    until(lambda: (left := broker.described("resetters")) is not None and not left.members, 60)
    back = [ConsumerGroupTopicPartitions("resetters", [TopicPartition(topic, 0, 10)])]
    for future in broker.admin.alter_consumer_group_offsets(back).values():
        future.result(60)
    stream = looking.look()
    assert math.isnan(stream.lag_messages)
    assert stream.notes[0][0] == "OffsetsReset"
    assert looking.look().lag_messages == 40, "the look after it knows where the group stands"


@pytest.mark.chaos
def test_a_poisoned_partition_is_found_and_its_messages_are_not_counted(broker: TestBroker, reader: Any) -> None:
    topic = broker.topic("poisoned")
    one = reader("victims", topic)
    one.poisoned = {2}
    looking = Looking(broker, "victims", topic)
    broker.fill(topic, 40)
    until(lambda: one.read == 30)

    def found() -> bool:
        broker.fill(topic, 4)
        return "PartitionStuck" in looking.notes()

    until(found, 120)
    assert looking.look().lag_messages < 4


def test_a_broker_that_is_killed_again_and_again_is_read_again(broker: TestBroker, reader: Any) -> None:
    """While it starts, it is not yet the coordinator of its groups: the answer at which librdkafka crashes."""
    topic = broker.topic("restarts")
    broker.fill(topic, 40)
    one = reader("restarters", topic)
    looking = Looking(broker, "restarters", topic)
    until(lambda: one.read == 40 and looking.look().arrival_rate.known)
    for _ in range(3):
        broker.kill()
        until(lambda: not looking.look().arrival_rate.known)
        broker.start_again()
        until(lambda: looking.look().arrival_rate.known, 60)
