"""NodeScoringPolicies on the real API server: what it refuses, and whom they move on the real kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.exceptions import ApiError
from rlscaler_dev.placement.testbed import bound, pod, second_scheduler
from rlscaler_scheduler.objects import LATENCY
from tests.harness.setup import REPOSITORY
from tests.harness.waiting import until

OBJECTS = "/apis/rlscaler.io/v1alpha1/nodescoringpolicies"
SOFT, HARD = "latencySoftConstraintMilliseconds", "latencyHardConstraintMilliseconds"
EVENTS = {"plugin": True, "events": True, "timeout_ms": 5000}

Put = Callable[..., None]


@pytest.fixture(scope="module")
def kind(kube) -> Iterator[None]:
    """The kind as it ships; it is gone afterwards, since a cluster need not have it."""
    manifest = yaml.safe_load((REPOSITORY / "crds" / "scheduler" / "nodescoringpolicies.yaml").read_text())
    kube.apply(manifest)
    until(lambda: kube.find(OBJECTS))
    yield
    kube.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{manifest['metadata']['name']}")


@pytest.fixture
def put(kube, kind) -> Iterator[Put]:
    """Create or change an object; all are deleted in the end."""
    names: set[str] = set()

    def apply(name: str, **spec: object) -> None:
        names.add(name)
        about = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "NodeScoringPolicy", "metadata": {"name": name}}
        kube.apply({**about, "spec": spec})

    yield apply
    for name in names:
        kube.delete(f"{OBJECTS}/{name}")


@pytest.fixture
def latency(kube, nodes) -> dict[str, float]:
    items = kube.get("/api/v1/nodes")["items"]
    return {
        item["metadata"]["name"]: float(item["metadata"]["annotations"][LATENCY])
        for item in items
        if item["metadata"]["name"] in nodes
    }


def of(namespace: str) -> dict:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "it says nothing: set policy or a latency constraint"),
        ({SOFT: 30, HARD: 20.5}, "lower the soft one or raise the hard one"),
        ({"policy": "BEST"}, "Unsupported value"),
        ({HARD: -1}, "should be greater than or equal to 0"),
        ({HARD: "near"}, "latencyHardConstraintMilliseconds: expected numeric"),
        (
            {"policy": "EE", "podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "In and NotIn need values",
        ),
        (
            {
                "policy": "EE",
                "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            },
            "Exists and DoesNotExist take none",
        ),
        (
            {
                "policy": "EE",
                "podSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["a b"]}]},
            },
            "podSelector.matchExpressions[0].values[0]: Invalid value",
        ),
        (
            {"policy": "EE", "podSelector": {"matchExpressions": [{"key": "bad key!", "operator": "Exists"}]}},
            "podSelector.matchExpressions[0].key: Invalid value",
        ),
        (
            {"policy": "EE", "podSelector": {"matchExpressions": [{"key": f"{254 * 'a'}/b", "operator": "Exists"}]}},
            "the prefix of a label has at most 253 characters",
        ),
        ({"policy": "EE", "podSelector": {"matchLabels": {"a": "a b"}}}, "podSelector.matchLabels.a: Invalid value"),
        *(
            ({"policy": "EE", "namespaceSelector": {"matchLabels": {key: "a"}}}, "a name in matchLabels is none")
            for key in ("bad key!", "A.b/c", f"{254 * 'a'}/b")
        ),
    ],
)
def test_the_api_server_refuses_it_with_the_remedy(put, spec, said):
    with pytest.raises(ApiError) as error:
        put("wrong", **spec)
    assert said in str(error.value)


def test_the_api_server_takes_every_label_that_kubernetes_has(put):
    key = f"{'.'.join(4 * [62 * 'a'])}.a/A_{61 * 'b'}"
    chosen = {"matchLabels": {key: ""}, "matchExpressions": [{"key": key, "operator": "In", "values": ["", "B_c.9"]}]}
    put("right", policy="EE", podSelector=chosen, namespaceSelector=chosen)


def test_an_object_decides_where_neither_pod_nor_namespace_does(
    cluster, kube, server, namespace, folder, nodes, latency, put
):
    near = sorted(latency.values())
    edge = {"matchLabels": {"tier": "edge"}}
    put("all", policy="LB", namespaceSelector=of(namespace))
    put("edge", policy="EL", priority=10, namespaceSelector=of(namespace), podSelector=edge, **{SOFT: near[1]})
    suggestions = server("--policy", "EE")
    until(lambda: len(suggestions.get("/suggestions")["scoring_policies"]) == 2)
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, **EVENTS):
        labelled = pod("edge", namespace)
        labelled["metadata"]["labels"] = {"tier": "edge"}
        own = pod("own", namespace, annotations={"rlscaler.io/scoring-policy": "EE"})
        for one in (labelled, own, pod("plain", namespace)):
            assert kube.create(one)
        found = until(lambda: (seen := bound(kube, namespace)) and len(seen) == 3 and seen, 120)
        assert latency[found["edge"]] <= near[1]

        def asked(name: str) -> tuple[str, str]:
            said = suggestions.get(f"/suggestions?namespace={namespace}&pod={name}")
            return said["policy"], said["asked_by"]["policy"]

        assert asked("edge") == ("EL", "NodeScoringPolicy edge")
        assert asked("plain") == ("LB", "NodeScoringPolicy all")
        assert asked("own") == ("EE", "annotation of the pod")

        def events() -> str:
            items = kube.get(f"/api/v1/namespaces/{namespace}/events")["items"]
            return " ".join(item["message"] for item in items if item["reason"] == "NodeSuggested")

        assert "suggested for EL (NodeScoringPolicy edge) by" in until(lambda: "edge)" in events() and events())


def test_the_extender_refuses_nodes_above_the_objects_limit(
    cluster, kube, server, namespace, folder, nodes, latency, put
):
    third = sorted(latency.values())[2]
    put("limit", namespaceSelector=of(namespace), **{HARD: third})
    suggestions = server("--policy", "EE")
    until(lambda: suggestions.get("/suggestions")["scoring_policies"])
    with second_scheduler(cluster.kubeconfig, suggestions.url, folder, timeout_ms=5000):
        for index in range(6):
            assert kube.create(pod(f"p-{index}", namespace))
        found = until(lambda: (seen := bound(kube, namespace)) and len(seen) == 6 and seen, 120)
    assert all(latency[node] <= third for node in found.values())


def test_the_plugin_enforces_the_objects_limit_without_a_server_and_tries_again_when_it_changes(
    cluster, kube, namespace, folder, nodes, latency, put
):
    third = sorted(latency.values())[2]
    put("limit", namespaceSelector=of(namespace), **{HARD: third})
    tight = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["tight"]}]}
    put("tight", priority=1, namespaceSelector=of(namespace), podSelector=tight, **{HARD: 0.5})
    with second_scheduler(cluster.kubeconfig, f"http://127.0.0.1:{free_ports(1)[0]}", folder, plugin=True):
        for index in range(6):
            assert kube.create(pod(f"p-{index}", namespace))
        found = until(lambda: (seen := bound(kube, namespace)) and len(seen) == 6 and seen, 120)
        assert all(latency[node] <= third for node in found.values())
        free = pod("free", namespace, annotations={"rlscaler.io/latency-hard-ms": "1000"})
        nowhere = pod("nowhere", namespace)
        nowhere["metadata"]["labels"] = {"tier": "tight"}
        for one in (free, nowhere):
            assert kube.create(one)
        until(lambda: "free" in bound(kube, namespace), 120)

        def why() -> str:
            item = kube.get(f"/api/v1/namespaces/{namespace}/pods/nowhere")
            return " ".join(c.get("message", "") for c in item["status"].get("conditions", []))

        assert "above the hard limit 0.5 ms (NodeScoringPolicy tight)" in until(
            lambda: "hard limit" in why() and why(), 120
        )
        put("tight", priority=1, namespaceSelector=of(namespace), podSelector=tight, **{HARD: third})
        # Without a change kube-scheduler would look again after five minutes.
        until(lambda: latency.get(bound(kube, namespace).get("nowhere", ""), 1e9) <= third, 120)
