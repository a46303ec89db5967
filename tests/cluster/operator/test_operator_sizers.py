"""Others that size pods, or go by what they ask for: a VerticalPodAutoscaler, and an HPA on CPU utilization."""

from __future__ import annotations

from tests.harness import setup
from tests.harness.sized import LARGE, SMALL, asks_for, prepared, runs_with
from tests.harness.world import World

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}


def message(world: World, name: str, kind: str) -> str:
    conditions = world.get("rlscalingpolicies", name)["status"]["conditions"]
    return next(one["message"] for one in conditions if one["type"] == kind)


def test_pods_that_others_size_are_left_to_them_and_the_remedy_is_named(start, world, wait, kube):
    rules = setup.shipped_roles()["rlscaler-pod-resize"]["rules"]
    setup.grant(kube, "rlscaler", "resizes", rules, world.namespace)
    prepared(world, "sized")
    prepared(world, "shown", sizing="Recommend")
    prepared(world, "scaled")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled-cpu"}
    hpa = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 2, "metrics": [CPU]}
    world.kube.request("POST", world.path("horizontalpodautoscalers"), {"metadata": {"name": "theirs"}, "spec": hpa})
    operator = start("--resize")
    wait(lambda: runs_with(world, "sized-cpu") == [LARGE, LARGE], 120)

    wait(lambda: world.condition("scaled", "Conflicted") == ("True", "HorizontalPodAutoscalerExists"))
    assert "HPA theirs scales Deployment scaled-cpu" in message(world, "scaled", "Conflicted")
    assert asks_for(world, "scaled-cpu") == [SMALL, SMALL]

    with setup.vertical_autoscalers(kube):
        for name in ("sized", "shown"):
            world.vertical_autoscaler(f"{name}-vpa", f"{name}-cpu", "Recreate")
        wait(lambda: world.condition("sized", "Active") == ("True", "VerticalPodAutoscalerExists"), 90)
        assert "delete vpa sized-vpa" in message(world, "sized", "Active")
        world.delete("pods", world.pods("sized-cpu")[0]["metadata"]["name"])
        wait(lambda: SMALL in runs_with(world, "sized-cpu"))
        before = len(operator.decisions("sized"))
        wait(lambda: len(operator.decisions("sized")) > before, 60)
        assert SMALL in asks_for(world, "sized-cpu"), "it decided once more, and left the new pod alone"

        wait(lambda: "VerticalPodAutoscalerExists" in world.events("shown"), 60)
        assert world.condition("shown", "Active") == ("True", "Acting")

        world.patch("verticalpodautoscalers", "sized-vpa", {"spec": {"updatePolicy": {"updateMode": "Off"}}})
        wait(lambda: runs_with(world, "sized-cpu") == [LARGE, LARGE], 90)
        wait(lambda: world.condition("sized", "Active") == ("True", "Acting"), 60)
