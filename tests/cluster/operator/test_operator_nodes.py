"""A pool that shrinks leaves a node empty: with the real ReplicaSet controller and kube-scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from rlscaler_dev.cluster import kwok
from tests.harness import setup
from tests.harness.operators import Operator

POOL = f"shrink-{os.getpid()}"
SHARED, ALONE = f"{POOL}-shared", f"{POOL}-alone"


def node(name, pods):
    made = kwok.node(name, POOL)
    made["status"]["capacity"]["pods"] = made["status"]["allocatable"]["pods"] = str(pods)
    return made


@pytest.fixture(scope="module")
def nodes(kube, wait) -> Iterator[None]:
    """Room for three pods on the one, for one pod on the other."""
    kube.apply_all([node(SHARED, 3), node(ALONE, 1)])

    def ready(name):
        conditions = kube.get(f"/api/v1/nodes/{name}").get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    wait(lambda: ready(SHARED) and ready(ALONE), 120)
    yield
    for name in (SHARED, ALONE):
        kube.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def operator(cluster, kube, operator_kubeconfig, world, tmp_path_factory) -> Iterator[Operator]:
    """One that sees the pods of all namespaces, since others may hold a node as well."""
    setup.grant(kube, "rlscaler", "marks-everywhere", setup.shipped_roles()["rlscaler-pod-deletion-cost"]["rules"])
    options = ("--lease-namespace", "default", "--lease-name", world.namespace, "--pod-deletion-cost")
    one = Operator(operator_kubeconfig, cluster.prometheus_url, tmp_path_factory.mktemp("operator"), *options)
    yield one
    assert one.stop() in (0, -signal.SIGKILL), one.log.read_text()[-4000:]


def other(world):
    """A pod of no Deployment, on the node that has room for three."""
    spec = {"nodeName": SHARED, "containers": [{"name": "app", "image": "app"}]}
    world.kube.request("POST", world.path("pods"), {"metadata": {"name": "other"}, "spec": spec})


def where(world, deployment):
    """The node of each pod that is not on its way out; empty where it has none yet."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in world.pods(deployment)}


def test_the_pod_that_has_a_node_for_itself_goes_first(nodes, operator, world, wait):
    other(world)
    load = world.service("shrink", rate=60)
    world.deployment("shrink-cpu", POOL, 3)
    wait(lambda: sorted(where(world, "shrink-cpu").values()) == [ALONE, SHARED, SHARED], 120)
    before = where(world, "shrink-cpu")
    # All are idle, and the one with a node for itself a little less: only its node speaks for it.
    load.busy = {pod: 0.5 if node == ALONE else 0.0 for pod, node in before.items()}
    wait(lambda: world.get("deployments", "shrink-cpu")["status"].get("readyReplicas") == 3, 120)
    load.rate = 2
    targets = {"cpu": {"deployment": "shrink-cpu", "minReplicas": 2, "maxReplicas": 3, "requestsPerSecond": 4}}
    world.policy("shrink", targets=targets, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    wait(lambda: len(where(world, "shrink-cpu")) == 2, 180)
    assert list(where(world, "shrink-cpu").values()) == [SHARED, SHARED], before
