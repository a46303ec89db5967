"""The score plugin in the real kube-scheduler: where it puts pods, and what happens while the server is away."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import pytest

from rlscaler_dev.cluster import toolchain
from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.placement.testbed import SIZES, bound, pod, second_scheduler
from rlscaler_scheduler.objects import LATENCY, LATENCY_UNTIL
from rlscaler_scheduler.replay import repeat
from tests.harness.faulty import Fault, faulty_server
from tests.harness.serving import Quiet, serving
from tests.harness.waiting import until

CORES = {f"place-{index:04d}": SIZES[index % len(SIZES)][0] for index in range(12)}


def create(kube, namespace: str, pods) -> None:
    """Create the pods, and wait until all pods of the namespace are bound."""
    for one in pods:
        assert kube.create(one)
    count = len(kube.get(f"/api/v1/namespaces/{namespace}/pods")["items"])
    until(lambda: len(bound(kube, namespace)) == count, 300)


def small(namespace: str, start: int, count: int):
    return [pod(f"p-{index}", namespace, "10m", "8Mi") for index in range(start, start + count)]


@contextmanager
def answering(answer: Callable[[int, bytes], tuple[int, bytes]]) -> Iterator[str]:
    """The URL of a ready server with these answers: status and body for a number of nodes and the question."""

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802
            self.answer(200, b"")

        def do_POST(self) -> None:  # noqa: N802
            question = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(*answer(int.from_bytes(question[4:8], "little"), question))

    with serving(Handler) as url:
        yield url


def said(kube, namespace: str) -> list[str]:
    """The texts of the Events that say why."""
    items = kube.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return [item["message"] for item in items if item["reason"] == "NodeSuggested"]


def test_its_parts_by_themselves(tmp_path):
    """What needs no cluster, in Go."""
    folder = shutil.copytree(
        str(resources.files("rlscaler_dev.cluster").joinpath("tools", "scheduler")), tmp_path / "go"
    )
    shutil.copy(Path(__file__).with_name("plugin_test.go"), folder)
    go = toolchain.find(Reporter(), "scheduler")
    command = [str(go.command), "test", "-vet=off", "."]
    done = subprocess.run(command, cwd=folder, env=go.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_thousand_pods_at_once_are_packed_as_suggested(cluster, kube, server, namespace, folder):
    log = folder / "decisions.jsonl"
    suggestions = server("--policy", "EE", "--decision-log", str(log), "--decision-log-inputs")
    kube.apply_all(small(namespace, 0, 1000))
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, plugin=True, timeout_ms=5000) as scheduler:
        until(lambda: len(bound(kube, namespace)) == 1000, 300)
        results = scheduler.asked()
    assert results["suggested"] >= 1000
    assert not results.get("failed")
    used = set(bound(kube, namespace).values())
    # 110 pods fit a node: ten are needed, and the biggest of twelve are opened first.
    assert len(used) == 10
    assert {name for name, cores in CORES.items() if cores == 64} <= used
    again = repeat(log.read_text().splitlines(), {})
    assert again.same >= 1000
    assert not again.different


def test_load_is_balanced_over_pods_that_are_only_assumed(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "LB")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, plugin=True, timeout_ms=5000):
        create(kube, namespace, [pod(f"p-{index}", namespace) for index in range(28)])
    shares = [list(bound(kube, namespace).values()).count(name) / cores for name, cores in CORES.items()]
    assert max(shares) == min(shares) == 1 / 16


def test_a_hard_latency_needs_no_server(cluster, kube, namespace, folder, nodes):
    latency = {
        item["metadata"]["name"]: float(item["metadata"]["annotations"][LATENCY])
        for item in kube.get("/api/v1/nodes")["items"]
        if item["metadata"]["name"] in nodes
    }
    third = sorted(latency.values())[2]
    kube.merge(
        f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": {"rlscaler.io/latency-hard-ms": f"{third}"}}}
    )
    nowhere = pod("nowhere", namespace, annotations={"latencyHardConstraint": "0.5"})
    anywhere = [pod(f"any-{text}", namespace, annotations={"latencyHardConstraint": text}) for text in ("inf", "far")]
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with second_scheduler(cluster.kubeconfig, url, folder, plugin=True):
        create(kube, namespace, [pod(f"p-{index}", namespace) for index in range(8)] + anywhere)
        found = bound(kube, namespace)
        assert all(latency[found[f"p-{index}"]] <= third for index in range(8)), "the limit of the namespace"
        kube.create(nowhere)

        def why() -> str:
            item = kube.get(f"/api/v1/namespaces/{namespace}/pods/nowhere")
            return " ".join(c.get("message", "") for c in item["status"].get("conditions", []))

        assert "above the hard limit 0.5 ms" in until(lambda: "hard limit" in why() and why())
        nearest = min(latency, key=lambda name: latency[name])
        measured = {"metadata": {"annotations": {LATENCY: "0.1"}}}
        kube.merge(f"/api/v1/nodes/{nearest}", measured)
        until(lambda: bound(kube, namespace).get("nowhere") == nearest, 120)
        restored = {"metadata": {"annotations": {LATENCY: str(latency[nearest])}}}
        kube.merge(f"/api/v1/nodes/{nearest}", restored)
        farthest = max(latency, key=lambda name: latency[name])
        kube.create(pod("later", namespace, annotations={"latencyHardConstraint": "0.5"}))
        until(lambda: "hard limit" in str(kube.get(f"/api/v1/namespaces/{namespace}/pods/later")["status"]))
        for end in ("2020-01-01T00:00:00Z", None):
            ended = {"metadata": {"annotations": {LATENCY_UNTIL: end}}}
            kube.merge(f"/api/v1/nodes/{farthest}", ended)
            until(lambda: bound(kube, namespace).get("later") == farthest, 120)


def test_suggestions_go_on_when_a_killed_server_is_back(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, plugin=True, timeout_ms=5000) as scheduler:
        create(kube, namespace, small(namespace, 0, 5))
        assert scheduler.asked() == {"suggested": 5}
        suggestions.send(signal.SIGKILL)
        create(kube, namespace, small(namespace, 5, 5))
        away = scheduler.asked()
        assert away["suggested"] == 5
        assert away["failed"] + away.get("breaker_open", 0) == 5
        server("--policy", "EE", port=suggestions.port)
        until(lambda: "rlscaler_plugin_breaker_open 0" in scheduler.metrics(), 60)
        create(kube, namespace, small(namespace, 10, 5))
        assert scheduler.asked()["suggested"] == 10, "the names of the nodes were sent again"


def test_one_pod_waits_for_a_server_that_hangs_and_the_others_do_not(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, plugin=True, timeout_ms=1000) as scheduler:
        create(kube, namespace, small(namespace, 0, 2))
        until(lambda: "rlscaler_plugin_breaker_open 0" in scheduler.metrics(), 60)
        before = scheduler.asked()
        suggestions.send(signal.SIGSTOP)
        create(kube, namespace, small(namespace, 2, 30))
        after = scheduler.asked()
        suggestions.send(signal.SIGCONT)
        assert after["failed"] - before.get("failed", 0) == 1, "probes find it hanging, so no further pod waits"
        assert after["breaker_open"] - before.get("breaker_open", 0) == 29
        until(lambda: "rlscaler_plugin_breaker_open 0" in scheduler.metrics(), 60)


def test_pauses_grow_for_a_server_that_is_ready_and_never_answers_in_time(cluster, kube, nodes, namespace, folder):
    with (
        faulty_server(Fault.NEVER) as url,
        second_scheduler(cluster.kubeconfig, url, folder, plugin=True, timeout_ms=100) as scheduler,
    ):
        create(kube, namespace, small(namespace, 0, 40))
        results = scheduler.asked()
        assert results["failed"] + results.get("breaker_open", 0) == 40, "each pod was asked about once at most"
        assert 1 <= results["failed"] < 10


def test_a_server_that_was_never_there_delays_nothing(cluster, kube, nodes, namespace, folder):
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with second_scheduler(cluster.kubeconfig, url, folder, plugin=True) as scheduler:
        create(kube, namespace, small(namespace, 0, 30))
        assert scheduler.asked() == {"failed": 1, "breaker_open": 29}


def test_an_event_on_the_pod_says_why(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    options = {"plugin": True, "events": True, "timeout_ms": 5000}
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **options):
        create(kube, namespace, [pod("p", namespace, annotations={"latencySoftConstraint": "near"})])
        (text,) = until(lambda: said(kube, namespace))
    assert text.startswith(f"{bound(kube, namespace)['p']} suggested for EE by the rule pack: score ")
    assert "of 12 nodes; it had requested_cpu 0, requested_memory 0, pods 0, latency_ms " in text
    assert "'near' is no number of milliseconds" in text


def test_an_event_is_cut_to_what_the_api_server_takes(cluster, kube, server, namespace, folder):
    suggestions = server("--policy", "EE")
    options = {"plugin": True, "events": True, "timeout_ms": 5000}
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **options):
        create(kube, namespace, [pod("p", namespace, annotations={"latencySoftConstraint": "far" + 5000 * "\u20ac"})])
        (text,) = until(lambda: said(kube, namespace))
    assert text.startswith(f"{bound(kube, namespace)['p']} suggested for EE by the rule pack: score ")
    assert len(text.encode()) <= 1024


def test_a_cut_event_still_says_which_node_was_taken(cluster, kube, nodes, namespace, folder):
    options = {"plugin": True, "events": True, "timeout_ms": 5000}
    with (
        answering(lambda count, question: (200, bytes([100] * count) + 2000 * "\u20ac".encode())) as url,
        second_scheduler(cluster.kubeconfig, url, folder, **options),
    ):
        create(kube, namespace, small(namespace, 0, 8))
        texts = until(lambda: len(found := said(kube, namespace)) == 8 and found)
    # Of twelve nodes with the same level kube-scheduler takes any; the last of them counts as suggested.
    taken = [text.partition("...; kube-scheduler took ")[2] for text in texts]
    assert any(taken)
    assert {name for name in taken if name} <= set(bound(kube, namespace).values())
    assert all(1020 < len(text.encode()) <= 1024 for text in texts)


def test_a_pod_that_the_server_cannot_read_does_not_end_suggestions_for_others(cluster, kube, nodes, namespace, folder):
    def answer(count: int, question: bytes) -> tuple[int, bytes]:
        return (400, b'{"error": "cpu"}') if b'"name":"unread' in question else (200, bytes(count) + b"why")

    with (
        answering(answer) as url,
        second_scheduler(cluster.kubeconfig, url, folder, plugin=True, timeout_ms=5000) as scheduler,
    ):
        for index in range(3):
            create(kube, namespace, [pod(f"unread-{index}", namespace), pod(f"read-{index}", namespace)])
        assert scheduler.asked() == {"failed": 3, "suggested": 3}
        assert "rlscaler_plugin_breaker_open 0" in scheduler.metrics()


def test_a_server_with_a_fault_of_its_own_is_left_alone(cluster, kube, nodes, namespace, folder):
    with (
        answering(lambda count, question: (500, b"")) as url,
        second_scheduler(cluster.kubeconfig, url, folder, plugin=True, timeout_ms=5000) as scheduler,
    ):
        create(kube, namespace, small(namespace, 0, 10))
        results = scheduler.asked()
    assert results["failed"] + results.get("breaker_open", 0) == 10
    assert results["failed"] < 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [({"url": "nowhere"}, "is no http address"), ({"url": "http://a", "timeout": 3}, "unknown field")],
)
def test_arguments_that_cannot_be_are_said_at_the_start(cluster, folder, monkeypatch, arguments, complaint):
    from rlscaler_dev.placement import testbed

    told = testbed.configuration

    def wrong(*given, **options):
        made = told(*given, **options)
        made["profiles"][0]["pluginConfig"][0]["args"] = arguments
        return made

    monkeypatch.setattr(testbed, "configuration", wrong)
    with second_scheduler(cluster.kubeconfig, "", folder, plugin=True) as scheduler:
        until(lambda: scheduler.process.poll() is not None)
        assert complaint in scheduler.log.read_text()
        assert scheduler.process.returncode != 0
