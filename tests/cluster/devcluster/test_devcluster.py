"""The control plane behaves as a real one: scarcity, cold starts, usage, scraping."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from statistics import median

import pytest
import requests

from rlscaler_dev.cluster import api, kubeconfig
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.exceptions import ApiError
from rlscaler_dev.exposition import ExpositionServer
from tests.harness.waiting import stalls

from .objects import create, deployment, deployments, pods, wait_ready


@pytest.fixture
def client(cluster: ClusterInfo) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as connected:
        yield connected


@pytest.fixture
def namespace(client: KubeClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_until(lambda: bool(client.get(account)), "the default service account", 20)
    yield name
    client.delete(f"/api/v1/namespaces/{name}")


def test_up_again_returns_the_same_cluster(cluster: ClusterInfo) -> None:
    before = api.status(cluster.name)
    assert api.up(cluster.name) == before == api.status(cluster.name)
    assert before.kubeconfig == cluster.kubeconfig


def test_gateway_api_is_served(client: KubeClient) -> None:
    names = {entry["name"] for entry in client.get("/apis/gateway.networking.k8s.io/v1")["resources"]}
    assert {"httproutes", "gateways", "gatewayclasses"} <= names


def test_gpu_pods_beyond_capacity_stay_pending(client: KubeClient, namespace: str) -> None:
    create(client, namespace, deployment("scarce", 20, "gpu"))
    wait_ready(client, namespace, "scarce", 16)

    def waiting() -> list[str]:
        found = [pod for pod in pods(client, namespace, "scarce") if pod["status"]["phase"] == "Pending"]
        return [pod["status"].get("conditions", [{}])[0].get("message", "") for pod in found]

    wait_until(lambda: len(waiting()) == 4 and all(waiting()), "four pods without a node", 20)
    assert all("Insufficient nvidia.com/gpu" in message for message in waiting())


def test_cold_start_follows_flavour_and_annotations(client: KubeClient, namespace: str) -> None:
    slow = {"rlscaler.io/cold-start-min": "3s", "rlscaler.io/cold-start-max": "4s"}
    with stalls() as lost:
        create(client, namespace, deployment("slow", 3, "cpu", slow))
        create(client, namespace, deployment("quick", 3, "cpu"))
        wait_ready(client, namespace, "quick", 3)
        wait_ready(client, namespace, "slow", 3)
    # Kubernetes keeps whole seconds, so one second either way is rounding.
    longest = {"slow": 6 + lost.seconds, "quick": 2 + lost.seconds}
    assert all(2 <= _cold_start_seconds(pod) <= longest["slow"] for pod in pods(client, namespace, "slow"))
    assert all(_cold_start_seconds(pod) <= longest["quick"] for pod in pods(client, namespace, "quick"))


def _cold_start_seconds(pod: dict) -> float:
    when = {entry["type"]: entry["lastTransitionTime"] for entry in pod["status"]["conditions"]}
    ready, scheduled = (datetime.datetime.fromisoformat(when[name]) for name in ("Ready", "PodScheduled"))
    return (ready - scheduled).total_seconds()


def test_pods_of_a_node_that_was_not_heard_of_become_ready_again(client: KubeClient, namespace: str) -> None:
    create(client, namespace, deployment("back", 2))
    wait_ready(client, namespace, "back", 2)
    marked = {}
    for pod in pods(client, namespace, "back"):
        name, conditions = pod["metadata"]["name"], pod["status"]["conditions"]
        lost = [one | ({"status": "False"} if one["type"] == "Ready" else {}) for one in conditions]
        answer = client.merge(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": {"conditions": lost}})
        marked[name] = int(answer["metadata"]["resourceVersion"])

    def again(pod: dict) -> bool:
        ready_now = any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"]["conditions"])
        return ready_now and int(pod["metadata"]["resourceVersion"]) > marked[pod["metadata"]["name"]]

    wait_until(lambda: all(map(again, pods(client, namespace, "back"))), "both pods ready again", 30)


def test_scaling_down_removes_pods(client: KubeClient, namespace: str) -> None:
    create(client, namespace, deployment("shrink", 3))
    wait_ready(client, namespace, "shrink", 3)
    scale = f"{deployments(namespace)}/shrink/scale"
    client.merge(scale, {"spec": {"replicas": 1}})
    wait_until(lambda: len(pods(client, namespace, "shrink")) == 1, "one pod left", 20)


def test_metrics_server_serves_the_usage_of_annotations(client: KubeClient, namespace: str) -> None:
    usage = {"kwok.x-k8s.io/usage-cpu": "250m", "kwok.x-k8s.io/usage-memory": "64Mi"}
    create(client, namespace, deployment("busy", 1, annotations=usage))

    def cpu_nanocores() -> int:
        items = client.get(f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods")["items"]
        return int(items[0]["containers"][0]["usage"]["cpu"].removesuffix("n")) if items else 0

    wait_until(lambda: cpu_nanocores() > 0, "usage from metrics-server", 90, interval_seconds=1)
    assert cpu_nanocores() == pytest.approx(250e6, rel=0.1)


def test_prometheus_scrapes_a_file_that_was_dropped(cluster: ClusterInfo) -> None:
    def samples() -> list[dict]:
        query = {"query": 'emulated_value{job="exporter",pod="chat-0"}[20s]'}
        return requests.get(f"{cluster.prometheus_url}/api/v1/query", params=query, timeout=5).json()["data"]["result"]

    with closing(ExpositionServer(lambda: 'emulated_value{pod="chat-0"} 42\n')) as server:
        target = cluster.add_scrape_target("exporter", server.address)
        try:
            wait_until(lambda: bool(samples()) and len(samples()[0]["values"]) >= 6, "six samples", 60)
        finally:
            target.unlink()
    values = samples()[0]["values"]
    assert values[1][1] == "42"
    pauses = [later - sooner for (sooner, _), (later, _) in pairwise(values)]
    assert median(pauses) == pytest.approx(2, abs=0.5)


def test_without_a_certificate_everything_is_refused(cluster: ClusterInfo) -> None:
    with requests.Session() as session:
        session.verify = str(cluster.state_dir / "pki" / "ca.crt")
        with pytest.raises(ApiError) as refused:
            KubeClient(cluster.server, session).get("/api/v1/namespaces")
    assert refused.value.status == 403


def test_a_cluster_that_the_user_brings_is_left_alone(cluster: ClusterInfo) -> None:
    name, before = f"{cluster.name}-attached", api.status(cluster.name)
    attached = api.up(name, kubeconfig=cluster.kubeconfig)
    try:
        assert (attached.managed, attached.server) == (False, cluster.server)
        assert set(attached.processes) == {"prometheus"}
        assert attached.prometheus_url != cluster.prometheus_url
        assert api.up(name, kubeconfig=cluster.kubeconfig) == attached
    finally:
        assert api.down(name)
    assert api.status(cluster.name) == before


def test_the_kubeconfig_names_the_cluster(cluster: ClusterInfo) -> None:
    assert kubeconfig.read(cluster.kubeconfig)["current-context"] == f"rlscaler-{cluster.name}"
