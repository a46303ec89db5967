"""A service whose metrics the test controls, and operators as processes of their own on the real control plane."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from tests.harness import setup, waiting
from tests.harness.load import Exporter
from tests.harness.operators import Operator
from tests.harness.overseer import Overseer
from tests.harness.sharing import Sharing
from tests.harness.world import World


@pytest.fixture(scope="session")
def wait() -> Callable[..., Any]:
    """Wait until a function returns something true and return that; the last value says why it did not."""
    return waiting.until


@pytest.fixture(scope="session")
def stays() -> Callable[..., None]:
    """Check for some time that a function keeps returning one value."""
    return waiting.stays


@pytest.fixture(scope="session")
def kube(cluster) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        setup.install(client)
        yield client


@pytest.fixture(scope="session")
def exporter(cluster) -> Iterator[Exporter]:
    server = Exporter()
    cluster.add_scrape_target("operator-tests", server.address)
    yield server
    server.close()


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster, kube, tmp_path_factory) -> Path:
    """A service account with the permissions that ship with the operator, and no others."""
    setup.permit(kube)
    path = tmp_path_factory.mktemp("kubeconfig") / "operator"
    return setup.write_kubeconfig(path, cluster.kubeconfig, setup.token(kube))


@pytest.fixture(scope="session")
def with_budgets(kube, operator_kubeconfig) -> None:
    """The CustomResourceDefinition of budgets and the operator's permission for them, as they ship."""
    setup.permit_budgets(kube)


@pytest.fixture(scope="module")
def world(kube, exporter, request) -> Iterator[World]:
    """A namespace of the module's own; what its pods take of the nodes is free for the next one."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    made = World(kube, f"{name}-{os.getpid()}", exporter)
    yield made
    kube.delete(f"/api/v1/namespaces/{made.namespace}")


@pytest.fixture(scope="module")
def sharing(world, with_budgets) -> Iterator[Sharing]:
    """The module's services that share budgets; these are deleted in the end."""
    made = Sharing(world)
    yield made
    made.close()


@pytest.fixture(scope="module")
def overseer(cluster, world) -> Iterator[Overseer]:
    with Overseer(cluster.kubeconfig, world.namespace) as one:
        waiting.until(lambda: one.synced)
        yield one


@pytest.fixture(scope="module")
def start(cluster, operator_kubeconfig, world, tmp_path_factory) -> Iterator[Callable[..., Operator]]:
    """Start an operator for the module's namespace; all are stopped in the end."""
    started: list[Operator] = []

    def run(*options: str, **more: Any) -> Operator:
        folder = tmp_path_factory.mktemp("operator")
        lease = ("--lease-name", world.namespace, "--namespace", world.namespace)
        started.append(Operator(operator_kubeconfig, cluster.prometheus_url, folder, *lease, *options, **more))
        return started[-1]

    yield run
    codes = [one.stop() for one in started]
    assert set(codes) <= {0, 1, -signal.SIGKILL}, [one.log.read_text()[-4000:] for one in started]


@pytest.fixture(scope="module")
def operator(start) -> Operator:
    """The module's operator, where it needs no option."""
    return start()


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """So many ports that nobody listens on."""

    def pick(number: int) -> list[int]:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(number)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            return [probe.getsockname()[1] for probe in probes]

    return pick


@pytest.fixture
def free_port(free_ports: Callable[[int], list[int]]) -> int:
    return free_ports(1)[0]
