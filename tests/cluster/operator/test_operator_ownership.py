"""Others who scale the targets: a GitOps tool that puts its manifest back, and a ScaledObject."""

import threading

import pytest

GROUP = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects"
SCALED_OBJECT_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "names": {"kind": "ScaledObject", "plural": "scaledobjects", "singular": "scaledobject"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def keda(kube, wait):
    """KEDA's resource; a KEDA that other tests ran leaves its own, which will do."""
    name = SCALED_OBJECT_CRD["metadata"]["name"]

    def is_there() -> bool:
        return name in [item["metadata"]["name"] for item in kube.request("GET", GROUP)["items"]]

    there = is_there()
    if not there:
        kube.request("POST", GROUP, SCALED_OBJECT_CRD)
    wait(lambda: kube.request("GET", SCALED_OBJECTS.format("default")))
    yield
    if not there:
        kube.delete(f"{GROUP}/{name}")
        # One that is still on its way out looks to the next module as if it were there.
        wait(lambda: not is_there(), 60)


@pytest.fixture(scope="module")
def operator(keda, start):
    return start()


def message(world, policy):
    conditions = world.get("rlscalingpolicies", policy)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == "Conflicted")


def test_a_gitops_tool_that_puts_replicas_back_is_named_with_the_remedy(operator, world, wait):
    load = world.service("git", rate=5)
    world.deployments("git", gpu=1, cpu=2)
    world.patch("deployments", "git-cpu", {"spec": {"replicas": 1}}, manager="argocd-controller")
    world.policy("git")
    wait(lambda: world.condition("git", "Ready")[0] == "True")
    assert world.condition("git", "Conflicted") == ("False", "NoConflict")
    assert "Argo CD (argocd-controller) owns spec.replicas of Deployment git-cpu" in message(world, "git")
    load.rate = 60
    wait(lambda: world.replicas("git")[1] > 1)
    ended = threading.Event()

    def sync():
        while not ended.wait(0.5):
            world.patch("deployments", "git-cpu", {"spec": {"replicas": 1}}, manager="argocd-controller")

    tool = threading.Thread(target=sync)
    tool.start()
    try:
        wait(lambda: world.condition("git", "Conflicted") == ("True", "ForeignWriter"), 60)
    finally:
        ended.set()
        tool.join()
    assert "ignoreDifferences" in message(world, "git")
    assert "ReplicasAdopted" in world.events("git")
    wait(lambda: world.condition("git", "Conflicted")[0] == "False", 90)
    wait(lambda: world.replicas("git")[1] > 1)


def test_a_scaled_object_holds_its_target_from_the_moment_it_is_there(operator, world, wait, stays):
    load = world.service("keda", rate=5)
    world.deployments("keda", gpu=1, cpu=2)
    world.policy("keda")
    wait(lambda: world.condition("keda", "Active")[0] == "True")
    path = SCALED_OBJECTS.format(world.namespace)
    body = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "theirs"},
        "spec": {
            "scaleTargetRef": {"name": "keda-cpu"},
            "triggers": [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50"}}],
        },
    }
    world.kube.request("POST", path, body)
    wait(lambda: world.condition("keda", "Conflicted") == ("True", "ScaledObjectExists"))
    held = world.replicas("keda")
    load.rate = 80
    stays(lambda: world.replicas("keda"), held, 5)
    world.kube.request("DELETE", f"{path}/theirs")
    wait(lambda: world.condition("keda", "Conflicted")[0] == "False", 90)
    wait(lambda: sum(world.replicas("keda")) > sum(held))
