"""What admission/operator.yaml refuses the operator's own token where RBAC cannot tell one change from another."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.harness import setup
from tests.harness.attempts import MERGE, OWN, Attempt, core, json_patch
from tests.harness.setup import REPOSITORY


@pytest.fixture(scope="module")
def own_writes(kube, world, account, token, wait):
    """The admission policy as it ships, for this test's account, and the right that needs it most."""
    user = f"system:serviceaccount:default:{account}"
    text = (REPOSITORY / "admission" / "operator.yaml").read_text(encoding="utf-8")
    paths = []
    for body in yaml.safe_load_all(text.replace("system:serviceaccount:rlscaler-system:rlscaler", user)):
        plural = {"ValidatingAdmissionPolicy": "policies", "ValidatingAdmissionPolicyBinding": "policybindings"}
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmission{plural[body['kind']]}"
        kube.request("POST", path, body)
        paths.append(f"{path}/{body['metadata']['name']}")
    marks = setup.shipped_roles()["rlscaler-pod-deletion-cost"]["rules"]
    setup.grant(kube, account, "marks", marks, world.namespace)
    pods = wait(lambda: kube.request("GET", core(world.namespace, "pods"))["items"])
    refs = [{"name": f"chat-{pool}", "port": 80, "weight": 1} for pool in ("gpu", "cpu")]
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "chat"}}
    kube.request("POST", world.path("httproutes"), route | {"spec": {"rules": [{"backendRefs": refs}]}})
    yield pods[0]["metadata"]["name"]
    for path in paths:
        kube.delete(path)


FILTER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-user", "value": "admin"}]}}
MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "theirs", "port": 80}}}

HOSTILE_ROUTES = {
    "another Service": [("replace", "/spec/rules/0/backendRefs/0/name", "elsewhere")],
    "another port": [("replace", "/spec/rules/0/backendRefs/0/port", 8080)],
    "another namespace": [("add", "/spec/rules/0/backendRefs/0/namespace", "kube-system")],
    "another kind": [("add", "/spec/rules/0/backendRefs/0/kind", "ServiceImport")],
    "another group": [("add", "/spec/rules/0/backendRefs/0/group", "theirs.example")],
    "a backend's filter": [("add", "/spec/rules/0/backendRefs/0/filters", [FILTER])],
    "one backend more": [("add", "/spec/rules/0/backendRefs/-", {"name": "theirs", "port": 80, "weight": 1})],
    "one backend less": [("remove", "/spec/rules/0/backendRefs/1", None)],
    "no backends": [("remove", "/spec/rules/0/backendRefs", None)],
    "the order of backends": [
        ("replace", "/spec/rules/0/backendRefs/0/name", "chat-cpu"),
        ("replace", "/spec/rules/0/backendRefs/1/name", "chat-gpu"),
    ],
    "a rule's filter": [("add", "/spec/rules/0/filters", [FILTER])],
    "a mirror": [("add", "/spec/rules/0/filters", [MIRROR])],
    "a rule's timeouts": [("add", "/spec/rules/0/timeouts", {"request": "1ms"})],
    "a rule's matches": [("add", "/spec/rules/0/matches", [{"path": {"type": "Exact", "value": "/nowhere"}}])],
    "one rule more": [("add", "/spec/rules/-", {"backendRefs": [{"name": "theirs", "port": 80}]})],
    "no rules": [("remove", "/spec/rules", None)],
    "host names": [("add", "/spec/hostnames", ["elsewhere.example"])],
    "a Gateway": [("add", "/spec/parentRefs", [{"name": "public"}])],
    "a label": [("add", "/metadata/labels", {"a": "b"})],
    "an annotation": [("add", "/metadata/annotations", {"a": "b"})],
    "a finalizer": [("add", "/metadata/finalizers", ["theirs.example/one"])],
}
"""What a JSON patch of an HTTPRoute would change besides weights."""


@pytest.mark.parametrize("what", HOSTILE_ROUTES)
def test_of_a_route_nothing_but_weights_is_changed(own_writes, token, world, wait, what):
    route = world.path("httproutes", "chat")
    weight = ("replace", "/spec/rules/0/backendRefs/0/weight", 7)
    wait(lambda: token(json_patch(route, [("add", "/metadata/labels", {"a": "b"})]))[0] == 422)
    assert token(json_patch(route, [weight]))[0] == 200
    for steps in (HOSTILE_ROUTES[what], [weight, *HOSTILE_ROUTES[what]]):
        status, text = token(json_patch(route, steps))
        assert (status, "rlscaler-own-writes" in text) == (422, True), text


@pytest.fixture(scope="module")
def policies(kube, world, own_writes):
    """Deployments of a policy in Auto, of one in Shadow and of none; and a namespace without policies."""
    for name in ("auto", "shadow", "free"):
        world.deployment(f"{name}-cpu", "cpu", 3)
    for name, mode in (("auto", "Auto"), ("shadow", "Shadow")):
        bounds = {"deployment": f"{name}-cpu", "minReplicas": 2, "maxReplicas": 5}
        world.policy(name, mode=mode, targets={"cpu": bounds})
    return own_writes


@pytest.mark.parametrize(
    ("deployment", "replicas", "allowed"),
    [
        ("auto-cpu", 5, True),
        ("auto-cpu", 2, True),
        ("auto-cpu", 6, False),
        ("auto-cpu", 1, False),
        ("auto-cpu", 0, False),
        ("shadow-cpu", 9, True),
        ("free-cpu", 0, True),
    ],
)
def test_replicas_stay_within_the_policies_that_name_the_deployment(
    policies, token, world, wait, deployment, replicas, allowed
):
    scale = world.path("deployments", deployment, "scale")
    beyond = json_patch(world.path("deployments", "auto-cpu", "scale"), [("replace", "/spec/replicas", 99)])
    wait(lambda: token(beyond)[0] == 422)
    status, text = token(json_patch(scale, [("add", "/spec/replicas", replicas)]))
    assert (status == 200) == allowed, text
    assert allowed or "RLScalingPolicy auto" in text


def test_a_pool_that_is_out_of_its_bounds_may_be_brought_back(policies, token, world, wait):
    scale = world.path("deployments", "auto-cpu", "scale")
    wait(lambda: token(json_patch(scale, [("replace", "/spec/replicas", 99)]))[0] == 422)
    for found, step, allowed in ((9, 7, True), (9, 10, False), (0, 1, True), (1, 0, False)):
        world.patch("deployments", "auto-cpu", {"spec": {"replicas": found}})
        steps = [("test", "/spec/replicas", found or None), ("add", "/spec/replicas", step)]
        assert (token(json_patch(scale, steps))[0] == 200) == allowed, (found, step)


def test_a_newer_policy_that_waits_for_an_older_one_bounds_nothing(policies, token, world, wait):
    world.policy("late", targets={"cpu": {"deployment": "auto-cpu", "minReplicas": 1, "maxReplicas": 2}})
    world.patch("deployments", "auto-cpu", {"spec": {"replicas": 2}})
    grow = json_patch(world.path("deployments", "auto-cpu", "scale"), [("add", "/spec/replicas", 5)])
    wait(lambda: token(grow)[0] == 422)
    conflict = {"type": "Conflicted", "status": "True", "reason": "OlderPolicyExists", "message": "auto scales it"}
    status = {"conditions": [conflict | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    world.patch("rlscalingpolicies", "late", {"status": status}, "status")
    wait(lambda: token(grow)[0] == 200)
    beyond = json_patch(world.path("deployments", "auto-cpu", "scale"), [("add", "/spec/replicas", 6)])
    assert token(beyond)[0] == 422
    world.delete("rlscalingpolicies", "late")


def test_others_scale_what_they_like_with_or_without_a_policy_there(policies, kube, token, theirs, world, wait):
    """An HPA, say: what is refused to the operator is refused to nobody else."""
    too_many = json_patch(world.path("deployments", "auto-cpu", "scale"), [("replace", "/spec/replicas", 6)])
    wait(lambda: token(too_many)[0] == 422)
    labels = {"app": "alone"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    path = f"/apis/apps/v1/namespaces/{theirs}/deployments"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    kube.request("POST", path, {"metadata": {"name": "alone"}, "spec": spec})
    for scale in (f"{path}/alone/scale", world.path("deployments", "auto-cpu", "scale")):
        most = {"spec": {"replicas": 1000}}
        found = kube.merge(f"{scale}?dryRun=All", most)
        assert found["spec"]["replicas"] == 1000


def test_the_scale_subresource_changes_nothing_else(policies, token, world):
    """What is said about the rest of a Deployment in a patch of its scale is dropped by the API server itself."""
    attempt = json_patch(
        world.path("deployments", "auto-cpu", "scale"),
        [("replace", "/spec/replicas", 4), ("add", "/metadata/labels", {"a": "b"}), ("add", "/spec/paused", True)],
    )
    status, _ = token(attempt._replace(path=attempt.path.replace("dryRun=All&", "")))
    assert status in (200, 400, 422)
    after = world.get("deployments", "auto-cpu")
    assert "a" not in after["metadata"].get("labels", {})
    assert "paused" not in after["spec"]


def test_what_rbac_cannot_bound_the_admission_policy_does(own_writes, token, world, wait):
    pod = core(OWN, f"pods/{own_writes}")
    policy, route = world.path("rlscalingpolicies", "chat"), world.path("httproutes", "chat")

    def change(path: str, body: Any, kind: str = MERGE) -> str:
        """Whose refusal it is; empty = it was taken."""
        attempt = Attempt("", "PATCH", f"{path}?dryRun=All&fieldManager=rlscaler", body, (("Content-Type", kind),))
        status, text = token(attempt)
        own = "rlscaler-own-writes" in text
        return "" if status == 200 else "ours" if status == 422 and own else f"{status} {text}"

    def weights(*names: str) -> Any:
        refs = [{"name": name, "port": 80, "weight": 700} for name in names]
        return {"spec": {"rules": [{"backendRefs": refs}]}}

    wait(lambda: change(pod, {"metadata": {"annotations": {"other": "x"}}}) == "ours")
    image = {"spec": {"containers": [{"name": "app", "image": "mine"}]}}
    assert change(pod, image, "application/strategic-merge-patch+json") == "ours"
    assert change(pod, {"metadata": {"labels": {"app": "other"}}}) == "ours"
    assert change(pod, {"metadata": {"ownerReferences": None}}) == "ours"
    assert change(policy, {"metadata": {"annotations": {"rlscaler.io/paused": "true"}}}) == "ours"
    assert change(policy, {"metadata": {"finalizers": ["theirs.example/one"]}}) == "ours"
    assert change(policy, {"spec": {"mode": "Auto"}}) == "ours"
    assert change(route, weights("chat-gpu", "elsewhere")) == "ours"
    assert change(route, {"spec": {"hostnames": ["elsewhere.example"]}}) == "ours"

    assert change(pod, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1000"}}}) == ""
    assert change(policy, {"metadata": {"finalizers": ["rlscaler.io/restore"]}}) == ""
    assert change(policy, {"metadata": {"annotations": {"rlscaler.io/traffic-weights": "gpu=1,cpu=999"}}}) == ""
    assert change(route, weights("chat-gpu", "chat-cpu")) == ""
