"""The operator resizes the running pods of a policy in Auto, goes on after it was killed, and gives the size back."""

from __future__ import annotations

import pytest

from rlscaler_core.vertical.recommend import FEWEST_SAMPLES, nothing_known
from rlscaler_core.vertical.storage import to_text
from rlscaler_operator.actuation.resize_plan import AT_ONCE
from tests.harness import setup

SMALL = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
PODS = 2 * AT_ONCE + 1
RANGES = {"cpu": {"min": "100m", "max": "1", "step": "100m"}, "memory": {"min": "32Mi", "max": "1Gi", "step": "32Mi"}}


@pytest.fixture(scope="module")
def granted(kube, operator_kubeconfig, world) -> None:
    setup.grant(kube, "rlscaler", "resizes", setup.shipped_roles()["rlscaler-pod-resize"]["rules"], world.namespace)


def seen(cpu: float, memory: float) -> str:
    """What an operator of earlier has seen, and recommends; it outlives it in the status."""
    known = nothing_known(1)
    known.most[0], known.size[0] = (1.0, 1 << 30), (cpu, memory)
    known.samples[0] = FEWEST_SAMPLES
    known.seen[0, 0] = 1.0
    return to_text(known)


def policy(world, name, mode, **more):
    target = {"deployment": f"{name}-cpu", "minReplicas": PODS, "maxReplicas": PODS, "requestsPerSecond": 4}
    target |= {"resources": {"mode": "InPlace", **RANGES}}
    world.policy(name, mode=mode, targets={"cpu": target}, **more)
    world.patch("rlscalingpolicies", name, {"status": {"podSizes": {"seen": seen(0.3, 128 << 20)}}}, "status")


def sizes(world, name):
    """What the containers run with: CPU requests and limits, and memory requests."""
    found = [pod["status"]["containerStatuses"][0]["resources"] for pod in world.pods(name)]
    return {(one["requests"]["cpu"], one["limits"]["cpu"], one["requests"]["memory"]) for one in found}


BEFORE, AFTER = {("200m", "400m", "64Mi")}, {("300m", "600m", "128Mi")}


def running(world, name):
    return sum(pod["status"]["phase"] == "Running" for pod in world.pods(name)) == PODS


def test_an_operator_that_may_not_resize_says_so(start, world, wait):
    world.service("plain", rate=4)
    world.deployment("plain-cpu", "cpu", PODS, resources=SMALL)
    policy(world, "plain", "Auto")
    one = start()
    wait(lambda: world.condition("plain", "Active") == ("True", "ResizeNotAllowed"), 90)
    assert sizes(world, "plain-cpu") <= BEFORE
    one.kill()
    world.delete("rlscalingpolicies", "plain")


def test_shadow_resizes_nothing_and_auto_everything_without_a_restart(granted, start, world, wait, stays):
    world.service("chat", rate=4)
    world.deployment("chat-cpu", "cpu", PODS, resources=SMALL)
    wait(lambda: running(world, "chat-cpu"), 60)
    policy(world, "chat", "Shadow", restoreOnDelete=True)
    one = start("--resize")
    shown = {"cpu": "300m", "memory": "128Mi"}
    wait(lambda: world.get("rlscalingpolicies", "chat")["status"].get("podSizes", {}).get("cpu") == shown, 90)
    stays(lambda: sizes(world, "chat-cpu"), BEFORE, 5)
    uids = {pod["metadata"]["uid"] for pod in world.pods("chat-cpu")}
    world.patch("rlscalingpolicies", "chat", {"spec": {"mode": "Auto"}})
    wait(lambda: any(found != next(iter(BEFORE)) for found in sizes(world, "chat-cpu")), 60)
    one.kill()
    left = sizes(world, "chat-cpu")
    start("--resize")
    wait(lambda: sizes(world, "chat-cpu") == AFTER, 90)
    assert {pod["metadata"]["uid"] for pod in world.pods("chat-cpu")} == uids, (
        f"none was replaced; it began from {left}"
    )
    wait(lambda: world.condition("chat", "Active") == ("True", "Acting"), 60)


def test_a_new_pod_is_resized_and_a_policy_that_goes_gives_the_size_back(granted, world, wait):
    world.delete("pods", world.pods("chat-cpu")[0]["metadata"]["name"])
    wait(lambda: running(world, "chat-cpu") and sizes(world, "chat-cpu") == AFTER, 90)
    world.delete("rlscalingpolicies", "chat")
    wait(lambda: sizes(world, "chat-cpu") == BEFORE, 90)
