"""Virtual services beside real ones, at the pace of the clock that the test holds."""

import json
from datetime import UTC, datetime

import pytest

from rlscaler_operator.api.status import PromotionStatus
from rlscaler_operator.decisions import Entry, decide_all, fresh_state
from rlscaler_operator.policies import Registry
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.shadows import Item, Shadows
from rlscaler_operator.shadow.twins import hpa_params
from rlscaler_operator.shadow.verdict import demoted
from rlscaler_rl.decision.rule import Rule
from rlscaler_rl.decision.samples import make_samples

START = datetime(2026, 3, 2, 22, tzinfo=UTC).timestamp()
SENSE = 60.0


class Service:
    """A policy, and Deployments that somebody else sets to `replicas`."""

    def __init__(self, registry, body, name="chat", replicas=(2, 2), **spec):
        made = body(name)
        made["spec"] |= {
            "mode": "Shadow",
            "intervalSeconds": 300,
            "senseSeconds": 60,
            "targets": {
                "gpu": {
                    "deployment": f"{name}-gpu",
                    "maxReplicas": 10,
                    "requestsPerSecond": 20,
                    "coldStartSeconds": 45,
                },
                "cpu": {"deployment": f"{name}-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "coldStartSeconds": 8},
            },
            "slo": {"latencyMilliseconds": 1000},
            **spec,
        }
        self.body, self.registry, self.replicas = made, registry, replicas
        self.policy = registry.put(made)
        self.policy.actor = Rule()
        self.state = fresh_state(self.policy.actor, replicas, START)

    def edit(self, **spec):
        self.body = json.loads(json.dumps(self.body))
        self.body["spec"] |= spec
        self.body["metadata"]["generation"] += 1
        self.policy = self.registry.put(self.body)

    def entry(self, now, rate, kind):
        policy = self.policy
        policy.readings["arrival_rate"] = Reading(rate, 0.0)
        samples = make_samples(
            1,
            time=now,
            arrival_rate=rate,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=self.replicas,
            ready_replicas=self.replicas,
        )
        if demoted(policy.spec.mode, policy.promotion):
            return Entry(hpa_params(policy.params()), self.state, samples, kind, None, policy.generation)
        return Entry(policy.params(), self.state, samples, kind, policy.actor, policy.generation)


class World:
    """Ticks of several services at a clock of their own."""

    def __init__(self, *services, window=60.0):
        self.services, self.shadows, self.now = services, Shadows(window), START

    def run(self, seconds, rate=lambda t: 30.0, follow=False):
        for tick in range(int(seconds / SENSE)):
            items = []
            for service in self.services:
                self.shadows.stand(service.policy, self.now)
                kind = "action" if tick % 5 == 0 else "floor"
                items.append(Item(service.policy, service.entry(self.now, rate(self.now), kind)))
            for service, outcome in zip(self.services, decide_all([i.entry for i in items]), strict=True):
                service.state = outcome.state
                if follow:
                    service.replicas = tuple(outcome.decision.desired[0].tolist())
            self.shadows.tick(items)
            assert not self.shadows._complained
            self.now += SENSE


@pytest.fixture
def service(policy_body):
    registry = Registry()
    return lambda name="chat", **spec: Service(registry, policy_body, name, **spec)


def test_idle_replicas_are_a_cost_that_the_policy_would_save(service):
    wasteful = service(replicas=(8, 8))
    world = World(wasteful)
    world.run(4 * 3600, rate=lambda t: 30.0)
    wasteful.policy.promotion_of = None
    world.shadows.stand(wasteful.policy, world.now)
    promotion = wasteful.policy.promotion
    assert (promotion.state, promotion.against) == ("Collecting", "Running")
    first, today = promotion.evidence
    assert (first.date, today.date) == ("2026-03-02", "2026-03-03")
    assert (first.hours, today.hours) == (pytest.approx(2, abs=0.05), pytest.approx(2, abs=0.05))
    assert first.other_cost == pytest.approx(2 * (8 * 2.5 + 8 * 0.625), rel=0.02)
    assert first.cost < 0.6 * first.other_cost
    assert first.requests == pytest.approx(2 * 3600 * 30, rel=0.02)
    assert first.late / first.requests < 0.02
    PromotionStatus.model_validate(promotion.to_dict())


def test_too_few_replicas_are_late_where_the_policy_would_have_scaled(service):
    stuck = service(replicas=(1, 1))
    world = World(stuck)
    world.run(3600, rate=lambda t: 60.0)
    stuck.policy.promotion_of = None
    world.shadows.stand(stuck.policy, world.now)
    (today,) = stuck.policy.promotion.evidence
    assert today.other_late > 0.9 * today.requests
    assert today.late < 0.05 * today.requests
