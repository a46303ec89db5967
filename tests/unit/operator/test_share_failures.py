"""Failures while shares of a budget are worked out: a condition on policy and budget, and no harm to other policies."""

import asyncio

import pytest

from rlscaler_operator.loop import budget_members
from rlscaler_operator.loop import grants as loop_grants
from rlscaler_operator.reporting import budgets as reports
from tests.harness.budgets import budget_body

WORD = "unforeseen"


def failing_for(monkeypatch, owner, name, guilty):
    """Have a function fail where an argument fits."""
    real = getattr(owner, name)

    def call(*arguments):
        if any(map(guilty, arguments)):
            raise RuntimeError(WORD)
        return real(*arguments)

    monkeypatch.setattr(owner, name, call)


def condition(budget):
    return next(c for c in budget.conditions if c.type == "Ready")


def replicas(bench, decided):
    return {key[1]: grant.replicas for key, grant in bench.sharing.share_batch(decided).items()}


@pytest.mark.parametrize("callee", ["_minimum", "acts"])
async def test_a_request_that_cannot_be_worked_out_costs_the_other_members_nothing(
    bench, policy_body, asks, monkeypatch, callee
):
    guilty, innocent = bench.policy(policy_body("guilty"), running=3), bench.policy(policy_body("innocent"))
    bench.budgets.put(budget_body(amount=8))
    decided = [(guilty, asks(3, running=3)), (innocent, asks(9))]
    assert replicas(bench, decided)["innocent"] == 5
    with monkeypatch.context() as broken:
        failing_for(broken, budget_members, callee, lambda value: value is guilty)
        assert replicas(bench, decided)["innocent"] == 5, "what runs of the other one counts"
        failure = bench.sharing.failure(guilty)
        assert failure.reason == condition(bench.budgets.get("few")).reason == "ShareFailed"
        for text in ("policy ns/guilty", "RLScalingBudget few", WORD, "spec.members"):
            assert text in str(failure)
            assert text in condition(bench.budgets.get("few")).message
        assert bench.sharing.failure(innocent) is None
    replicas(bench, decided)
    assert bench.sharing.failure(guilty) is None
    assert condition(bench.budgets.get("few")).status == "True"


STAGES = {
    "requests": (budget_members, "_within_amounts", lambda value: getattr(value, "name", "") == "bad"),
    "arbiter": (loop_grants, "arbitrate", lambda value: 7.0 in getattr(value, "amount", ())),
    "record": (loop_grants, "BudgetObject", lambda value: value == "bad"),
    "report": (reports, "_too_few_of", lambda value: value.request.budget.name == "bad"),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_a_budget_that_cannot_be_shared_holds_its_policies_and_no_others(
    bench, policy_body, asks, monkeypatch, caplog, stage
):
    names = ("bad", "good")
    policies = {name: bench.policy(policy_body(name), labels={"in": name}) for name in names}
    for name, amount in zip(names, (7, 4), strict=True):
        bench.budgets.put(budget_body(name, amount, members=[{"name": "all", "matchLabels": {"in": name}}]))
    decided = [(policy, asks(9)) for policy in policies.values()]
    assert replicas(bench, decided) == {"bad": 7, "good": 4}
    await asyncio.gather(*bench.tasks)
    bad, good = (bench.budgets.get(name) for name in names)
    shown = bad.written["members"]
    with monkeypatch.context() as broken:
        failing_for(broken, *STAGES[stage])
        for number in range(2):
            bench.now += 20
            bench.run("bad", 2 + number)
            bench.run("good", 2 + number)
            assert replicas(bench, decided) == {"good": 4}
        assert caplog.text.count("RLScalingBudget bad could not be shared") == 1
        assert (condition(bad).status, condition(bad).reason) == ("False", "ShareFailed")
        assert "RLScalingBudget bad" in condition(bad).message
        assert WORD in condition(bad).message
        assert condition(good).status == "True"
        assert WORD in str(bench.sharing.failure(policies["bad"]))
        assert bench.sharing.failure(policies["good"]) is None
        assert bad.written.get("members", shown) == shown
    assert replicas(bench, decided) == {"bad": 7, "good": 4}
    assert bench.sharing.failure(policies["bad"]) is None
    assert condition(bad).status == "True"
