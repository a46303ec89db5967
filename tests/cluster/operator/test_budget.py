"""RLScalingBudgets on the real API server: two services, few GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rlscaler_dev.cluster.kwok import node
from rlscaler_dev.exceptions import ApiError

BUDGETS = "/apis/rlscaler.io/v1alpha1/rlscalingbudgets"


pytestmark = pytest.mark.usefixtures("with_budgets")


@pytest.fixture(scope="module")
def operator(start, with_budgets):
    return start("--budgets")


@pytest.fixture
def budget(kube, world):
    """Create a budget of the policies of this namespace with a label; all are deleted in the end."""
    made = []

    def make(name, amount, *members, **spec):
        full = f"{name}-{os.getpid()}"
        entries = [{"namespace": world.namespace} | member for member in members]
        body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": full}}
        terms = {"members": entries, "intervalSeconds": 5} | ({} if amount is None else {"amount": amount})
        kube.request("POST", BUDGETS, body | {"spec": terms | spec})
        made.append(full)
        return full

    yield make
    for name in made:
        if any(item["metadata"]["name"] == name for item in kube.request("GET", BUDGETS)["items"]):
            kube.delete(f"{BUDGETS}/{name}")


def service(world, name, rate, replicas=1):
    """A service on GPUs alone: 20 requests/s for each replica, at most ten."""
    load = world.service(name, rate=rate)
    world.deployment(f"{name}-gpu", "gpu", replicas)
    target = {"deployment": f"{name}-gpu", "maxReplicas": 10, "requestsPerSecond": 20, "coldStartSeconds": 8}
    quick = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    world.policy(name, targets={"gpu": target}, behavior=quick, guards={"ceilingSeconds": 60})
    world.patch("rlscalingpolicies", name, {"metadata": {"labels": {"share": name}}})
    return load


def member(name, **terms):
    return {"name": name, "matchLabels": {"share": name}} | terms


def gpus(world, name):
    return world.get("deployments", f"{name}-gpu")["spec"]["replicas"]


def status(kube, name):
    return kube.request("GET", f"{BUDGETS}/{name}").get("status", {})


def condition(kube, name, type_):
    found = status(kube, name).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in found if c["type"] == type_), ("", ""))


def shared(kube, name, policy):
    return next((m for m in status(kube, name).get("members", []) if m["policy"] == policy), {})


def test_a_guarantee_is_kept_while_it_is_asked_for_and_lent_while_not(operator, kube, world, wait, stays, budget):
    modest = service(world, "modest", 5)
    service(world, "greedy", 400)
    wait(lambda: gpus(world, "greedy") == 10)
    name = budget("few", 6, member("greedy"), member("modest", guaranteed=3))
    wait(lambda: gpus(world, "greedy") == 5, 90)
    stays(lambda: gpus(world, "greedy") + gpus(world, "modest") <= 6, True, 12)
    wait(lambda: world.condition("greedy", "Active") == ("True", "GrantLimited"))
    wait(lambda: shared(kube, name, "greedy").get("borrowed") == 5)
    modest.rate = 200
    wait(lambda: gpus(world, "modest") == 3, 60)
    wait(lambda: gpus(world, "greedy") == 3, 60)
    stays(lambda: (gpus(world, "greedy"), gpus(world, "modest")), (3, 3), 12)
    wait(lambda: condition(kube, name, "Ready") == ("True", "Ready"))
    wait(lambda: condition(kube, name, "GuaranteesKept") == ("True", "Enough"))
    found = wait(lambda: shared(kube, name, "greedy").get("granted") == 3 and status(kube, name))
    assert (found["granted"], found["idle"], found["policies"]) == (6, 0, 2)
    one = shared(kube, name, "greedy")
    assert one["asked"] == 10
    wait(lambda: shared(kube, name, "greedy")["starvedSeconds"] > one["starvedSeconds"])
    world.patch("rlscalingpolicies", "greedy", {"spec": {"targets": {"gpu": {"maxReplicas": 1}}}})
    wait(lambda: gpus(world, "greedy") == 1, 60)
    wait(lambda: gpus(world, "modest") == 5, 60)
    limited = [record for record in operator.decisions("greedy") if record["grant"]]
    assert limited
    assert any(f"RLScalingBudget {name}: asked 10, granted" in record["grant"] for record in limited)
    assert {step["guard"] for step in limited[-1]["guards"]} >= {"grant"}
    replayed = subprocess.run(
        [sys.executable, "-m", "rlscaler_live.cli", "replay", str(operator.audit), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    tally = json.loads(replayed.stdout)
    assert replayed.returncode == 0, replayed.stderr
    assert tally["same"] == tally["decisions"] > 10
    assert tally["sharings"] == tally["sharingsSame"] > 5
    for one in ("greedy", "modest"):
        world.delete("rlscalingpolicies", one)


def test_policies_of_a_deleted_budget_have_their_own_limits_again(operator, kube, world, wait, stays, budget):
    service(world, "freed", 400)
    name = budget("gone", 2, member("freed"))
    wait(lambda: gpus(world, "freed") == 2, 60)
    stays(lambda: gpus(world, "freed"), 2, 12)
    kube.delete(f"{BUDGETS}/{name}")
    wait(lambda: gpus(world, "freed") == 10, 60)
    wait(lambda: "BudgetDeleted" in world.events("freed"))
    world.delete("rlscalingpolicies", "freed")


def test_a_policy_in_two_budgets_is_bound_by_neither_and_both_say_so(operator, kube, world, wait, stays, budget):
    service(world, "torn", 100)
    first, second = budget("one", 1, member("torn")), budget("two", 2, member("torn"))
    wait(lambda: world.condition("torn", "Active") == ("True", "InSeveralBudgets"), 60)
    text = next(c for c in world.get("rlscalingpolicies", "torn")["status"]["conditions"] if c["type"] == "Active")
    assert first in text["message"]
    assert second in text["message"]
    for name in (first, second):
        wait(lambda name=name: condition(kube, name, "Ready") == ("False", "PolicyInSeveralBudgets"))
    wait(lambda: gpus(world, "torn") >= 5, 60)
    kube.delete(f"{BUDGETS}/{first}")
    wait(lambda: gpus(world, "torn") == 2, 90)
    wait(lambda: condition(kube, second, "Ready") == ("True", "Ready"))
    world.delete("rlscalingpolicies", "torn")


def test_while_nobody_acts_the_last_grant_holds(operator, start, kube, world, wait, stays, budget):
    service(world, "orphan", 400)
    name = budget("owner", 3, member("orphan"))
    wait(lambda: gpus(world, "orphan") == 3, 60)
    wait(lambda: shared(kube, name, "orphan").get("granted") == 3)
    before = shared(kube, name, "orphan")["starvedSeconds"]
    operator.kill()
    stays(lambda: gpus(world, "orphan"), 3, 5)
    start("--budgets")
    wait(lambda: shared(kube, name, "orphan")["starvedSeconds"] > before, 60)
    stays(lambda: gpus(world, "orphan"), 3, 15)
    world.delete("rlscalingpolicies", "orphan")


def test_a_node_that_disappears_takes_nobodys_guarantee_and_kills_nothing(
    operator, kube, world, wait, stays, budget, request
):
    label = f"budget-{os.getpid()}"

    def add(name):
        body = node(f"{label}-{name}", "elsewhere", gpus=4)
        body["metadata"]["labels"][label] = "yes"
        kube.request("POST", "/api/v1/nodes", body)

    def remove(name):
        kube.delete(f"/api/v1/nodes/{label}-{name}")

    add("one")
    add("two")
    request.addfinalizer(lambda: [remove(name) for name in ("one", "two", "three")])
    service(world, "keeps", 60)
    service(world, "grows", 400)
    selection = {"nodes": {"matchLabels": {label: "yes"}}}
    terms = member("keeps", guaranteed=3, ceiling=3), member("grows", guaranteed=3)
    name = budget("counted", None, *terms, amountFrom=selection)
    wait(lambda: status(kube, name).get("amount") == 8, 60)
    wait(lambda: (gpus(world, "keeps"), gpus(world, "grows")) == (3, 5), 90)
    pod = {
        "metadata": {"name": "of-others"},
        "spec": {
            "nodeName": f"{label}-two",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    kube.request("POST", f"/api/v1/namespaces/{world.namespace}/pods", pod)
    wait(lambda: status(kube, name).get("amount") == 7, 60)
    wait(lambda: (gpus(world, "keeps"), gpus(world, "grows")) == (3, 4), 60)
    remove("two")
    wait(lambda: condition(kube, name, "GuaranteesKept") == ("False", "TooFew"), 60)
    found = status(kube, name)
    assert (found["amount"], found["nodes"], found["borrowed"]) == (4, 1, 0)
    text = next(c["message"] for c in found["conditions"] if c["type"] == "GuaranteesKept")
    assert "4 units on the 1 nodes" in text
    assert "bring nodes back or add some" in text
    wait(lambda: (gpus(world, "keeps"), gpus(world, "grows")) == (2, 2), 90)
    stays(lambda: (gpus(world, "keeps"), gpus(world, "grows")), (2, 2), 10)
    add("three")
    wait(lambda: condition(kube, name, "GuaranteesKept") == ("True", "Enough"), 60)
    wait(lambda: (gpus(world, "keeps"), gpus(world, "grows")) == (3, 5), 90)
    assert condition(kube, name, "AmountKnown") == ("True", "Counted")
    for one in ("keeps", "grows"):
        world.delete("rlscalingpolicies", one)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"amount": 2, "members": [member("a", guaranteed=2), member("b", guaranteed=1)]}, "are more than amount"),
        ({"amount": 2, "members": [member("a", weight=0)]}, "weight"),
        ({"amount": 2, "members": [member("a"), member("a")]}, "Duplicate value"),
        ({"amount": 2, "members": [member("a", guaranteed=2, ceiling=1)]}, "ceiling is below guaranteed"),
        ({"amount": 2, "members": []}, "members"),
        ({"amount": -1, "members": [member("a")]}, "amount"),
        ({"members": [member("a")]}, "name either amount or amountFrom"),
        (
            {"amount": 1, "amountFrom": {"nodes": {"matchLabels": {"a": "b"}}}, "members": [member("a")]},
            "name either amount or amountFrom",
        ),
        ({"amount": 2, "arbiter": "Learned", "members": [member("a")]}, "arbiter"),
    ],
)
def test_the_api_server_refuses_what_makes_no_sense(kube, spec, named):
    body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": "wrong"}}
    with pytest.raises(ApiError, match=named):
        kube.request("POST", BUDGETS, body | {"spec": spec})
