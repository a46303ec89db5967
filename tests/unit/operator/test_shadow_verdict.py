"""From days of evidence to a state: weeks of them, at the pace of a loop."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from rlscaler_core.api.promotion import EvidenceDay, MeasuredDay, PromotionStatus
from rlscaler_operator.shadow.evidence import is_calibrated
from rlscaler_operator.shadow.verdict import Requirements, demoted, next_promotion, writes

FIRST = date(2026, 3, 2)


def measured(late=0.01, modelled=0.01, windows=130, agreeing=None):
    return MeasuredDay(
        requests=1e6,
        late=late * 1e6,
        late_at_most=late * 1e6,
        modelled_requests=1e6,
        modelled_late=modelled * 1e6,
        windows=windows,
        agreeing=windows if agreeing is None else agreeing,
    )


def day(number, cost=-20.0, late=0.0, hours=24.0, calibration=None):
    """`cost` in % of the other side's 100, `late` in percentage points above its 1 %."""
    return EvidenceDay(
        date=(FIRST + timedelta(days=number)).isoformat(),
        hours=hours,
        requests=1e6,
        cost=100 + cost,
        other_cost=100,
        late=(1 + late) / 100 * 1e6,
        other_late=1e4,
        measured=calibration or measured(),
    )


def asked(mode="Shadow", require="Evidence", min_days=7, objective=99.0, basis="a", former=None):
    return Requirements(mode, require, min_days, objective, basis, former)


class Run:
    """A policy's promotion over days; evidence is collected as the operator does it."""

    def __init__(self, wanted):
        self.wanted, self.days, self.number, self.status = wanted, [], 0, None
        self.look()

    def look(self, burning=""):
        before = self.status
        now = datetime(FIRST.year, FIRST.month, FIRST.day, 1, tzinfo=UTC) + timedelta(days=self.number)
        self.status = next_promotion(before, self.wanted, self.days, now, burning)
        PromotionStatus.model_validate(self.status.to_dict())
        if before and (before.against, before.basis) != (self.status.against, self.status.basis):
            assert self.status.evidence == []
            self.days = []
        return self

    def ask(self, **changes):
        self.wanted = self.wanted._replace(**changes)
        return self.look()

    def pass_days(self, count, rng=None, **regret):
        """Regrets vary by 3 % and 0.02 points from day to day."""
        rng = rng or np.random.default_rng(1)
        for _ in range(count):
            cost, late = regret.get("cost", -20.0), regret.get("late", 0.0)
            moved = {"cost": cost + 3 * rng.standard_normal(), "late": late + 0.02 * rng.standard_normal()}
            self.days.append(day(self.number, **{**regret, **moved}))
            self.number += 1
            self.look()
        return self

    @property
    def state(self):
        return self.status.state, self.status.reason


def test_a_cheaper_policy_that_is_not_later_is_ready_after_min_days():
    run = Run(asked())
    assert run.state == ("Collecting", "CollectingEvidence")
    assert run.pass_days(6).state == ("Collecting", "CollectingEvidence")
    assert run.pass_days(1).state == ("Ready", "Cheaper")
    assert run.status.days == 7
    assert run.status.regret.cost_percent.high < 0
    assert run.status.against == "Running"


def test_less_late_at_no_higher_cost_counts_as_well():
    assert Run(asked()).pass_days(60, cost=-0.5, late=-0.5).state == ("Ready", "LessLate")


@pytest.mark.parametrize("regret", [{"cost": 0.0}, {"cost": -20.0, "late": 0.5}, {"cost": 5.0, "late": -0.5}])
def test_what_is_not_better_in_one_and_as_good_in_the_other_is_not_promoted(regret):
    assert Run(asked()).pass_days(30, **regret).state == ("Collecting", "NotBetter")


def test_min_days_may_be_longer_and_need_not_be_enough():
    assert Run(asked(min_days=21)).pass_days(20).status.state == "Collecting"
    assert Run(asked(min_days=21)).pass_days(21).status.state == "Ready"
    assert Run(asked(min_days=1)).pass_days(3).state == ("Collecting", "NotBetter")


def test_half_days_and_today_do_not_count():
    run = Run(asked()).pass_days(10, hours=12.0)
    assert (run.state, run.status.days) == (("Collecting", "CollectingEvidence"), 0)
    run.days.append(day(run.number))
    assert run.look().status.days == 0


@pytest.mark.parametrize(
    ("calibration", "good"),
    [
        (measured(), True),
        (measured(late=0.05, modelled=0.07), True),
        (measured(late=0.01, modelled=0.03), False),
        (measured(late=0.30, modelled=0.10), False),
        (measured(agreeing=90), False),
        (measured(windows=50), False),
    ],
)
def test_the_model_has_to_say_what_was_measured(calibration, good):
    assert is_calibrated(day(0, calibration=calibration)) is good
    run = Run(asked()).pass_days(8, calibration=calibration)
    assert run.state == (("Ready", "Cheaper") if good else ("Collecting", "ModelUncalibrated"))


def test_auto_with_evidence_acts_once_it_is_ready_and_not_before():
    run = Run(asked("Auto"))
    assert not writes("Auto", run.status)
    assert run.pass_days(6).status.state == "Collecting"
    assert not writes("Auto", run.status)
    assert run.pass_days(1).status.state == "Promoted"
    assert writes("Auto", run.status)
    assert run.status.against == "HPAFormula"
    assert run.status.evidence == []


def test_what_was_shown_in_shadow_counts_when_the_user_switches_to_auto():
    assert Run(asked()).pass_days(9).ask(mode="Auto").status.state == "Promoted"


def test_auto_without_evidence_acts_at_once():
    run = Run(asked("Auto", "None"))
    assert run.status.state == "NotRequired"
    assert writes("Auto", run.status)
    assert run.status.against == "HPAFormula"


@pytest.mark.parametrize("regret", [{"late": 0.4}, {"cost": 15.0}])
@pytest.mark.parametrize("require", ["None", "Evidence"])
def test_a_policy_that_turns_bad_is_demoted_and_driven_on(require, regret):
    run = Run(asked("Auto", require))
    if require == "Evidence":
        run.pass_days(7)
    run.pass_days(60, cost=-20.0)
    assert run.status.state in ("NotRequired", "Promoted")
    days = 0
    while run.status.state != "Demoted":
        run.pass_days(1, np.random.default_rng(days), **{"cost": -20.0, **regret})
        days += 1
        assert days < 30
    assert run.status.reason in ("LaterThanHPA", "DearerThanHPA")
    assert writes("Auto", run.status)
    assert demoted("Auto", run.status)
    assert run.status.against == "Running"


def test_dearer_for_fewer_late_requests_is_what_was_asked_for():
    assert Run(asked("Auto", "None")).pass_days(60, cost=15.0, late=-0.5).status.state == "NotRequired"


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_as_good_as_the_formula_stays_for_a_year(seed):
    run = Run(asked("Auto", "None"))
    rng = np.random.default_rng(seed)
    for _ in range(365):
        run.pass_days(1, rng, cost=0.0)
        run.days = run.days[-90:]
    assert run.status.state == "NotRequired"


def test_burning_the_error_budget_demotes_at_once():
    run = Run(asked("Auto", "None")).pass_days(3)
    assert run.look("over 1 h 20 % more were late").state == ("Demoted", "BurningErrorBudget")
    assert run.status.message.startswith("over 1 h")
    assert run.pass_days(20).state == ("Demoted", "BurningErrorBudget")


def test_demoted_without_evidence_asked_for_waits_for_the_user():
    run = Run(asked("Auto", "None")).look("burns").pass_days(30)
    assert run.status.state == "Demoted"
    assert run.ask(mode="Shadow").status.state == "Ready"
    assert run.ask(mode="Auto").status.state == "NotRequired"
    assert Run(asked("Auto", "None")).look("burns").ask(basis="b").status.state == "NotRequired"


def test_demoted_with_evidence_asked_for_may_earn_it_again():
    run = Run(asked("Auto")).pass_days(7).look("burns")
    assert run.status.state == "Demoted"
    assert run.pass_days(6).status.state == "Demoted"
    assert run.pass_days(1).status.state == "Promoted"


@pytest.mark.parametrize("change", [{"basis": "b"}, {"require": "Evidence"}])
def test_what_has_acted_is_never_left_without_a_driver(change):
    run = Run(asked("Auto", "None" if "require" in change else "Evidence")).pass_days(7)
    assert writes("Auto", run.status)
    assert run.ask(**change).status.state == "Demoted"
    assert writes("Auto", run.status)
    assert run.pass_days(7).status.state == "Promoted"


def test_another_model_has_to_show_it_anew():
    run = Run(asked()).pass_days(9)
    assert run.ask(basis="b").state == ("Collecting", "BasisChanged")
    assert run.status.evidence == []
    assert run.look().state == ("Collecting", "BasisChanged")
    assert run.pass_days(1).state == ("Collecting", "CollectingEvidence")


def test_an_upgrade_is_no_edit():
    run = Run(asked()).pass_days(9)
    now = datetime(FIRST.year, FIRST.month, FIRST.day, 2, tzinfo=UTC) + timedelta(days=9)
    after = next_promotion(run.status, asked(basis="b:1", former="a"), run.days, now)
    assert (after.state, after.reason, after.basis) == ("Ready", "Cheaper", "b:1")
    assert after.evidence == run.days


@pytest.mark.parametrize(("requests", "good"), [(0.0, False), (100.0, False), (143.0, True)])
def test_a_week_of_hardly_any_request_is_no_evidence(requests, good):
    run = Run(asked())
    for number in range(7):
        few = day(number, cost=-60.0 + number % 3).model_copy(update={"requests": requests, "late": 0, "other_late": 0})
        run.days.append(few)
    run.number = 7
    assert run.look().state == (("Ready", "Cheaper") if good else ("Collecting", "TooFewRequests"))


@pytest.mark.parametrize(
    ("seen", "modelled", "good"), [(None, 0, False), (100, 0, False), (200, 0, True), (200, 20, False)]
)
def test_days_of_few_requests_whose_latency_nobody_measured_are_no_evidence(seen, modelled, good):
    """400 requests a day promoted a model that had never seen a latency."""
    run = Run(asked())
    for number in range(7):
        few = {"requests": 400.0, "late": 0, "other_late": 0, "measured": None}
        if seen is not None:
            few["measured"] = MeasuredDay(
                requests=seen,
                late=0,
                late_at_most=0,
                modelled_requests=seen,
                modelled_late=modelled,
                windows=3,
                agreeing=1,
            )
        run.days.append(day(number, cost=-60.0 + number % 3).model_copy(update=few))
    run.number = 7
    assert run.look().state == (("Ready", "Cheaper") if good else ("Collecting", "ModelUncalibrated"))
    assert good or f"the latency of {7 * (seen or 0)} was measured" in run.status.message or modelled


def test_shadow_is_only_ever_the_users_choice():
    run = Run(asked("Auto", "None")).look("burns")
    assert run.wanted.mode == "Auto"
    assert not demoted("Shadow", run.ask(mode="Shadow").status)
    assert not writes("Shadow", run.status)


def first_hour(calibration):
    """The promotion of a policy in the first hour of its first day."""
    today = day(0, hours=0.9, calibration=calibration)
    now = datetime(FIRST.year, FIRST.month, FIRST.day, 1, tzinfo=UTC)
    before = next_promotion(None, asked(), [], now)
    return next_promotion(before, asked(), [today], now)


def test_the_first_hour_says_whether_the_model_matches():
    assert "Today" not in first_hour(measured(windows=0)).message
    fine = first_hour(measured(windows=2))
    assert fine.reason == "CollectingEvidence"
    assert "Today 0.9 h are compared so far, and the model matches what was measured" in fine.message
    assert "requestsPerSecond" not in fine.message
    late = first_hour(measured(late=0.2, windows=2))
    assert late.reason == "CollectingEvidence"
    assert "does not match (1.00 % late against 20.00 to 20.00 %, p95 alike in 2 of 2 windows)" in late.message
    assert "targets.*.requestsPerSecond" in late.message, "the remedy"
    assert "p95 alike in 1 of 2" in first_hour(measured(windows=2, agreeing=1)).message


def test_after_an_hour_that_does_not_match_it_is_the_reason():
    assert first_hour(measured(late=0.2, windows=5)).reason == "CollectingEvidence"
    assert first_hour(measured(late=0.2, windows=6)).reason == "ModelUncalibrated"
