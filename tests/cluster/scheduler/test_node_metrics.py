"""Load that is balanced by what a real Prometheus says of the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from rlscaler_dev.exposition import ExpositionServer
from rlscaler_dev.placement.testbed import bound, pod, second_scheduler
from tests.harness.waiting import until

BUSY = {"place-0002", "place-0005", "place-0008", "place-0011"}
"""The biggest nodes."""


def exposition(names: list[str], seconds: float) -> str:
    """What the node_exporters of these nodes say, all in one answer; `seconds` are those since the start."""
    lines = []
    for name in names:
        idle = seconds * (0.05 if name in BUSY else 0.9)
        label = f'node="{name}"'
        lines += [
            f'node_cpu_seconds_total{{{label},cpu="0",mode="idle"}} {idle}',
            f'node_cpu_seconds_total{{{label},cpu="0",mode="user"}} {seconds - idle}',
            f"node_memory_MemAvailable_bytes{{{label}}} 75",
            f"node_memory_MemTotal_bytes{{{label}}} 100",
            f"node_netstat_Tcp_CurrEstab{{{label}}} 7",
        ]
    return "\n".join(lines) + "\n"


@pytest.fixture
def exporter(cluster, nodes) -> Iterator[None]:
    """A target of the cluster's Prometheus."""
    began = monotonic()
    server = ExpositionServer(lambda: exposition(nodes, monotonic() - began))
    file = cluster.add_scrape_target("node-exporter", server.address)
    yield
    file.unlink()
    server.close()


def test_pods_avoid_nodes_that_are_busy(cluster, kube, server, namespace, folder, nodes, exporter):
    options = ("--policy", "LB", "--balance", "use", "--prometheus-url", cluster.prometheus_url)
    suggestions = server(*options)
    until(lambda: "rlscaler_scheduler_nodes_measured 12.0" in suggestions.metrics(), 120)
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=60_000):
        for index in range(8):
            assert kube.create(pod(f"p-{index}", namespace, "500m", "64Mi"))
        until(lambda: len(bound(kube, namespace)) == 8, 120)
    assert not BUSY & set(bound(kube, namespace).values())
    said = suggestions.get(f"/suggestions?namespace={namespace}&pod=p-0")
    assert said["rule"] == "least-used"
    metrics = said["best"][0]["metrics"]
    assert metrics["memory"] == pytest.approx(0.25)
    assert metrics["cpu"] == pytest.approx(0.1, abs=0.05)
    assert metrics["tcp_connections"] == 7
    assert metrics["age_seconds"] < 120
    assert "disk" not in metrics, "what was not measured is left out"
