"""Nodes to choose from, the suggestion server and a second kube-scheduler on the real control plane."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.testbed import Suggestions
from tests.harness.waiting import until


@pytest.fixture(scope="module")
def kube(cluster) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        yield client


@pytest.fixture(scope="module")
def nodes(kube) -> Iterator[list[str]]:
    """Twelve nodes of 16, 32 and 64 cores; each is 5 to 100 ms from the users."""
    made = testbed.nodes(12)
    kube.apply_all(made)
    names = [node["metadata"]["name"] for node in made]

    def ready() -> bool:
        found = {item["metadata"]["name"]: item for item in kube.get("/api/v1/nodes")["items"]}
        states = [
            condition["status"]
            for name in names
            for condition in found.get(name, {}).get("status", {}).get("conditions", [])
            if condition["type"] == "Ready"
        ]
        return states == ["True"] * len(names)

    until(ready)
    yield names
    for name in names:
        kube.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def namespace(kube, request) -> Iterator[str]:
    name = f"place-{os.getpid()}-{abs(hash(request.node.name)) % 10_000}"
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    for item in kube.get(f"/api/v1/namespaces/{name}/pods")["items"]:
        kube.request("DELETE", f"/api/v1/namespaces/{name}/pods/{item['metadata']['name']}?gracePeriodSeconds=0", None)
    kube.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def server(cluster, nodes, tmp_path) -> Iterator[Callable[..., Suggestions]]:
    """Start a suggestion server with these options."""
    started: list[Suggestions] = []

    def start(*options: str, port: int | None = None) -> Suggestions:
        started.append(Suggestions(cluster.kubeconfig, tmp_path, *options, port=port))
        until(started[-1].ready, 180)
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path
