"""Consumers of a real broker's topic, scaled by a real operator: they follow the load, and are held on unknown data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.kafka import Reader, TestBroker, Writer, own_broker

PARTITIONS = 6
CARRIED = 10.0
"""Messages/s of one consumer, as the policy says."""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with own_broker("operator") as one:
        one.topic("orders", PARTITIONS)
        yield one


@pytest.fixture(scope="module")
def operator(start: Any, broker: TestBroker) -> Any:
    return start("--allow-kafka-server", broker.servers)


@pytest.fixture
def producing(broker: TestBroker) -> Iterator[None]:
    """About 100 messages a second, which one consumer of the group `billing` reads, for as long as the test lasts."""
    reader = Reader(broker.servers, "billing", "orders")
    writer = Writer(broker.servers, "orders", 20, PARTITIONS)
    yield
    writer.close()
    reader.close()


def policy(world: Any, name: str, servers: str, topic: str = "orders", **spec: Any) -> None:
    world.deployment(f"{name}-cpu", "cpu", 1)
    kafka = {"bootstrapServers": [servers], "topics": [topic], "group": name, "offsetReset": "earliest"}
    target = {"deployment": f"{name}-cpu", "maxReplicas": 10, "requestsPerSecond": CARRIED, "coldStartSeconds": 8}
    world.policy(name, targets={"cpu": target}, signal={"kafka": kafka}, slo={"latencyMilliseconds": 5000}, **spec)


def test_a_broker_that_is_not_allowed_is_not_asked(operator: Any, world: Any, wait: Any) -> None:
    policy(world, "stranger", "kafka.elsewhere:9092")
    wait(lambda: world.condition("stranger", "Ready") == ("False", "KafkaNotAllowed"))


def test_a_topic_that_does_not_exist_is_named(operator: Any, world: Any, broker: TestBroker, wait: Any) -> None:
    policy(world, "typo", broker.servers, topic="odrers")
    wait(lambda: world.condition("typo", "Ready") == ("False", "TopicMissing"))


def test_consumers_follow_production_and_are_held_without_a_broker(
    operator: Any, world: Any, broker: TestBroker, producing: None, wait: Any, stays: Any
) -> None:
    policy(world, "billing", broker.servers)

    def replicas() -> int:
        return int(world.get("deployments", "billing-cpu")["spec"]["replicas"])

    wait(lambda: replicas() == PARTITIONS, 90)
    stays(replicas, PARTITIONS, 5)
    wait(lambda: world.condition("billing", "Ready") == ("True", "Ready"))
    last = operator.decisions("billing")[-1]
    assert last["params"]["stream"] is True
    assert last["samples"]["partitions"] == PARTITIONS
    assert "partitions" in [step["guard"] for step in last["guards"]]
    assert [step["after"]["cpu"] for step in last["guards"] if step["guard"] == "partitions"] == [PARTITIONS]

    broker.kill()
    wait(lambda: world.condition("billing", "Ready") == ("False", "BrokerUnreachable"), 60)
    stays(replicas, PARTITIONS, 5)
    broker.start_again()
    wait(lambda: world.condition("billing", "Ready") == ("True", "Ready"), 90)
    assert replicas() == PARTITIONS
