"""A conflict whose end the watch missed, against a real HTTP server."""

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.loop.diagnose import ASK_AGAIN_SECONDS, Diagnostician, _unknown
from rlscaler_operator.sensing.results import unknown
from rlscaler_operator.state.registry import Registry

HPA = {"metadata": {"namespace": "ns", "name": "theirs"}, "spec": {"scaleTargetRef": {"name": "chat-gpu"}}}


@pytest.fixture
async def kube(api_server):
    one = Kube(Configuration(host=api_server.url))
    yield one
    await one.close()


@pytest.mark.parametrize("mode", ["Auto", "Shadow"])
async def test_what_else_scales_ends_with_its_object_even_where_the_watch_missed_that(
    api_server, kube, policy_body, mode
):
    cache, registry = WatchCache(), Registry()
    cache.put_autoscaler("HorizontalPodAutoscaler", HPA)
    body = policy_body()
    body["spec"]["mode"] = mode
    policy = registry.put(body)
    diagnostician = Diagnostician(kube, cache, registry)
    found = await diagnostician.diagnose(policy, None)
    assert found.other is not None
    assert (found.conflict is not None) == (mode == "Auto")
    asked = api_server.asked
    api_server.status = 404
    assert (await diagnostician.diagnose(policy, None)).other is not None
    assert api_server.asked == asked
    policy.ownership.holder_asked_at -= ASK_AGAIN_SECONDS
    assert (await diagnostician.diagnose(policy, None)).other is None


async def test_a_rollout_is_said_with_the_deployment(kube, policy_body):
    cache, registry = WatchCache(), Registry()
    progress = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
    status = {"conditions": [progress], "updatedReplicas": 1, "replicas": 3}
    cache.put_deployment({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {}, "status": status})
    found = await Diagnostician(kube, cache, registry).diagnose(registry.put(policy_body()), None)
    assert [(limit.reason, "chat-gpu" in limit.message) for limit in found.limits] == [("RolloutInProgress", True)]


def test_signals_that_are_unknown_for_one_reason_are_said_once():
    away = unknown("PrometheusUnreachable", "refused")
    stale = unknown("SampleStale", "too old")
    missing = [("arrival_rate", away), ("p95_latency", away), ("cpu_utilization", stale)]
    assert _unknown(missing) == [
        ("PrometheusUnreachable", "arrival_rate, p95_latency are unknown: refused"),
        ("SampleStale", "cpu_utilization is unknown: too old"),
    ]
