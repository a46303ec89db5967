"""Targets of any kind: how they are named, which pods are theirs, and how many are ready."""

import re

import pytest

from rlscaler_operator.cluster.bodies import key_of
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import TargetKind, TargetKinds, for_kubectl, titled
from rlscaler_operator.cluster.selectors import parse_selector, selects
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.sensing.pod_names import deployment_of, pods_of

SETS = "apps/v1/statefulsets/StatefulSet"
KEY = ("ns", "statefulset.apps/chat")


OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": "u", "controller": True}


def pod(name, ready=True, owner=OWNER, **labels):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    return {"metadata": metadata | {"ownerReferences": [owner] if owner else []}, "status": status}


def scale(replicas, selector="app=chat"):
    return {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": selector}}


def body(**status):
    return {"metadata": {"name": "chat", "namespace": "ns", "uid": "u", "resourceVersion": "1"}, "status": status}


@pytest.fixture
def cache():
    return WatchCache(kinds=TargetKinds([SETS]))


def test_a_kind_gives_reference_path_and_resource():
    kind = TargetKind.parse("leaderworkerset.x-k8s.io/v1/leaderworkersets/LeaderWorkerSet")
    key = kind.key({"metadata": {"name": "chat", "namespace": "ns"}})
    assert key == ("ns", "leaderworkerset.leaderworkerset.x-k8s.io/chat")
    assert kind.path(key) == "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/chat"
    assert (kind.resource.group, kind.resource.version) == ("leaderworkerset.x-k8s.io", "v1")
    assert TargetKind.parse("v1/replicationcontrollers/ReplicationController").prefix == "replicationcontroller/"


@pytest.mark.parametrize("text", ["", "StatefulSet", "apps/v1", "a/b/c/d/e", "apps//statefulsets/StatefulSet"])
def test_a_kind_that_cannot_be_read_is_refused_with_its_form(text):
    with pytest.raises(OperatorError, match="apiVersion/plural/Kind"):
        TargetKind.parse(text)


def test_only_enabled_kinds_have_paths(cache):
    assert cache.kinds.path(("ns", "chat")) == "/apis/apps/v1/namespaces/ns/deployments/chat"
    assert cache.kinds.path(KEY).endswith("/statefulsets/chat")
    with pytest.raises(KeyError):
        cache.kinds.path(("ns", "rollout.argoproj.io/chat"))


def test_messages_and_commands_name_the_kind():
    assert (titled("chat"), for_kubectl("chat")) == ("Deployment chat", "deployment/chat")
    assert titled(KEY[1]) == for_kubectl(KEY[1]) == "statefulset.apps/chat"


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("app=chat", {"app": "chat"}, True),
        ("app==chat,role!=worker", {"app": "chat"}, True),
        ("app=chat,role!=worker", {"app": "chat", "role": "worker"}, False),
        ("role in (a, b),app", {"app": "x", "role": "b"}, True),
        ("role notin (a,b)", {"role": "b"}, False),
        ("role notin (a,b)", {}, True),
        ("!role", {"role": "b"}, False),
        ("example.com/index=0", {"example.com/index": "0"}, True),
        ("app=", {"app": ""}, True),
    ],
)
def test_selectors_select_as_in_kubernetes(selector, labels, selected):
    assert selects(parse_selector(selector), labels) is selected


@pytest.mark.parametrize("text", ["", "=chat", "app in chat", "app=chat role=x", ","])
def test_an_empty_or_odd_selector_selects_nothing_rather_than_everything(text):
    assert parse_selector(text) is None


def test_ready_replicas_are_the_ready_pods_of_the_selector(cache):
    assert cache.put_scaled(KEY, body(), scale(3))
    assert cache.deployments[KEY].replicas == 3
    assert cache.put_pod(pod("chat-0", app="chat")) == KEY
    assert cache.put_pod(pod("chat-1", ready=False, app="chat")) is None
    assert cache.put_pod(pod("other-0", app="other")) is None
    assert cache.deployments[KEY].ready == 1
    assert cache.put_pod(pod("chat-1", app="chat")) == KEY
    assert cache.drop_pod(key_of(pod("chat-0", app="chat"))) == KEY
    assert cache.deployments[KEY].ready == 1
    assert not cache.put_scaled(KEY, body(), scale(3)), "nothing is new"
    assert cache.put_scaled(KEY, body(), scale(4, "app=next"))
    assert cache.deployments[KEY].ready == 0, "other pods are counted anew"


def controlled(kind, name, **more):
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "name": name,
        "controller": True,
    } | more


@pytest.mark.parametrize(
    "owner",
    [
        None,
        controlled("Job", "chat"),
        controlled("DaemonSet", "chat"),
        controlled("StatefulSet", "chat-db"),
        controlled("StatefulSet", "chat", uid="of another time"),
        controlled("ReplicaSet", "chat-7d9c6b8f5d"),
    ],
    ids=str,
)
def test_a_pod_of_another_owner_with_the_same_labels_is_not_of_the_target(cache, owner):
    """A Job, or a Deployment whose labels hold those of a StatefulSet's selector, made `5/1` ready."""
    cache.put_scaled(KEY, body(), scale(1))
    assert cache.put_pod(pod("chat-0", app="chat")) == KEY
    for labels in ({}, {"pod-template-hash": "7d9c6b8f5d"}):
        assert cache.put_pod(pod("odd", owner=owner, app="chat", **labels)) is None
    assert cache.deployments[KEY].ready == 1


@pytest.mark.parametrize(
    ("kind", "owner", "labels"),
    [
        ("argoproj.io/v1alpha1/rollouts/Rollout", "ReplicaSet chat-5d4f", {"rollouts-pod-template-hash": "5d4f"}),
        ("leaderworkerset.x-k8s.io/v1/leaderworkersets/LeaderWorkerSet", "StatefulSet chat", {}),
        ("leaderworkerset.x-k8s.io/v1/leaderworkersets/LeaderWorkerSet", "StatefulSet chat-3", {}),
        ("example.com/v1/fleets/Fleet", "Group any", {}),
        ("example.com/v1/fleets/Fleet", "", {}),
        ("example.com/v1/fleets/Fleet", "ReplicaSet own-5d4f", {"pod-template-hash": "5d4f"}),
    ],
)
def test_a_pod_whose_controller_belongs_to_the_target_is_its(kind, owner, labels):
    cache = WatchCache(kinds=TargetKinds([kind]))
    key = cache.kinds.others[0].key(body())
    cache.put_scaled(key, body(), scale(1))
    cache.put_deployment(
        {"metadata": {"namespace": "ns", "name": "own", "ownerReferences": [controlled("Fleet", "chat", uid="u")]}}
    )
    assert cache.put_pod(pod("some", owner=controlled(*owner.split()) if owner else None, app="chat", **labels)) == key


def test_cold_starts_and_pending_pods_are_those_of_the_selector(cache):
    cache.clock = iter(range(0, 1000, 10)).__next__
    cache.put_scaled(KEY, body(), scale(2))
    cache.put_pod(pod("chat-0", ready=False, app="chat"))
    assert cache.pending_seconds(KEY) > 0
    assert cache.stuck_replicas(KEY, 5) == 2
    assert set(cache.pods[KEY]) == {"chat-0"}


def test_a_stateful_set_with_pods_of_an_older_revision_rolls(cache):
    revisions = {"currentRevision": "a", "updateRevision": "b", "replicas": 3}
    cache.put_scaled(KEY, body(**revisions, updatedReplicas=1), scale(3))
    assert cache.deployments[KEY].rolling
    cache.put_scaled(KEY, body(**revisions, updatedReplicas=3), scale(3))
    assert not cache.deployments[KEY].rolling


@pytest.mark.parametrize(
    ("kind", "api_version", "found"),
    [("StatefulSet", "apps/v1", True), ("Deployment", "apps/v1", False), ("StatefulSet", "example.com/v1", False)],
)
def test_a_scaler_holds_the_object_of_its_kind_and_group(cache, kind, api_version, found):
    reference = {"kind": kind, "apiVersion": api_version, "name": "chat"}
    hpa = {"metadata": {"name": "hpa", "namespace": "ns"}, "spec": {"scaleTargetRef": reference}}
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa)
    assert (cache.autoscalers.of(KEY) is not None) is found
    assert (cache.autoscalers.of(("ns", "chat")) is not None) is (kind == "Deployment")


@pytest.mark.parametrize("name", ["chat-0", "chat-12-3", "chat-7d9c6b8f5d-x7kbp", "chat-x7kbp"])
def test_pods_of_other_kinds_belong_to_the_longest_name(name):
    pattern = pods_of(["web"], ["chat", "chat-gpu"])
    assert re.fullmatch(pattern, name)
    assert not re.fullmatch(pods_of([], ["chat"]), name.replace("chat-", "chat-gpu-", 1))
    replaced = re.search(
        r'"deployment", "([^"]*)", "pod", "(.*)"\)$', deployment_of("up", ["web"], ["chat", "chat-gpu"])
    )
    groups, whole = replaced.groups()
    found = re.fullmatch(whole, name.replace("chat-", "chat-gpu-", 1))
    assert "".join(found.group(int(i)) or "" for i in re.findall(r"\d+", groups)) == "chat-gpu"
