"""Late requests are measured once a rate window."""

import pytest

from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import AT_ONCE, Objectives
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import histograms
from rlscaler_operator.state.registry import Registry


def measured(**within):
    """Return an answer with a histogram: by default 1,000 requests, 80 answered after 0.5 s and 20 not at all."""
    within = within or {"0.5": 900, "1": 940, "+Inf": 980, "": 1000}
    labels = {"namespace": "ns", "service": "chat"}
    return histograms(
        [
            {"metric": labels | ({"le": bound} if bound else {}), "value": [0, str(count)]}
            for bound, count in within.items()
        ]
    )


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def objectives(metrics):
    return Objectives(Settings(metrics_port=0, scrape_interval_seconds=15), metrics)


def counted(metrics):
    value = metrics.registry.get_sample_value
    labels = {"namespace": "ns", "policy": "chat"}
    return value("rlscaler_slo_requests_total", labels), value("rlscaler_slo_late_requests_total", labels)


@pytest.mark.parametrize(("slo_ms", "late"), [(500, 100), (1000, 60), (700, 80)])
def test_late_is_what_was_not_answered_in_time(objectives, metrics, policy_body, slo_ms, late):
    body = policy_body()
    body["spec"]["slo"]["latencyMilliseconds"] = slo_ms
    policy = Registry().put(body)
    objectives.count(policy, measured())
    objectives.count(policy, measured())
    assert counted(metrics) == (2000, 2 * late)


def test_a_queue_that_empties_takes_no_counted_request_away(objectives, metrics, policy_body):
    policy = Registry().put(policy_body())
    objectives.count(policy, measured())
    objectives.count(policy, measured(**{"0.5": 40, "+Inf": 40, "": -30}))
    assert counted(metrics) == (1000, 100)


def test_a_prometheus_that_fails_leaves_a_gap(objectives, metrics, policy_body):
    objectives.count(Registry().put(policy_body()), {})
    assert counted(metrics) == (None, None)


def test_every_policy_is_asked_for_once_a_window(objectives, policy_body):
    policies = [Registry().put(policy_body(f"chat-{i}")) for i in range(AT_ONCE + 1)]
    assert objectives.due(policies, 0.0) == []
    first = objectives.due(policies, 60.0)
    assert len(first) == AT_ONCE
    assert objectives.due(policies, 60.0) == [policies[-1]]
    assert objectives.due(policies, 119.0) == []


def test_requests_that_wait_in_a_queue_are_late_once(objectives, metrics, policy_body):
    """100 a window: 60 of the first are answered late in the second, and 10 of the third in time in the fourth."""
    policy = Registry().put(policy_body())
    for in_time, answered in ((40, 40), (100, 160), (90, 90), (110, 110)):
        objectives.count(policy, measured(**{"0.5": in_time, "+Inf": answered, "": 100}))
    assert counted(metrics) == (400, 70)
    assert policy.late.carried == -10
