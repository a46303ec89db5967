import pytest

from rlscaler_operator.cluster.bodies import deployment_of_pod, parse_deployment, start_seconds
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.sized_pods import SizedPods


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
            "name": "chat-6b7f-abcde",
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


def pending_cache(replicas=2, ready=1):
    cache = WatchCache(clock=Clock())
    cache.put_deployment(body(replicas=replicas, ready=ready))
    cache.put_pod(pod(uid="new", ready=None))
    cache.clock.now = 60.0
    cache.put_pod(pod(uid="newer", ready=None))
    cache.put_pod(pod(uid="new", ready=None))
    cache.clock.now = 100.0
    return cache


CHAT = ("ns", "chat")


def test_the_oldest_pod_that_was_never_ready_is_pending():
    cache = pending_cache()
    assert cache.pending_seconds(CHAT) == 100.0
    cache.put_pod(pod(uid="new"))
    assert cache.pending_seconds(CHAT) == 40.0
    cache.drop_pod(pod(uid="newer", ready=None))
    assert cache.pending_seconds(CHAT) == 0.0


def test_a_pod_that_was_ready_once_is_not_pending_however_it_is_now():
    cache = pending_cache()
    cache.put_pod(pod(uid="new"))
    cache.put_pod(pod(uid="new", unready="2026-01-01T01:00:00Z"))
    assert cache.pending_seconds(CHAT) == 40.0


def test_a_pod_that_is_going_or_over_is_not_pending():
    cache = pending_cache()
    going, failed = pod(uid="new", ready=None), pod(uid="newer", ready=None)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    failed["status"]["phase"] = "Failed"
    cache.put_pod(going)
    cache.put_pod(failed)
    assert cache.pending_seconds(CHAT) == 0.0


def test_where_all_replicas_are_ready_none_is_pending_whatever_the_watch_has_missed():
    cache = pending_cache()
    cache.put_deployment(body(replicas=2, ready=2, version="11"))
    assert cache.pending_seconds(CHAT) == 0.0
    cache.put_deployment(body(replicas=3, ready=2, version="12"))
    assert cache.pending_seconds(CHAT) == 0.0
    cache.put_pod(pod(uid="newest", ready=None))
    cache.clock.now = 110.0
    assert cache.pending_seconds(CHAT) == 10.0


def test_only_the_pods_that_are_pending_for_too_long_are_stuck():
    cache = pending_cache(replicas=3)
    assert [cache.stuck_pods(CHAT, limit) for limit in (30.0, 90.0, 100.0)] == [2, 1, 0]
    assert cache.stuck_pods(("ns", "other"), 30.0) == 0


def test_a_pod_that_crashed_once_before_it_came_up_is_not_stuck():
    cache = pending_cache(replicas=3)
    cache.put_pod(pod(uid="new", restarts=1))
    assert cache.stuck_pods(CHAT, 90.0) == 0
    assert cache.pending_seconds(CHAT) == 40.0, "the newer one is still starting"


def test_a_deployment_that_is_gone_has_no_pending_pods():
    cache = pending_cache()
    del cache.deployments[CHAT]
    assert cache.pending_seconds(CHAT) == 0.0


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


def test_all_autoscalers_of_a_kind_are_dropped_at_once():
    cache = WatchCache()
    for kind, target in (("ScaledObject", "one"), ("ScaledObject", "two"), ("HorizontalPodAutoscaler", "two")):
        body = {"metadata": {"namespace": "ns", "name": target}, "spec": {"scaleTargetRef": {"name": target}}}
        cache.put_autoscaler(kind, body)
    cache.drop_autoscalers("ScaledObject")
    assert cache.autoscaler_of("ns", "one") is None
    assert cache.autoscaler_of("ns", "two").kind == "HorizontalPodAutoscaler"


def test_nothing_is_kept_of_what_is_gone():
    cache = WatchCache(sizes=SizedPods())
    empty = repr(WatchCache(sizes=None, clock=cache.clock, kinds=cache.kinds, verticals=cache.verticals, _numbers=1))
    cache.put_deployment(body())
    scaler = {"metadata": {"namespace": "ns", "name": "hpa"}, "spec": {"scaleTargetRef": {"name": "chat"}}}
    cache.put_autoscaler("HorizontalPodAutoscaler", scaler)
    for uid in ("a", "b"):
        for ready in (None, "2026-01-01T00:00:50Z"):
            seen = pod(uid, ready=ready)
            seen["metadata"] |= {"name": f"chat-6b7f-{uid}", "resourceVersion": "1"}
            cache.put_pod(seen | {"spec": {"containers": []}})
    starting = pod("c", ready=None)
    cache.put_pod(starting | {"metadata": starting["metadata"] | {"resourceVersion": "1"}, "spec": {"containers": []}})
    assert cache.pending_seconds(("ns", "chat")) >= 0
    cache.drop_autoscaler("HorizontalPodAutoscaler", ("ns", "hpa"))
    for uid in ("a", "b", "c"):
        gone = pod(uid)
        gone["metadata"]["name"] = gone["metadata"]["name"] if uid == "c" else f"chat-6b7f-{uid}"
        cache.drop_pod(gone)
    cache.drop_target(("ns", "chat"))
    assert cache.sizes._pods == {}
    cache.sizes, cache._numbers = None, 1
    assert repr(cache) == empty
