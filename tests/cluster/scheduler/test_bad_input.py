"""Pods, nodes, models and metrics that are not as they should be: what gets a node does, and it is said what acted."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from rlscaler_core.placement.policies import Policy
from rlscaler_dev.exceptions import ApiError
from rlscaler_dev.exposition import ExpositionServer
from rlscaler_dev.placement.testbed import bound, pod, second_scheduler
from rlscaler_rl.placement.dqn import Options, train
from rlscaler_scheduler.objects import LATENCY, LATENCY_UNTIL
from tests.cluster.scheduler.test_node_metrics import exposition
from tests.harness.scraping import prometheus
from tests.harness.waiting import until

EVENTS = {"plugin": True, "events": True, "timeout_ms": 5000}


def said(kube, namespace: str, name: str) -> str:
    """Messages of the Events that say why a pod was put where it is."""
    items = kube.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    named = (one for one in items if one["involvedObject"]["name"] == name and one["reason"] == "NodeSuggested")
    return " ".join(one["message"] for one in named)


@pytest.mark.parametrize("plugin", [True, False])
def test_a_pod_that_fits_nowhere_waits_with_a_reason_and_holds_up_no_other(
    cluster, kube, server, namespace, folder, plugin
):
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=5000, plugin=plugin):
        assert kube.create(pod("huge", namespace, "65"))
        for index in range(5):
            assert kube.create(pod(f"p-{index}", namespace))
        until(lambda: len(bound(kube, namespace)) == 5, 120)

        def why() -> str:
            item = kube.get(f"/api/v1/namespaces/{namespace}/pods/huge")
            found = item["status"].get("conditions", [])
            return " ".join(one.get("message", "") for one in found if one["type"] == "PodScheduled")

        assert "Insufficient cpu" in until(why, 60)
        assert "huge" not in bound(kube, namespace)


@pytest.mark.parametrize("plugin", [True, False])
def test_absurd_pods_of_one_tenant_hold_up_no_other(cluster, kube, server, namespace, folder, plugin):
    """The API server takes all of them, save for what it may refuse by itself."""
    absurd = [
        pod("index", namespace, annotations={"rlscaler.io/gpu-index": "9" * 5000}),
        pod("cores", namespace, cpu="1e400"),
        pod("bytes", namespace, memory="1e400"),
        pod("shares", namespace, **{"rlscaler.io/gpu-milli": "1000000000000000000000"}),
    ]
    taken = []
    for body in absurd:
        with suppress(ApiError):
            kube.create(body)
            taken.append(body["metadata"]["name"])
    assert {"index", "cores", "bytes"} <= set(taken)
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=5000, plugin=plugin):
        others = {f"p-{index}" for index in range(5)}
        for name in sorted(others):
            assert kube.create(pod(name, namespace))
        until(lambda: others <= set(bound(kube, namespace)), 120)
        assert suggestions.ready()
        by = {one["pod"]: one["by"] for one in suggestions.get("/suggestions")["suggestions"]}
        assert {by.get(name) for name in others} == {"rule"}


def test_where_the_latency_app_is_dead_on_half_of_the_nodes_the_other_half_is_preferred(
    cluster, kube, server, namespace, folder, nodes
):
    items = {item["metadata"]["name"]: item for item in kube.get("/api/v1/nodes")["items"]}
    latency = {name: float(items[name]["metadata"]["annotations"][LATENCY]) for name in nodes}
    by_latency = sorted(nodes, key=lambda name: latency[name])
    dead, alive = set(by_latency[::2]), by_latency[1::2]
    wish = {"latencySoftConstraint": str(latency[alive[2]]), "latencyHardConstraint": str(latency[alive[3]])}
    try:
        for name in dead:
            ended = {"metadata": {"annotations": {LATENCY_UNTIL: "2020-01-01T00:00:00Z"}}}
            kube.merge(f"/api/v1/nodes/{name}", ended)
        suggestions = server("--policy", "EL")
        with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **EVENTS):
            for index in range(6):
                assert kube.create(pod(f"p-{index}", namespace, annotations=wish))
            found = until(lambda: (seen := bound(kube, namespace)) and len(seen) == 6 and seen, 120)
            assert set(found.values()) <= set(alive[:3]), "measured, and below the soft limit"
            for name in alive:
                kube.merge(f"/api/v1/nodes/{name}", ended)
            assert kube.create(pod("blind", namespace, annotations=wish))
            until(lambda: "blind" in bound(kube, namespace), 120)
    finally:
        for name in nodes:
            whole = {"metadata": {"annotations": {LATENCY_UNTIL: None}}}
            kube.merge(f"/api/v1/nodes/{name}", whole)


def test_the_rule_acts_for_a_network_that_was_made_for_other_features(
    cluster, kube, server, namespace, folder, tmp_path
):
    models = tmp_path / "models"
    train(Options(Policy.EE, steps=300, clusters=2, nodes=(3,), looks=1)).save(models)
    manifest = json.loads((models / "EE.json").read_text())
    (models / "EE.json").write_text(json.dumps(manifest | {"columns": manifest["columns"][:-1]}))
    suggestions = server("--policy", "EE", "--model-dir", str(models))
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **EVENTS):
        assert kube.create(pod("p", namespace))
        until(lambda: bound(kube, namespace), 120)
        text = until(lambda: said(kube, namespace, "p"), 60)
    assert "suggested for EE by the rule pack" in text
    assert "train it again; until then the rule of EE acts" in text


def test_load_is_balanced_by_requests_while_prometheus_is_gone(
    cluster, kube, server, namespace, folder, nodes, monkeypatch
):
    monkeypatch.setenv("RLSCALER_SCHEDULER_NODE_METRICS_SECONDS", "1")
    monkeypatch.setenv("RLSCALER_SCHEDULER_NODE_METRICS_AGE_SECONDS", "15")
    exporter = ExpositionServer(lambda: exposition(nodes, 1000.0))
    try:
        with prometheus([(exporter.address, {})], honor_labels=True) as url:
            suggestions = server("--policy", "LB", "--balance", "use", "--prometheus-url", url)
            until(lambda: "rlscaler_scheduler_nodes_measured 12.0" in suggestions.metrics(), 60)
        until(lambda: "rlscaler_scheduler_nodes_measured 0.0" in suggestions.metrics(), 60)
        with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **EVENTS):
            assert kube.create(pod("p", namespace))
            until(lambda: bound(kube, namespace), 120)
            text = until(lambda: said(kube, namespace, "p"), 60)
    finally:
        exporter.close()
    assert "by the rule spread" in text
    assert "no node has fresh metrics: spread acts, by requests" in text
    assert "node metrics cannot be read: Prometheus cannot be reached" in (folder / "suggestions.log").read_text()
