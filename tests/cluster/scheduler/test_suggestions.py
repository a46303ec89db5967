"""Pods that the real kube-scheduler binds where the suggestion server says, and binds all the same without it."""

from __future__ import annotations

import json
import signal
import time

import requests

from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.testbed import SIZES, bound, pod, second_scheduler
from rlscaler_scheduler.objects import LATENCY
from tests.harness.waiting import until

CORES = {f"place-{index:04d}": SIZES[index % len(SIZES)][0] for index in range(12)}


def place(kube, namespace: str, pods, seconds: float = 60.0) -> dict[str, str]:
    """Create the pods and wait until all are bound."""
    for one in pods:
        assert kube.create(one)
    return until(lambda: (found := bound(kube, namespace)) and len(found) == len(pods) and found, seconds)


def test_pods_are_packed_on_the_biggest_node(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE", "--decision-log", str(folder / "decisions.jsonl"))
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        found = place(kube, namespace, [pod(f"p-{index}", namespace) for index in range(30)])
    assert len(set(found.values())) == 1, "30 pods of one core fit one node of 64 cores"
    assert CORES[found["p-0"]] == 64
    lines = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    said = {line["pod"]: line["node"] for line in lines}
    assert said == found, "every pod is where its last suggestion was"
    assert {line["by"] for line in lines} == {"rule"}
    assert 'rlscaler_scheduler_suggestions_total{by="rule",policy="EE"}' in suggestions.metrics()


def test_load_is_balanced(cluster, kube, server, namespace, folder):
    suggestions = server()
    wish = {"rlscaler.io/scoring-policy": "LB"}
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        found = place(kube, namespace, [pod(f"p-{i}", namespace, annotations=wish) for i in range(28)])
    shares = [list(found.values()).count(name) / cores for name, cores in CORES.items()]
    # 28 pods of one core on 448 cores: 1/16 everywhere is possible, so one, two and four pods by size.
    assert max(shares) == min(shares) == 1 / 16


def test_hard_latency_filters_and_soft_latency_scores(cluster, kube, server, namespace, folder, nodes):
    latency = {
        item["metadata"]["name"]: float(item["metadata"]["annotations"][LATENCY])
        for item in kube.get("/api/v1/nodes")["items"]
        if item["metadata"]["name"] in nodes
    }
    nearest = sorted(latency.values())
    soft, hard = nearest[2], nearest[5]
    wish = {"latencySoftConstraint": str(soft), "latencyHardConstraint": str(hard)}
    suggestions = server("--policy", "EL")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        found = place(kube, namespace, [pod(f"p-{i}", namespace, "4", annotations=wish) for i in range(8)])
        assert all(latency[node] <= soft for node in found.values())
        impossible = pod("nowhere", namespace, annotations={"latencyHardConstraint": str(nearest[0] / 2)})
        kube.create(impossible)

        def why() -> str:
            item = kube.get(f"/api/v1/namespaces/{namespace}/pods/nowhere")
            return " ".join(c.get("message", "") for c in item["status"].get("conditions", []))

        assert "above the hard limit" in until(lambda: "hard limit" in why() and why())


def test_wrong_annotations_are_said_and_the_pod_is_placed(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EL")
    wish = {"latencySoftConstraint": "near", "latencyHardConstraint": "-1", "rlscaler.io/scoring-policy": "BEST"}
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        place(kube, namespace, [pod("p", namespace, annotations=wish)])
    said = suggestions.get(f"/suggestions?namespace={namespace}&pod=p")
    assert len(said["problems"]) == 3
    assert said["policy"] == "EL"


def test_shares_of_gpus_are_packed(cluster, kube, server, namespace, folder):
    made = testbed.nodes(15, gpus=2)[12:]
    kube.apply_all(made)
    names = {node["metadata"]["name"] for node in made}
    try:
        suggestions = server("--policy", "GPU")
        with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
            shares = {"rlscaler.io/gpu-milli": "500"}
            found = place(kube, namespace, [pod(f"p-{index}", namespace, **shares) for index in range(4)])
        assert set(found.values()) <= names
        assert len(set(found.values())) == 1, "four halves fit the two GPUs of one node"
    finally:
        for name in names:
            kube.delete(f"/api/v1/nodes/{name}")


def test_an_override_needs_the_token_and_moves_a_pod(cluster, kube, server, namespace, folder):
    token = folder / "token"
    token.write_text("secret\n")
    suggestions = server("--policy", "EE", "--token-file", str(token))
    wanted = {"namespace": namespace, "pod": "p", "node": "place-0000", "seconds": 60}
    url = f"{suggestions.url}/suggestions"
    assert requests.put(url, json=wanted, timeout=5).status_code == 401
    owner = {"Authorization": "Bearer secret"}
    assert requests.put(url, json=wanted | {"seconds": -1}, headers=owner, timeout=5).status_code == 400
    assert requests.put(url, json=wanted, headers=owner, timeout=5).status_code == 200
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        found = place(kube, namespace, [pod("p", namespace), pod("q", namespace)])
    assert found["p"] == "place-0000"
    assert suggestions.get(f"/suggestions?namespace={namespace}&pod=p")["by"] == "override"
    assert suggestions.get("/suggestions")["overrides"][0]["node"] == "place-0000"


def test_pods_are_scheduled_while_the_server_is_killed_and_comes_back(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder):
        names = [f"p-{index}" for index in range(60)]
        for index, name in enumerate(names):
            assert kube.create(pod(name, namespace, "100m", "64Mi"))
            if index == 20:
                suggestions.send(signal.SIGKILL)
            if index == 40:
                server("--policy", "EE", port=suggestions.port)
        found = until(lambda: (seen := bound(kube, namespace)) and len(seen) == len(names) and seen, 60)
    assert set(found) == set(names)


def test_a_server_that_hangs_costs_each_pod_its_timeout_and_no_more(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=200):
        place(kube, namespace, [pod("first", namespace)])
        suggestions.send(signal.SIGSTOP)
        began = time.monotonic()
        for index in range(10):
            assert kube.create(pod(f"p-{index}", namespace))
        until(lambda: len(bound(kube, namespace)) == 11, 60)
        took = time.monotonic() - began
        suggestions.send(signal.SIGCONT)
    # filter and prioritize each wait for 200 ms: 4 s for ten pods one after the other.
    assert took < 4.0 + 10.0


def test_the_hard_limit_holds_without_the_server_where_that_is_asked_for(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EL")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, strict=True):
        place(kube, namespace, [pod("first", namespace)])
        suggestions.send(signal.SIGKILL)
        kube.create(pod("second", namespace))
        until(
            lambda: (
                "extender" in str(kube.get(f"/api/v1/namespaces/{namespace}/events"))
                or "connection refused" in str(kube.get(f"/api/v1/namespaces/{namespace}/pods/second")["status"])
            )
        )
        assert "second" not in bound(kube, namespace)
        server("--policy", "EL", port=suggestions.port)
        until(lambda: "second" in bound(kube, namespace), 90)
