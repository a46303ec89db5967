"""A policy that asks for sizes in place, and an operator that may not resize."""

from __future__ import annotations

SMALL = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
RANGES = {"cpu": {"min": "100m", "max": "1", "step": "100m"}, "memory": {"min": "32Mi", "max": "1Gi", "step": "32Mi"}}


def asks_for(world, name):
    return [pod["spec"]["containers"][0]["resources"] for pod in world.pods(name)]


def test_an_operator_that_may_not_resize_says_so(start, world, wait):
    world.service("plain", rate=4)
    world.deployment("plain-cpu", "cpu", 2, resources=SMALL)
    target = {"deployment": "plain-cpu", "minReplicas": 2, "maxReplicas": 2, "requestsPerSecond": 4}
    world.policy("plain", targets={"cpu": target | {"resources": {"mode": "InPlace", **RANGES}}})
    start()
    wait(lambda: world.condition("plain", "Active") == ("True", "ResizeNotAllowed"), 90)
    assert asks_for(world, "plain-cpu") == [SMALL, SMALL]
