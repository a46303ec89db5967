"""A real KEDA, and the HPA that it makes, take the replicas that a policy recommends."""

from collections.abc import Iterator

import pytest

from rlscaler_dev.cluster import keda, stamps, state
from rlscaler_dev.cluster.versions import TOOLS
from tests.harness.waiting import until

pytestmark = pytest.mark.skipif(
    not all(stamps.valid(TOOLS[name]) for name in keda.PARTS), reason="KEDA is not built: `make bench-scale` builds it"
)

SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/scaledobjects"


def item_path(item):
    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
    return f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/{name}"


@pytest.fixture
def running_keda(cluster) -> Iterator[None]:
    known = state.load(cluster.name)
    assert known is not None
    ground = keda.Running(known)
    keda.start(ground, tuned=True)
    yield
    # KEDA puts a finalizer on each; without it they would never go, nor would their definition.
    for item in ground.kube.get(SCALED_OBJECTS)["items"]:
        ground.kube.delete(item_path(item))
    until(lambda: not ground.kube.get(SCALED_OBJECTS)["items"], 60)
    for name in keda.PARTS:
        ground.cluster.forget(name)


def scaled_object(world, pool, port):
    trigger = {"scalerAddress": f"127.0.0.1:{port}", "policy": "chat", "pool": pool}
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    spec = {
        "scaleTargetRef": {"name": f"chat-{pool}"},
        "pollingInterval": 2,
        "minReplicaCount": 1,
        "maxReplicaCount": 10,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": at_once}},
        "triggers": [{"type": "external", "metadata": trigger}],
    }
    path = f"/apis/keda.sh/v1alpha1/namespaces/{world.namespace}/scaledobjects"
    kind = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    world.kube.request("POST", path, kind | {"metadata": {"name": f"chat-{pool}"}, "spec": spec})


def desired(world):
    targets = world.get("rlscalingpolicies", "chat").get("status", {}).get("targets", {})
    return tuple(targets.get(pool, {}).get("desired") for pool in ("gpu", "cpu"))


def in_force(world):
    return world.replicas("chat") == desired(world)


@pytest.mark.usefixtures("running_keda")
def test_keda_scales_as_the_policy_recommends_and_holds_without_it(start, world, wait, stays, free_port):
    load = world.service("chat", rate=5)
    world.deployments("chat", gpu=1, cpu=1)
    world.policy("chat", mode="Shadow")
    operator = start("--external-scaler-port", str(free_port))
    wait(lambda: desired(world) == (1, 1))
    for pool in ("gpu", "cpu"):
        scaled_object(world, pool, free_port)
    load.rate = 90
    high = wait(lambda: in_force(world) and sum(world.replicas("chat")) > 4 and world.replicas("chat"), 180)
    assert world.condition("chat", "Active") == ("False", "ModeShadow")
    assert not [record for record in operator.decisions("chat") if record["writes"]]
    load.rate = 5
    low = wait(lambda: in_force(world) and sum(world.replicas("chat")) < sum(high) and world.replicas("chat"), 240)
    operator.kill()
    stays(lambda: world.replicas("chat"), low, 35)
