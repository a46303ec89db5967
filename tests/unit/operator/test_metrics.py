"""What a tick leaves behind in the operator's own metrics."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.api import parse, set_condition
from rlscaler_core.api.promotion import EvidenceDay, PromotionStatus, Regret, RegretInterval
from rlscaler_core.decision.batch import decide_all
from rlscaler_core.decision.forecaster import memory
from rlscaler_core.models import load_bundled
from rlscaler_core.vertical.recommend import Usage, nothing_known
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.apply import Applied
from rlscaler_operator.actuation.pod_sizes import Round
from rlscaler_operator.actuation.resize import Resized
from rlscaler_operator.actuation.scale import Write
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.reporting import measures
from rlscaler_operator.reporting.measures import entropy_ratio, interventions
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.sensing.results import unknown
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.pod_sizes import look, ranges_of
from rlscaler_operator.state.registry import Registry

POLICY = 'policy="chat"'
RUNNING = Deployment("uid", "1", 2, 1, "")
SAMPLE = re.compile(r"(?P<series>\w+(?:{[^}]*})?) (?P<value>\S+)")


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def policy(policy_body):
    return Registry().put(policy_body())


@pytest.fixture
def show(metrics):
    """All samples by their text."""

    def look():
        lines = metrics.render().decode().splitlines()
        return {m["series"]: float(m["value"]) for line in lines if (m := SAMPLE.fullmatch(line))}

    return look


@pytest.fixture
def tick(metrics, policy):
    """Measure one tick of an entry."""

    def run(entry, missing=(), deployments=None):
        outcome = decide_all([entry])[0]
        measures.measure(metrics, policy, outcome, missing, deployments or {"gpu": RUNNING, "cpu": None})
        return outcome

    return run


def series(name, /, **labels):
    pairs = sorted({"namespace": "ns", "policy": "chat", **labels}.items())
    written = ",".join(f'{key}="{value}"' for key, value in pairs)
    return f"{name}{{{written}}}"


def test_an_action_leaves_its_probabilities_and_their_entropy(entry, tick, show):
    outcome = tick(entry(actor=load_bundled("ppo")))
    seen = show()
    for head, names in measures.ACTIONS.items():
        chances = [seen[series("rlscaler_action_probability", head=head, action=name)] for name in names]
        assert sum(chances) == pytest.approx(1, abs=1e-5)
        assert 0 <= seen[series("rlscaler_action_entropy_ratio", head=head)] <= 1
    assert seen[series("rlscaler_action_probability", head="cpu", action="+2")] == pytest.approx(
        float(outcome.decision.probabilities[0, 9])
    )
    assert seen[series("rlscaler_observation", name="throughput")] == outcome.observation.values[0, 4]
    assert seen[series("rlscaler_decisions_total", kind="action")] == 1


def test_without_an_actor_they_are_unknown_not_zero(entry, tick, show):
    tick(entry(actor=load_bundled("ppo")))
    tick(entry(actor=None))
    seen = show()
    assert math.isnan(seen[series("rlscaler_action_probability", head="gpu", action="0")])
    assert math.isnan(seen[series("rlscaler_action_entropy_ratio", head="gpu")])
    assert seen[series("rlscaler_guard_interventions_total", guard="unknown")] == 1


def test_forecasts_are_judged_by_pool_and_unknown_before_the_first_is_over(entry, tick, show):
    made = entry()
    made.state.load_recent, made.state.load_calendar = memory.nothing_learned(1)
    first = tick(made)
    held = {pool: series("rlscaler_forecast_held_ratio", pool=pool, quantile="0.9") for pool in ("gpu", "cpu")}
    assert math.isnan(show()[held["gpu"]])
    assert show()[series("rlscaler_forecasts_judged", pool="gpu")] == 0
    kept = memory.recent_of(first.state.load_recent)
    kept.judged[0], kept.missed[0, :, 1] = (100, 50), (20, 5)
    tick(replace(made, state=first.state))
    seen = show()
    assert (seen[held["gpu"]], seen[held["cpu"]]) == pytest.approx((0.8, 0.9))
    assert seen[series("rlscaler_forecasts_judged", pool="gpu")] == 100


@pytest.mark.parametrize(
    ("chances", "ratio"), [([0.2] * 5, 1.0), ([0, 0, 1, 0, 0], 0.0), ([0.5, 0.5, 0], math.log(2) / math.log(3))]
)
def test_entropy_is_a_share_of_the_highest_possible(chances, ratio):
    assert entropy_ratio(np.array(chances)) == pytest.approx(ratio)


def test_every_guard_is_counted_when_it_moves_replicas(entry, tick, show):
    outcome = tick(entry("floor", rate=70.0, max_replicas=(3, 3)))
    guards = interventions(outcome.decision)
    assert guards["floor"]
    assert not guards["pause"]
    seen = show()
    assert {guard: seen[series("rlscaler_guard_interventions_total", guard=guard)] for guard in guards} == guards
    assert seen[series("rlscaler_replicas_limit", pool="gpu", bound="max")] == 3
    assert seen[series("rlscaler_decisions_total", kind="floor")] == 1


def test_a_pool_whose_deployment_is_missing_is_unknown(entry, tick, show):
    tick(entry())
    seen = show()
    assert seen[series("rlscaler_replicas", pool="gpu", state="ready")] == 1
    assert math.isnan(seen[series("rlscaler_replicas", pool="cpu", state="current")])


def test_a_condition_that_went_away_is_not_true_any_more(entry, tick, policy, show):
    tick(entry())
    assert show()[series("rlscaler_condition", type="CapacityUnknown")] == 0
    policy.report.conditions, _ = set_condition([], "CapacityUnknown", True, "NotMeasured")
    tick(entry())
    assert show()[series("rlscaler_condition", type="CapacityUnknown")] == 1
    policy.report.conditions = []
    tick(entry())
    assert show()[series("rlscaler_condition", type="CapacityUnknown")] == 0


def test_unknown_signals_say_why(entry, tick, show):
    tick(entry(), missing=[("arrival_rate", unknown("SampleStale", "old"))])
    assert show()[series("rlscaler_unknown_signals_total", signal="arrival_rate", reason="SampleStale")] == 1


def test_writes_are_counted_by_result_from_zero_on(entry, tick, metrics, policy, show):
    tick(entry())
    assert show()[series("rlscaler_scale_writes_total", pool="gpu", result="Failed")] == 0
    problem = Problem("RouteMissing", "no such route")
    measures.written(metrics, policy, Applied({"gpu": Write("Failed", "no", 0.2)}, problem))
    seen = show()
    assert seen[series("rlscaler_scale_writes_total", pool="gpu", result="Failed")] == 1
    assert seen["rlscaler_scale_write_seconds_sum"] == pytest.approx(0.2)
    assert seen[series("rlscaler_placement_failures_total", reason="RouteMissing")] == 1


def test_regret_is_unknown_before_there_are_days(entry, tick, policy, show):
    tick(entry())
    assert math.isnan(show()[series("rlscaler_regret_cost_percent", bound="mean")])
    interval = RegretInterval(mean=-7.5, low=-9.0)
    policy.promotion.status = PromotionStatus(
        state="Promoted", since="2026-01-01T00:00:00Z", regret=Regret(cost_percent=interval)
    )
    policy.promotion.today = EvidenceDay(
        date="2026-01-01", hours=1, requests=100, cost=2, other_cost=3, late=4, other_late=5
    )
    tick(entry())
    seen = show()
    assert seen[series("rlscaler_regret_cost_percent", bound="mean")] == -7.5
    assert math.isnan(seen[series("rlscaler_regret_cost_percent", bound="high")])
    assert math.isnan(seen[series("rlscaler_regret_late_points", bound="mean")])
    assert seen[series("rlscaler_promotion", state="Promoted")] == 1
    assert seen[series("rlscaler_promotion", state="Demoted")] == 0
    assert seen[series("rlscaler_compared_cost", side="other")] == 3


def test_the_info_of_a_policy_has_one_series(metrics, show):
    for mode in ("Shadow", "Auto", "Shadow"):
        metrics.of("ns", "chat").only(metrics.info, mode, "chat", "ppo", "abc")
        assert [name for name in show() if name.startswith("rlscaler_policy_info")] == [
            series("rlscaler_policy_info", mode=mode, service="chat", model="ppo", digest="abc")
        ]


def test_a_policy_that_is_switched_off_keeps_its_conditions_only(entry, tick, policy_body, policy, metrics, show):
    tick(entry())
    policy.observed.deleting = True
    measures.measure(metrics, policy, None, [], {})
    assert {name.partition("{")[0] for name in show() if POLICY in name} == {"rlscaler_condition"}


def test_nothing_of_a_forgotten_policy_is_left(entry, tick, metrics, show):
    tick(entry())
    metrics.forget("ns", "chat")
    assert not [name for name in show() if POLICY in name]
    tick(entry())
    assert show()[series("rlscaler_decisions_total", kind="action")] == 1


def test_who_acts_no_longer_shows_nothing_of_what_others_act_for(metrics, show):
    for name in ("ours", "theirs"):
        metrics.of("ns", name).add(metrics.errors, 1)
    metrics.keep(lambda key: key == ("ns", "ours"))
    assert [name for name in show() if "policy=" in name] == [
        'rlscaler_policy_errors_total{namespace="ns",policy="ours"}'
    ]


def test_what_belongs_to_the_process_is_there_from_the_beginning(metrics, show):
    seen = show()
    assert seen['rlscaler_tick_stage_seconds_count{stage="judge"}'] == 0
    assert seen['rlscaler_status_writes_total{result="Failed"}'] == 0
    assert seen["process_resident_memory_bytes"] > 0
    assert not [name for name in seen if name.endswith("_created")]
    with metrics.stage("judge"):
        pass
    assert show()['rlscaler_tick_stage_seconds_count{stage="judge"}'] == 1


def test_the_size_of_pods_is_that_which_was_decided_and_that_which_they_ask_for(metrics, policy, policy_body, show):
    body = policy_body(generation=2)
    body["spec"]["targets"]["gpu"]["resources"] = {"cpu": {"min": "1", "max": "4"}}
    ranges, used = ranges_of([parse(body).spec.targets.gpu.resources]), np.array([[2.0, np.nan]])
    sizing = look(nothing_known(1), ranges, ("gpu",), Usage(np.array([100.0]), used))
    policy.decision.size_pods(sizing)
    measures.measure(metrics, policy, None, (), {"gpu": RUNNING})
    assert math.isnan(show()[series("rlscaler_pod_cpu_cores", pool="gpu", state="recommended")]), "too little was seen"
    after = replace(sizing.after, size=np.array([[2.4, np.nan]]))
    policy.decision.size_pods(sizing._replace(after=after))
    measures.measure(metrics, policy, None, (), {"gpu": RUNNING})
    resized = Resized(outcomes={"Taken": 2, "Refused": 1}, asked=PodSize(1.5, 2.0**30))
    measures.written(metrics, policy, Applied(sizes=Round(resized={"gpu": resized})))
    seen = show()
    assert seen[series("rlscaler_pod_cpu_cores", pool="gpu", state="recommended")] == pytest.approx(2.4)
    assert seen[series("rlscaler_pod_cpu_cores", pool="gpu", state="set")] == 1.5
    assert seen[series("rlscaler_pod_memory_bytes", pool="gpu", state="set")] == 2.0**30
    assert math.isnan(seen[series("rlscaler_pod_memory_bytes", pool="gpu", state="recommended")])
    counted = {name: seen[series("rlscaler_pod_resizes_total", pool="gpu", outcome=name)] for name in OUTCOMES}
    assert counted == {"Taken": 2, "Refused": 1, "Failed": 0, "TakenBack": 0}


OUTCOMES = ("Taken", "Refused", "Failed", "TakenBack")
