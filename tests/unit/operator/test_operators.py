"""Two operators with different Leases and one policy."""

import json
import math

import pytest

from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.settings import Settings
from rlscaler_operator.state import operators
from rlscaler_operator.state.operators import ANSWER_SECONDS, ASK_SECONDS, FORGET_SECONDS, OperatorClaim, Standing
from rlscaler_operator.state.registry import Registry
from tests.harness.budgets import budget_body
from tests.harness.ticks import happens

A, B = "one/rlscaler", "two/rlscaler"
GPU = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}


class Play:
    """Two operators that look at one status in turn; each acts by writing its Lease and the answer."""

    def __init__(self):
        self.now, self.status = 0.0, {}
        self.standings = {A: Standing(), B: Standing()}
        self.acted = []

    def look(self, own):
        """Let the operator look once; return its verdict."""
        standing, claim = self.standings[own], OperatorClaim.of(self.status)
        verdict = standing.look(claim, own, self.now)
        part = self.status.setdefault("operator", {})
        if verdict == "act":
            part |= {"lease": own} | ({"answered": claim.asked} if claim.asked and claim.asked_by != own else {})
            self.acted.append((self.now, own))
        elif verdict == "ask":
            number = max(claim.asked, claim.answered) + 1
            part |= {"askedBy": own, "asked": number}
            standing.asked, standing.asked_at = number, self.now
        return verdict

    def run(self, seconds, *operators):
        begin = len(self.acted)
        for _ in range(int(seconds)):
            self.now += 1
            for own in operators:
                self.look(own)
        return {own for _, own in self.acted[begin:]}


def test_the_one_that_acts_goes_on_however_long_the_other_asks():
    play = Play()
    assert play.run(10, A) == {A}
    assert play.run(3600, A, B) == {A}
    assert play.run(3600, B, A) == {A}
    assert play.standings[A].other(OperatorClaim.of(play.status), A, play.now) == B
    play.run(FORGET_SECONDS + 1, A)
    assert play.standings[A].other(OperatorClaim.of(play.status), A, play.now) == "", "it is gone"


@pytest.mark.parametrize("waited", [0, 1000])
def test_one_that_answers_no_more_is_followed_and_then_waits_itself(waited):
    play = Play()
    play.run(10, A)
    play.run(waited, A, B)
    acted = play.run(ANSWER_SECONDS + 2 + (ASK_SECONDS if waited else 0), B)
    assert acted == {B}
    play.run(1, A, B)
    assert play.run(1000, A, B) == {B}
    assert play.run(1000, B, A) == {B}


def test_where_both_begin_at_once_one_remains():
    play = Play()
    for own in (A, B):
        assert play.standings[own].look(OperatorClaim(), own, 0.0) == "act"
    play.status = {"operator": {"lease": B}}  # the last write wins
    assert play.run(1000, A, B) == {B}


@pytest.mark.parametrize("part", [None, 7, [], {"lease": None, "asked": "x", "answered": [1]}])
def test_an_unreadable_claim_is_none(part):
    assert OperatorClaim.of({"operator": part}) == OperatorClaim()


@pytest.fixture
def engine(kube):
    one = build_engine(Settings(lease_namespace="two", budgets=True), kube)
    one.shards.leases[0]._deadline = math.inf
    one.acting = one.shards.holds()
    return one


async def test_for_a_policy_of_another_operator_nothing_is_done_but_ask(engine, policy_body, api_server):
    body = policy_body(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["rlscaler.io/restore"])
    body["status"] = {"operator": {"lease": A, "answered": 4}}
    policy = engine.registry.put(body)
    engine._collect_due(1000.0)
    await engine.background.stop(5)
    questions = [json.loads(text) for method, text in api_server.sent if method == "PATCH"]
    assert questions == [{"status": {"operator": {"askedBy": B, "asked": 5}}}]
    assert policy.observed.finalizers == ["rlscaler.io/restore"]
    (event,) = [json.loads(text) for method, text in api_server.sent if method == "POST"]
    assert (event["reason"], A in event["message"], B in event["message"]) == ("OtherOperatorActs", True, True)


async def test_what_is_taken_over_begins_from_the_status_of_the_other(engine, policy_body):
    body = policy_body()
    body["status"] = {"operator": {"lease": A}}
    policy = engine.registry.put(body)
    assert engine.operators.stands_by(policy, 0.0)
    policy.standing.asked, policy.standing.asked_at = 1, 0.0
    body["status"] |= {"costPerHour": 7.0}
    engine.registry.put(body)
    assert engine.operators.stands_by(policy, ANSWER_SECONDS + 1)
    again = engine.registry.get(policy.key)
    assert again is not policy
    assert again.outbox.status["costPerHour"] == 7.0
    assert not engine.operators.stands_by(again, ANSWER_SECONDS + 2)
    await engine.background.stop(5)


def test_a_question_makes_the_next_report(policy_body):
    policy = Registry().put(policy_body())
    before = policy.observed.revision
    body = policy_body()
    body["status"] = {"operator": {"lease": A, "askedBy": B, "asked": 1}}
    policy.observed.read(body)
    assert policy.observed.revision != before


async def test_a_budget_has_one_operator_and_members_of_another_keep_what_runs(
    engine, policy_body, api_server, asks, monkeypatch
):
    engine.take_in(policy_body("a"))
    policy = engine.registry.get(("ns", "a"))
    metadata = {"metadata": {"namespace": "ns", "name": "a-gpu", "uid": "d"}}
    engine.cache.put_deployment(metadata | {"spec": {"replicas": 1, "template": GPU}})
    shared = {"operator": {"lease": A, "answered": 3}, "amount": 8, "policies": 1}
    engine.budgets.take_in(budget_body(amount=8, status=shared))

    async def grant():
        engine.budgets.share()
        (granted,) = engine.budgets.sharing.share_batch([(policy, asks(6))]).values()
        await happens(lambda: not engine.background.tasks)
        return granted

    kept = await grant()
    assert kept.replicas == 1
    assert A in kept.describe()
    (question,) = [json.loads(text)["status"] for _, text in api_server.sent if "askedBy" in text]
    assert question == {"operator": {"askedBy": B, "asked": 4}}
    monkeypatch.setattr(operators, "ANSWER_SECONDS", 0.0)
    assert (await grant()).replicas == 6, "the other one has not answered"
    written = [json.loads(text)["status"] for _, text in api_server.sent if '"members"' in text]
    assert written[-1]["operator"]["lease"] == B
