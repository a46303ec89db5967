"""Targets that are no Deployments, on a real API server.

A StatefulSet, a LeaderWorkerSet, an Argo Rollout, and a resource with a scale of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import yaml

from rlscaler_operator.records.rows import decode_samples
from tests.harness import setup
from tests.harness.load import RPS
from tests.harness.scraping import Counters
from tests.harness.setup import REPOSITORY

GROUP = "test.rlscaler.io"
SETS, FLEET = "apps/v1/statefulsets/StatefulSet", f"{GROUP}/v1/fleets/Fleet"
OTHERS = yaml.safe_load_all((REPOSITORY / "tests" / "data" / "scalable_kinds.yaml").read_text())
DEFINITIONS = {one["spec"]["names"]["kind"]: one for one in OTHERS}
"""LeaderWorkerSet and Rollout."""


class Known(NamedTuple):
    """What the controller of a kind writes: the pods of two replicas with their labels, and the scale's status."""

    kind: str
    pods: dict[str, dict[str, str]]
    status: dict[str, Any]


LEADERS = "leaderworkerset.sigs.k8s.io/name=groups,leaderworkerset.sigs.k8s.io/worker-index=0"
OF_GROUPS = {"leaderworkerset.sigs.k8s.io/name": "groups"}
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
KNOWN = (
    Known(
        "LeaderWorkerSet",
        {
            "groups-0": OF_GROUPS | {WORKER_INDEX: "0"},
            "groups-1": OF_GROUPS | {WORKER_INDEX: "0"},
            "groups-0-1": OF_GROUPS | {WORKER_INDEX: "1"},
        },
        {"replicas": 2, "hpaPodSelector": LEADERS},
    ),
    Known(
        "Rollout",
        {f"rolled-7d9c6b8f5d-x7k{letter}p": {"app": "rolled"} for letter in "bc"},
        {"HPAReplicas": 2, "selector": "app=rolled"},
    ),
)


def named(known: Known) -> str:
    return "groups" if known.kind == "LeaderWorkerSet" else "rolled"


def group_version(kind: str) -> str:
    spec = DEFINITIONS[kind]["spec"]
    return f"{spec['group']}/{spec['versions'][0]['name']}"


def plural(kind: str) -> str:
    return str(DEFINITIONS[kind]["spec"]["names"]["plural"])


OPTIONS = tuple(
    word
    for one in (SETS, FLEET, *(f"{group_version(kind)}/{plural(kind)}/{kind}" for kind in DEFINITIONS))
    for word in ("--target-kinds", one)
)

FLEETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"fleets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                            "status": {
                                "type": "object",
                                "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}},
                            },
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}
"""A resource whose replicas are called otherwise."""


def target(kind: str, api_version: str, name: str, **more: Any) -> dict[str, Any]:
    limits = {"maxReplicas": 10, "requestsPerSecond": RPS["gpu"], "coldStartSeconds": 20}
    return {"gpu": {"kind": kind, "apiVersion": api_version, "name": name, **limits, **more}}


def stateful_set(world: Any, name: str, replicas: int = 1) -> None:
    labels = {"app": name, "rlscaler.io/flavour": "gpu"}
    pod = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "app", "image": "app"}],
    }
    spec = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    world.kube.request("POST", of_sets(world), {"metadata": {"name": name}, "spec": spec})


def of_sets(world: Any, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets/{name}".rstrip("/")


def ready_in_set(world: Any, name: str) -> int:
    ready: int = world.kube.get(of_sets(world, name))["status"].get("readyReplicas", 0)
    return ready


def of_fleets(world: Any, name: str = "") -> str:
    return f"/apis/{GROUP}/v1/namespaces/{world.namespace}/fleets/{name}".rstrip("/")


def of_known(world: Any, kind: str, name: str = "") -> str:
    return f"/apis/{group_version(kind)}/namespaces/{world.namespace}/{plural(kind)}/{name}".rstrip("/")


def status(world: Any, policy: str) -> dict[str, Any]:
    return world.get("rlscalingpolicies", policy).get("status", {}).get("targets", {}).get("gpu", {})


@pytest.fixture(scope="module")
def kinds(kube: Any, world: Any, wait: Any) -> None:
    """The resource of the test, and the rights that the chart gives to kinds that it is told of."""
    kube.apply(FLEETS)
    kube.apply_all(list(DEFINITIONS.values()))
    wait(lambda: kube.find(of_fleets(world)) is not None)
    wait(lambda: all(kube.find(of_known(world, kind)) is not None for kind in DEFINITIONS))
    others = [(DEFINITIONS[kind]["spec"]["group"], plural(kind)) for kind in DEFINITIONS]
    rules = []
    for group, name in (("apps", "statefulsets"), (GROUP, "fleets"), *others):
        rules.append({"apiGroups": [group], "resources": [name], "verbs": ["get", "list", "watch"]})
        rules.append({"apiGroups": [group], "resources": [f"{name}/scale"], "verbs": ["get", "patch"]})
    setup.grant(kube, "rlscaler", "kinds", rules)


@pytest.fixture(scope="module")
def operator(kinds: None, start: Any) -> Any:
    return start(*OPTIONS)


def test_a_stateful_set_is_scaled_up_and_down_and_put_back(operator: Any, world: Any, wait: Any) -> None:
    load = world.service("chat", rate=90)
    stateful_set(world, "chat", replicas=2)
    targets = target("StatefulSet", "apps/v1", "chat")
    world.policy(
        "chat", targets=targets, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}, restoreOnDelete=True
    )
    wait(lambda: world.kube.get(of_sets(world, "chat"))["spec"]["replicas"] >= 5, 60)
    wait(lambda: status(world, "chat").get("deployment") == "statefulset.apps/chat", 30)
    managers = world.kube.get(of_sets(world, "chat"))["metadata"]["managedFields"]
    assert any(one["manager"] == "rlscaler" and one.get("subresource") == "scale" for one in managers)
    wait(lambda: 5 <= status(world, "chat").get("ready", 0) == ready_in_set(world, "chat"), 120)
    load.rate = 10
    most = world.kube.get(of_sets(world, "chat"))["spec"]["replicas"]
    wait(lambda: world.kube.get(of_sets(world, "chat"))["spec"]["replicas"] < most, 400)
    world.delete("rlscalingpolicies", "chat")
    wait(lambda: world.kube.get(of_sets(world, "chat"))["spec"]["replicas"] == 2, 30)


def test_a_resource_with_a_scale_of_its_own_is_scaled_and_its_pods_found(operator: Any, world: Any, wait: Any) -> None:
    world.service("fleet", rate=60)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Fleet", "metadata": {"name": "fleet"}, "spec": {"size": 1}}
    world.kube.request("POST", of_fleets(world), body)
    state = {"status": {"size": 1, "selector": "app=fleet,role in (leader)"}}
    world.kube.merge(of_fleets(world, "fleet") + "/status", state)
    for number, role in enumerate(("leader", "leader", "worker")):
        spec = {"nodeSelector": {"pool": "cpu"}, "containers": [{"name": "app", "image": "app"}]}
        labels = {"app": "fleet", "role": role, "rlscaler.io/flavour": "cpu"}
        pod = {"metadata": {"name": f"fleet-{number}", "labels": labels}, "spec": spec}
        world.kube.request("POST", world.path("pods"), pod)
    world.policy("fleet", targets=target("Fleet", f"{GROUP}/v1", "fleet"))
    wait(lambda: world.kube.get(of_fleets(world, "fleet"))["spec"]["size"] >= 3, 60)
    wait(lambda: status(world, "fleet").get("ready") == 2, 60)
    world.kube.delete(world.path("pods", "fleet-0"))
    wait(lambda: status(world, "fleet").get("ready") == 1, 60)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.kind)
def test_a_known_kind_is_scaled_through_its_own_scale(operator: Any, world: Any, wait: Any, known: Known) -> None:
    """By its own definition, with the status that its controller writes: groups count by their leaders."""
    name, path = named(known), of_known(world, known.kind, named(known))
    world.service(name, rate=60)
    body = {"apiVersion": group_version(known.kind), "kind": known.kind, "metadata": {"name": name}}
    world.kube.request("POST", of_known(world, known.kind), body | {"spec": {"replicas": 2}})
    world.kube.merge(f"{path}/status", {"status": known.status})
    for pod, labels in known.pods.items():
        spec = {"nodeSelector": {"pool": "cpu"}, "containers": [{"name": "app", "image": "app"}]}
        metadata = {"name": pod, "labels": labels | {"rlscaler.io/flavour": "cpu"}}
        world.kube.request("POST", world.path("pods"), {"metadata": metadata, "spec": spec})
    world.policy(name, targets=target(known.kind, group_version(known.kind), name))
    wait(lambda: world.kube.get(path)["spec"]["replicas"] >= 3, 60)
    wait(lambda: status(world, name).get("ready") == 2, 60)
    assert status(world, name)["deployment"] == f"{known.kind.lower()}.{group_version(known.kind).split('/')[0]}/{name}"


def test_another_scaler_of_the_same_object_is_a_conflict(operator: Any, world: Any, wait: Any) -> None:
    world.service("held", rate=90)
    stateful_set(world, "held")
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "held"}
    hpa = {"metadata": {"name": "held"}, "spec": {"maxReplicas": 3, "scaleTargetRef": reference}}
    world.kube.request("POST", world.path("horizontalpodautoscalers"), hpa)
    world.policy("held", targets=target("StatefulSet", "apps/v1", "held"))
    wait(lambda: world.condition("held", "Active")[1] == "Conflicted", 60)
    assert world.kube.get(of_sets(world, "held"))["spec"]["replicas"] == 1
    world.delete("horizontalpodautoscalers", "held")
    wait(lambda: world.kube.get(of_sets(world, "held"))["spec"]["replicas"] > 1, 60)


def test_what_is_not_there_or_not_enabled_is_said(operator: Any, world: Any, wait: Any) -> None:
    world.service("absent", rate=10)
    world.policy("absent", targets=target("StatefulSet", "apps/v1", "absent"))
    world.policy("other", targets=target("CloneSet", "apps.kruise.io/v1alpha1", "other"))
    wait(lambda: world.condition("absent", "Ready") == ("False", "TargetMissing"), 60)
    wait(lambda: world.condition("other", "Ready") == ("False", "TargetKindNotEnabled"), 60)
    conditions = world.get("rlscalingpolicies", "other")["status"]["conditions"]
    message = next(one["message"] for one in conditions if one["type"] == "Ready")
    assert "targetKinds" in message
    stateful_set(world, "absent")
    wait(lambda: world.condition("absent", "Ready")[0] == "True", 60)


def test_a_preset_scales_a_service_that_exports_nothing_of_ours(
    cluster: Any, operator: Any, world: Any, wait: Any
) -> None:
    exporter = Counters()
    pods = [{"namespace": world.namespace, "pod": f"served-gpu-7d9c6b8f5d-x7k{n}p", "engine": "0"} for n in "bc"]
    for labels in pods:
        exporter.counter("vllm:request_success_total", 20.0, **labels, finished_reason="stop")
        exporter.gauge("vllm:num_requests_running", 30.0, **labels)
        exporter.counter("vllm:num_requests_waiting", 25.0, **labels)
        exporter.gauge("vllm:kv_cache_usage_perc", 0.9, **labels)
        for le, rate in (("0.5", 10.0), ("1.0", 20.0), ("+Inf", 20.0)):
            exporter.counter("vllm:e2e_request_latency_seconds_bucket", rate, **labels, le=le)
        exporter.counter("vllm:e2e_request_latency_seconds_count", 20.0, **labels)
    cluster.add_scrape_target("presets", exporter.address)
    try:
        world.deployment("served-gpu", "gpu", replicas=2)
        limits = {"maxReplicas": 10, "requestsPerSecond": RPS["gpu"], "coldStartSeconds": 20}
        targets = {"gpu": {"deployment": "served-gpu", **limits}}
        world.policy("served", targets=targets, metrics={"preset": "vllm"})
        wait(lambda: world.get("deployments", "served-gpu")["spec"]["replicas"] >= 5, 90)
        wait(lambda: world.condition("served", "Ready")[0] == "True", 30)

        # 40 answered a second, and 50 more that begin to wait.
        def rate() -> float:
            return float(decode_samples(operator.decisions("served")[-1]["samples"]).arrival_rate[0])

        wait(lambda: rate() == pytest.approx(90, rel=0.15), 60)
    finally:
        exporter.close()
