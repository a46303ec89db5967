"""Least privilege: what the operator asks for is what its roles allow, to the last verb."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests

from tests.cluster.operator.test_operator_ownership import GROUP, SCALED_OBJECT_CRD, SCALED_OBJECTS
from tests.harness import setup
from tests.harness.operators import Operator
from tests.harness.proxy import Fault, Proxy
from tests.harness.requests_seen import granted, seen

ACCOUNT = "least"
TOKEN = {"bearerToken": {"name": "prometheus", "key": "token"}}
ROUTE = {"name": "chat"}


@pytest.fixture(scope="module")
def proxy(cluster) -> Iterator[Proxy]:
    """Before the API server: it sees every request of the operator."""
    context = ssl.create_default_context(cafile=str(cluster.state_dir / "pki" / "ca.crt"))
    one = Proxy(cluster.server, context)
    yield one
    one.close()


@pytest.fixture(scope="module")
def kubeconfig(cluster, kube, world, proxy, tmp_path_factory):
    """An account that may do what ships, in one namespace only and for its Leases."""
    setup.permit(kube, ACCOUNT, world.namespace)
    setup.grant(kube, ACCOUNT, "marks", setup.shipped_roles()["rlscaler-pod-deletion-cost"]["rules"], world.namespace)
    path = tmp_path_factory.mktemp("least") / "kubeconfig"
    return setup.write_kubeconfig(path, cluster.kubeconfig, setup.token(kube, account=ACCOUNT), proxy.url)


@pytest.fixture(scope="module")
def without_keda(kube, wait):
    """The API is not there when the operator starts; it is left as it was found."""
    name = SCALED_OBJECT_CRD["metadata"]["name"]
    found = [item for item in kube.request("GET", GROUP)["items"] if item["metadata"]["name"] == name]
    if found:
        kube.delete(f"{GROUP}/{name}")
    wait(lambda: not [item for item in kube.request("GET", GROUP)["items"] if item["metadata"]["name"] == name])
    yield
    if not found:
        kube.delete(f"{GROUP}/{name}")


@pytest.fixture(scope="module")
def vertical_autoscalers(kube):
    with setup.vertical_autoscalers(kube):
        yield


@pytest.fixture(scope="module")
def operator(cluster, kubeconfig, world, without_keda, vertical_autoscalers, tmp_path_factory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("operator")
    options = ("--namespace", world.namespace, "--lease-namespace", "default", "--lease-name", world.namespace)
    more = ("--shards", "2", "--pod-deletion-cost", "--reload-seconds", "1")
    one = Operator(kubeconfig, cluster.prometheus_url, folder, *options, *more)
    yield one
    if one.process.poll() is None:
        one.stop()


def conflicting(world, name, kind, version, target, **spec):
    plural = {"HorizontalPodAutoscaler": "horizontalpodautoscalers", "ScaledObject": "scaledobjects"}[kind]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    body["spec"] = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}} | spec
    world.kube.request("POST", f"/apis/{version}/namespaces/{world.namespace}/{plural}", body)


def route(world):
    refs = [{"name": f"chat-{pool}", "port": 80, "weight": 1} for pool in ("gpu", "cpu")]
    body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "chat"}}
    world.kube.request("POST", world.path("httproutes"), body | {"spec": {"rules": [{"backendRefs": refs}]}})


def test_what_it_asks_for_is_what_the_roles_allow(operator, proxy, kube, world, wait):
    """A run in which everything happens that the operator ever asks the API server for.

    A rule that is missing would be asked for and not allowed, and one that is not needed allowed and not asked for.
    """
    namespace = world.namespace
    load = world.service("chat", rate=90)
    world.deployments("chat", gpu=3, cpu=3)
    route(world)
    quick = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    options = {"placement": {"httpRoute": ROUTE}, "restoreOnDelete": True, "behavior": quick}
    with (
        proxy.fault(Fault(status=409), lambda request: request.scales),
        proxy.fault(Fault(status=409), lambda r: r.method == "PATCH" and "/httproutes/" in r.path),
    ):
        world.policy("chat", **options)
        wait(lambda: {"deployments", "httproutes"} <= {s.use.resource for s in seen(proxy.seen) if s.use.verb == "get"})
    wait(lambda: world.condition("chat", "Active")[0] == "True")
    high = wait(lambda: sum(world.replicas("chat")) > 6 and world.replicas("chat"), 60)

    world.service("lent", rate=1)
    world.deployments("lent")
    world.policy("lent", policy={"configMap": {"name": "lent", "key": "manifest.json"}})
    wait(lambda: world.condition("lent", "Ready") == ("False", "ConfigMapForbidden"))
    world.vertical_autoscaler("theirs", "chat-gpu", "Recreate")
    ranges = {"cpu": {"min": "100m", "max": "1"}}
    copied = {"deployment": "chat-gpu", "maxReplicas": 4, "requestsPerSecond": 20, "resources": ranges}
    world.policy("copy", targets={"gpu": copied})
    wait(lambda: "VerticalPodAutoscalerExists" in world.events("copy"), 60)
    wait(lambda: world.condition("copy", "Conflicted") == ("True", "OlderPolicyExists"))
    conflicting(world, "theirs", "HorizontalPodAutoscaler", "autoscaling/v2", "lent-gpu", maxReplicas=3)
    wait(lambda: world.condition("lent", "Conflicted") == ("True", "HorizontalPodAutoscalerExists"))
    world.kube.delete(f"{world.path('horizontalpodautoscalers')}/theirs")
    kube.request("POST", GROUP, SCALED_OBJECT_CRD)
    wait(lambda: kube.request("GET", SCALED_OBJECTS.format(namespace)))
    conflicting(world, "theirs", "ScaledObject", "keda.sh/v1alpha1", "lent-cpu")
    wait(lambda: world.condition("lent", "Conflicted") == ("True", "ScaledObjectExists"), 60)

    load.busy = {pod["metadata"]["name"]: 1 for pool in ("gpu", "cpu") for pod in world.pods(f"chat-{pool}")}
    load.rate = 5
    wait(lambda: sum(world.replicas("chat")) < sum(high), 90)
    world.delete("rlscalingpolicies", "chat")
    wait(lambda: "Restored" in world.events("chat"))
    assert operator.stop() == 0, operator.log.read_text()[-4000:]

    # Used with some settings only: test_budget.py and test_operator_resize.py have them.
    elsewhere = {"rlscaler-budgets", "rlscaler-pod-resize"}
    roles = {name: role for name, role in setup.shipped_roles().items() if name not in elsewhere}
    allowed = granted(rule for role in roles.values() for rule in role["rules"])
    asked = seen(proxy.seen)
    used = {one.use for one in asked if one.use.resource != "configmaps"}
    assert used - allowed == set(), "asked for, and not allowed by the roles that ship"
    assert allowed - used == set(), "allowed, and never asked for"
    named = {one.name if one.use.resource == "namespaces" else one.namespace for one in asked}
    assert named <= {namespace, "default"}, "nothing is asked of other namespaces"
    assert {one.use.resource for one in asked if one.namespace == "default"} == {"leases"}
    lists = [r for r in proxy.seen if r.method == "GET" and r.path.rpartition("/")[2] in ("pods", "deployments")]
    whole = [r for r in lists if "watch=true" not in r.query and "limit=" not in r.query]
    assert lists
    assert not whole, "a list of a large cluster comes in pages"
    assert {one.name for one in asked if one.use.resource == "configmaps"} == {"lent"}, "by name, never listed"
    assert len(operator.log.read_text().split("scaledobjects.v1alpha1.keda.sh are served now")) == 2


def test_one_for_the_whole_cluster_is_ready_with_the_cluster_role(
    cluster, kube, operator_kubeconfig, free_port, wait, tmp_path
):
    """As a standby, so that it leaves other tests' policies alone: the Lease is somebody else's."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    body = {"metadata": {"name": "whole-cluster"}, "spec": spec}
    kube.request("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", body)
    options = ("--lease-namespace", "default", "--lease-name", "whole-cluster", "--metrics-port", str(free_port))
    operator = Operator(operator_kubeconfig, cluster.prometheus_url, tmp_path, *options)
    try:
        wait(lambda: ready(free_port), 60)
        wait(lambda: "standing by" in operator.log.read_text())
        assert "forbidden" not in operator.log.read_text()
    finally:
        assert operator.stop() == 0


def ready(port):
    with suppress(requests.ConnectionError):
        return requests.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200


def test_an_operator_without_rights_ends_and_says_which(cluster, kube, tmp_path):
    kube.request("POST", setup.ACCOUNTS, {"metadata": {"name": "nobody"}})
    token = setup.token(kube, account="nobody")
    kubeconfig = setup.write_kubeconfig(tmp_path / "kubeconfig", cluster.kubeconfig, token)
    operator = Operator(kubeconfig, cluster.prometheus_url, tmp_path)
    assert operator.process.wait(30) == 1
    said = operator.log.read_text()
    assert "cannot list deployments" in said
    assert "docs/operator-permissions.md" in said
    assert "Traceback" not in said
