"""Pods that go and pods that are replaced: with the real ReplicaSet and Deployment controllers."""

import re

import pytest

from rlscaler_operator.sensing.pod_names import CUT_AFTER, WHOLE, pods_of
from tests.harness import setup

AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@pytest.fixture(scope="module")
def operator(kube, start, world):
    setup.grant(
        kube, "rlscaler", "marks", setup.shipped_roles()["rlscaler-pod-deletion-cost"]["rules"], world.namespace
    )
    return start("--pod-deletion-cost")


def ready(world, deployment):
    found = world.get("deployments", deployment)
    return found.get("status", {}).get("readyReplicas", 0) == found["spec"]["replicas"]


def names(world, deployment):
    return {pod["metadata"]["name"] for pod in world.pods(deployment)}


def test_the_idle_pods_go_when_a_pool_shrinks(operator, world, wait):
    load = world.service("idle", rate=60)
    world.deployments("idle", gpu=1, cpu=6)
    wait(lambda: ready(world, "idle-cpu"))
    before = names(world, "idle-cpu")
    busy = set(sorted(before)[:3])
    load.busy = {name: 9.0 if name in busy else 0.0 for name in before}
    load.rate = 2
    targets = {"cpu": {"deployment": "idle-cpu", "minReplicas": 3, "maxReplicas": 6, "requestsPerSecond": 4}}
    world.policy("idle", targets=targets, behavior=AT_ONCE)
    wait(lambda: len(names(world, "idle-cpu")) == 3, 90)
    assert names(world, "idle-cpu") == busy
    assert "pods" not in operator.log.read_text().lower().partition("was not marked")[2]


def test_nothing_is_scaled_down_while_a_target_is_rolled_out(operator, world, wait, stays):
    load = world.service("roll", rate=60)
    world.deployments("roll", gpu=4, cpu=4)
    wait(lambda: ready(world, "roll-gpu") and ready(world, "roll-cpu"))
    world.policy("roll", behavior=AT_ONCE)
    wait(lambda: world.condition("roll", "Active") == ("True", "Acting"), 60)
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = {"metadata": {"annotations": {"version": "2"}}, "spec": {"nodeSelector": {"pool": "nowhere"}}}
    world.patch("deployments", "roll-cpu", {"spec": {"strategy": strategy, "template": template}})
    wait(lambda: world.condition("roll", "Active") == ("True", "RolloutInProgress"))
    held = world.replicas("roll")
    load.rate = 2
    stays(lambda: all(now >= then for now, then in zip(world.replicas("roll"), held, strict=True)), True, 12)
    assert sum(held) >= 8
    world.patch("deployments", "roll-cpu", {"spec": {"template": {"spec": {"nodeSelector": {"pool": "cpu"}}}}})
    wait(lambda: world.condition("roll", "Active") == ("True", "Acting"), 60)
    wait(lambda: sum(world.replicas("roll")) < sum(held), 60)


@pytest.mark.parametrize("characters", [WHOLE, WHOLE + 1, 52, CUT_AFTER - 1])
def test_the_names_of_real_pods_are_those_of_their_deployment(world, wait, characters):
    name = ("long-name-" * 6)[: characters - 4] + "-gpu"
    world.deployment(name, "cpu", 2)
    wait(lambda: len(names(world, name)) == 2)
    pattern = pods_of([name]).replace(r"\\", "\\")
    assert all(re.fullmatch(pattern, pod) for pod in names(world, name)), names(world, name)
