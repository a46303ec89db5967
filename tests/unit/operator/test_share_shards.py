"""A budget whose members live on two shards: one shares it, and grants and wishes travel by statuses."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rlscaler_operator.loop.budget_members import Owner
from rlscaler_operator.reporting import budgets as reporting
from rlscaler_operator.settings import Settings
from tests.harness.budgets import Bench, budget_body


class Pair:
    """The operator that shares the budget and decides for `ours`, and another one that decides for `theirs`."""

    def __init__(self, kube, policy_body, ours, theirs, **spec):
        self._spec = spec
        self.owner = Bench(kube, Settings(), Owner(lambda _: True, lambda key: key[1] in ours), leads=True)
        self.other = Bench(kube, Settings(), Owner(lambda _: False, lambda key: key[1] in theirs))
        self.other.now = 5e6
        self.policies = {}
        for bench in (self.owner, self.other):
            for name in (*ours, *theirs):
                self.policies[bench, name] = bench.policy(policy_body(name))
            bench.budgets.put(budget_body(**spec))

    def ask(self, bench, **asked):
        """The grants of a batch in which policies ask for so many replicas."""
        return bench.binding([(self.policies[bench, name], outcome) for name, outcome in asked.items()])

    def run(self, name, replicas):
        """Both operators see so many replicas."""
        for bench in (self.owner, self.other):
            bench.run(name, replicas)

    def hear(self, name):
        """The owner sees what the status of a policy of the other shard says."""
        said = self.policies[self.other, name].decision.membership
        self.owner.budgets.read_membership(("ns", name), None if said is None else {"budget": said.to_dict()})

    async def share(self):
        """The owner shares, writes the status of the budget, and the other operator sees that."""
        self.owner.now += 1
        self.owner.sharing.share_between()
        await asyncio.gather(*self.owner.tasks)
        self.show()

    def show(self):
        written = self.owner.budgets.get("few").written
        self.other.budgets.put(budget_body(status=written, **self._spec))

    def granted(self):
        budget = self.owner.budgets.get("few")
        return dict(zip((name for _, name in budget.members), budget.loans.granted.tolist(), strict=True))


@pytest.fixture
async def pair(kube, policy_body, monkeypatch):
    monkeypatch.setattr(reporting, "RETRY_SECONDS", 0.0)
    made = []

    def make(ours=("a",), theirs=("b",), **spec):
        made.append(Pair(kube, policy_body, ours, theirs, **spec))
        return made[-1]

    yield make
    for one in made:
        await asyncio.gather(*one.owner.tasks, *one.other.tasks)


async def test_grants_travel_to_another_shard_and_wishes_back(pair, asks):
    two = pair(amount=5)
    assert two.ask(two.other, b=asks(6)) == {}, "nobody has shared the budget yet"
    two.hear("b")
    two.ask(two.owner, a=asks(6))
    await two.share()
    assert two.granted() == {"a": 3, "b": 2}
    grant = two.ask(two.other, b=asks(6))["ns", "b"]
    assert grant.by_pool == (2, -1)
    assert grant.describe() == "RLScalingBudget few: asked 6, granted 2: the others' shares of nvidia.com/gpu"
    said = two.policies[two.other, "b"].decision.membership
    assert (said.name, said.asked, said.held, said.acts) == ("few", 6, 2, True)


async def test_a_member_of_another_shard_that_goes_without_its_guarantee_says_so_as_well(pair, asks):
    two = pair(amount=4, members=[{"name": "all", "guaranteed": 3}])
    two.ask(two.other, b=asks(4))
    two.hear("b")
    two.ask(two.owner, a=asks(4))
    await two.share()
    two.ask(two.other, b=asks(4))
    assert not two.policies[two.owner, "a"].decision.unguaranteed
    assert two.policies[two.other, "b"].decision.unguaranteed


async def test_while_the_owner_is_gone_the_last_grant_holds_and_never_more(pair, asks):
    two = pair(amount=4)
    two.ask(two.other, b=asks(2))
    two.hear("b")
    two.ask(two.owner, a=asks(2))
    await two.share()
    for wish in (2, 6, 9):
        grants = two.ask(two.other, b=asks(wish))
        assert grants == {} if wish == 2 else grants["ns", "b"].by_pool == (2, -1)


async def test_what_is_taken_from_another_shard_is_not_given_before_it_says_so(pair, asks):
    two = pair(amount=4)
    two.ask(two.other, b=asks(4))
    two.hear("b")
    await two.share()
    two.ask(two.other, b=asks(4))
    two.run("b", 4)
    two.hear("b")
    assert two.granted() == {"a": 1, "b": 3} or two.granted()["b"] >= 3
    held = two.policies[two.other, "b"].decision.membership.held
    two.ask(two.owner, a=asks(4))
    assert two.granted()["a"] <= 4 - held + 1
    two.run("b", 2)
    two.ask(two.owner, a=asks(4))
    assert two.granted()["a"] <= 1, "the other shard may still order what it was granted last"
    await two.share()
    two.ask(two.other, b=asks(4, running=2))
    two.hear("b")
    two.ask(two.owner, a=asks(4))
    assert two.granted() == {"a": 2, "b": 2}


async def test_a_policy_that_joined_while_nobody_shares_keeps_what_runs(pair, asks, policy_body):
    two = pair(amount=8)
    two.ask(two.other, b=asks(2))
    two.hear("b")
    two.ask(two.owner, a=asks(2))
    await two.share()
    late = two.other.policy(policy_body("late"), running=3)
    grant = two.other.binding([(late, asks(6, running=3))])["ns", "late"]
    assert grant.by_pool == (3, -1)
    assert "keeps what runs" in grant.describe()


async def test_a_policy_of_another_shard_that_has_said_nothing_keeps_its_last_grant(pair, asks):
    members = [
        {"namespace": "ns", "policy": name, "member": "all", "granted": granted, "borrowed": 0, "running": granted,
         "starvedSeconds": 0, "reason": "All"}
        for name, granted in (("a", 1), ("b", 3))
    ]  # fmt: skip
    two = pair(amount=6, status={"amount": 6, "policies": 2, "members": members})
    two.run("b", 3)
    two.ask(two.owner, a=asks(6))
    assert two.granted() == {"a": 3, "b": 3}


async def test_a_policy_that_is_told_more_is_due_at_once(pair, asks):
    two = pair(amount=4)
    schedules = []

    class Noted:
        def hurry(self, now):
            schedules.append(now)

    two.policies[two.owner, "a"].timing.schedule = Noted()
    two.ask(two.owner, a=asks(4))
    two.ask(two.other, b=asks(2))
    two.hear("b")
    await two.share()
    assert schedules, "its grant is smaller now"


async def test_once_one_process_holds_both_shards_no_policy_says_anything(pair, asks):
    two = pair(amount=4)
    two.ask(two.other, b=asks(2))
    assert two.policies[two.other, "b"].decision.membership is not None
    two.other.sharing._owner = Owner()
    two.ask(two.other, b=asks(2))
    assert two.policies[two.other, "b"].decision.membership is None


@pytest.mark.parametrize("seed", range(12))
async def test_together_never_more_than_the_amount_however_late_messages_are(pair, asks, seed):
    """Without guarantees, which may be ordered while a borrower's pods still run."""
    rng = np.random.default_rng(seed)
    two = pair(ours=("a", "c"), theirs=("b", "d"), amount=9, members=[{"name": "all", "ceiling": 6}])
    running = dict.fromkeys("abcd", 1)
    for _ in range(40):
        bench = two.owner if rng.random() < 0.5 else two.other
        names = ("a", "c") if bench is two.owner else ("b", "d")
        bench.now += 4
        wishes = {name: int(rng.integers(1, 7)) for name in names}
        grants = two.ask(bench, **{name: asks(wish, running=running[name]) for name, wish in wishes.items()})
        for name, wish in wishes.items():
            grant = grants.get(("ns", name))
            most = wish if grant is None else min(wish, grant.by_pool[0])
            if most > running[name] or rng.random() < 0.5:
                running[name] = max(most, 1)
        if two.other.budgets.get("few").is_shared:
            assert sum(running.values()) <= 9, running
        else:
            running |= {"b": 1, "d": 1}
        for name, replicas in running.items():
            two.run(name, replicas)
        for name in "bd":
            if rng.random() < 0.7:
                two.hear(name)
        two.owner.sharing.share_between()
        await asyncio.gather(*two.owner.tasks)
        if rng.random() < 0.7:
            two.show()
