"""The real node: containers, DNS, discovery, GPUs, traffic by weight, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import requests

from rlscaler_dev.cluster import api, binaries, paths, processes, state
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.realnode import cgroups, namespace
from rlscaler_dev.cluster.realnode.node import REAL
from rlscaler_dev.exceptions import DevClusterError
from tests.e2e import real_objects as objects
from tests.e2e.real_objects import NAMESPACE, Json
from tests.harness.control_plane import own_cluster
from tests.harness.waiting import until

pytestmark = pytest.mark.e2e

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATEWAY = f"/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}"
REQUESTS = 200


def host_traces() -> dict[str, Any]:
    """What a node could leave on the host: mounts, interfaces, firewall rules, cgroups, sysctls."""
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True)
    watched = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {
        "mounts": sorted(mount for mount in mounts if not Path(mount).is_relative_to(paths.images_dir())),
        "interfaces": sorted(entry.name for entry in Path("/sys/class/net").iterdir()),
        "rules": rules.stdout,
        "cgroups": sorted(str(entry) for entry in Path("/sys/fs/cgroup").glob(f"**/*pytest-{os.getpid()}-*")),
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in watched},
    }


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    """The host before the first node started."""
    return host_traces()


@pytest.fixture(scope="module")
def cluster(before: dict[str, Any]) -> Iterator[ClusterInfo]:
    with own_cluster("real", gpu_nodes=1, cpu_nodes=1, node=REAL) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: ClusterInfo) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as made:
        for path, manifest in objects.discovery():
            made.request("POST", path, manifest)
        yield made


@pytest.fixture(scope="module")
def web(client: KubeClient) -> Json:
    """Two Deployments behind Services, ready."""
    for name in ("web", "other"):
        client.request("POST", SERVICES, objects.service(name))
        client.request("POST", DEPLOYMENTS, objects.prometheus(name))
    until(lambda: ready(client, "web") == ready(client, "other") == 1, 90)
    return pods(client, "web")[0]


def ready(client: KubeClient, name: str) -> int:
    return int(client.get(f"{DEPLOYMENTS}/{name}")["status"].get("readyReplicas", 0))


def pods(client: KubeClient, name: str) -> list[Json]:
    found: list[Json] = client.get(f"{PODS}?labelSelector=app%3D{name}")["items"]
    return found


FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


def fetch(cluster: ClusterInfo, pod: Json, path: str) -> str:
    """GET from a pod's port 9090, from inside the node."""
    command = [sys.executable, "-c", FETCH, f"http://{pod['status']['podIP']}:9090{path}"]
    return subprocess.run(api.inside(cluster.name, command), capture_output=True, text=True, check=True).stdout


def query(cluster: ClusterInfo, pod: Json, expression: str) -> list[Json]:
    """Ask the Prometheus in a pod, from inside the node."""
    answer = fetch(cluster, pod, f"/api/v1/query?query={quote(expression)}")
    found: list[Json] = json.loads(answer)["data"]["result"]
    return found


def members(cluster: ClusterInfo) -> set[psutil.Process]:
    """All processes of the cluster, those of the containers included, as the host sees them."""
    recorded = {psutil.Process(pid) for pid in cluster.processes.values()}
    return recorded | {inner for each in recorded for inner in each.children(recursive=True)}


def program(cluster: ClusterInfo) -> psutil.Process:
    """The first process of one of the containers."""
    return next(each for each in members(cluster) if first_argument(each) == "/bin/prometheus")


def first_argument(process: psutil.Process) -> str:
    """Empty for a process that has ended meanwhile."""
    try:
        return next(iter(process.cmdline()), "")
    except psutil.NoSuchProcess:
        return ""


def test_the_node_is_ready_in_seconds_beside_the_played_ones(cluster: ClusterInfo, client: KubeClient) -> None:
    assert cluster.start_seconds < 120
    nodes = {node["metadata"]["name"]: node for node in client.get("/api/v1/nodes")["items"]}
    assert set(nodes) == {"real-1", "gpu-1", "cpu-1"}
    assert nodes["real-1"]["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert nodes["gpu-1"]["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("kwok")
    assert api.status(cluster.name) == cluster
    assert api.up(cluster.name, gpu_nodes=1, cpu_nodes=1) == cluster
    with pytest.raises(DevClusterError, match="runs with --node real"):
        api.up(cluster.name, node="kwok")


def test_pods_run_as_containers_with_least_privilege(cluster: ClusterInfo, client: KubeClient, web: Json) -> None:
    assert web["spec"]["nodeName"] == "real-1"
    log = client.get(f"{PODS}/{web['metadata']['name']}/log")
    assert "Server is ready to receive web requests" in log
    kubectl = [binaries.provide(["kubectl"], Reporter())["kubectl"]["path"], f"--kubeconfig={cluster.kubeconfig}"]
    executed = [*kubectl, "exec", "-n", NAMESPACE, web["metadata"]["name"], "--", "/bin/prometheus", "--version"]
    done = subprocess.run(executed, capture_output=True, text=True, check=True)
    assert "prometheus, version 3." in done.stdout + done.stderr
    assert program(cluster).uids().real == 65534


def test_pods_keep_to_the_cpus_that_the_cluster_was_started_on(cluster: ClusterInfo, web: Json) -> None:
    assert set(program(cluster).cpu_affinity()) <= os.sched_getaffinity(0)


def test_prometheus_as_a_pod_discovers_pods_and_cadvisor_and_resolves_names(cluster: ClusterInfo, web: Json) -> None:
    def up() -> dict[str, int]:
        found: dict[str, int] = {}
        for series in query(cluster, web, "up == 1"):
            found[series["metric"]["job"]] = found.get(series["metric"]["job"], 0) + 1
        return found

    until(lambda: up() == {"pods": 2, "cadvisor": 1, "by-name": 1}, 30)
    usage = f'sum by (pod) (container_memory_working_set_bytes{{namespace="{NAMESPACE}",container="app"}})'
    until(lambda: len(query(cluster, web, usage)) == 2, 30)


def test_metrics_server_knows_real_pods(cluster: ClusterInfo, client: KubeClient, web: Json) -> None:
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods/{web['metadata']['name']}"
    assert until(lambda: client.get(path)["containers"][0]["usage"], 90)["memory"] != "0"


def test_as_many_gpu_pods_run_as_the_node_pretends_to_have_gpus(client: KubeClient) -> None:
    client.request("POST", DEPLOYMENTS, objects.gpu_pods(18))
    until(lambda: ready(client, "gpu") == 16, 120)
    waiting = [pod for pod in pods(client, "gpu") if pod["status"]["phase"] == "Pending"]
    conditions = [pod["status"]["conditions"][0]["message"] for pod in waiting]
    assert len(waiting) == 2
    assert all("Insufficient nvidia.com/gpu" in message for message in conditions)
    client.delete(f"{DEPLOYMENTS}/gpu")


def share(cluster: ClusterInfo, client: KubeClient) -> dict[str, int]:
    """How many of REQUESTS through the gateway each Service's pod answered, by its own count."""

    def counts() -> dict[str, int]:
        return {name: answered(cluster, pods(client, name)[0]) for name in ("web", "other")}

    start = counts()
    with requests.Session() as session:
        for _ in range(REQUESTS):
            assert session.get(f"{cluster.gateway_url}/api/v1/status/buildinfo", timeout=10).status_code == 200
    end = counts()
    return {name: end[name] - start[name] for name in start}


def answered(cluster: ClusterInfo, pod: Json) -> int:
    counter = r'^prometheus_http_requests_total\{code="200",handler="/api/v1/status/buildinfo"\} (\d+)'
    found = re.search(counter, fetch(cluster, pod, "/metrics"), re.MULTILINE)
    return int(found[1]) if found else 0


def test_traffic_follows_the_weights_of_the_route(cluster: ClusterInfo, client: KubeClient, web: Json) -> None:
    client.request("POST", f"{GATEWAY}/gateways", objects.gateway())
    client.request("POST", f"{GATEWAY}/httproutes", objects.route({"web": 4, "other": 1}))
    until(lambda: requests.get(f"{cluster.gateway_url}/-/ready", timeout=5).ok, 30)
    assert share(cluster, client) == {"web": REQUESTS * 4 // 5, "other": REQUESTS // 5}
    patch = {"spec": objects.route({"web": 0, "other": 1})["spec"]}
    client.merge(f"{GATEWAY}/httproutes/web", patch)
    until(lambda: share(cluster, client) == {"web": 0, "other": REQUESTS}, 30)


def test_killing_the_first_process_ends_all_others_and_down_leaves_nothing(
    cluster: ClusterInfo, web: Json, before: dict[str, Any]
) -> None:
    assert host_traces()["mounts"] == before["mounts"]
    assert host_traces()["rules"] == before["rules"]
    assert host_traces()["sysctls"] == before["sysctls"]
    everything = members(cluster)
    assert program(cluster) in everything
    psutil.Process(cluster.processes[namespace.NAMESPACE]).children()[0].kill()
    until(lambda: not any(alive(process) for process in everything), 20)
    assert api.down(cluster.name)
    assert host_traces() == before
    assert processes.strays(cluster.state_dir) == []
    assert not paths.cluster_dir(cluster.name).exists()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_start_that_was_killed_is_cleaned_by_down(before: dict[str, Any]) -> None:
    name = f"pytest-{os.getpid()}-killed"
    up = "import sys; from rlscaler_dev.cluster import api; api.up(sys.argv[1], node='real')"
    with subprocess.Popen([sys.executable, "-c", up, name]) as starting:
        wait_until(lambda: bool(cgroups.remaining(name)) and bool(state.load(name)), "a half-started node", 60, 0.01)
        until(lambda: (known := state.load(name)) and known.process("containerd"), 60)
        starting.kill()
    assert api.down(name)
    assert host_traces() == before
