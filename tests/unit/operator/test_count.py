"""The amount of a budget that is counted on nodes: their units, what other pods hold, and the last count kept."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pytest

from rlscaler_operator.loop.count import NodeCounter
from tests.harness.budgets import budget_body

GPU = "nvidia.com/gpu"
FROM_NODES = {"amount": None, "amountFrom": {"nodes": {"matchLabels": {"pool": "gpu"}}}}


def node(name, gpus=4, ready="True", **spec):
    status = {"allocatable": {GPU: str(gpus)} if gpus else {}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def pod(owner, gpus=1, namespace="ns", phase="Running", init=0):
    """A pod of a Deployment; the resources of `init` are those of its first init container."""
    labels = {"pod-template-hash": "abc"}
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"{owner}-abc-x",
            "labels": labels,
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{owner}-abc"}],
        },
        "spec": {
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}, {}],
            "initContainers": [{"resources": {"requests": {GPU: str(init)}}}],
        },
        "status": {"phase": phase},
    }


@pytest.fixture
def counter(bench, api_server):
    """A counter on an API server that has the nodes that are put there, each with its pods."""
    hurried = []
    one = NodeCounter(bench.kube, bench.cache, bench.registry, bench.budgets, lambda _: True, hurried.append)

    def put(**pods_of):
        nodes = [body for body, _ in pods_of.values()]
        selector = quote("pool=gpu", safe="")
        api_server.answers[f"/api/v1/nodes?limit=500&labelSelector={selector}"] = json.dumps({"items": nodes})
        for body, pods in pods_of.values():
            at_node = quote(f"spec.nodeName={body['metadata']['name']}", safe="")
            api_server.answers[f"/api/v1/pods?limit=500&fieldSelector={at_node}&resourceVersion=0"] = json.dumps(
                {"items": pods}
            )

    one.put, one.hurried = put, hurried
    return one


async def counted(bench, counter):
    await counter.count_all()
    amounts = bench.budgets.get("few").amounts
    return None if amounts is None else amounts[0]


async def test_what_nodes_have_less_what_others_hold(bench, counter, policy_body):
    bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(**FROM_NODES))
    starts = pod("starts", 1, init=2)
    others = [pod("other"), pod("a-gpu", namespace="elsewhere"), pod("done", phase="Succeeded"), starts]
    counter.put(n1=(node("n1"), [pod("a-gpu", 2)]), n2=(node("n2", 8), others), n3=(node("n3", 0), [pod("other")]))
    assert await counted(bench, counter) == 4 + 8 - 4
    assert bench.budgets.get("few").counts[GPU].nodes == 2
    assert len(counter.hurried) == 1
    await counter.count_all()
    assert len(counter.hurried) == 1, "nothing else was counted"


async def test_a_node_that_is_not_ready_or_takes_no_pods(bench, counter, policy_body):
    bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(**FROM_NODES))
    held = [pod("a-gpu", 3), pod("other")]
    counter.put(n1=(node("n1"), held), n2=(node("n2", ready="Unknown"), held))
    assert await counted(bench, counter) == 3
    counter.put(n1=(node("n1", unschedulable=True), held), n2=(node("n2", ready="False"), held))
    assert await counted(bench, counter) == 3, "what a member holds on a node that takes no new pods"
    counter.put(n1=(node("n1", unschedulable=True), []), n2=(node("n2", ready="False"), held))
    assert await counted(bench, counter) == 0


@pytest.mark.parametrize("broken", ["forbidden", "no such label", "no such resource"])
async def test_what_cannot_be_counted_stays_the_last_count_and_says_so(
    bench, counter, api_server, policy_body, asks, broken
):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(**FROM_NODES))
    counter.put(n1=(node("n1"), []))
    assert await counted(bench, counter) == 4
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (4, -1)
    if broken == "forbidden":
        api_server.status = 403
    else:
        counter.put(**({} if broken == "no such label" else {"n1": (node("n1", 0), [])}))
    assert await counted(bench, counter) == 4
    bench.now += 60
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (4, -1)
    budget = bench.budgets.get("few")
    known = next(c for c in budget.conditions if c.type == "AmountKnown")
    assert (known.status, known.reason) == ("False", "NotCounted")
    assert {"forbidden": "grant what", "no such label": "labels pool=gpu", "no such resource": f"has {GPU}"}[
        broken
    ] in known.message
    assert "the last count: 4 units of nvidia.com/gpu on 1 nodes" in known.message
    api_server.status = 200
    counter.put(n1=(node("n1", 5), []))
    assert await counted(bench, counter) == 5
    bench.binding([(a, asks(6))])
    assert next(c for c in budget.conditions if c.type == "AmountKnown").status == "True"


async def test_a_budget_that_was_never_counted_binds_nobody_and_says_why(bench, counter, api_server, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(**FROM_NODES))
    api_server.status = 403
    assert await counted(bench, counter) is None
    assert bench.binding([(a, asks(6))]) == {}
    budget = bench.budgets.get("few")
    bench.sharing._reporter.unusable(budget)
    ready = next(c for c in budget.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "AmountUnknown")
    assert "cannot list nodes" in ready.message
    await asyncio.gather(*bench.tasks)


async def test_another_operator_goes_on_from_the_last_count_and_its_age(bench, counter, api_server, policy_body, asks):
    a = bench.policy(policy_body("a"))
    status = {"amount": 3, "nodes": 2, "countedAt": "2026-01-01T00:00:00Z"}
    bench.budgets.put(budget_body(**FROM_NODES, status=status))
    api_server.status = 500
    assert await counted(bench, counter) == 3
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (3, -1)
    assert bench.budgets.get("few").counts[GPU].at == 1767225600
    bench.budgets.put(budget_body(amount=1, status=status, generation=2))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (1, -1)
    assert [c.type for c in bench.budgets.get("few").conditions] == ["Ready", "GuaranteesKept"]


async def test_fewer_than_the_guarantees_names_nodes_and_the_remedy(bench, counter, policy_body, asks):
    policies = [bench.policy(policy_body(name)) for name in "ab"]
    bench.budgets.put(budget_body(**FROM_NODES, members=[{"name": "all", "guaranteed": 3}]))
    counter.put(n1=(node("n1"), []), n2=(node("n2"), []))
    await counter.count_all()
    assert bench.binding([(policy, asks(3)) for policy in policies]) == {}
    counter.put(n1=(node("n1"), []))
    await counter.count_all()
    grants = bench.binding([(policy, asks(3)) for policy in policies])
    assert [grant.by_pool[0] for grant in grants.values()] == [2, 2]
    kept = next(c for c in bench.budgets.get("few").conditions if c.type == "GuaranteesKept")
    assert (kept.status, kept.reason) == ("False", "TooFew")
    assert "4 units of nvidia.com/gpu on the 1 nodes" in kept.message
    assert "bring nodes back or add some" in kept.message
