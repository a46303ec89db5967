"""Sharing budgets of several resources without a cluster: what is told, granted, reported and written down."""

from __future__ import annotations

import json

import pytest

from rlscaler_operator.records.sharing import input_of
from tests.harness.budgets import budget_body

GPU = "nvidia.com/gpu"
WHOLE = "that is the whole amount of {}"
AMOUNTS = [{"name": GPU, "amount": 14}, {"name": "cpu", "amount": 20}]


def of_two(*members, amounts=AMOUNTS, **more):
    return budget_body(amount=None, resources=amounts, members=members, **more)


def entry(name, **shares):
    return {"name": name, "matchLabels": {"is": name}, "resources": [{"name": one} | of for one, of in shares.items()]}


def requesting(bench, name, running=1, **requests):
    """Have a policy's pods request these resources."""
    container = {"resources": {"requests": {{"gpu": GPU}.get(one, one): amount for one, amount in requests.items()}}}
    bench.cache.put_deployment(
        {
            "metadata": {"namespace": "ns", "name": f"{name}-gpu", "uid": "d", "resourceVersion": "1"},
            "spec": {"replicas": running, "template": {"spec": {"containers": [container]}}},
            "status": {"readyReplicas": running},
        }
    )


@pytest.fixture
def two(bench, policy_body):
    """`deep` takes 2 GPUs and 1 CPU for a replica, `wide` 1 GPU and 4 CPUs; both by their pod templates."""
    policies = {name: bench.policy(policy_body(name), labels={"is": name}) for name in ("deep", "wide")}
    requesting(bench, "deep", gpu="2", cpu="1000m")
    requesting(bench, "wide", gpu="1", cpu="4")
    return policies


def share(bench, two, asks, asked=10):
    decided = [(policy, asks(asked)) for policy in two.values()]
    grants = bench.binding(decided)
    return {key[1]: (grant.replicas, grant.describe().rpartition(": ")[2]) for key, grant in grants.items()}


async def test_by_dominant_shares_of_what_the_pod_templates_request(bench, two, asks):
    bench.budgets.put(of_two({"name": "all"}))
    assert share(bench, two, asks) == {
        "deep": (5, f"the others' shares of {GPU}"),
        "wide": (3, "the others' shares of cpu"),
    }


async def test_stated_units_go_before_requests_and_who_lists_no_gpus_takes_none(bench, two, asks):
    bench.budgets.put(of_two(entry("deep", **{GPU: {"unitsPerReplica": 7}}), entry("wide", cpu={"ceiling": 9})))
    found = share(bench, two, asks)
    assert found == {"deep": (2, WHOLE.format(GPU)), "wide": (2, "its ceiling of cpu")}
    table = bench.sharing._members.requests(bench.budgets.get("few"))
    assert [row.units for row in table] == [(7.0, 0.0), (0.0, 4.0)]


async def test_a_guarantee_names_the_resource_that_it_is_of(bench, two, asks):
    own = {GPU: {"guaranteed": 4}, "cpu": {"guaranteed": 16}}
    bench.budgets.put(of_two(entry("deep", **{GPU: {}, "cpu": {}}), entry("wide", **own)))
    assert share(bench, two, asks) == {
        "deep": (4, "ns/wide's guarantee of cpu"),
        "wide": (4, "the others' shares of cpu"),
    }


async def test_another_pod_template_counts_at_once(bench, two, asks):
    bench.budgets.put(of_two({"name": "all"}))
    share(bench, two, asks)
    requesting(bench, "wide", gpu="1", cpu="2")
    assert {name: granted for name, (granted, _) in share(bench, two, asks).items()} == {"deep": 4, "wide": 6}


async def test_pods_that_request_none_of_it_are_named_and_not_bound(bench, two, asks):
    requesting(bench, "wide", memory="1Gi")
    bench.budgets.put(of_two({"name": "all"}))
    assert share(bench, two, asks) == {"deep": (7, WHOLE.format(GPU))}
    ready = next(c for c in bench.budgets.get("few").conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "NoUnits")
    assert "the pod template of ns/wide requests none of the resources" in ready.message


async def test_fewer_cpus_than_guarantees_are_named_and_what_others_take_is_still_lent(bench, policy_body, two, asks):
    spare = bench.policy(policy_body("spare"), labels={"is": "spare"})
    requesting(bench, "spare", memory="1")
    nodes = {"nodes": {"matchLabels": {"pool": "gpu"}}}
    amounts = [
        {"name": GPU, "amount": 14},
        {"name": "cpu", "amountFrom": nodes},
        {"name": "memory", "amount": 3},
    ]
    own = {GPU: {"guaranteed": 4}, "cpu": {"guaranteed": 12}}
    listed = [{"name": "cpu", "amount": 10, "nodes": 2}]
    members = entry("deep", **own), entry("wide", **own), {"name": "any"}
    bench.budgets.put(of_two(*members, amounts=amounts, status={"resources": listed}))
    found = share(bench, two | {"spare": spare}, asks)
    few = "the amount of cpu is smaller than the guarantees that are asked for"
    assert found == {"deep": (2, "ns/wide's guarantee of cpu"), "wide": (2, few), "spare": (3, WHOLE.format("memory"))}
    kept = next(c for c in bench.budgets.get("few").conditions if c.type == "GuaranteesKept")
    assert (kept.status, kept.reason) == ("False", "TooFew")
    assert "10 units of cpu on the 2 nodes that amountFrom counts are fewer than the guarantees" in kept.message
    assert "bring nodes back or add some" in kept.message


async def test_a_resource_that_was_never_counted_binds_nobody(bench, two, asks):
    nodes = {"nodes": {"matchLabels": {"pool": "gpu"}}}
    bench.budgets.put(of_two({"name": "all"}, amounts=[AMOUNTS[0], {"name": "cpu", "amountFrom": nodes}]))
    assert share(bench, two, asks) == {}
    assert bench.budgets.get("few").amounts is None


async def test_status_metrics_and_records_name_the_resources(bench, two, asks, tmp_path):
    bench.budgets.put(of_two({"name": "all"}))
    audit = bench.write_to(tmp_path / "shared.jsonl")
    written = []
    bench.sharing._reporter._publish = lambda _, content: written.append(content) or True
    share(bench, two, asks)
    audit.close()
    (content,) = written
    assert content["summary"] == f"{GPU} 13/14 (13 borrowed), cpu 17/20 (17 borrowed)"
    assert content["resources"] == [
        {"name": GPU, "amount": 14.0, "granted": 13.0, "idle": 1.0, "borrowed": 13.0},
        {"name": "cpu", "amount": 20.0, "granted": 17.0, "idle": 3.0, "borrowed": 17.0},
    ]
    assert not content.keys() & {"amount", "granted", "idle"}
    deep, wide = content["members"]
    assert (deep["dominantResource"], deep["dominantShare"], deep["resource"]) == (GPU, round(5 / 7, 6), GPU)
    assert (wide["dominantResource"], wide["dominantShare"], wide["resource"]) == ("cpu", 0.6, "cpu")
    text = bench.metrics.render().decode()
    assert f'rlscaler_budget_units{{budget="few",resource="{GPU}",state="idle"}} 1.0' in text
    assert 'rlscaler_budget_units{budget="few",resource="cpu",state="idle"} 3.0' in text
    (record,) = map(json.loads, (tmp_path / "shared.jsonl").read_text().splitlines())
    assert (record["resources"], record["shared"]["amount"]) == ([GPU, "cpu"], [[14.0, 20.0]])
    assert record["members"]["units"] == [[2.0, 1.0], [1.0, 4.0]]
    assert record["grants"]["resource"] == [0, 1]
    assert input_of(record).arbitrate()[0].granted.tolist() == [5, 3]


async def test_budgets_of_one_and_of_two_resources_are_shared_together(bench, policy_body, two, asks):
    one = bench.policy(policy_body("one"), labels={"is": "one"})
    bench.budgets.put(of_two(entry("deep", **{GPU: {}, "cpu": {}}), entry("wide", **{GPU: {}, "cpu": {}})))
    bench.budgets.put(budget_body("single", amount=3, members=[{"name": "one", "matchLabels": {"is": "one"}}]))
    found = share(bench, two | {"one": one}, asks)
    assert {name: granted for name, (granted, _) in found.items()} == {"deep": 5, "wide": 3, "one": 3}
    assert found["one"][1] == WHOLE.format(GPU)
    assert bench.budgets.get("single").loans.granted.tolist() == [3]


async def test_another_operator_goes_on_from_the_counts_of_each_resource(bench, two, asks):
    nodes = {"nodes": {"matchLabels": {"pool": "gpu"}}}
    amounts = [{"name": GPU, "amountFrom": nodes}, {"name": "cpu", "amountFrom": nodes}]
    listed = [{"name": GPU, "amount": 14, "nodes": 7}, {"name": "cpu", "amount": 20, "nodes": 9}]
    bench.budgets.put(of_two({"name": "all"}, amounts=amounts, status={"resources": listed}))
    budget = bench.budgets.get("few")
    assert (budget.amounts, budget.is_shared) == ((14.0, 20.0), True)
    assert {name: count.nodes for name, count in budget.counts.items()} == {GPU: 7, "cpu": 9}
    assert {name: granted for name, (granted, _) in share(bench, two, asks).items()} == {"deep": 5, "wide": 3}
