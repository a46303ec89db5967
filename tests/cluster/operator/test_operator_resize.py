"""A policy that asks for sizes in place: what an operator resizes, and what one that may not says."""

from __future__ import annotations

import time

import numpy as np

from rlscaler_core.vertical.recommend import FEWEST_SAMPLES, Ranges, Usage, nothing_known, recommend
from rlscaler_core.vertical.storage import to_text
from tests.harness import setup

SMALL = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "128Mi"}, "limits": {"cpu": "600m", "memory": "128Mi"}}
RANGES = {"cpu": {"min": "100m", "max": "300m"}, "memory": {"min": "32Mi", "max": "128Mi"}}
MIB = 2.0**20
MOST = np.array([[0.3, 128 * MIB]])


def asks_for(world, name):
    return [pod["spec"]["containers"][0]["resources"] for pod in world.pods(name)]


def runs_with(world, name):
    statuses = [pod["status"].get("containerStatuses") or [{}] for pod in world.pods(name)]
    return [status[0].get("resources") for status in statuses]


def seen():
    """What an operator before would have left: pods that used all that the range has."""
    ranges, memory = Ranges(np.array([[0.1, 32 * MIB]]), MOST, MOST / 20), nothing_known(1)
    for number in range(FEWEST_SAMPLES):
        memory = recommend(ranges, memory, Usage(np.array([time.time() - 300 + number]), MOST))
    return {"cpu": {"cpu": "300m", "memory": "128Mi"}, "seen": to_text(memory)}


def prepared(world, name, **spec):
    world.service(name, rate=4)
    world.deployment(f"{name}-cpu", "cpu", 2, resources=SMALL)
    target = {"deployment": f"{name}-cpu", "minReplicas": 2, "maxReplicas": 2, "requestsPerSecond": 4}
    world.policy(name, targets={"cpu": target | {"resources": {"mode": "InPlace", **RANGES}}}, **spec)
    world.patch("rlscalingpolicies", name, {"status": {"podSizes": seen()}}, "status")


def test_an_operator_that_may_not_resize_says_so(start, world, wait):
    prepared(world, "plain")
    start()
    wait(lambda: world.condition("plain", "Active") == ("True", "ResizeNotAllowed"), 90)
    assert asks_for(world, "plain-cpu") == [SMALL, SMALL]


def test_pods_of_a_policy_that_acts_are_resized_and_those_of_one_in_shadow_are_not(start, world, wait, kube):
    rules = setup.shipped_roles()["rlscaler-pod-resize"]["rules"]
    setup.grant(kube, "rlscaler", "resizes", rules, world.namespace)
    prepared(world, "acting", restoreOnDelete=True)
    prepared(world, "watching", mode="Shadow")
    start("--resize")
    wait(lambda: runs_with(world, "acting-cpu") == [LARGE, LARGE], 120)
    wait(lambda: world.get("rlscalingpolicies", "watching")["status"].get("lastDecision") is not None, 90)
    shown = world.get("rlscalingpolicies", "watching")["status"]["podSizes"]
    assert shown["cpu"] == {"cpu": "300m", "memory": "128Mi"}, "what was seen before the operator began is kept"
    assert asks_for(world, "watching-cpu") == [SMALL, SMALL]
    pod = world.pods("acting-cpu")[0]["metadata"]["name"]
    world.delete("pods", pod)
    wait(lambda: runs_with(world, "acting-cpu") == [LARGE, LARGE], 120)
    world.delete("rlscalingpolicies", "acting")
    wait(lambda: [one["requests"]["cpu"] for one in asks_for(world, "acting-cpu")] == ["200m", "200m"], 90)
