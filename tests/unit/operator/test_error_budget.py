"""The error budget in the operator: counted, taken once, kept in the status, shown and recorded."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.api import Status
from rlscaler_core.decision.batch import decide_all, fresh_state
from rlscaler_core.decision.error_budget import HIGHEST_FACTOR
from rlscaler_core.models import load_bundled
from rlscaler_operator.cli.explain.learned import error_budget
from rlscaler_operator.records.record import Subject, entry_of, line, result
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.error_budget import late_price, left, restore_slo, slo_status
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_objectives import measured

NEVER = {"counted_requests": 0.0, "counted_late": 0.0, "counted_time": None}
SUBJECT = Subject("ns", "chat", "uid", 3, "Auto")


@pytest.fixture
def spent(entry, rule):
    """A service of which 30 of 10,000 requests were late, and whose price has begun to fall."""

    def make(actor=rule, objective=0.99, **columns):
        one = entry(actor=actor, objective=objective, slo_ms=500.0)
        state = replace(
            one.state,
            counted_requests=np.full(1, 10_000.0),
            counted_late=np.full(1, 30.0),
            counted_time=np.full(1, 40.0),
            counted_slo_ms=np.full(1, 500.0),
            price_factor=np.full(1, 0.75),
        )
        samples = one.samples.copy()
        for name, value in columns.items():
            getattr(samples, name)[:] = value
        return replace(one, state=state, samples=samples)

    return make


@pytest.fixture
def spec(policy_body):
    def make(**slo):
        body = policy_body()
        body["spec"]["slo"] |= slo
        return Registry().put(body).spec

    return make


def test_the_status_says_what_is_left_and_a_successor_goes_on_from_it(spent, rule, spec):
    before = spent()
    shown = slo_status(before.params, before.state, before.samples, rule, spec())
    assert shown is not None
    assert (shown.budget_left, shown.late_price, shown.price_factor) == (70.0, 0.375, 0.75)
    status = json.loads(json.dumps(Status(slo=shown).to_dict()))
    assert status["slo"]["budgetLeft"] == 70.0
    successor = fresh_state(rule, (2, 2), 100.0)
    restore_slo(successor, Status.model_validate(status).slo)
    for name in ("counted_requests", "counted_late", "counted_time", "counted_slo_ms", "price_factor"):
        assert getattr(successor, name) == pytest.approx(getattr(before.state, name)), name


def test_a_status_that_someone_edited_does_not_leave_the_bounds(rule, spent, spec):
    before = spent()
    shown = slo_status(before.params, before.state, before.samples, rule, spec())
    assert shown is not None
    state = fresh_state(rule, (2, 2), 100.0)
    restore_slo(state, shown.model_copy(update={"price_factor": 1e9, "late": 1e9}))
    assert state.price_factor[0] == HIGHEST_FACTOR
    assert state.counted_late[0] == state.counted_requests[0]


def test_nothing_is_shown_before_anything_was_counted_and_no_budget_for_few_requests(entry, rule, spent, spec):
    nothing = entry(objective=0.99)
    assert slo_status(nothing.params, nothing.state, nothing.samples, rule, spec()) is None
    few = spent()
    shown = slo_status(few.params, few.state, few.samples, rule, spec(objective=99.99))
    assert shown is not None
    assert shown.budget_left is None
    assert math.isnan(left(few.params, few.state, few.samples, 0.9999))


@pytest.mark.parametrize(
    ("age", "rate", "known"), [(500.0, 20.0, True), (700.0, 20.0, False), (700.0, np.nan, False), (700.0, 0.0, True)]
)
def test_without_a_count_for_ten_minutes_the_budget_is_unknown_with_its_age_unless_no_request_arrives(
    spent, rule, spec, age, rate, known
):
    one = spent(time=40.0 + age, arrival_rate=rate)
    shown = slo_status(one.params, one.state, one.samples, rule, spec())
    assert shown is not None
    assert (shown.budget_left, shown.time.timestamp()) == (70.0 if known else None, 40.0)
    record = json.loads(json.dumps(line("id", 40.0 + age, SUBJECT, decide_all([one])[0], [], None, None)))
    assert (record["error_budget"]["left"] is None) == (not known)
    told = str(error_budget(record))
    assert ("30 late of 10000 requests counted, the last 12 min ago." in told) == (age == 700)
    assert told.startswith("70 % of the error budget" if known else "The error budget is not known yet: 30 late")
    never = line(
        "id",
        140.0,
        SUBJECT,
        decide_all([entry_of(record | {"state": record["state"] | NEVER}, lambda _: rule)])[0],
        [],
        None,
        None,
    )
    assert "not known yet: no request was counted yet." in str(error_budget(json.loads(json.dumps(never))))


def test_a_network_has_the_price_of_the_rule_beneath_and_a_fixed_one_is_as_it_is_set(spent, rule):
    entry = spent()
    assert late_price(entry.params, entry.state, load_bundled("ppo")) == late_price(entry.params, entry.state, rule)
    assert math.isnan(late_price(entry.params, entry.state, None))
    fixed = spent(objective=np.nan)
    assert late_price(fixed.params, fixed.state, rule) == 0.5


def test_what_is_counted_is_taken_once_and_only_for_the_latency_that_it_is_of(policy_body):
    policy = Registry().put(policy_body())
    objectives = Objectives(Settings(metrics_port=0), Metrics())
    objectives.count(policy, measured())
    objectives.count(policy, measured())
    assert policy.late.take(500) == (2000, 200)
    assert all(math.isnan(value) for value in policy.late.take(500))
    objectives.count(policy, measured())
    assert all(math.isnan(value) for value in policy.late.take(1000))
    assert policy.late.windows == []


def test_where_no_metrics_are_served_only_a_price_that_is_steered_has_something_asked(policy_body):
    observed = policy_body("watched")
    observed["spec"]["slo"]["errorBudget"] = "Observe"
    policies = [Registry().put(policy_body("steered")), Registry().put(observed)]
    objectives = Objectives(Settings(), Metrics())
    assert objectives.due(policies, 0.0) == []
    assert objectives.due(policies, 1e6) == [policies[0]]


def test_a_replayed_record_comes_to_the_same_budget_and_decision(spent, rule):
    outcome = decide_all([spent(counted_requests=1200.0, counted_late=50.0)])[0]
    assert outcome.state.price_factor[0] != 0.75
    record = json.loads(json.dumps(line("id", 1.0, SUBJECT, outcome, [], None, None), allow_nan=False))
    again = decide_all([entry_of(record, lambda _: rule)])[0]
    for name in ("counted_requests", "counted_late", "counted_time", "counted_slo_ms", "price_factor"):
        np.testing.assert_array_equal(getattr(outcome.state, name), getattr(again.state, name))
    assert outcome.decision is not None
    assert again.decision is not None
    assert result(outcome, outcome.decision) == result(again, again.decision)
    assert record["error_budget"]["late_price"] == pytest.approx(0.5 * outcome.state.price_factor[0])
    assert record["error_budget"]["left"] == pytest.approx(1 - 80 / 112, abs=1e-4)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (
            0.99,
            "70 % of the error budget of 99 % in time is left: 30 late of 10000 requests counted. One percent of late ",
        ),
        (
            0.9999,
            "The error budget is not known yet: 30 late of 10000 requests counted, and 99.99 % in time allows too ",
        ),
        (np.nan, "The error budget steers nothing (slo.errorBudget Observe); 30 late of 10000 requests counted."),
    ],
)
def test_explain_says_what_is_left_and_what_it_made_of_the_price(spent, objective, said):
    outcome = decide_all([spent(objective=objective)])[0]
    record = json.loads(json.dumps(line("id", 1.0, SUBJECT, outcome, [], None, None)))
    assert str(error_budget(record)).startswith(said)


def test_explain_passes_over_records_of_older_releases(spent):
    record = json.loads(json.dumps(line("id", 1.0, SUBJECT, decide_all([spent()])[0], [], None, None)))
    del record["error_budget"]
    assert error_budget(record) is None


def test_the_spec_decides_whether_the_objective_steers(spec):
    assert (spec().slo.steers, spec(errorBudget="Observe").slo.steers) == (True, False)
