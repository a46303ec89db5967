import pytest

from rlscaler_operator.cluster.bodies import deployment_of_pod, key_of, parse_deployment, quantity, start_seconds
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.loop.learn import learned
from rlscaler_operator.state.registry import Registry


def body(replicas=2, ready=1, version="10", uid="u", managers=()):
    fields = [
        {"manager": name, "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": "scale"} for name in managers
    ]
    return {
        "metadata": {
            "namespace": "ns",
            "name": "chat",
            "uid": uid,
            "resourceVersion": version,
            "managedFields": fields,
        },
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready},
    }


def pod(uid="p", ready="2026-01-01T00:00:50Z", restarts=0, unready=None, scheduled="2026-01-01T00:00:05Z"):
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}]
    if unready:
        conditions.append({"type": "Ready", "status": "False", "lastTransitionTime": unready})
    elif ready:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": ready})
    return {
        "metadata": {
            "namespace": "ns",
            "name": f"chat-6b7f-{uid}",
            "uid": uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"pod-template-hash": "6b7f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-6b7f"}],
        },
        "status": {"conditions": conditions, "containerStatuses": [{"restartCount": restarts}]},
    }


def test_replicas_default_to_one_as_in_the_api():
    deployment = parse_deployment({"metadata": {"name": "chat"}, "spec": {}})
    assert (deployment.replicas, deployment.ready) == (1, 0)


def test_the_owner_of_replicas_is_the_writer_and_shared_ownership_is_ours():
    assert parse_deployment(body(managers=["kubectl"])).manager == "kubectl"
    assert parse_deployment(body(managers=["rlscaler", "helm"])).manager == "rlscaler"
    assert parse_deployment(body()).manager == ""


def test_an_older_version_is_ignored():
    cache = WatchCache()
    assert cache.put_deployment(body(replicas=2))
    cache.wrote_replicas(("ns", "chat"), 5, "12")
    assert not cache.put_deployment(body(replicas=2, version="11"))
    assert cache.deployments["ns", "chat"].replicas == 5
    assert not cache.put_deployment(body(replicas=5, version="12"))


def test_versions_that_stay_older_are_those_of_a_restored_etcd():
    cache, now = WatchCache(), [0.0]
    cache.clock = lambda: now[0]
    route = {"metadata": {"namespace": "ns", "name": "r", "resourceVersion": "900"}, "spec": {"rules": [{"a": 1}]}}
    cache.put_deployment(body(replicas=2, version="900"))
    cache.put_route(route)
    for now[0], replicas, rules in ((59.0, 2, 1), (61.0, 7, 0)):
        cache.put_deployment(body(replicas=7, version="10"))
        cache.put_route({"metadata": route["metadata"] | {"resourceVersion": "10"}, "spec": {}})
        assert cache.deployments["ns", "chat"].replicas == replicas
        assert len(cache.routes["ns", "r"]["spec"]["rules"]) == rules


def test_a_new_object_of_the_same_name_is_taken_whatever_its_version():
    cache = WatchCache()
    cache.put_deployment(body(version="10"))
    assert cache.put_deployment(body(version="9", uid="other"))


def test_cold_start_is_the_median_of_enough_pods():
    cache = WatchCache()
    for i, second in enumerate((45, 50, 55)):
        assert cache.cold_start_seconds(("ns", "chat")) is None
        for ready in (None, f"2026-01-01T00:00:{second}Z", None, "2026-01-01T05:00:00Z"):
            cache.put_pod(pod(uid=f"p{i}", ready=ready))
    assert cache.cold_start_seconds(("ns", "chat")) == 50.0


def test_a_node_whose_clock_is_days_off_teaches_no_longer_cold_start_than_a_spec_may_have(policy_body):
    cache, spec = WatchCache(), policy_body()
    spec["spec"]["targets"]["gpu"]["deployment"] = "chat"
    for i in range(3):
        for ready in (None, "2026-01-09T00:00:00Z"):
            cache.put_pod(pod(uid=f"p{i}", ready=ready))
    assert learned(Registry().put(spec), cache).gpu.cold_start_seconds == 3600


def test_a_pod_that_is_first_seen_ready_teaches_nothing():
    cache = WatchCache()
    for i in range(5):
        cache.put_pod(pod(uid=f"p{i}"))
    assert cache.cold_start_seconds(("ns", "chat")) is None


def test_a_pod_that_lost_its_readiness_before_it_was_seen_teaches_nothing():
    cache = WatchCache()
    for i in range(5):
        cache.put_pod(pod(uid=f"p{i}", unready="2026-01-01T04:00:00Z"))
        cache.put_pod(pod(uid=f"p{i}", ready="2026-01-01T05:00:00Z"))
    assert cache.cold_start_seconds(("ns", "chat")) is None


def test_a_pod_that_was_never_ready_is_starting():
    cache = WatchCache()
    for i in range(5):
        cache.put_pod(pod(uid=f"p{i}", unready="2026-01-01T00:00:07Z"))
        cache.put_pod(pod(uid=f"p{i}"))
    assert cache.cold_start_seconds(("ns", "chat")) == 50.0


def test_pods_that_are_not_ready_or_were_restarted_teach_nothing():
    assert start_seconds(pod(ready=None)) is None
    assert start_seconds(pod(restarts=1)) is None


def test_the_time_until_there_is_a_node_is_part_of_the_cold_start_and_a_shortage_is_not():
    """Capacity ordered now serves after the node's start and its own; hours without a free GPU are neither."""
    assert start_seconds(pod(scheduled="2026-01-01T00:04:00Z", ready="2026-01-01T00:05:00Z")) == 300.0
    assert start_seconds(pod(scheduled="2026-01-01T02:00:00Z", ready="2026-01-01T02:00:45Z")) is None


def test_the_deployment_of_a_pod():
    assert deployment_of_pod(pod()) == ("ns", "chat")
    assert deployment_of_pod({"metadata": {"namespace": "ns", "name": "lonely"}}) is None


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def lacking_cache():
    """Two replicas of three are not ready, since 100 and since 40 seconds."""
    cache = WatchCache(clock=Clock())
    cache.put_deployment(body(replicas=2, ready=1))
    cache.clock.now = 60.0
    cache.put_deployment(body(replicas=3, ready=1, version="11"))
    cache.clock.now = 100.0
    return cache


CHAT = ("ns", "chat")


def stuck(cache, *limits):
    return [cache.stuck_replicas(CHAT, limit) for limit in limits]


def test_a_replica_that_was_asked_for_and_is_not_ready_is_stuck_whether_it_has_a_pod_or_not():
    cache = lacking_cache()
    assert cache.pending_seconds(CHAT) == 100.0
    assert stuck(cache, 30.0, 90.0, 100.0) == [2, 1, 0]
    assert cache.stuck_replicas(("ns", "other"), 30.0) == 0


def test_replicas_that_become_ready_are_those_that_were_asked_for_first():
    cache = lacking_cache()
    cache.put_deployment(body(replicas=3, ready=2, version="12"))
    assert (cache.pending_seconds(CHAT), stuck(cache, 30.0, 39.0, 40.0)) == (40.0, [1, 1, 0])
    cache.put_deployment(body(replicas=3, ready=3, version="13"))
    assert (cache.pending_seconds(CHAT), stuck(cache, 0.0)) == (0.0, [0])


def test_a_pool_that_keeps_growing_lacks_nothing_for_longer_than_a_cold_start():
    cache = WatchCache(clock=Clock())
    for second in range(200):
        cache.clock.now = float(second)
        cache.put_deployment(body(replicas=1 + second, ready=max(1, second - 9), version=str(second)))
        assert cache.pending_seconds(CHAT) <= 10.0


def test_a_replica_that_is_not_ready_any_more_is_stuck_too_and_a_moment_of_readiness_ends_that():
    cache = WatchCache(clock=Clock())
    cache.put_deployment(body(replicas=3, ready=3))
    cache.clock.now = 50.0
    cache.put_deployment(body(replicas=3, ready=1, version="11"))
    cache.clock.now = 100.0
    assert (cache.pending_seconds(CHAT), stuck(cache, 49.0)) == (50.0, [2])
    cache.put_deployment(body(replicas=3, ready=2, version="12"))
    cache.put_deployment(body(replicas=3, ready=1, version="13"))
    assert stuck(cache, 49.0) == [1]


def test_what_is_not_asked_for_any_more_is_not_stuck_and_another_order_waits_anew():
    cache = lacking_cache()
    cache.put_deployment(body(replicas=1, ready=1, version="12"))
    cache.put_deployment(body(replicas=9, ready=1, version="13"))
    cache.clock.now = 110.0
    assert (cache.pending_seconds(CHAT), stuck(cache, 9.0)) == (10.0, [8])


def test_the_memory_of_what_is_lacking_stays_small():
    cache = WatchCache(clock=Clock())
    for second in range(5000):
        cache.clock.now = float(second)
        cache.put_deployment(body(replicas=10 + second % 3, ready=second % 7, version=str(second)))
    assert len(cache._lacking[CHAT]._steps) <= 10
    assert stuck(cache, 100.0, 4000.0) == [4, 4]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]},
            "Unschedulable: 0/1",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no\n image"}}}]},
            "ImagePullBackOff: no image",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, ""),
        ({"containerStatuses": [{"state": {"waiting": None}}, {"state": None}], "conditions": None}, ""),
        ({}, ""),
    ],
)
def test_why_a_pod_is_not_ready_is_told_in_kubernetes_words(status, words):
    cache = lacking_cache()
    starting = pod(uid="a", ready=None)
    before = cache.revisions(CHAT)
    cache.put_pod(starting | {"status": status})
    assert cache.words(CHAT) == words
    assert (cache.revisions(CHAT) != before) is bool(words), "a report depends on them"
    cache.put_pod(pod(uid="a"))
    assert cache.words(CHAT) == ""


def rollout(status, reason, updated, replicas):
    progress = {"type": "Progressing", "status": status, "reason": reason}
    one = body()
    one["status"] |= {"conditions": [progress], "updatedReplicas": updated, "replicas": replicas}
    return one


@pytest.mark.parametrize(
    ("found", "rolling"),
    [
        (rollout("True", "NewReplicaSetAvailable", 3, 3), False),
        (rollout("True", "NewReplicaSetCreated", 0, 3), True),
        (rollout("True", "ReplicaSetUpdated", 2, 4), True),
        (rollout("True", "ReplicaSetUpdated", 4, 4), False),
        (rollout("False", "ProgressDeadlineExceeded", 1, 4), False),
        (rollout("Unknown", "DeploymentPaused", 1, 4), False),
        (body(), False),
    ],
    ids=["done", "begun", "under way", "old pods gone", "stuck", "paused", "no report"],
)
def test_a_rollout_is_told_from_scaling(found, rolling):
    assert parse_deployment(found).rolling is rolling


def test_a_rollout_that_begins_or_ends_is_looked_at():
    cache = WatchCache()
    cache.put_deployment(body())
    assert cache.put_deployment(rollout("True", "ReplicaSetUpdated", 1, 2))
    assert cache.put_deployment(rollout("True", "NewReplicaSetAvailable", 2, 2))


def test_nothing_is_kept_of_what_is_gone():
    cache = WatchCache(sizes=SizedPods())
    others = {"autoscalers": cache.autoscalers, "verticals": cache.verticals}
    empty = repr(WatchCache(sizes=None, clock=cache.clock, kinds=cache.kinds, _numbers=1, **others))
    cache.put_deployment(body())
    scaler = {"metadata": {"namespace": "ns", "name": "hpa"}, "spec": {"scaleTargetRef": {"name": "chat"}}}
    cache.autoscalers.put("HorizontalPodAutoscaler", scaler)
    for uid in ("a", "b"):
        for ready in (None, "2026-01-01T00:00:50Z"):
            seen = pod(uid, ready=ready)
            seen["metadata"] |= {"name": f"chat-6b7f-{uid}", "resourceVersion": "1"}
            cache.put_pod(seen | {"spec": {"containers": []}})
    starting = pod("c", ready=None)
    starting["metadata"]["resourceVersion"] = "1"
    stuck_pod = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    cache.put_pod(starting | {"status": {"containerStatuses": [{"state": stuck_pod}]}, "spec": {"containers": []}})
    assert cache.words(("ns", "chat"))
    cache.autoscalers.drop("HorizontalPodAutoscaler", ("ns", "hpa"))
    for uid in ("a", "b", "c"):
        gone = pod(uid)
        gone["metadata"]["name"] = gone["metadata"]["name"] if uid == "c" else f"chat-6b7f-{uid}"
        cache.drop_pod(key_of(gone))
    cache.drop_target(("ns", "chat"))
    assert cache.sizes._pods == cache.autoscalers._by_name == cache.autoscalers._of_target == {}
    cache.sizes, cache._numbers = None, 1
    assert repr(cache) == empty


@pytest.mark.parametrize("text", ["NaN", "-1", "Infinity", "1e400", "many", "0x10", None])
def test_what_is_no_quantity_counts_nothing(text):
    assert quantity(text) == 0.0
