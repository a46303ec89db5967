"""What goes wrong beside the real kube-scheduler: every pod gets a node, and hard limits hold where the plugin is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest
import requests

from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.testbed import bound, pod, second_scheduler
from rlscaler_scheduler.objects import LATENCY
from tests.harness.faulty import Fault, faulty_server
from tests.harness.pod_delays import Delays
from tests.harness.serving import Quiet, serving
from tests.harness.waiting import until

PODS = 30
TIMEOUT_S = 2.0
SLACK_S = 20.0
"""How much longer than without a fault a pod may wait on a machine that is busy."""


def small(namespace: str, name: str, **annotations: str) -> dict:
    return pod(name, namespace, "10m", "8Mi", annotations=annotations)


def limited(kube, namespace: str, nodes: list[str]) -> set[str]:
    """Give the namespace a hard latency that a quarter of the nodes keep; their names."""
    items = {item["metadata"]["name"]: item for item in kube.get("/api/v1/nodes")["items"]}
    latency = {name: float(items[name]["metadata"]["annotations"][LATENCY]) for name in nodes}
    third = sorted(latency.values())[2]
    patch = {"metadata": {"annotations": {"rlscaler.io/latency-hard-ms": str(third)}}}
    path = f"/api/v1/namespaces/{namespace}"
    kube.merge(path, patch)
    return {name for name, value in latency.items() if value <= third}


@pytest.mark.parametrize("fault", Fault)
def test_with_the_plugin_the_limit_holds_and_few_pods_wait_for_a_faulty_server(
    cluster, kube, nodes, namespace, folder, fault
):
    near = limited(kube, namespace, nodes)
    with (
        faulty_server(fault) as url,
        second_scheduler(cluster.kubeconfig, url, folder, plugin=True, timeout_ms=int(1000 * TIMEOUT_S)) as scheduler,
        Delays(kube, namespace) as delays,
    ):
        until(scheduler.metrics, 60)
        kube.apply_all([small(namespace, f"p-{index}") for index in range(PODS)])
        assert delays.wait(PODS, 180)
        asked = scheduler.asked()
    assert set(delays.nodes().values()) <= near
    assert asked["failed"] + asked.get("breaker_open", 0) == PODS
    assert 1 <= asked["failed"] <= 5, "while the breaker is open nobody waits"
    assert max(delays.seconds().values()) < asked["failed"] * TIMEOUT_S + SLACK_S


def test_with_the_plugin_the_limit_holds_after_the_server_was_killed(cluster, kube, server, nodes, namespace, folder):
    near = limited(kube, namespace, nodes)
    suggestions = server("--policy", "LB")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, plugin=True, timeout_ms=5000):
        kube.apply_all([small(namespace, f"before-{index}") for index in range(5)])
        until(lambda: len(bound(kube, namespace)) == 5, 120)
        suggestions.send(signal.SIGKILL)
        kube.apply_all([small(namespace, f"after-{index}") for index in range(PODS)])
        until(lambda: len(bound(kube, namespace)) == PODS + 5, 120)
    assert set(bound(kube, namespace).values()) <= near


@pytest.mark.parametrize("fault", Fault)
def test_with_the_extender_every_pod_gets_a_node_beside_a_faulty_server(cluster, kube, nodes, namespace, folder, fault):
    with (
        faulty_server(fault) as url,
        second_scheduler(cluster.kubeconfig, url, folder, timeout_ms=100),
        Delays(kube, namespace) as delays,
    ):
        # Without a limit only `prioritize` is decisive; with one `filter` is ignorable and cannot enforce it.
        kube.apply_all([small(namespace, f"p-{index}", latencyHardConstraint="0.5") for index in range(PODS)])
        assert delays.wait(PODS, 180)
    # filter and prioritize wait for 100 ms each, one pod after the other.
    assert max(delays.seconds().values()) < PODS * 0.2 + SLACK_S + 10


def test_with_the_extender_a_thousand_pods_at_once_get_nodes(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    kube.apply_all([small(namespace, f"p-{index}") for index in range(1000)])
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=5000):
        until(lambda: len(bound(kube, namespace)) == 1000, 300)
    assert 'by="rule",policy="EE"' in suggestions.metrics()


@pytest.mark.parametrize("plugin", [True, False])
def test_wrong_annotations_are_said_and_what_acts_instead(cluster, kube, server, namespace, folder, plugin):
    suggestions = server("--policy", "EL")
    above = {"rlscaler.io/latency-soft-ms": "90", "rlscaler.io/latency-hard-ms": "1000"}
    wishes = {
        "text": {"rlscaler.io/latency-soft-ms": "near", "rlscaler.io/latency-hard-ms": "far"},
        "above": above | {"rlscaler.io/latency-soft-ms": "2000"},
        "policy": {"rlscaler.io/scoring-policy": "BEST"},
    }
    options = {"plugin": True, "events": True} if plugin else {}
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=5000, **options):
        for name, annotations in wishes.items():
            assert kube.create(small(namespace, name, **annotations))
        until(lambda: len(bound(kube, namespace)) == len(wishes), 120)

        def said(name: str) -> str:
            if not plugin:
                return " ".join(suggestions.get(f"/suggestions?namespace={namespace}&pod={name}")["problems"])
            items = kube.get(f"/api/v1/namespaces/{namespace}/events")["items"]
            named = (one for one in items if one["involvedObject"]["name"] == name and one["reason"] == "NodeSuggested")
            return " ".join(one["message"] for one in named)

        assert "there is no such limit" in until(lambda: said("text"), 60)
        assert "the hard limit alone acts" in until(lambda: said("above"), 60)
        assert "EL acts" in until(lambda: said("policy"), 60)


@contextmanager
def before_the_answer(url: str, act) -> Iterator[str]:
    """The URL of a server that passes all on, and calls `act` once between the first answer and kube-scheduler."""
    acted = Event()

    class Between(Quiet):
        def do_GET(self) -> None:  # noqa: N802
            self._pass(requests.get(url + self.path, timeout=30))

        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = requests.post(url + self.path, data=body, timeout=30)
            if answer.status_code == 200 and not acted.is_set():
                acted.set()
                act()
            self._pass(answer)

        def _pass(self, answer: requests.Response) -> None:
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    with serving(Between) as made:
        yield made


def test_a_node_that_vanishes_before_the_bind_is_not_suggested_again(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    gone: list[str] = []

    def vanish() -> None:
        gone.append(suggestions.get("/suggestions")["suggestions"][0]["node"])
        kube.delete(f"/api/v1/nodes/{gone[0]}")

    try:
        with (
            before_the_answer(suggestions.url, vanish) as url,
            second_scheduler(cluster.kubeconfig, url, folder, plugin=True, timeout_ms=30_000),
        ):
            assert kube.create(small(namespace, "first"))
            until(lambda: gone and bound(kube, namespace).get("first"), 120)
            until(lambda: f"rlscaler_scheduler_nodes {11 + _others(kube)}.0" in suggestions.metrics(), 60)
            for index in range(5):
                assert kube.create(small(namespace, f"p-{index}"))
            names = {f"p-{index}" for index in range(5)}
            until(lambda: names <= bound(kube, namespace).keys(), 120)
            found = bound(kube, namespace)
        assert gone[0] not in {found[name] for name in names}
        # kube-scheduler binds to the node that it saw, as it does without suggestions; the pod is collected with it.
        assert found.get("first", gone[0]) == gone[0]
    finally:
        kube.apply_all(testbed.nodes(12))


def _others(kube) -> int:
    """Nodes of the cluster beside those of these tests."""
    return sum(not item["metadata"]["name"].startswith("place-") for item in kube.get("/api/v1/nodes")["items"])
