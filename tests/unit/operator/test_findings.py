from datetime import UTC, datetime, timedelta

from rlscaler_core.api import find_condition
from rlscaler_core.api.conditions import CAPACITY_UNKNOWN, MODEL_OUTDATED
from rlscaler_core.api.promotion import PromotionStatus
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


def test_outside_the_envelope_the_condition_says_that_the_rule_alone_decides_and_why():
    outside = Findings(mode="Auto", outside="slo.latencyMilliseconds 20 is outside 50..10000")
    assert shown(outside)["Fallback"] == ("False", "OutOfEnvelope")
    assert said(outside, "Fallback").startswith("slo.latencyMilliseconds 20 is outside 50..10000: the forecast rule")


def test_a_problem_makes_it_unready_and_inactive_with_its_reason():
    conditions = shown(Findings(mode="Auto", problems=[LOST], holding=True))
    assert conditions["Ready"] == conditions["Active"] == ("False", "PrometheusUnreachable")
    assert conditions["Fallback"] == ("False", "Holding")


def test_a_pool_that_is_off_is_said_and_without_any_pool_nothing_acts():
    off = Problem("ScalingDisabled", "Deployment chat-gpu has 0 replicas that rlscaler did not set")
    assert shown(Findings(mode="Auto", off=[off]))["Active"] == ("True", "ScalingDisabled")
    assert shown(Findings(mode="Auto", off=[off], all_off=True))["Active"] == ("False", "ScalingDisabled")


HPA = Conflict("HorizontalPodAutoscalerExists", "HPA chat scales Deployment chat-gpu", "delete it", None)


def said(findings, type_):
    return find_condition(update([], findings, 1, NOW)[0], type_).message


def test_shadow_beside_an_hpa_is_no_conflict_and_says_what_it_is_compared_with():
    beside = Findings(mode="Shadow", other=HPA)
    conditions = shown(beside)
    assert conditions["Ready"] == ("True", "Ready")
    assert conditions["Active"] == ("False", "ModeShadow")
    assert conditions["Conflicted"] == ("False", "NotActing")
    assert "HPA chat scales Deployment chat-gpu" in said(beside, "Conflicted")


def test_auto_that_collects_evidence_says_to_keep_the_hpa_until_it_is_there_and_to_delete_it_then():
    promotion = PromotionStatus(state="Collecting", since=NOW, reason="CollectingEvidence", message="2 of 7 days")
    collecting = Findings(mode="Auto", promotion=promotion, other=HPA)
    assert shown(collecting)["Active"] == ("False", "CollectingEvidence")
    assert shown(collecting)["Conflicted"] == ("False", "NotActing")
    assert "HPA chat scales Deployment chat-gpu and is compared with: keep it until then" in said(collecting, "Active")
    alone = Findings(mode="Auto", promotion=promotion)
    assert "the replicas stay as they are" in said(alone, "Active")
    promoted = Findings(mode="Auto", acts=True, other=HPA, promotion=promotion.model_copy(update={"state": "Promoted"}))
    assert shown(promoted)["Conflicted"] == ("True", "HorizontalPodAutoscalerExists")
    assert said(promoted, "Conflicted").endswith("the evidence for this policy is there: delete it")


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
