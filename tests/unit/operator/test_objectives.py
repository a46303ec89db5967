"""Late requests are measured once a rate window."""

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import AT_ONCE, Objectives
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry


class Source:
    """Answers with a histogram of 1,000 requests, 80 of them answered after 0.5 s and 20 not at all."""

    def __init__(self):
        self.error = self.answer = None
        self.queries = []

    async def instant(self, access, promql):
        self.queries.append(promql)
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        labels = {"namespace": "ns", "service": "chat"}
        samples = [({"le": "0.5"}, 900), ({"le": "1"}, 940), ({"le": "+Inf"}, 980), ({}, 1000)]
        return [{"metric": labels | more, "value": [0, str(value)]} for more, value in samples]


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
async def test_late_is_what_was_not_answered_in_time(objectives, metrics, policy_body, slo_ms, late):
    body = policy_body()
    body["spec"]["slo"]["latencyMilliseconds"] = slo_ms
    policy = Registry().put(body)
    await objectives.count(Source(), None, [policy])
    await objectives.count(Source(), None, [policy])
    assert counted(metrics) == (2000, 2 * late)


async def test_a_prometheus_that_fails_leaves_a_gap(objectives, metrics, policy_body):
    source = Source()
    source.error = MetricsError("gone")
    await objectives.count(source, None, [Registry().put(policy_body())])
    assert counted(metrics) == (None, None)


def test_every_policy_is_asked_for_once_a_window(objectives, policy_body):
    policies = [Registry().put(policy_body(f"chat-{i}")) for i in range(AT_ONCE + 1)]
    assert objectives.due(policies, 0.0) == []
    first = objectives.due(policies, 60.0)
    assert len(first) == AT_ONCE
    assert objectives.due(policies, 60.0) == [policies[-1]]
    assert objectives.due(policies, 119.0) == []


async def test_requests_that_wait_in_a_queue_are_late_once(objectives, metrics, policy_body):
    """100 a window: 60 of the first are answered late in the second, and 10 of the third in time in the fourth."""
    policy, source = Registry().put(policy_body()), Source()
    for in_time, answered in ((40, 40), (100, 160), (90, 90), (110, 110)):
        labels = {"namespace": "ns", "service": "chat"}
        samples = [({"le": "0.5"}, in_time), ({"le": "+Inf"}, answered), ({}, 100)]
        source.answer = [{"metric": labels | more, "value": [0, str(value)]} for more, value in samples]
        await objectives.count(source, None, [policy])
    assert counted(metrics) == (400, 70)
    assert policy.late.carried == -10
