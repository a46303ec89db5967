"""A conflict whose end the watch missed, against a real HTTP server."""

import dataclasses
from datetime import UTC, datetime

import numpy as np
import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.diagnose import ASK_AGAIN_SECONDS, Diagnostician, _unknown
from rlscaler_operator.sensing.results import unknown
from rlscaler_operator.state.findings import update
from rlscaler_operator.state.registry import Registry

HPA = {"metadata": {"namespace": "ns", "name": "theirs"}, "spec": {"scaleTargetRef": {"name": "chat-gpu"}}}


@pytest.mark.parametrize("mode", ["Auto", "Shadow"])
async def test_what_else_scales_ends_with_its_object_even_where_the_watch_missed_that(
    api_server, kube, policy_body, mode
):
    cache, registry = WatchCache(), Registry()
    cache.autoscalers.put("HorizontalPodAutoscaler", HPA)
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


TRIGGER = {"type": "external", "metadata": {"policy": "chat", "pool": "gpu"}}
BY_CPU = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]
BY_POLICY = [*BY_CPU, {"type": "External", "external": {"metric": {"name": "s0-rlscaler-chat-gpu"}}}]


@pytest.mark.parametrize(
    ("metrics", "trigger", "found"),
    [
        (BY_CPU, TRIGGER, True),
        ([], TRIGGER, True),
        (BY_POLICY, TRIGGER, False),
        (BY_CPU, {"type": "cpu", "metadata": {"value": "80"}}, False),
        (BY_CPU, TRIGGER | {"metadata": {"policy": "other", "pool": "gpu"}}, False),
    ],
)
async def test_an_hpa_that_keda_made_while_the_external_scaler_was_down_is_named(
    kube, policy_body, metrics, trigger, found
):
    """Without a metric of the scaler Kubernetes puts CPU at 80 % into it, and KEDA leaves it so."""
    cache, registry = WatchCache(), Registry()
    spec = {"scaleTargetRef": {"name": "chat-gpu"}}
    scaled = {"metadata": {"namespace": "ns", "name": "chat"}, "spec": spec | {"triggers": [trigger]}}
    made = {"namespace": "ns", "name": "keda-hpa-chat", "labels": {"scaledobject.keda.sh/name": "chat"}}
    cache.autoscalers.put("ScaledObject", scaled)
    cache.autoscalers.put("HorizontalPodAutoscaler", {"metadata": made, "spec": spec | {"metrics": metrics}})
    body = policy_body()
    body["spec"]["mode"] = "Shadow"
    findings = await Diagnostician(kube, cache, registry).diagnose(registry.put(body), None)
    (conflicted,) = (c for c in update([], findings, 1, datetime.now(UTC))[0] if c.type == "Conflicted")
    assert (conflicted.status, conflicted.reason) == (("True", "KEDAFallback") if found else ("False", "NotActing"))
    assert ("kubectl -n ns delete hpa keda-hpa-chat" in conflicted.message) is found
    before = cache.revisions(("ns", "chat-gpu"))
    cache.autoscalers.put("HorizontalPodAutoscaler", {"metadata": made, "spec": spec | {"metrics": BY_POLICY}})
    assert (cache.revisions(("ns", "chat-gpu")) != before) is (metrics != BY_POLICY), "a report follows"


def vpa(name="theirs", mode="Recreate", target="chat-gpu"):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    policy = {} if mode is None else {"updatePolicy": {"updateMode": mode}}
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"targetRef": reference, **policy}}


@pytest.fixture
def sized(policy_body):
    def make(sizing="InPlace", mode="Auto"):
        body = policy_body()
        body["spec"]["mode"] = mode
        body["spec"]["targets"]["gpu"]["resources"] = {"mode": sizing, "cpu": {"min": "1", "max": "2"}}
        return body

    return make


@pytest.mark.parametrize("mode", [None, "Recreate", "InPlaceOrRecreate", "Initial"])
async def test_sizing_stands_back_where_a_vpa_changes_the_pods(kube, sized, mode):
    cache, registry = WatchCache(), Registry()
    cache.verticals.put(vpa(mode=mode))
    found = await Diagnostician(kube, cache, registry).diagnose(registry.put(sized()), None)
    (limit,) = found.limits
    assert limit.reason == "VerticalPodAutoscalerExists"
    for part in (
        "VerticalPodAutoscaler theirs",
        "Deployment chat-gpu",
        "delete vpa theirs",
        "resources.mode Recommend",
    ):
        assert part in limit.message
    assert set(found.sized_by) == {"gpu"}
    assert found.conflict is None, "replicas are still the policy's"


@pytest.mark.parametrize(("sizing", "mode"), [("Recommend", "Auto"), ("InPlace", "Shadow")])
async def test_a_vpa_is_only_warned_about_where_nothing_is_resized(kube, sized, sizing, mode):
    cache, registry = WatchCache(), Registry()
    cache.verticals.put(vpa())
    found = await Diagnostician(kube, cache, registry).diagnose(registry.put(sized(sizing, mode)), None)
    assert (found.limits, found.sized_by) == ([], {})
    assert [one.reason for one in found.warnings] == ["VerticalPodAutoscalerExists"]


@pytest.mark.parametrize("other", [vpa(mode="Off"), vpa(target="chat-cpu")])
async def test_a_vpa_that_changes_none_of_these_pods_is_none(kube, sized, policy_body, other):
    cache, registry = WatchCache(), Registry()
    cache.verticals.put(vpa())
    cache.verticals.put(other)
    found = await Diagnostician(kube, cache, registry).diagnose(registry.put(sized()), None)
    assert (found.limits, found.warnings) == ([], [])
    cache.verticals.put(vpa())
    found = await Diagnostician(kube, cache, registry).diagnose(registry.put(policy_body(generation=2)), None)
    assert found.warnings == [], "nothing of it is sized"


async def test_a_vpa_whose_deletion_the_watch_missed_holds_nothing_for_long(api_server, kube, sized):
    cache, registry = WatchCache(), Registry()
    cache.verticals.put(vpa())
    policy, diagnostician = registry.put(sized()), Diagnostician(kube, cache, registry)
    assert (await diagnostician.diagnose(policy, None)).sized_by
    api_server.status, asked = 404, api_server.asked
    assert (await diagnostician.diagnose(policy, None)).sized_by
    assert api_server.asked == asked
    policy.ownership.sizers_asked_at["VerticalPodAutoscaler", "theirs"] -= ASK_AGAIN_SECONDS
    assert not (await diagnostician.diagnose(policy, None)).sized_by
    assert api_server.paths[-1] == "/apis/autoscaling.k8s.io/v1/namespaces/ns/verticalpodautoscalers/theirs"


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


QUOTA = 'pods "chat-gpu-1" is forbidden: exceeded quota: gpus, limited: requests.nvidia.com/gpu=2'


@pytest.mark.parametrize(
    ("refused", "reason", "words"),
    [(QUOTA, "PodsRefused", "exceeded quota: gpus"), ("", "PodsPending", "Unschedulable: 0/5 nodes have a GPU")],
)
async def test_replicas_that_do_not_come_are_said_in_the_words_of_who_refuses_them(
    kube, policy_body, entry, refused, reason, words
):
    cache, registry = WatchCache(), Registry()
    failure = [{"type": "ReplicaFailure", "status": "True", "message": refused}] if refused else []
    status = {"conditions": failure, "replicas": 2, "readyReplicas": 2}
    cache.put_deployment(
        {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 10}, "status": status}
    )
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes have a GPU"}
    owner = [{"kind": "ReplicaSet", "name": "chat-gpu-x"}]
    metadata = {
        "namespace": "ns",
        "name": "p",
        "uid": "p",
        "ownerReferences": owner,
        "labels": {"pod-template-hash": "x"},
    }
    cache.put_pod({"metadata": metadata, "status": {"conditions": [waits]}})
    row = entry(replicas=(10, 2))
    samples = dataclasses.replace(
        row.samples,
        ready_replicas=np.array([[2, 2]], np.int32),
        pending_seconds=np.array([[1e4, 0.0]]),
        stuck_replicas=np.array([[8, 0]], np.int32),
    )
    (outcome,) = decide_all([dataclasses.replace(row, samples=samples)])
    policy = registry.put(policy_body())
    policy.decision.decided(outcome)
    found = await Diagnostician(kube, cache, registry).diagnose(policy, outcome)
    (limit,) = found.limits
    assert limit.reason == reason
    assert words in limit.message
    assert "Deployment chat-gpu" in limit.message


async def test_of_two_policies_of_one_target_both_say_which_one_acts(api_server, kube, policy_body):
    registry, conditions = Registry(), {}
    old, new = policy_body("old"), policy_body("new", creationTimestamp="2026-02-02T00:00:00Z")
    new["spec"]["targets"]["gpu"]["deployment"] = "old-gpu"
    policies = [registry.put(body) for body in (old, new)]
    for policy in policies:
        found = await Diagnostician(kube, WatchCache(), registry).diagnose(policy, None)
        rows, _ = update([], found, 1, datetime.now(UTC))
        conditions[policy.key[1]] = next(row for row in rows if row.type == "Conflicted")
    said = {name: (condition.status, condition.reason) for name, condition in conditions.items()}
    assert said == {"old": ("False", "NewerPolicyExists"), "new": ("True", "OlderPolicyExists")}
    assert "RLScalingPolicy new" in conditions["old"].message
    assert "RLScalingPolicy old" in conditions["new"].message
    new["spec"]["mode"], new["metadata"]["generation"] = "Shadow", 2
    registry.put(new)
    assert registry.waiting(policies[0]) == ""
