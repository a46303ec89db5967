"""Emulated consumers on a real API server and a real broker: members follow pods, every message is processed."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_loadgen.settings import LoadSettings
from rlscaler_loadgen.streams.member import PROTOCOLS
from rlscaler_loadgen.streams.producer import Production
from tests.harness.kafka import TestBroker
from tests.harness.load import Exporter
from tests.harness.waiting import until
from tests.harness.world import World

SECONDS = 120.0
LEFT_SECONDS = 30.0
"""Shorter than a session: a consumer that ends without leaving is a member for 45 s."""


@pytest.fixture
def world(cluster: ClusterInfo) -> Iterator[World]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as kube, closing(Exporter()) as exporter:
        one = World(kube, f"consumers-{uuid4().hex[:8]}", exporter)
        yield one
        kube.request("DELETE", f"/api/v1/namespaces/{one.namespace}")


def members(broker: TestBroker, group: str) -> list[str]:
    """The client ids of a group's members; none while it rebalances."""
    found = broker.described(group)
    if found is None or found.state != ConsumerGroupState.STABLE:
        return []
    return sorted(member.client_id for member in found.members)


def is_empty(broker: TestBroker, group: str) -> bool:
    found = broker.described(group)
    return found is not None and not found.members


def names(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.pods("billing"))


def ready(world: World) -> int:
    return int(world.get("deployments", "billing")["status"].get("readyReplicas", 0))


def places(path: Path) -> list[tuple[str, str]]:
    """Partition and offset of each row."""
    with path.open(newline="") as file:
        return [(row["partition"], row["offset"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumers_follow_the_pods_and_process_every_message(
    broker: TestBroker, cluster: ClusterInfo, world: World, tmp_path: Path, protocol: str
) -> None:
    topic, group = broker.topic(f"fleet-{protocol}", 6), f"fleet-{protocol}"
    world.deployment("billing", "cpu", 1)
    command = [sys.executable, "-m", "rlscaler_live.cli", "service", "consumers"]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--namespace", world.namespace, "--deployment", "billing"]
    command += ["--bootstrap-servers", broker.servers, "--topic", topic, "--group", group, "--protocol", protocol]
    command += ["--message-ms", "2", "--records", str(tmp_path), "--metrics-port", "0"]
    consumers = subprocess.Popen(command)

    def follow(count: int) -> None:
        """Wait until so many pods are the members of the group."""

        def same() -> bool:
            assert consumers.poll() is None, f"the consumers ended with {consumers.returncode}"
            pods, found = names(world), members(broker, group)
            seen[:] = [f"pods {pods}", f"members {found}", f"ready {ready(world)}"]
            return len(pods) == count and found == pods

        seen: list[str] = []
        try:
            until(same, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{count} members: {error}; {', '.join(seen)}") from error

    try:
        follow(1)
        load = LoadSettings(pattern="ramp", duration=4, low=100, peak=200)
        first = Production(broker.servers, topic, load, tmp_path / "first", skew=0.5).run()
        world.patch("deployments", "billing", {"spec": {"replicas": 3}}, "scale")
        follow(3)
        second = Production(broker.servers, topic, load, tmp_path / "second", skew=0.5).run()
        world.patch("deployments", "billing", {"spec": {"replicas": 1}}, "scale")
        follow(1)
        assert first["produced"] == first["scheduled"] == len(load.arrival_times())
        written = {*places(tmp_path / "first" / "produced.csv"), *places(tmp_path / "second" / "produced.csv")}
        assert len(written) == first["produced"] + second["produced"]
        until(lambda: {*places(tmp_path / "processed.csv")} == written, SECONDS)
        consumers.terminate()
        assert consumers.wait(SECONDS) == 0
        until(lambda: is_empty(broker, group), LEFT_SECONDS)
    finally:
        consumers.kill()
        consumers.wait()
