"""New pods begin with the size that running ones got, on a real API server, and with the rights that ship."""

from __future__ import annotations

import pytest

from rlscaler_core.api.resources import amount
from tests.harness import setup
from tests.harness.sized import LARGE, SMALL, asks_for, dry_run, prepared, runs_with
from tests.harness.world import World


@pytest.fixture(scope="module", autouse=True)
def granted(kube, operator_kubeconfig, world):
    rules = setup.shipped_roles()["rlscaler-pod-resize"]["rules"]
    setup.grant(kube, "rlscaler", "resize", rules, world.namespace)
    with setup.new_pods(kube):
        yield


@pytest.fixture
def begin(start):
    """Start an operator; it has ended when the next test begins."""
    started = []

    def run():
        started.append(start("--resize", "--resize-new-pods"))
        return started[-1]

    yield run
    for one in started:
        one.stop()


def sizes(world: World, policy: str) -> dict:
    """How large new pods of a policy begin, by pool."""
    return world.get("rlscalingpolicies", policy).get("status", {}).get("newPods") or {}


def new_pod(world: World, wait, name: str) -> dict:
    """Delete a pod of a Deployment, and return the one that comes for it, as it was first seen."""
    before = {pod["metadata"]["name"] for pod in world.pods(name)}
    world.delete("pods", sorted(before)[0])
    return wait(lambda: next((pod for pod in world.pods(name) if pod["metadata"]["name"] not in before), None))


def sizes_of(pod: dict) -> dict:
    return pod["spec"]["containers"][0]["resources"]


def template_of(world: World, name: str) -> tuple[int, dict]:
    """Generation and template of a Deployment."""
    body = world.get("deployments", name)
    return body["metadata"]["generation"], body["spec"]["template"]


def test_a_new_pod_begins_with_the_size_and_its_template_is_not_touched(begin, world, wait):
    prepared(world, "acting", restoreOnDelete=True)
    prepared(world, "watching", mode="Shadow")
    world.deployment("other-cpu", "cpu", 1, resources=SMALL)
    before = template_of(world, "acting-cpu")
    begin()
    wait(lambda: sizes(world, "acting"), 120)
    expected = {"deployment": "acting-cpu", "cpu": "300m", "memory": "128Mi"}
    # These pods use a gigabyte, which is more than is counted: below what memory is not lowered is not known.
    wait(lambda: sizes(world, "acting") == {"cpu": expected}, 60)
    wait(lambda: dry_run(world, "acting-cpu") == LARGE)
    assert template_of(world, "acting-cpu") == before
    wait(lambda: world.get("rlscalingpolicies", "watching")["status"].get("lastDecision") is not None, 90)
    for name, size in (("acting-cpu", LARGE), ("watching-cpu", SMALL), ("other-cpu", SMALL)):
        pod = new_pod(world, wait, name)
        assert (pod["metadata"]["generation"], sizes_of(pod)) == (1, size), "it was created so, and never resized"
    assert sizes(world, "watching") == {}

    world.patch("rlscalingpolicies", "acting", {"spec": {"mode": "Shadow"}})
    wait(lambda: sizes(world, "acting") == {}, 60)
    wait(lambda: dry_run(world, "acting-cpu") == SMALL)
    world.patch("rlscalingpolicies", "acting", {"spec": {"mode": "Auto"}})
    wait(lambda: sizes(world, "acting"), 60)
    world.delete("rlscalingpolicies", "acting")
    wait(lambda: [one["requests"]["cpu"] for one in asks_for(world, "acting-cpu")] == ["200m", "200m"], 90)
    assert dry_run(world, "acting-cpu") == SMALL
    assert template_of(world, "acting-cpu")[1] == before[1]


def test_an_operator_that_is_killed_before_all_pods_are_resized_is_followed_by_one_that_goes_on(begin, world, wait):
    prepared(world, "killed", replicas=3)
    first = begin()
    wait(lambda: sizes(world, "killed"), 120)
    wait(lambda: dry_run(world, "killed-cpu") == LARGE)
    first.kill()
    not_reached = world.pods("killed-cpu")[-1]["metadata"]["name"]
    back = {"spec": {"containers": [{"name": "app", "resources": SMALL}]}}
    path = world.path("pods", not_reached, "resize")
    world.kube.request("PATCH", path, back, content_type="application/strategic-merge-patch+json")
    assert SMALL in asks_for(world, "killed-cpu")
    pod = new_pod(world, wait, "killed-cpu")
    assert (pod["metadata"]["generation"], sizes_of(pod)) == (1, LARGE), "no operator is needed for it"
    begin()
    wait(lambda: runs_with(world, "killed-cpu") == [LARGE, LARGE, LARGE], 120)
    assert sizes(world, "killed")


def test_what_an_operator_left_is_taken_away_by_the_next_one(begin, world, wait):
    prepared(world, "left")
    first = begin()
    wait(lambda: sizes(world, "left"), 120)
    first.kill()
    world.patch("rlscalingpolicies", "left", {"spec": {"targets": {"cpu": {"resources": None}}}})
    begin()
    wait(lambda: sizes(world, "left") == {}, 120)
    assert asks_for(world, "left-cpu"), "its pods are still there"


def test_pods_of_a_policy_that_goes_without_restoring_begin_as_their_template_says(begin, world, wait):
    prepared(world, "gone")
    begin()
    wait(lambda: sizes(world, "gone"), 120)
    world.delete("rlscalingpolicies", "gone")
    wait(lambda: dry_run(world, "gone-cpu") == SMALL)


def test_a_quota_that_refuses_new_pods_has_them_begin_as_their_template_says(begin, world, wait):
    prepared(world, "full", replicas=1)
    begin()
    wait(lambda: sizes(world, "full"), 120)
    wait(lambda: dry_run(world, "full-cpu") == LARGE)
    wait(lambda: not going(world))
    path = world.path("resourcequotas")
    pods = world.kube.request("GET", world.path("pods"))["items"]
    used = sum(amount(sizes_of(pod)["requests"]["cpu"]) for pod in pods)
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": f"{used + 0.25:.3f}"}}}
    world.kube.request("POST", path, quota)
    try:
        wait(lambda: world.kube.request("GET", f"{path}/small").get("status", {}).get("used"), 60)
        world.patch("rlscalingpolicies", "full", {"spec": {"targets": {"cpu": {"minReplicas": 2, "maxReplicas": 2}}}})
        wait(lambda: "NewPodsRefused" in world.events("full"), 90)
        wait(lambda: len(asks_for(world, "full-cpu")) == 2, 120)
        assert SMALL in asks_for(world, "full-cpu")
    finally:
        world.kube.delete(f"{path}/small")


def going(world: World) -> bool:
    """Are there pods on their way out, which count until they are gone?"""
    return any("deletionTimestamp" in one["metadata"] for one in world.kube.request("GET", world.path("pods"))["items"])
