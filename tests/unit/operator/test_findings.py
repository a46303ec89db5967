from datetime import UTC, datetime, timedelta

from rlscaler_core.api import find_condition
from rlscaler_core.api.conditions import CAPACITY_UNKNOWN, MODEL_OUTDATED
from rlscaler_operator.cluster.events import BURST, REFILL_SECONDS, REPEAT_SECONDS, EventFilter
from rlscaler_operator.state.findings import Findings, Problem, update
from rlscaler_operator.state.ownership import Conflict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = Problem("PrometheusUnreachable", "arrival_rate is unknown: connection refused")


def shown(findings):
    return {c.type: (c.status, c.reason) for c in update([], findings, 1, NOW)[0]}


def test_all_is_well():
    assert shown(Findings(mode="Auto")) == {
        "Ready": ("True", "Ready"),
        "Active": ("True", "Acting"),
        "Fallback": ("False", "NotNeeded"),
        "Paused": ("False", "NotPaused"),
        "Conflicted": ("False", "NoConflict"),
    }


def test_a_problem_makes_it_unready_and_inactive_with_its_reason():
    conditions = shown(Findings(mode="Auto", problems=[LOST], holding=True))
    assert conditions["Ready"] == conditions["Active"] == ("False", "PrometheusUnreachable")
    assert conditions["Fallback"] == ("False", "Holding")


def test_shadow_beside_an_hpa_is_ready_and_conflicted():
    conditions = shown(Findings(mode="Shadow", conflict=Conflict("HorizontalPodAutoscalerExists", "…", None)))
    assert conditions["Ready"] == ("True", "Ready")
    assert conditions["Active"] == ("False", "ModeShadow")
    assert conditions["Conflicted"] == ("True", "HorizontalPodAutoscalerExists")


def test_conditions_that_only_warn_come_and_go():
    bad_model = Problem("ModelInvalid", "damaged")
    odd = Findings(capacity_unknown=("gpu",), model=bad_model)
    conditions, _ = update([], odd, 1, NOW)
    assert "gpu" in find_condition(conditions, CAPACITY_UNKNOWN).message
    assert find_condition(conditions, MODEL_OUTDATED).reason == "ModelInvalid"
    conditions, _ = update(conditions, Findings(), 1, NOW)
    assert not any(find_condition(conditions, type_) for type_ in (CAPACITY_UNKNOWN, MODEL_OUTDATED))


def test_what_limits_an_active_policy_is_its_reason():
    limits = [Problem("BudgetLimited", "budget"), Problem("PodsPending", "pods")]
    conditions, _ = update([], Findings(mode="Auto", limits=limits), 1, NOW)
    active = find_condition(conditions, "Active")
    assert (active.status, active.reason, active.message) == ("True", "BudgetLimited", "budget; pods")


def test_only_what_changed_is_reported_and_dated():
    before, _ = update([], Findings(mode="Auto"), 1, NOW)
    later = NOW + timedelta(minutes=1)
    after, changed = update(before, Findings(mode="Auto", problems=[LOST]), 1, later)
    assert {c.type for c in changed} == {"Ready", "Active"}
    assert find_condition(after, "Ready").last_transition_time == later
    assert find_condition(after, "Paused").last_transition_time == NOW
    assert update(after, Findings(mode="Auto", problems=[LOST]), 1, later)[1] == []


def test_events_are_not_repeated_before_their_time():
    limiter = EventFilter()
    assert limiter.allows("Reason", "text", 0.0)
    assert not limiter.allows("Reason", "text", 10.0)
    assert limiter.allows("Reason", "text", REPEAT_SECONDS + 1)


def test_a_cause_that_comes_back_is_news():
    limiter = EventFilter()
    limiter.allows("Reason", "text", 0.0)
    limiter.forget("Reason")
    assert limiter.allows("Reason", "text", 1.0)


def test_bursts_of_events_are_limited():
    limiter = EventFilter()
    posted = sum(limiter.allows("Scaled", str(i), 1.0) for i in range(100))
    assert posted == BURST
    assert limiter.allows("Scaled", "later", 1.0 + REFILL_SECONDS)
