"""Virtual services beside real ones, at the pace of the clock that the test holds."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from rlscaler_core.api.promotion import PromotionStatus
from rlscaler_core.api.status import Condition
from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import Flag
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow import shadows
from rlscaler_operator.shadow.calibration import Histogram
from rlscaler_operator.shadow.evidence import is_whole
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows, params_and_actor
from rlscaler_operator.state.registry import Registry

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
        self.policy.decision.actor = Rule()
        self.paused = False
        self.state = fresh_state(self.policy.decision.actor, replicas, START)

    def edit(self, **spec):
        self.body = json.loads(json.dumps(self.body))
        self.body["spec"] |= spec
        self.body["metadata"]["generation"] += 1
        self.policy = self.registry.put(self.body)

    def entry(self, now, rate, kind):
        policy = self.policy
        policy.decision.readings["arrival_rate"] = Reading(rate, 0.0)
        samples = make_samples(
            1,
            time=now,
            arrival_rate=rate,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=self.replicas,
            ready_replicas=self.replicas,
            paused=self.paused,
        )
        params, actor = params_and_actor(policy)
        return Entry(params, self.state, samples, kind, actor, policy.observed.generation)


class World:
    """Ticks of several services at a clock of their own."""

    def __init__(self, *services, window=60.0):
        self.services, self.shadows, self.now = services, Shadows(window), START

    def run(self, seconds, rate=lambda t: 30.0, follow=False):
        for tick in range(int(seconds / SENSE)):
            items = []
            for service in self.services:
                self.shadows.ensure_promotion(service.policy, self.now)
                kind = "action" if tick % 5 == 0 else "floor"
                items.append(ComparedPolicy(service.policy, service.entry(self.now, rate(self.now), kind)))
            for service, outcome in zip(self.services, decide_all([i.entry for i in items]), strict=True):
                service.state = outcome.state
                if follow:
                    service.replicas = tuple(outcome.decision.desired[0].tolist())
            self.shadows.tick(items)
            assert not self.shadows._groups
            self.now += SENSE


def latest(world, service):
    """The verdict of now; live it is looked for every five minutes."""
    service.policy.promotion.valid_for = None
    world.shadows.ensure_promotion(service.policy, world.now)
    return service.policy.promotion.status


def at_stage(state):
    return PromotionStatus(state=state, since=datetime(2026, 1, 1, tzinfo=UTC))


CONFLICT = Condition(
    type="Conflicted", status="True", reason="ForeignWriter", last_transition_time=datetime(2026, 1, 1, tzinfo=UTC)
)


@pytest.fixture
def service(policy_body):
    registry = Registry()
    return lambda name="chat", **spec: Service(registry, policy_body, name, **spec)


@pytest.mark.slow
def test_idle_replicas_are_a_cost_that_the_policy_would_save(service):
    wasteful = service(replicas=(8, 8))
    world = World(wasteful)
    world.run(4 * 3600, rate=lambda t: 30.0)
    promotion = latest(world, wasteful)
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
    (today,) = latest(world, stuck).evidence
    assert today.other_late > 0.9 * today.requests
    assert today.late < 0.05 * today.requests


@pytest.mark.slow
def test_an_acting_policy_is_held_against_a_service_that_follows_the_hpa_formula(service):
    acting = service(mode="Auto")
    world = World(acting)
    world.run(3 * 3600, rate=lambda t: 40.0, follow=True)
    promotion = latest(world, acting)
    assert (promotion.state, promotion.against) == ("NotRequired", "HPAFormula")
    today = promotion.evidence[-1]
    assert today.cost > 0
    assert today.other_cost == pytest.approx(today.cost, rel=0.5)
    assert today.late <= 1.1 * today.other_late
    assert today.late / today.requests < 0.05


def test_replicas_that_leave_most_requests_late_are_demoted_within_hours(service):
    """The acting side never grows, whatever is decided: 20 requests/s for 60."""
    stuck = service(mode="Auto", replicas=(1, 0))
    world = World(stuck)
    world.run(600)
    comparison = next(iter(world.shadows._comparisons.values()))
    comparison.agreeing.extend([True] * 6)
    world.run(4200, rate=lambda t: 60.0)
    assert (stuck.policy.promotion.status.state, stuck.policy.promotion.status.reason) == (
        "Demoted",
        "BurningErrorBudget",
    )
    assert stuck.entry(world.now, 60.0, "action").actor is None
    world.run(300, rate=lambda t: 60.0)
    assert stuck.policy.promotion.status.against == "Running"
    outcome = decide_all([stuck.entry(world.now, 60.0, "action")])[0]
    assert outcome.decision.flags[0] & Flag.FALLBACK
    assert (outcome.decision.desired >= stuck.replicas).all()


@pytest.mark.slow
def test_without_calibration_nobody_is_demoted(service):
    stuck = service(mode="Auto", replicas=(1, 0))
    world = World(stuck)
    world.run(2 * 3600, rate=lambda t: 60.0)
    assert stuck.policy.promotion.status.state == "NotRequired"


def test_a_demoted_policy_never_falls_before_the_first_good_sample(service):
    shown = service(mode="Auto", replicas=(6, 6))
    shown.policy.promotion.status = at_stage("Demoted")
    entry = shown.entry(START, float("nan"), "action")
    entry.samples.gpu_utilization[:] = entry.samples.cpu_utilization[:] = entry.samples.p95_ms[:] = np.nan
    assert entry.actor is None
    assert (decide_all([entry])[0].decision.desired == [[6, 6]]).all()
    idle = shown.entry(START, 1.0, "action")
    idle.samples.gpu_utilization[:] = idle.samples.cpu_utilization[:] = 10.0
    idle.state.recommendation_time[:] = np.nan
    decision = decide_all([idle])[0].decision
    assert (decision.desired == [[1, 1]]).all()
    assert decision.flags[0] & Flag.FALLBACK


@pytest.mark.slow
def test_a_new_process_goes_on_where_the_status_stands(service, policy_body):
    first = service(replicas=(8, 8))
    world = World(first)
    world.run(2 * 3600 + 900)
    before = latest(world, first)
    after = Service(Registry(), policy_body, replicas=(8, 8))
    after.policy.promotion.status = PromotionStatus.model_validate(before.to_dict())
    later = World(after)
    later.now = world.now
    later.run(1800)
    promotion = latest(later, after)
    assert [day.date for day in promotion.evidence] == ["2026-03-02", "2026-03-03"]
    assert promotion.evidence[0] == before.evidence[0]
    assert promotion.evidence[1].hours == pytest.approx(before.evidence[1].hours + 0.5, abs=0.06)
    assert promotion.since == before.since


def test_a_model_that_cannot_be_read_for_a_while_costs_no_promotion(service):
    one = service(mode="Auto", promotion={"require": "Evidence"})
    one.policy.promotion.status = at_stage("Promoted")
    world = World(one)
    world.shadows.ensure_promotion(one.policy, world.now)
    actor, basis = one.policy.decision.actor, one.policy.promotion.status.basis
    one.policy.promotion.status = at_stage("Promoted").model_copy(update={"basis": basis, "against": "HPAFormula"})
    for seen in (None, actor):
        one.policy.decision.actor = seen
        world.run(300)
        assert (one.policy.promotion.status.state, one.policy.promotion.status.basis) == ("Promoted", basis)


def test_gaps_and_pauses_are_not_compared(service):
    blind, paused = service("blind"), service("paused")
    paused.paused = True
    world = World(paused)
    world.run(600)
    assert latest(world, paused).evidence[-1].hours == 0
    world = World(blind)
    world.run(600, rate=lambda t: float("nan"))
    world.run(600)
    world.now += 3600
    world.run(600)
    assert latest(world, blind).evidence[-1].hours == pytest.approx(2 * 540 / 3600, abs=0.01)


@pytest.mark.slow
def test_days_are_compared_while_another_autoscaler_runs_the_replicas(service):
    """A policy comes to evidence in this way, in Shadow and before it is promoted, in a cluster that scales already."""
    beside = [service("shadow"), service("unproven", mode="Auto", promotion={"require": "Evidence"})]
    for one in beside:
        one.replicas, one.policy.report.conditions = (8, 8), [CONFLICT]
    world = World(*beside)
    world.run(20.5 * 3600)
    for one in beside:
        promotion = latest(world, one)
        assert (promotion.state, promotion.against) == ("Collecting", "Running")
        assert [day.hours for day in promotion.evidence] == pytest.approx([2, 18.5], abs=0.05)
        assert is_whole(promotion.evidence[1])


def test_a_demoted_policy_is_compared_with_the_autoscaler_that_runs(service):
    fallen = service(mode="Auto", promotion={"require": "Evidence"}, replicas=(8, 8))
    fallen.policy.promotion.status = at_stage("Demoted")
    fallen.policy.report.conditions = [CONFLICT]
    world = World(fallen)
    world.run(3600)
    assert latest(world, fallen).evidence[-1].hours == pytest.approx(1, abs=0.05)


def test_what_another_autoscaler_does_is_no_evidence_against_a_policy_that_should_act(service):
    held = service(mode="Auto")
    held.policy.report.conditions = [CONFLICT]
    world = World(held)
    world.run(600)
    assert latest(world, held).against == "HPAFormula"
    assert latest(world, held).evidence[-1].hours == 0


def test_a_policy_of_unknown_capacity_is_not_compared_and_disturbs_nobody(service):
    known, open_ = service("known"), service("open")
    targets = json.loads(json.dumps(open_.body["spec"]["targets"]))
    del targets["gpu"]["requestsPerSecond"]
    open_.edit(targets=targets)
    open_.policy.decision.actor = known.policy.decision.actor
    world = World(known, open_)
    world.run(600)
    assert latest(world, known).evidence[-1].hours > 0
    assert latest(world, open_).evidence[-1].hours == 0


def test_rows_are_taken_again_and_do_not_mix(service):
    kept, gone = service("kept"), service("gone", replicas=(9, 9))
    world = World(kept, gone)
    world.run(1800)
    alone = latest(world, kept).evidence[-1]
    world.shadows.forget(gone.policy.key)
    world.services = (kept, service("new", replicas=(3, 3)))
    world.run(1800)
    table = next(iter(world.shadows._tables.values()))
    assert len(table._sums) == 2
    new = latest(world, world.services[1]).evidence[-1]
    assert new.hours == pytest.approx(0.5, abs=0.05)
    assert new.other_cost == pytest.approx(0.5 * (3 * 2.5 + 3 * 0.625), rel=0.1)
    assert latest(world, kept).evidence[-1].hours == pytest.approx(2 * alone.hours, rel=0.1)


def test_a_failure_is_the_verdict_of_the_policy_at_fault_alone(service, caplog, monkeypatch):
    services = [service(name=f"chat-{number}") for number in range(5)]
    guilty, *innocent = services[3], *services[:3], services[4]
    world = World(*services)
    parameters = shadows._own_params

    def failing(item):
        return 1 / 0 if item.policy is guilty.policy else parameters(item)

    monkeypatch.setattr(shadows, "_own_params", failing)
    for _ in range(20):
        world.shadows.tick([ComparedPolicy(one.policy, one.entry(world.now, 30.0, "action")) for one in services])
        world.now += SENSE
    assert guilty.policy.promotion.status.reason == "ComparisonFailed"
    assert "ZeroDivisionError" in guilty.policy.promotion.status.message
    assert caplog.text.count("report it with the policy") == 1
    # Three ticks of halving were lost to the policies that were with it.
    assert all(one.policy.promotion.today.hours > 15 * SENSE / 3600 for one in innocent)


def test_the_model_is_held_against_the_histogram_of_each_window(service):
    one = service(replicas=(3, 3))
    world = World(one)
    for window in range(8):
        world.run(600)
        assert world.shadows.due_for_calibration([one.policy], world.now + 600) == [one.policy]
        good = Histogram(18000.0, {0.1: 9000.0, 0.25: 17900.0, 0.5: 18000.0, 1.0: 18000.0})
        bad = Histogram(18000.0, {0.1: 0.0, 5.0: 9000.0, float("inf"): 18000.0})
        world.shadows.calibrate(one.policy, {("", "ns", "chat"): good if window < 6 else bad}, world.now)
    comparison = next(iter(world.shadows._comparisons.values()))
    assert comparison.calibrated
    assert (comparison.measured.windows, comparison.measured.agreeing) == (7, 5)
    assert comparison.measured.late == pytest.approx(2 * 9000, rel=0.01)
    assert comparison.measured.late_at_most == pytest.approx(2 * 18000, rel=0.01)
