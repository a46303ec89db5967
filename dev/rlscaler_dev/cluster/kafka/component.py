"""Starting the broker beside a running cluster, and starting it again on the topics that it had."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rlscaler_dev.cluster.components import KAFKA_PORTS, Layout
from rlscaler_dev.cluster.kafka.broker import Broker
from rlscaler_dev.cluster.kafka.jars import Jars, java
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.realnode import namespace
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.exceptions import StartError

KAFKA = "kafka"
"""Name of the component."""

FORWARDER = "kafka-forwarder"
"""Name of the forwarder from the host's ports to a broker that runs beside a real node."""

START_SECONDS = 120.0
FORMAT_SECONDS = 60.0
ASK_SECONDS = 2.0

Say = Callable[[str], None]


def start(cluster: ClusterState, layout: Callable[[], Layout], jars: Jars, say: Say) -> None:
    """Start a broker without topics, and have Prometheus scrape it. Raises StartError with the end of its log."""
    command = java()
    cluster.draw_ports(*KAFKA_PORTS)
    broker = Broker(layout())
    say("starting Kafka")
    # What a broker left that did not come up: Kafka's tool refuses a folder that is made already.
    shutil.rmtree(broker.folder, ignore_errors=True)
    broker.write()
    done = subprocess.run(
        broker.format(command, jars, uuid.uuid4()), capture_output=True, text=True, check=False, timeout=FORMAT_SECONDS
    )
    if done.returncode:
        raise StartError("Kafka's data folder could not be made:\n" + (done.stdout + done.stderr)[-2000:])
    _run(cluster, broker, command, jars)


def start_again(cluster: ClusterState, broker: Broker, jars: Jars, say: Say) -> None:
    """Start a broker that has ended on the files that it left: topics, offsets and groups are as they were."""
    say("starting Kafka again, on the topics that it had")
    _run(cluster, broker, java(), jars)


def _run(cluster: ClusterState, broker: Broker, command: str, jars: Jars) -> None:
    """Start the process and wait until a client is answered; a broker that does not come up is not recorded."""
    record = namespace.spawn(cluster, KAFKA, broker.run(command, jars))
    if broker.layout.real and cluster.process(FORWARDER) is None:
        ports = [broker.layout.ports[name] for name in ("kafka", "kafka-sasl")]
        namespace.forward(cluster, FORWARDER, {port: port for port in ports})

    def ready() -> bool:
        record.check()
        return answers(broker.bootstrap_servers)

    try:
        wait_until(ready, "Kafka's readiness", START_SECONDS)
    except BaseException:
        cluster.forget(KAFKA)
        raise
    target = [{"targets": [broker.metrics], "labels": {"job": KAFKA}}]
    (broker.layout.targets_dir / f"{KAFKA}.json").write_text(json.dumps(target))


def answers(bootstrap_servers: str) -> bool:
    """Whether the broker tells a client about its cluster, and that it is the leader of it."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.timeout.ms": 2000})
    try:
        metadata = client.list_topics(timeout=ASK_SECONDS)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.controller_id >= 0
