"""RLScalingBudgets on the real API server: two services, few GPUs."""

from __future__ import annotations

import os

import pytest

from rlscaler_dev.cluster.kwok import node
from rlscaler_dev.exceptions import ApiError
from tests.harness.sharing import BUDGETS, member

pytestmark = pytest.mark.usefixtures("with_budgets")


@pytest.fixture(scope="module")
def operator(start, with_budgets):
    return start("--budgets")


def test_a_guarantee_is_kept_while_it_is_asked_for_and_lent_while_not(operator, kube, world, wait, stays, sharing):
    modest = sharing.service("modest", 5)
    sharing.service("greedy", 400)
    wait(lambda: sharing.gpus("greedy") == 10)
    name = sharing.budget("few", 6, member("greedy"), member("modest", guaranteed=3))
    wait(lambda: sharing.gpus("greedy") == 5, 90)
    stays(lambda: sharing.gpus("greedy") + sharing.gpus("modest") <= 6, True, 12)
    wait(lambda: world.condition("greedy", "Active") == ("True", "GrantLimited"))
    wait(lambda: sharing.share(name, "greedy").get("borrowed") == 5)
    modest.rate = 200
    wait(lambda: sharing.gpus("modest") == 3, 60)
    wait(lambda: sharing.gpus("greedy") == 3, 60)
    stays(lambda: (sharing.gpus("greedy"), sharing.gpus("modest")), (3, 3), 12)
    wait(lambda: sharing.condition(name, "Ready") == ("True", "Ready"))
    wait(lambda: sharing.condition(name, "GuaranteesKept") == ("True", "Enough"))
    found = wait(lambda: sharing.share(name, "greedy").get("granted") == 3 and sharing.status(name))
    assert (found["granted"], found["idle"], found["policies"]) == (6, 0, 2)
    one = sharing.share(name, "greedy")
    assert one["asked"] == 10
    wait(lambda: sharing.share(name, "greedy")["starvedSeconds"] > one["starvedSeconds"])
    sharing.limit("greedy", 1)
    wait(lambda: sharing.gpus("greedy") == 1, 60)
    wait(lambda: sharing.gpus("modest") == 5, 60)
    limited = [record for record in operator.decisions("greedy") if record["grant"]]
    assert limited
    assert any(f"RLScalingBudget {name}: asked 10, granted" in record["grant"] for record in limited)
    assert {step["guard"] for step in limited[-1]["guards"]} >= {"grant"}
    tally = operator.replayed()
    assert tally["same"] == tally["decisions"] > 10
    assert tally["sharings"] == tally["sharingsSame"] > 5
    for one in ("greedy", "modest"):
        world.delete("rlscalingpolicies", one)


def test_policies_of_a_deleted_budget_have_their_own_limits_again(operator, kube, world, wait, stays, sharing):
    sharing.service("freed", 400)
    name = sharing.budget("gone", 2, member("freed"))
    wait(lambda: sharing.gpus("freed") == 2, 60)
    stays(lambda: sharing.gpus("freed"), 2, 12)
    sharing.delete(name)
    wait(lambda: sharing.gpus("freed") == 10, 60)
    wait(lambda: "BudgetDeleted" in world.events("freed"))
    world.delete("rlscalingpolicies", "freed")


def test_a_policy_in_two_budgets_is_bound_by_the_one_that_it_was_in_and_all_say_so(
    operator, kube, world, wait, stays, sharing
):
    sharing.service("torn", 100)
    first = sharing.budget("one", 1, member("torn"))
    wait(lambda: world.condition("torn", "Active") == ("True", "GrantLimited"), 60)
    second = sharing.budget("two", 2, member("torn"))
    wait(lambda: world.condition("torn", "Active") == ("True", "InSeveralBudgets"), 60)
    text = next(c for c in world.get("rlscalingpolicies", "torn")["status"]["conditions"] if c["type"] == "Active")
    assert first in text["message"]
    assert second in text["message"]
    for name in (first, second):
        wait(lambda name=name: sharing.condition(name, "Ready") == ("False", "PolicyInSeveralBudgets"))
    stays(lambda: sharing.gpus("torn"), 1, 12)
    sharing.delete(first)
    wait(lambda: sharing.gpus("torn") == 2, 90)
    wait(lambda: sharing.condition(second, "Ready") == ("True", "Ready"))
    world.delete("rlscalingpolicies", "torn")


def test_while_nobody_acts_the_last_grant_holds(operator, start, kube, world, wait, stays, sharing):
    sharing.service("orphan", 400)
    name = sharing.budget("owner", 3, member("orphan"))
    wait(lambda: sharing.gpus("orphan") == 3, 60)
    wait(lambda: sharing.share(name, "orphan").get("granted") == 3)
    before = sharing.share(name, "orphan")["starvedSeconds"]
    operator.kill()
    stays(lambda: sharing.gpus("orphan"), 3, 5)
    start("--budgets")
    wait(lambda: sharing.share(name, "orphan")["starvedSeconds"] > before, 60)
    stays(lambda: sharing.gpus("orphan"), 3, 15)
    world.delete("rlscalingpolicies", "orphan")


def test_a_node_that_disappears_takes_nobodys_guarantee_and_kills_nothing(
    operator, kube, world, wait, stays, sharing, request
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
    sharing.service("keeps", 60)
    sharing.service("grows", 400)
    selection = {"nodes": {"matchLabels": {label: "yes"}}}
    terms = member("keeps", guaranteed=3, ceiling=3), member("grows", guaranteed=3)
    name = sharing.budget("counted", None, *terms, amountFrom=selection)
    wait(lambda: sharing.status(name).get("amount") == 8, 60)
    wait(lambda: (sharing.gpus("keeps"), sharing.gpus("grows")) == (3, 5), 90)
    pod = {
        "metadata": {"name": "of-others"},
        "spec": {
            "nodeName": f"{label}-two",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    kube.request("POST", f"/api/v1/namespaces/{world.namespace}/pods", pod)
    wait(lambda: sharing.status(name).get("amount") == 7, 60)
    wait(lambda: (sharing.gpus("keeps"), sharing.gpus("grows")) == (3, 4), 60)
    remove("two")
    wait(lambda: sharing.condition(name, "GuaranteesKept") == ("False", "TooFew"), 60)
    found = sharing.status(name)
    assert (found["amount"], found["nodes"], found["borrowed"]) == (4, 1, 0)
    text = next(c["message"] for c in found["conditions"] if c["type"] == "GuaranteesKept")
    assert "4 units of nvidia.com/gpu on the 1 nodes" in text
    assert "bring nodes back or add some" in text
    wait(lambda: (sharing.gpus("keeps"), sharing.gpus("grows")) == (2, 2), 90)
    stays(lambda: (sharing.gpus("keeps"), sharing.gpus("grows")), (2, 2), 10)
    add("three")
    wait(lambda: sharing.condition(name, "GuaranteesKept") == ("True", "Enough"), 60)
    wait(lambda: (sharing.gpus("keeps"), sharing.gpus("grows")) == (3, 5), 90)
    assert sharing.condition(name, "AmountKnown") == ("True", "Counted")
    for one in ("keeps", "grows"):
        world.delete("rlscalingpolicies", one)


def of_two(*members):
    """A budget of 4 GPUs and 9 CPUs."""
    return {"resources": [{"name": "gpu", "amount": 4}, {"name": "cpu", "amount": 9}], "members": list(members)}


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
        ({"amount": 2, "members": [member("a", resources=[{"name": "cpu"}])]}, "with spec.resources members state"),
        ({"amount": 2, "resources": [{"name": "cpu", "amount": 2}], "members": [member("a")]}, "beside resources"),
        ({"resources": [{"name": "cpu"}], "members": [member("a")]}, "name either amount or amountFrom"),
        ({"resources": [{"name": "cpu", "amount": 1}] * 2, "members": [member("a")]}, "Duplicate value"),
        (of_two(member("a", unitsPerReplica=2)), "with spec.resources members state"),
        (of_two(member("a", resources=[{"name": "memory"}])), "a resource that is not in spec.resources"),
        (of_two(member("a", resources=[{"name": "cpu", "guaranteed": 2}, {"name": "gpu"}])), "for all resources"),
        (of_two(member("a", resources=[{"name": "cpu", "guaranteed": 2, "ceiling": 1}])), "ceiling is below"),
        (
            of_two(*(member(one, resources=[{"name": "cpu", "guaranteed": 5}]) for one in ("a", "b"))),
            "more than the amount of a resource",
        ),
    ],
)
def test_the_api_server_refuses_what_makes_no_sense(kube, spec, named):
    body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": "wrong"}}
    with pytest.raises(ApiError, match=named):
        kube.request("POST", BUDGETS, body | {"spec": spec})
