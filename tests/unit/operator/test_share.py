"""Sharing budgets without a cluster: who is a member, what they ask for, and what bounds them."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace

import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.loop import grants as loop_grants
from tests.harness.budgets import budget_body


async def test_two_share_what_is_there_and_the_text_says_why(bench, policy_body, asks):
    a, b = bench.policy(policy_body("a")), bench.policy(policy_body("b"))
    bench.budgets.put(budget_body(amount=4, members=[{"name": "all", "guaranteed": 1}]))
    grants = bench.binding([(a, asks(6)), (b, asks(2))])
    assert {key: grant.by_pool for key, grant in grants.items()} == {("ns", "a"): (2, -1)}
    assert (
        grants["ns", "a"].describe() == "RLScalingBudget few: asked 6, granted 2: the others' shares of nvidia.com/gpu"
    )


async def test_a_guarantee_of_another_is_named(bench, policy_body, asks):
    a = bench.policy(policy_body("a"), labels={"is": "a"})
    b = bench.policy(policy_body("b"), labels={"is": "b"})
    members = [{"name": "x", "matchLabels": {"is": "a"}}, {"name": "y", "matchLabels": {"is": "b"}, "guaranteed": 3}]
    bench.budgets.put(budget_body(amount=4, members=members))
    grants = bench.binding([(a, asks(6)), (b, asks(3))])
    assert grants["ns", "a"].describe() == "RLScalingBudget few: asked 6, granted 1: ns/b's guarantee of nvidia.com/gpu"


async def test_an_amount_of_money_an_hour_is_shared_by_what_a_replica_costs(bench, policy_body, asks):
    dear = bench.policy(policy_body("dear"), labels={"on": "h"})
    cheap = bench.policy(policy_body("ok"), labels={"on": "l"})
    members = [
        {"name": "large", "matchLabels": {"on": "h"}, "unitsPerReplica": 4},
        {"name": "small", "matchLabels": {"on": "l"}, "unitsPerReplica": 1},
    ]
    bench.budgets.put(budget_body(amount=10, resource="dollars-per-hour", members=members))
    grants = bench.binding([(dear, asks(6)), (cheap, asks(7))])
    assert {key: grant.by_pool for key, grant in grants.items()} == {("ns", "dear"): (1, -1), ("ns", "ok"): (6, -1)}


async def test_policies_of_one_budget_stand_together_in_a_batch_and_otherwise_in_their_order(bench, policy_body):
    names = {"d": "one", "b": "two", "c": "", "e": "one", "a": "two"}
    keys = [bench.policy(policy_body(name), labels={"in": label}).key for name, label in names.items()]
    assert bench.sharing.sorted_by_budget(keys, lambda key: key) == keys, "there is no budget yet"
    for label in ("one", "two"):
        bench.budgets.put(budget_body(label, members=[{"name": "all", "matchLabels": {"in": label}}]))
    assert [name for _, name in bench.sharing.sorted_by_budget(keys, lambda key: key)] == ["c", "d", "e", "b", "a"]


async def test_without_budgets_nothing_is_bound(bench, policy_body, asks):
    assert bench.binding([(bench.policy(policy_body("a")), asks(6))]) == {}


async def test_one_that_does_not_act_keeps_what_runs_and_is_not_bound(bench, policy_body, asks):
    a, shadow = bench.policy(policy_body("a")), bench.policy(policy_body("s"), running=3, mode="Shadow")
    bench.budgets.put(budget_body(amount=4))
    grants = bench.binding([(a, asks(6)), (shadow, asks(9, running=3))])
    assert {key: grant.by_pool for key, grant in grants.items()} == {("ns", "a"): (1, -1)}


async def test_of_two_budgets_the_one_that_it_was_in_acts_and_all_three_say_so(bench, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body("two", amount=2))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (2, -1)
    bench.budgets.put(budget_body("one", amount=1))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (2, -1)
    assert (a.decision.budgets, a.decision.budget) == (("one", "two"), "two")
    await asyncio.gather(*bench.tasks)
    for budget in bench.budgets:
        ready = next(c for c in budget.conditions if c.type == "Ready")
        assert (ready.status, ready.reason) == ("False", "PolicyInSeveralBudgets")
        assert "one, two" in ready.message
    bench.budgets.drop("two")
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (1, -1)


SHARES = [
    {"name": "chat", "matchLabels": {"is": "chat"}, "guaranteed": 4},
    {"name": "search", "matchLabels": {"is": "search"}, "guaranteed": 4},
]


def granted(bench, decided):
    return {key[1]: grant.replicas for key, grant in bench.sharing.share_batch(decided).items()}


def reason(bench, type_="Ready"):
    return next(c for c in bench.budgets.get("few").conditions if c.type == type_).reason


async def test_a_label_multiplies_no_guarantee_at_the_cost_of_another(bench, policy_body, asks):
    """Four policies with the label of one entry would have its guarantee four times: 20 of 8."""
    bench.budgets.put(budget_body(amount=8, members=SHARES))
    search = bench.policy(policy_body("search"), labels={"is": "search"})
    chat = bench.policy(policy_body("chat"), labels={"is": "chat"})
    granted(bench, [(search, asks(1)), (chat, asks(9))])
    # Even one that is older than those that are there.
    more = [
        bench.policy(policy_body(f"chat{i}", creationTimestamp=f"2025-01-0{i}T00:00:00Z"), labels={"is": "chat"})
        for i in (2, 3, 4)
    ]
    everyone = [(policy, asks(9)) for policy in (search, chat, *more)]
    for _ in range(4):
        bench.now += 20
        grants = granted(bench, everyone)
    assert grants["search"] == grants["chat"] == 4
    assert [policy.decision.unguaranteed for policy in (search, chat, *more)] == [False, False, True, True, True]
    assert reason(bench) == "GuaranteeNotGiven"
    # What nobody asks for is theirs all the same, and a larger amount gives them their guarantees.
    bench.budgets.put(budget_body(amount=20, members=SHARES, generation=2))
    grants = granted(bench, everyone)
    assert grants["search"] == grants["chat"] == 4
    assert not any(policy.decision.unguaranteed for policy in more)


async def test_a_policy_that_leaves_by_its_labels_is_bound_until_it_has_given_back(bench, policy_body, asks):
    bench.budgets.put(budget_body(amount=8, members=SHARES))
    bench.budgets.put(budget_body("large", amount=100, members=[{"name": "all", "matchLabels": {"tier": "batch"}}]))
    chat = bench.policy(policy_body("chat"), running=6, labels={"is": "chat"})
    search = bench.policy(policy_body("search"), running=2, labels={"is": "search"})
    asked = [(chat, asks(9, running=6)), (search, asks(9, running=2))]
    granted(bench, [(chat, asks(9, running=6)), (search, asks(2, running=2))])
    for labels in ({}, {"tier": "batch"}):
        bench.budgets.set_labels(chat.key, labels)
        for _ in range(3):
            bench.now += 20
            grants = granted(bench, asked)
        assert (grants["search"], grants["chat"]) == (4, 4), "it has no guarantee, and search has"
        assert (chat.decision.budget, reason(bench)) == ("few", "PolicyLeft")
        assert chat.decision.budgets == (("large",) if labels else ())
    bench.cache.drop_target(("ns", "chat-gpu"))
    bench.run("chat", 1)
    bench.now += 20
    grants = granted(bench, [(chat, asks(9)), (search, asks(9, running=4))])
    assert (chat.decision.budget, grants["chat"], grants["search"]) == ("large", 9, 8)
    assert reason(bench) == "Ready"


async def test_an_edit_of_the_budget_lets_a_policy_go_at_once(bench, policy_body, asks):
    bench.budgets.put(budget_body(amount=8, members=SHARES))
    chat = bench.policy(policy_body("chat"), running=6, labels={"is": "chat"})
    granted(bench, [(chat, asks(9, running=6))])
    bench.budgets.set_labels(chat.key, {})
    assert "chat" in granted(bench, [(chat, asks(9, running=6))])
    bench.budgets.put(budget_body(amount=8, members=SHARES[1:], generation=2))
    assert granted(bench, [(chat, asks(9, running=6))]) == {}
    assert chat.decision.budget == ""


async def test_another_operator_knows_from_the_status_which_policy_has_left(bench, policy_body, asks):
    row = {"namespace": "ns", "policy": "chat", "member": "chat", "granted": 6, "borrowed": 2, "running": 6}
    status = {"observedGeneration": 1, "amount": 8, "members": [row | {"starvedSeconds": 0, "reason": "All"}]}
    bench.budgets.put(budget_body(amount=8, members=SHARES, status=status))
    chat = bench.policy(policy_body("chat"), running=6)
    assert granted(bench, [(chat, asks(9, running=6))])["chat"] <= 8
    assert chat.decision.budget == "few"


async def test_a_policy_without_that_pool_is_named(bench, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=1, pool="cpu"))
    assert bench.binding([(a, asks(6))]) == {}
    ready = next(c for c in bench.budgets.get("few").conditions if c.type == "Ready")
    assert (ready.reason, "ns/a has no cpu target" in ready.message) == ("NoSuchPool", True)


async def test_what_an_action_asked_for_stands_until_the_next_action(bench, policy_body, asks):
    a, b = bench.policy(policy_body("a")), bench.policy(policy_body("b"))
    bench.budgets.put(budget_body(amount=4))
    bench.binding([(a, asks(6)), (b, asks(6))])
    grants = bench.binding([(a, asks(2, running=2, kind="floor"))])
    assert bench.budgets.get("few").requested["ns", "a"] == 6
    assert grants == {}, "it stands at its grant, and asks for no more between two actions"
    bench.binding([(a, asks(1, running=2))])
    assert bench.budgets.get("few").requested["ns", "a"] == 1


async def test_grants_never_exceed_the_amount_whatever_order_policies_come_in(bench, policy_body, asks):
    policies = [bench.policy(policy_body(name)) for name in "abcde"]
    bench.budgets.put(budget_body(amount=7, members=[{"name": "all", "guaranteed": 1}]))
    budget = bench.budgets.get("few")
    for step in range(40):
        bench.now += 3
        bench.binding([(policies[step % 5], asks(1 + step * 7 % 9))])
        assert int(budget.loans.granted.sum()) <= 7


async def test_seconds_of_too_small_a_grant_are_counted(bench, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=2))
    for _ in range(3):
        bench.binding([(a, asks(6))])
        bench.now += 10
    assert bench.budgets.get("few").starved_seconds == {("ns", "a"): 20.0}


async def test_the_arbiter_is_asked_again_only_where_something_is_new(bench, policy_body, asks, monkeypatch):
    asked = []
    monkeypatch.setattr(loop_grants, "arbitrate", lambda *table: asked.append(table) or arbitrate(*table))
    a, b = bench.policy(policy_body("a")), bench.policy(policy_body("b"))
    bench.budgets.put(budget_body(amount=4, generation=1))

    def share_after(seconds):
        bench.now += seconds
        grants = bench.binding([(a, asks(6)), (b, asks(2))])
        return len(asked), {name: grant.by_pool[0] for (_, name), grant in grants.items()}

    (budget,) = bench.budgets
    assert share_after(0) == (1, {"a": 2})
    assert share_after(5) == (1, {"a": 2})
    assert budget.starved_seconds == {a.key: 5.0}, "the seconds count all the same"
    assert share_after(10) == (2, {"a": 2}), "a new interval, in which there are last grants"
    assert share_after(5) == (2, {"a": 2})
    bench.budgets.put(budget_body(amount=5, generation=2))
    assert share_after(0) == (3, {"a": 3})
    bench.run("b", 4)
    assert share_after(0)[0] == 4
    bench.binding([(a, asks(5)), (b, asks(2))])
    assert len(asked) == 5
    assert budget.starved_seconds[a.key] == 20.0


async def test_another_operator_goes_on_from_the_last_grants(bench, policy_body, asks):
    a, b = bench.policy(policy_body("a"), running=4), bench.policy(policy_body("b"), running=0)
    terms = {"policies": 2, "granted": 4, "idle": 0, "borrowed": 4}
    members = [
        {"namespace": "ns", "policy": name, "member": "all", "granted": granted, "borrowed": 0, "running": granted,
         "starvedSeconds": 5, "reason": "All"}
        for name, granted in (("a", 4), ("b", 0))
    ]  # fmt: skip
    lending = {"reclaimIntervals": 4}
    bench.budgets.put(budget_body(amount=4, status=terms | {"members": members}, lending=lending))
    grants = bench.binding([(a, asks(4, running=4)), (b, asks(4, running=0))])
    assert grants["ns", "a"].by_pool == (3, -1), "given back in steps from the last grant, not from nothing"
    assert bench.budgets.get("few").starved_seconds["ns", "a"] == 5.0


async def test_an_ask_that_is_not_known_takes_nothing(bench, policy_body, entry):
    a = bench.policy(policy_body("a"), running=2)
    one = entry("action", actor=None, replicas=(2, 0))
    bench.budgets.put(budget_body(amount=8))
    bench.binding([(a, decide_all([one])[0])])
    budget = bench.budgets.get("few")
    assert math.isnan(budget.requested["ns", "a"])
    assert budget.loans.granted.tolist() == [2]


async def test_an_actor_that_gives_nan_keeps_its_grant_and_takes_nobodys(bench, policy_body, entry, rule, asks):
    a, b = bench.policy(policy_body("a"), running=2), bench.policy(policy_body("b"), running=2)
    bench.budgets.put(budget_body(amount=5, members=[{"name": "all", "guaranteed": 2}]))
    bench.binding([(a, asks(3, running=2)), (b, asks(2, running=2))])
    bench.now += 30
    bench.run("a", 3)

    def nan(stacked):
        return np.full((len(stacked), 13), np.nan, np.float32)

    actor = SimpleNamespace(manifest=rule.manifest, probabilities=nan)
    failed = decide_all([entry("action", actor=actor, replicas=(3, 0), rate=50.0)])[0]
    assert failed.decision.desired[0, 0] == 3, "it holds"
    grants = bench.binding([(a, failed), (b, asks(6, running=2))])
    assert bench.budgets.get("few").loans.granted.tolist() == [3, 2]
    assert {key: grant.by_pool for key, grant in grants.items()} == {("ns", "b"): (2, -1)}


async def test_labels_namespaces_and_the_first_entry_select(bench, policy_body, asks):
    a = bench.policy(policy_body("a"), labels={"team": "x", "tier": "1"})
    members = [
        {"name": "elsewhere", "namespace": "other"},
        {"name": "other-tier", "matchLabels": {"team": "x", "tier": "2"}},
        {"name": "mine", "matchLabels": {"team": "x"}, "ceiling": 2},
        {"name": "late"},
    ]
    bench.budgets.put(budget_body(amount=8, members=members))
    grants = bench.binding([(a, asks(6))])
    assert grants["ns", "a"].describe() == "RLScalingBudget few: asked 6, granted 2: its ceiling of nvidia.com/gpu"
    bench.budgets.set_labels(a.key, {"team": "x", "tier": "2"})
    assert bench.binding([(a, asks(6))]) == {}


async def test_an_edited_budget_counts_at_once_and_what_cannot_be_read_frees_nobody(bench, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=2))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (2, -1)
    bench.budgets.put(budget_body(amount=3, generation=2))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (3, -1)
    bench.budgets.put(budget_body(amount="many", generation=3))
    assert "amount" in bench.budgets.get("few").invalid
    assert bench.binding([(a, asks(7))])["ns", "a"].by_pool == (3, -1)
    (ready, *_) = bench.budgets.get("few").conditions
    assert (ready.reason, "amount" in ready.message, "stays in force" in ready.message) == ("InvalidSpec", True, True)
    bench.budgets.put(budget_body("odd", amount="many"))
    assert bench.binding([(a, asks(6))])["ns", "a"].by_pool == (3, -1)


async def test_an_edited_a_new_and_a_deleted_policy_count_at_once(bench, policy_body, asks):
    a, b = bench.policy(policy_body("a")), bench.policy(policy_body("b"))
    bench.budgets.put(budget_body(amount=4))
    budget = bench.budgets.get("few")
    bench.binding([(a, asks(6)), (b, asks(6))])
    assert budget.members == (("ns", "a"), ("ns", "b"))
    moved = policy_body("b")
    moved["metadata"]["generation"] += 1
    moved["spec"]["targets"] = {"cpu": moved["spec"]["targets"].popitem()[1]}
    b = bench.policy(moved)
    grants = bench.binding([(a, asks(6)), (b, asks(6))])
    assert (budget.members, grants["ns", "a"].by_pool) == ((a.key,), (4, -1))
    again = bench.registry.adopt(bench.registry.get(a.key))
    again.decision.desired = {"gpu": 3}
    bench.binding([(again, asks(6))])
    assert bench.sharing._members.requests(budget)[0].running == 3, "its replicas are those that the new one ordered"
    bench.registry.drop(a.key)
    bench.binding([(again, asks(6))])
    assert budget.members == ()


async def test_fewer_units_than_guarantees_are_a_condition_with_a_remedy(bench, policy_body, asks):
    policies = [bench.policy(policy_body(name)) for name in "ab"]
    bench.budgets.put(budget_body(amount=6, members=[{"name": "all", "guaranteed": 3}]))
    assert bench.binding([(policy, asks(3)) for policy in policies]) == {}
    bench.budgets.put(budget_body(amount=4, members=[{"name": "all", "guaranteed": 3}], generation=2))
    grants = bench.binding([(policy, asks(3)) for policy in policies])
    assert [grant.by_pool[0] for grant in grants.values()] == [2, 2]
    assert "smaller than the guarantees" in grants["ns", "a"].describe()
    kept = next(c for c in bench.budgets.get("few").conditions if c.type == "GuaranteesKept")
    assert (kept.status, kept.reason) == ("False", "TooFew")
    assert "the amount of nvidia.com/gpu is smaller than the guarantees" in kept.message
    assert "raise it, or lower guarantees" in kept.message


async def test_a_guarantee_that_is_not_kept_is_seen_in_the_metrics(bench, policy_body, asks):
    policies = [bench.policy(policy_body(name)) for name in "ab"]
    for generation, amount in ((1, 6), (2, 4)):
        members = [{"name": "all", "guaranteed": 3}]
        bench.budgets.put(budget_body(amount=amount, members=members, generation=generation))
        bench.binding([(policies[0], asks(6)), (policies[1], asks(2))])
        bench.now += 20
    text = bench.metrics.render().decode()
    for name, granted, promised in (("a", 2.0, 3.0), ("b", 2.0, 2.0)):
        labels = f'budget="few",namespace="ns",policy="{name}",state='
        assert f'rlscaler_budget_replicas{{{labels}"granted"}} {granted}' in text
        assert f'rlscaler_budget_replicas{{{labels}"guaranteed"}} {promised}' in text


async def test_without_the_lease_no_status_is_written(bench, policy_body, asks, api_server):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=2))
    bench.binding([(a, asks(6))])
    await asyncio.gather(*bench.tasks)
    assert "granted" not in bench.budgets.get("few").written
    assert not [path for path in api_server.paths if "rlscalingbudgets" in path]


async def test_series_of_members_that_left_are_removed(bench, policy_body, asks):
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=2))
    bench.binding([(a, asks(6))])
    text = bench.metrics.render().decode()
    assert 'rlscaler_budget_replicas{budget="few",namespace="ns",policy="a",state="granted"} 2.0' in text
    assert 'rlscaler_budget_units{budget="few",resource="nvidia.com/gpu",state="idle"} 0.0' in text
    bench.metrics.forget_budget("few")
    assert 'budget="few"' not in bench.metrics.render().decode()


async def test_in_shadow_it_is_shown_what_would_be_granted_and_nobody_is_bound_by_it(bench, policy_body, asks):
    a, shadow = bench.policy(policy_body("a"), running=2), bench.policy(policy_body("s"), running=3, mode="Shadow")
    bench.budgets.put(budget_body(amount=5))
    outcome = asks(6, running=3)
    grants = bench.sharing.share_batch([(a, asks(6, running=2)), (shadow, outcome)])
    assert {key: grant.by_pool for key, grant in grants.items()} == {("ns", "a"): (2, -1), ("ns", "s"): (2, -1)}
    assert [key for key, grant in grants.items() if grant.binds] == [a.key]
    assert outcome.granted == "RLScalingBudget few: would ask 6 and be granted 2 if it acted"


async def test_who_asked_for_less_waits_like_others_for_what_it_gave_up(bench, policy_body, asks):
    a, b = bench.policy(policy_body("a"), running=2), bench.policy(policy_body("b"), running=2)
    bench.budgets.put(budget_body(amount=4))
    bench.binding([(a, asks(2, running=2)), (b, asks(2, running=2))])
    bench.now += 20
    bench.binding([(a, asks(2, running=2)), (b, asks(1, running=2))])
    bench.run("b", 1)
    bench.binding([(a, asks(3, running=2))])
    bench.run("a", 3)
    grants = bench.binding([(b, asks(2, running=1))])
    assert grants["ns", "b"].by_pool == (1, -1), "the other has it now, and runs it"
