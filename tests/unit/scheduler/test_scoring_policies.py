"""NodeScoringPolicies in the suggestion server: which one acts, what beats it, and that it is named."""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial

import pytest
from rich.console import Console

from rlscaler_core.placement.policies import Policy
from rlscaler_scheduler.annotations import wishes
from rlscaler_scheduler.explain import page
from rlscaler_scheduler.objects import pod_facts
from rlscaler_scheduler.overrides import Overrides
from rlscaler_scheduler.scoring_policies import ScoringPolicies
from rlscaler_scheduler.settings import Settings
from rlscaler_scheduler.suggest import Suggester
from rlscaler_scheduler.watches import followers
from tests.harness.placed import RESOURCES, cache_of, node, pod, suggest

SOFT, HARD = "latencySoftConstraintMilliseconds", "latencyHardConstraintMilliseconds"


def scoring(name: str, **spec) -> dict:
    return {"metadata": {"name": name}, "spec": spec}


def held(*items: dict) -> ScoringPolicies:
    made = ScoringPolicies()
    made.set(list(items))
    return made


def acting(policies: ScoringPolicies, namespace: dict | None = None, labels: dict | None = None) -> str | None:
    found = policies.of(namespace or {}, labels or {})
    return found and found.metadata.name


def test_the_highest_priority_acts_then_the_first_name() -> None:
    policies = held(
        scoring("b", policy="EE"),
        scoring("a", policy="LB"),
        scoring("z", policy="EL", priority=5, podSelector={"matchLabels": {"tier": "edge"}}),
    )
    assert acting(policies) == "a"
    assert acting(policies, labels={"tier": "edge"}) == "z"
    policies.change(scoring("b", policy="EE", priority=9), False)
    assert acting(policies, labels={"tier": "edge"}) == "b"
    policies.change(scoring("b", policy="EE", priority=9), True)
    policies.change(scoring("a", policy="LB"), True)
    assert acting(policies) is None


def test_one_that_cannot_be_used_does_not_act_and_is_shown() -> None:
    policies = held(scoring("good", policy="EE"), scoring("new", policy="BEST", priority=9))
    assert acting(policies) == "good"
    good, new = policies.shown()
    assert good == {"name": "good", "priority": 0}
    assert new["name"] == "new"
    assert "spec.policy" in new["error"]
    policies.change(scoring("new", policy="EL", priority=9), False)
    assert acting(policies) == "new"
    assert len(policies.shown()) == 2


def test_annotations_of_pod_and_namespace_beat_the_object_one_by_one() -> None:
    (stated,) = [held(scoring("edge", policy="EL", **{SOFT: 10, HARD: 40})).of({}, {})]
    alone = wishes({}, {}, Policy.EE, stated)
    assert (alone.policy, alone.soft_ms, alone.hard_ms, alone.problems) == (Policy.EL, 10, 40, ())
    assert set(alone.by.values()) == {"NodeScoringPolicy edge"}
    mixed = wishes({"latencyHardConstraint": "30"}, {"rlscaler.io/scoring-policy": "LB"}, Policy.EE, stated)
    assert (mixed.policy, mixed.soft_ms, mixed.hard_ms) == (Policy.LB, 10, 30)
    assert mixed.by == {
        "policy": "annotation of the namespace",
        "latency_soft_ms": "NodeScoringPolicy edge",
        "latency_hard_ms": "annotation of the pod",
    }
    assert wishes({}, {}, Policy.EE).by == {"policy": "--policy of the server"}


def test_a_limit_of_the_pod_below_the_objects_soft_one_is_said_with_both_names() -> None:
    stated = held(scoring("edge", policy="EL", **{SOFT: 10, HARD: 40})).of({}, {})
    found = wishes({"latencyHardConstraint": "5"}, {}, Policy.EE, stated)
    assert found.hard_ms == 5
    assert math.isnan(found.soft_ms)
    (said,) = found.problems
    assert "10 (NodeScoringPolicy edge) is above rlscaler.io/latency-hard-ms 5 (annotation of the pod)" in said


def test_an_annotation_that_is_wrong_keeps_the_objects_policy_and_lifts_its_limit() -> None:
    stated = held(scoring("edge", policy="EL", **{HARD: 40})).of({}, {})
    found = wishes({"rlscaler.io/scoring-policy": "BEST", "latencyHardConstraint": "near"}, {}, Policy.EE, stated)
    assert found.policy is Policy.EL
    assert math.isnan(found.hard_ms)
    assert len(found.problems) == 2
    assert found.by == {"policy": "NodeScoringPolicy edge"}


def suggester() -> Suggester:
    made = Suggester(cache_of(node("far", latency="90"), node("near", latency="5")), Overrides(), Settings(), {})
    made.change_namespace({"metadata": {"name": "shop", "labels": {"team": "web"}}}, False)
    selector = {"matchLabels": {"team": "web"}}
    made.scoring_policies.set([scoring("edge", policy="EL", namespaceSelector=selector, **{HARD: 20})])
    return made


def test_the_object_decides_for_a_pod_of_its_namespace_and_is_named() -> None:
    made, facts = suggester(), pod_facts(pod("p"), RESOURCES)
    refused = made.refused(facts, ["far", "near"])
    assert refused == {"far": "latency 90 ms is above the hard limit 20 ms (NodeScoringPolicy edge)"}
    found = suggest(made, facts, "far", "near")
    assert found.chosen == "near"
    record = json.loads(json.dumps(found.shown()))
    assert record["policy"] == "EL"
    assert record["asked_by"] == {"policy": "NodeScoringPolicy edge", "latency_hard_ms": "NodeScoringPolicy edge"}
    assert found.sentence().startswith("near suggested for EL (NodeScoringPolicy edge) by the rule latency-then-pack:")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(page(record))
    assert "policy: NodeScoringPolicy edge; hard latency: NodeScoringPolicy edge" in shown.get()
    made.change_namespace({"metadata": {"name": "shop"}}, False)
    assert made.refused(facts, ["far", "near"]) == {}


class Answer:
    """What the API server says, as far as the watch reads it."""

    def __init__(self, status: int, body: dict) -> None:
        self.status, self._body = status, body

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def json(self, **_: object) -> dict:
        return self._body


@pytest.mark.parametrize("status", [403, 404])
def test_a_cluster_without_the_kind_is_served_and_a_kind_that_comes_is_seen(monkeypatch, status) -> None:
    monkeypatch.setattr("rlscaler_scheduler.watches.ABSENT_SECONDS", 0.0)
    answers = [Answer(status, {}), Answer(200, {})]
    items = {"items": [scoring("edge", policy="EL")], "metadata": {"resourceVersion": "7"}}

    async def play() -> None:
        made = suggester()
        made.scoring_policies.listed = False
        follower = followers(None, made.cache, made)[-1]

        async def call(**options: object) -> Answer:
            if len(answers) == 1:
                assert made.scoring_policies.listed, "without the kind it is known that none acts"
                assert acting(made.scoring_policies) is None
            return answers.pop(0) if answers else Answer(200, items)

        follower.prepare = partial(follower.prepare.func, "NodeScoringPolicies", call, made.scoring_policies.set)
        follower.call = call
        follower.on_list((await (await call(**await follower.prepare())).json())["items"])
        assert acting(made.scoring_policies) == "edge"

    asyncio.run(play())
