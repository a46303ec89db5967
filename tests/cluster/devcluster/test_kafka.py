"""The broker beside the control plane: seen by Prometheus, missed when killed, and started again on its topics."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rlscaler_dev.cluster import api, processes, state
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kafka.broker import Broker
from rlscaler_dev.cluster.kafka.component import KAFKA
from rlscaler_dev.cluster.kafka.jars import java
from rlscaler_dev.cluster.launcher import layout_of
from rlscaler_dev.exceptions import DevClusterError, NotRunningError
from tests.harness.kafka import jars_or_skip
from tests.harness.waiting import until


@pytest.fixture
def with_kafka(cluster: ClusterInfo) -> Iterator[ClusterInfo]:
    jars_or_skip()
    yield api.up(cluster.name, kafka=True)
    known = state.load(cluster.name)
    assert known is not None
    known.forget(KAFKA)
    (cluster.prometheus_targets_dir / f"{KAFKA}.json").unlink(missing_ok=True)


def read_back(servers: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    until(lambda: (message := consumer.poll(0.2)) is not None and not message.error() and not found.append(message), 60)
    consumer.close()
    return bytes(found[0].value())


def scraped(cluster: ClusterInfo) -> bool:
    query = {"query": 'sum(kafka_server_replicamanager_value{job="kafka",name="PartitionCount"})'}
    answer = requests.get(f"{cluster.prometheus_url}/api/v1/query", params=query, timeout=10).json()
    result = answer["data"]["result"]
    return bool(result) and float(result[0]["value"][1]) >= 1


def test_a_broker_that_is_killed_comes_back_with_its_topics(with_kafka: ClusterInfo) -> None:
    servers, name = with_kafka.kafka, with_kafka.name
    assert servers is not None
    assert servers.startswith("127.0.0.1:")
    assert api.up(name, kafka=True) == with_kafka, "a second `up` changes nothing"
    assert with_kafka.processes[KAFKA] in {process.pid for process in processes.strays(with_kafka.state_dir)}

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for future in admin.create_topics([NewTopic("kept", 2, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("kept", b"message")
    assert producer.flush(20) == 0
    until(lambda: scraped(with_kafka), 60)

    os.kill(with_kafka.processes[KAFKA], signal.SIGKILL)
    until(lambda: (known := state.load(name)) is not None and [one.name for one in known.dead()] == [KAFKA])
    with pytest.raises(NotRunningError, match=r"not healthy \(kafka\).*cluster up"):
        api.status(name)
    again = api.up(name)
    assert again.kafka == servers
    assert again.processes[KAFKA] != with_kafka.processes[KAFKA]
    assert {**again.processes, KAFKA: 0} == {**with_kafka.processes, KAFKA: 0}, "nothing else was started again"
    assert read_back(servers, "kept") == b"message"


def test_a_broker_may_have_an_identity_that_begins_with_a_dash(with_kafka: ClusterInfo, tmp_path: Path) -> None:
    """One identity in 64 does; Kafka's tool would take it for an option if it stood alone."""
    known = state.load(with_kafka.name)
    assert known is not None
    shutil.copytree(known.directory / "pki", tmp_path / "pki")
    broker = Broker(replace(layout_of(known), directory=tmp_path))
    broker.write()
    begins_with_a_dash = uuid.UUID(int=0xF9 << 120 | 1)

    subprocess.run(broker.format(java(), jars_or_skip(), begins_with_a_dash), check=True, capture_output=True)

    assert "cluster.id=-" in (broker.data / "meta.properties").read_text()


def test_a_cluster_of_the_users_gets_no_broker(cluster: ClusterInfo) -> None:
    with pytest.raises(DevClusterError, match="--kafka change a cluster"):
        api.up("other", kubeconfig=cluster.kubeconfig, kafka=True)
