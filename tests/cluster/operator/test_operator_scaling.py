"""Policies act on real Deployments: load, readiness, conflicts, deletion."""

import pytest

from rlscaler_operator.records.rows import decode_samples

HPA = {
    "metadata": {"name": "foreign"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "held-cpu"},
        "minReplicas": 2,
        "maxReplicas": 2,
    },
}


def route(name):
    refs = [{"name": f"{name}-{pool}", "port": 80, "weight": 1} for pool in ("gpu", "cpu")]
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"}
    return kind | {"metadata": {"name": name}, "spec": {"rules": [{"backendRefs": refs}]}}


@pytest.mark.smoke
def test_replicas_follow_the_load_and_weights_the_readiness(operator, world, wait):
    load = world.service("chat", rate=5)
    world.deployments("chat", gpu=1, cpu=1)
    world.kube.request("POST", world.path("httproutes"), route("chat"))
    world.policy("chat", placement={"httpRoute": {"name": "chat"}})
    wait(lambda: world.condition("chat", "Ready")[0] == "True")
    assert wait(lambda: world.condition("chat", "Active") == ("True", "Acting"))
    wait(lambda: world.weights("chat")["chat-gpu"] > 1)
    load.rate = 90
    gpu, cpu = wait(lambda: (r := world.replicas("chat"))[0] * 20 + r[1] * 4 >= 90 / 0.8 and r)

    def split():
        status = [world.get("deployments", f"chat-{pool}")["status"].get("readyReplicas", 0) for pool in ("gpu", "cpu")]
        weights = world.weights("chat")
        share = 1000 * status[0] * 20 / (status[0] * 20 + status[1] * 4)
        return sum(status) >= gpu + cpu and abs(weights["chat-gpu"] - share) < 2 and weights

    assert sum(wait(split).values()) == 1000
    load.rate = 5
    wait(lambda: sum(world.replicas("chat")) < gpu + cpu, 40)
    status = world.get("rlscalingpolicies", "chat")["status"]
    assert status["lastDecision"]["applied"]
    assert 1 <= len(status["history"]) <= 5
    assert "Scaled" in world.events("chat")
    managers = world.get("deployments", "chat-gpu")["metadata"]["managedFields"]
    assert "rlscaler" in {entry["manager"] for entry in managers if entry.get("subresource") == "scale"}
    record = operator.decisions("chat")[-1]
    assert record["kind"] in ("action", "floor")
    assert record["unknown_required"] == []
    assert next(step["guard"] for step in record["guards"]) == "proposal"


def test_without_a_route_the_weights_are_published(operator, world, wait):
    world.service("plain", rate=5)
    world.deployments("plain")
    world.policy("plain")
    annotation = "rlscaler.io/traffic-weights"
    look = lambda: world.get("rlscalingpolicies", "plain")["metadata"].get("annotations", {}).get(annotation)  # noqa: E731
    assert wait(look).startswith("gpu=")


def test_a_deployment_held_by_an_hpa_is_not_touched_though_decisions_go_on(operator, world, wait, stays):
    world.service("held", rate=80)
    world.deployments("held", gpu=1, cpu=2)
    world.kube.request("POST", world.path("horizontalpodautoscalers"), HPA)
    world.policy("held")
    world.deployment("shadow-x", "cpu")
    targets = {"cpu": {"deployment": "held-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "coldStartSeconds": 8}}
    world.policy("beside", mode="Shadow", targets=targets, metrics={"service": "held"})
    wait(lambda: world.condition("held", "Conflicted") == ("True", "HorizontalPodAutoscalerExists"))
    assert world.condition("held", "Active") == ("False", "Conflicted")
    wait(lambda: world.condition("beside", "Conflicted") == ("False", "NotActing"))
    for name in ("held", "beside"):
        desired = wait(lambda name=name: world.get("rlscalingpolicies", name)["status"].get("lastDecision"))
        assert desired["desired"]["cpu"] > 2
        assert not desired["applied"]
    assert world.replicas("held") == (1, 2)
    assert "HorizontalPodAutoscalerExists" in world.events("held")
    world.delete("horizontalpodautoscalers", "foreign")
    wait(lambda: world.condition("held", "Conflicted")[0] == "False")
    wait(lambda: world.replicas("held") != (1, 2))


def test_of_two_policies_the_older_one_acts(operator, world, wait):
    world.service("twin", rate=5)
    world.deployments("twin")
    world.policy("twin")
    wait(lambda: world.condition("twin", "Active")[0] == "True")
    targets = {"cpu": {"deployment": "twin-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "coldStartSeconds": 8}}
    world.policy("twin-b", targets=targets, metrics={"service": "twin"})
    wait(lambda: world.condition("twin-b", "Conflicted") == ("True", "OlderPolicyExists"))
    assert world.condition("twin", "Active")[0] == "True"
    world.delete("rlscalingpolicies", "twin")
    wait(lambda: world.condition("twin-b", "Active")[0] == "True")


def test_a_manual_scale_is_adopted_with_an_event_and_originals_come_back(operator, world, wait):
    load = world.service("manual", rate=52)
    world.deployments("manual", gpu=2, cpu=3)
    world.policy("manual", restoreOnDelete=True, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    wait(lambda: world.replicas("manual") != (2, 3))
    policy = world.get("rlscalingpolicies", "manual")
    assert policy["status"]["originals"]["replicas"] == {"gpu": 2, "cpu": 3}
    assert policy["metadata"]["finalizers"] == ["rlscaler.io/restore"]
    load.rate = 5
    world.patch("deployments", "manual-cpu", {"spec": {"replicas": 9}}, "scale", manager="kubectl")
    wait(lambda: "ReplicasAdopted" in world.events("manual"))
    # Originals come back as far as the measured load allows.
    wait(lambda: decode_samples(operator.decisions("manual")[-1]["samples"]).arrival_rate[0] < 10)
    world.delete("rlscalingpolicies", "manual")
    wait(lambda: world.replicas("manual") == (2, 3))
    items = lambda: world.kube.request("GET", world.path("rlscalingpolicies"))["items"]  # noqa: E731
    wait(lambda: "manual" not in {item["metadata"]["name"] for item in items()})


def test_pause_annotations_hold_and_set_replicas(operator, world, wait):
    world.service("rest", rate=80)
    world.deployments("rest", gpu=1, cpu=1)
    world.policy("rest", mode="Shadow")
    annotations = {"rlscaler.io/paused-replicas-gpu": "2"}
    world.patch("rlscalingpolicies", "rest", {"metadata": {"annotations": annotations}, "spec": {"mode": "Auto"}})
    wait(lambda: world.condition("rest", "Paused") == ("True", "Annotated"))
    wait(lambda: world.replicas("rest") == (2, 1))
    world.patch("rlscalingpolicies", "rest", {"metadata": {"annotations": dict.fromkeys(annotations)}})
    wait(lambda: sum(world.replicas("rest")) > 3)


def test_zero_replicas_by_hand_turn_a_pool_off_until_it_is_turned_on(operator, world, wait, stays):
    """As with an HPA: nothing else that the operator does for the service stops."""
    world.service("night", rate=40)
    world.deployments("night", gpu=2, cpu=2)
    world.policy("night")
    wait(lambda: world.replicas("night") not in ((2, 2), (2, 0)))
    world.patch("deployments", "night-gpu", {"spec": {"replicas": 0}}, "scale", manager="kubectl-scale")
    wait(lambda: world.condition("night", "Active") == ("True", "ScalingDisabled"))
    wait(lambda: world.replicas("night")[1] >= 10, 60)
    stays(lambda: world.replicas("night")[0], 0, 12)
    world.patch("deployments", "night-cpu", {"spec": {"replicas": 0}}, "scale", manager="kubectl-scale")
    wait(lambda: world.condition("night", "Active") == ("False", "ScalingDisabled"))
    stays(lambda: world.replicas("night"), (0, 0), 12)
    message = next(c for c in world.get("rlscalingpolicies", "night")["status"]["conditions"] if c["type"] == "Active")
    assert "scale deployment/night-gpu --replicas=1" in message["message"]
    world.patch("deployments", "night-gpu", {"spec": {"replicas": 1}}, "scale", manager="kubectl-scale")
    wait(lambda: world.condition("night", "Active") == ("True", "ScalingDisabled"))
    wait(lambda: world.replicas("night")[0] > 1)
    assert world.replicas("night")[1] == 0


def test_zero_replicas_that_the_operator_set_itself_come_back_with_the_load(operator, world, wait):
    load = world.service("idle", rate=0)
    world.deployments("idle", gpu=1, cpu=1)
    targets = {
        "gpu": {"deployment": "idle-gpu", "maxReplicas": 10, "requestsPerSecond": 20, "coldStartSeconds": 8},
        "cpu": {"deployment": "idle-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "coldStartSeconds": 8},
    }
    targets["gpu"]["minReplicas"] = 0
    world.policy("idle", targets=targets)
    wait(lambda: world.replicas("idle")[0] == 0, 60)
    load.rate = 150
    wait(lambda: world.replicas("idle")[0] >= 5, 60)
    assert world.condition("idle", "Active") == ("True", "Acting")
