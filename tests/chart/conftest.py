"""Helm, and a control plane of the chart's own: other tests have the definition installed in their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlscaler_dev.cluster import manifests
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.progress import ConsoleReporter
from tests.chart import accounts
from tests.harness.control_plane import own_cluster
from tests.harness.helm import Helm
from tests.harness.operators import Operator
from tests.harness.waiting import until


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Without a cluster. Never skipped: it is built where it is missing."""
    return Helm(reporter=ConsoleReporter())


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    with own_cluster("chart", gpu_nodes=0, cpu_nodes=1, gateway_api=False) as started:
        yield started


@pytest.fixture(scope="session")
def kube(cluster) -> Iterator[KubeClient]:
    """With the definitions of the Prometheus operator, none of its own."""
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        client.apply_all(manifests.MONITORING.manifests(ConsoleReporter()))
        until(lambda: client.get("/apis/monitoring.coreos.com/v1"))
        yield client


@pytest.fixture(scope="session")
def live(cluster, kube) -> Helm:
    """Helm on that cluster."""
    return Helm(cluster.kubeconfig, ConsoleReporter())


@pytest.fixture
def start(cluster, tmp_path, monkeypatch) -> Iterator[Callable[..., Operator]]:
    """Start an operator with this kubeconfig, set up as the chart's containers are; all are stopped in the end."""
    for name, value in accounts.SCOPE.items():
        monkeypatch.setenv(name, value)
    started: list[Operator] = []

    def run(kubeconfig: Path, **more: Any) -> Operator:
        folder = tmp_path / f"operator-{len(started)}"
        folder.mkdir()
        started.append(Operator(kubeconfig, cluster.prometheus_url, folder, **more))
        return started[-1]

    yield run
    for one in started:
        one.stop()
