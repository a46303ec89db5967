"""The MutatingAdmissionPolicy as it ships, evaluated by the real API server: which pods it sizes, and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlscaler_core.api.resources import amount
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_operator.actuation.resize_plan import plan, sized
from tests.harness import setup
from tests.harness.attempts import MERGE
from tests.harness.waiting import until

NAMESPACE = "new-pods"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICIES = f"/apis/rlscaler.io/v1alpha1/namespaces/{NAMESPACE}/rlscalingpolicies"
KIND = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy"}
HASH = "5d4f8c7b6"
TEMPLATE = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
SIZED = {"requests": {"cpu": "300m", "memory": "128Mi"}, "limits": {"cpu": "600m", "memory": "128Mi"}}
SIZE = {"cpu": "300m", "memory": "128Mi", "leastMemory": "32Mi"}

NOTHING = {"requests": {"cpu": "0"}}
"""Of a running pod the API server refuses a request in its place: its class would be another one."""

LONGEST = "tier!=" + "|".join(f"v{i:07}" for i in range(113))
"""A requirement of 1022 characters, where 1024 are allowed."""

Create = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def kube(cluster) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        client.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        until(lambda: client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
        setup.install(client)
        with setup.new_pods(client):
            yield client
        client.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture
def create(kube) -> Create:
    """What the API server would make of a new pod (dry run): the resources of its containers, by a target's pods."""

    def dry_run(*resources: dict[str, Any], owner: str = "chat", labels: Any = (), **spec: Any) -> list[dict[str, Any]]:
        containers = [{"name": f"c{i}", "image": "app", "resources": one} for i, one in enumerate(resources)]
        replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{owner}-{HASH}", "uid": "u"}
        metadata = {
            "generateName": f"{owner}-{HASH}-",
            "labels": {"app": owner, "pod-template-hash": HASH, **dict(labels)},
            "ownerReferences": [replica_set],
        }
        body = {"metadata": metadata, "spec": {"containers": containers, **spec}}
        made = kube.request("POST", f"{PODS}?dryRun=All", body)
        return [one["resources"] for one in made["spec"]["containers"]]

    return dry_run


@pytest.fixture
def decided(kube, create) -> Iterator[Callable[..., None]]:
    """Have a policy's status say this, and wait until the API server goes by it; all are taken away in the end."""
    put: list[str] = []

    def write(name: str = "chat", *, cpu_pool: dict[str, Any] | None = None, **size: Any) -> None:
        put.append(name)
        policy(kube, name, {"gpu": size} if cpu_pool is None else {"gpu": size, "cpu": cpu_pool})
        # One more of a target that only this test knows: where it is in force, those before it are.
        put.append(f"probe-{len(put)}")
        policy(kube, put[-1], {"gpu": {"deployment": put[-1], "cpu": "777m"}})
        until(lambda: create(TEMPLATE, owner=put[-1])[0]["requests"]["cpu"] == "777m")

    yield write
    for name in put:
        kube.delete(f"{POLICIES}/{name}")
    until(lambda: not put or create(TEMPLATE, owner=put[-1]) == [TEMPLATE])


def policy(kube: KubeClient, name: str, sizes: dict[str, Any], path: str = POLICIES, **metadata: Any) -> None:
    """A policy whose status has these sizes of new pods."""
    spec = {"targets": {"gpu": {"deployment": name, "maxReplicas": 2}}, "slo": {"latencyMilliseconds": 500}}
    kube.request("POST", path, {**KIND, "metadata": {"name": name, **metadata}, "spec": spec})
    status(kube, name, sizes, path)


def status(kube: KubeClient, name: str, sizes: dict[str, Any] | None, path: str = POLICIES) -> None:
    kube.request("PATCH", f"{path}/{name}/status", {"status": {"newPods": sizes}}, content_type=MERGE)


def test_a_new_pod_gets_the_size_and_one_of_another_target_does_not(decided, create):
    assert create(TEMPLATE) == [TEMPLATE]
    decided(deployment="chat", **SIZE)
    assert create(TEMPLATE) == [SIZED]
    for other in ("chat-2", "cha", "other"):
        assert create(TEMPLATE, owner=other) == [TEMPLATE]
    assert create(TEMPLATE, labels={"pod-template-hash": "other"}) == [TEMPLATE]


def test_the_deployment_of_a_pod_counts_before_a_selector_that_matches_it_too(decided, create):
    decided(labels=["app"], cpu="900m", cpu_pool={"deployment": "chat", **SIZE})
    assert create(TEMPLATE) == [SIZED]
    assert create(TEMPLATE, owner="other")[0]["requests"]["cpu"] == "900m"


def test_without_sizes_nothing_is_changed(decided, create):
    decided(deployment="chat")
    assert create(TEMPLATE) == [TEMPLATE]


@pytest.mark.parametrize(
    ("asked", "size", "gets"),
    [
        pytest.param(
            {"requests": {"cpu": "1"}},
            {"cpu": "250m", "memory": "1Gi"},
            {"requests": {"cpu": "250m"}},
            id="what it does not ask for stays so",
        ),
        pytest.param({}, SIZE, {}, id="a container without requests is left alone"),
        pytest.param(NOTHING, SIZE, NOTHING, id="none is no request"),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            {"cpu": "1500m", "memory": "1536Mi"},
            {"requests": {"cpu": "1500m", "memory": "1536Mi"}, "limits": {"cpu": "1500m", "memory": "1536Mi"}},
            id="guaranteed stays guaranteed",
        ),
        pytest.param(
            {"requests": {"cpu": "300m"}, "limits": {"cpu": "1"}},
            {"cpu": "200m"},
            {"requests": {"cpu": "200m"}, "limits": {"cpu": "667m"}},
            id="a limit is rounded up",
        ),
        pytest.param(
            {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi", "ephemeral-storage": "1Gi"}},
            {"cpu": "200m"},
            {
                "requests": {"cpu": "200m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                "limits": {"memory": "1Gi", "ephemeral-storage": "1Gi"},
            },
            id="other resources stay",
        ),
        pytest.param(
            {"requests": {"memory": "1Gi"}},
            {"memory": "512Mi", "leastMemory": "700Mi"},
            {"requests": {"memory": "700Mi"}},
            id="memory is not lowered below what was needed",
        ),
        pytest.param(
            {"requests": {"memory": "600Mi"}},
            {"memory": "512Mi", "leastMemory": "700Mi"},
            {"requests": {"memory": "600Mi"}},
            id="nor raised by it",
        ),
        pytest.param(
            {"requests": {"memory": "1Gi"}},
            {"memory": "512Mi"},
            {"requests": {"memory": "1Gi"}},
            id="memory is not lowered where that is not known",
        ),
        pytest.param(
            {"requests": {"memory": "256Mi"}, "limits": {"memory": "512M"}},
            {"memory": "300000001"},
            {"requests": {"memory": "300000001"}, "limits": {"memory": "572204592"}},
            id="whole bytes",
        ),
    ],
)
def test_requests_and_limits_move_as_those_of_running_pods(decided, create, asked, size, gets):
    decided(deployment="chat", **size)
    assert _amounts(create(asked)[0]) == _amounts(gets)
    if asked != NOTHING:
        resized = _resized(asked, size)
        assert {kind: {**_amounts(gets).get(kind, {}), **resized[kind]} for kind in _amounts(gets)} == _amounts(gets)


def _resized(asked: dict[str, Any], size: dict[str, str]) -> dict[str, dict[str, float]]:
    """What a running pod of these requests and limits would get."""
    container = {"name": "c0", "resources": asked}
    status = {"phase": "Running", "observedGeneration": 1, "containerStatuses": [container]}
    body = {"metadata": {"name": "p", "generation": 1}, "spec": {"containers": [container]}, "status": status}
    pod, wish = sized(body), {name: amount(size[name]) for name in ("cpu", "memory") if name in size}
    assert pod is not None
    steps = plan([pod], wish, 0.0, amount(size["leastMemory"]) if "leastMemory" in size else math.nan).steps
    return {
        "requests": dict(steps[0].requests if steps else pod.requests),
        "limits": dict(steps[0].limits if steps else pod.limits),
    }


def _amounts(resources: dict[str, Any]) -> dict[str, Any]:
    return {kind: {name: amount(value) for name, value in found.items()} for kind, found in resources.items()}


def test_the_container_is_the_one_that_is_named(decided, create):
    small = {"requests": {"cpu": "10m"}}
    decided(deployment="chat", container="c1", cpu="300m")
    assert create(small, TEMPLATE) == [small, TEMPLATE | {"requests": {"cpu": "300m", "memory": "64Mi"}} | _limits()]
    assert create(TEMPLATE) == [TEMPLATE], "none has the name"


def _limits() -> dict[str, Any]:
    return {"limits": {"cpu": "600m", "memory": "64Mi"}}


def test_of_several_containers_none_is_taken_by_itself(decided, create):
    decided(deployment="chat", cpu="300m")
    assert create(TEMPLATE, TEMPLATE) == [TEMPLATE, TEMPLATE]


def test_pods_that_are_sized_as_a_whole_are_left_alone(decided, create):
    decided(deployment="chat", **SIZE)
    whole = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert create(TEMPLATE, resources=whole) == [TEMPLATE]


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (["app=chat"], {}, True),
        (["app=other|chat"], {}, True),
        (["app=other"], {}, False),
        (["app=chat", "tier"], {}, False),
        (["app=chat", "tier"], {"tier": "x"}, True),
        (["example.com/tier=a|b"], {"example.com/tier": "b"}, True),
        (["app=chat", "tier!=a|b"], {"tier": "b"}, False),
        (["app=chat", "tier!=a|b"], {"tier": "c"}, True),
        (["app=chat", "tier!=a|b"], {}, True),
        (["app=chat", "!tier"], {}, True),
        (["app=chat", "!tier"], {"tier": "x"}, False),
        pytest.param(["app=chat", *[LONGEST] * 31], {"tier": "x"}, True, id="as long as the status may have it"),
    ],
)
def test_pods_of_other_kinds_are_known_by_their_labels(decided, create, selector, labels, selected):
    decided(labels=selector, **SIZE)
    assert create(TEMPLATE, labels=labels) == [SIZED if selected else TEMPLATE]


@pytest.mark.parametrize("data", [{"cpu": "much"}, {"cpu": "300m", "memory": ""}, {"memory": "-1"}])
def test_a_pod_starts_whatever_the_status_says(decided, create, data):
    decided(deployment="chat", **data)
    assert create(TEMPLATE) == [TEMPLATE]


def test_each_pool_of_a_policy_has_a_size_of_its_own(decided, create):
    decided(deployment="chat-gpu", **SIZE, cpu_pool={"labels": ["app=batch"], "cpu": "100m"})
    assert create(TEMPLATE, owner="chat-gpu") == [SIZED]
    assert create(TEMPLATE, owner="batch")[0]["requests"] == {"cpu": "100m", "memory": "64Mi"}
    assert create(TEMPLATE) == [TEMPLATE]


def test_a_policy_without_a_size_or_of_another_namespace_or_on_its_way_out_sizes_nothing(kube, decided, create):
    elsewhere = POLICIES.replace(NAMESPACE, "default")
    policy(kube, "chat", {"gpu": {"deployment": "chat", **SIZE}}, elsewhere)
    policy(kube, "none", {})
    policy(kube, "going", {"gpu": {"deployment": "going", **SIZE}}, finalizers=["example.com/waits"])
    until(lambda: create(TEMPLATE, owner="going") == [SIZED])
    kube.delete(f"{POLICIES}/going")
    decided(name="other", deployment="other", cpu="1")
    try:
        assert create(TEMPLATE) == [TEMPLATE]
        assert create(TEMPLATE, owner="going") == [TEMPLATE], "its pods may be getting their size back"
    finally:
        kube.request("PATCH", f"{POLICIES}/going", {"metadata": {"finalizers": None}}, content_type=MERGE)
        kube.delete(f"{elsewhere}/chat")
        kube.delete(f"{POLICIES}/none")


def test_what_changed_while_the_admission_policy_was_away_counts_when_it_is_back(kube, decided, create):
    """An API server that has ConfigMaps as parameters goes on with those of before (kubernetes/kubernetes 130887)."""
    decided(deployment="chat", **SIZE)
    decided(name="other", deployment="other", **SIZE)
    assert create(TEMPLATE) == create(TEMPLATE, owner="other") == [SIZED]
    setup.delete_new_pods(kube)
    try:
        until(lambda: create(TEMPLATE) == create(TEMPLATE, owner="other") == [TEMPLATE])
        status(kube, "chat", {"gpu": {"deployment": "chat", "cpu": "500m"}})
        status(kube, "other", None)
    finally:
        setup.apply_new_pods(kube)
    until(lambda: create(TEMPLATE)[0]["requests"]["cpu"] == "500m")
    assert create(TEMPLATE, owner="other") == [TEMPLATE]
