"""A policy that asks for sizes in place: what an operator resizes, and what one that may not says."""

from __future__ import annotations

from tests.harness import setup
from tests.harness.sized import LARGE, SMALL, asks_for, prepared, runs_with


def test_an_operator_that_may_not_resize_says_so(start, world, wait):
    prepared(world, "plain")
    operator = start()
    wait(lambda: world.condition("plain", "Active") == ("True", "ResizeNotAllowed"), 90)
    assert asks_for(world, "plain-cpu") == [SMALL, SMALL]
    operator.stop()


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
