"""Which pods are marked before a pool shrinks."""

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.actuation.idle import IdlePods, first_to_go, work_of
from rlscaler_operator.cluster.bodies import key_of
from rlscaler_operator.cluster.cache import IDLE, WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.queries import busy_pods
from rlscaler_operator.state.registry import Registry

PODS = ["chat-gpu-6b7f-aaaaa", "chat-gpu-6b7f-bbbbb", "chat-gpu-6b7f-ccccc"]
A, B, C = PODS


def series(kind, **values):
    pods = dict(zip("abc", PODS, strict=True))
    return [{"metric": {"namespace": "ns", "pod": pods[n], "_": kind}, "value": [0, str(v)]} for n, v in values.items()]


def idlest(series, number):
    """Those that go where nothing is known of nodes."""
    return {pod for _, pod in first_to_go(work_of([("ns", pod) for pod in PODS], series), number)}


def test_requests_at_a_pod_go_before_what_it_uses():
    assert idlest(series("in_flight", a=3, b=0, c=1) + series("cpu", a=0.1, b=9, c=9), 1) == {B}


def test_usage_decides_where_requests_do_not():
    assert idlest(series("in_flight", a=1, b=1, c=1) + series("gpu", a=90, b=80, c=5), 2) == {B, C}
    assert idlest(series("cpu", a=0.1, b=0.3, c=0.2), 1) == {A}


def test_a_pod_of_which_nothing_is_known_is_not_idle():
    assert idlest(series("in_flight", a=5, b="NaN"), 2) == {A}
    assert idlest([], 2) == set()


def test_the_query_names_the_pods_of_one_deployment_only():
    query = busy_pods("chat-gpu", namespace="ns")
    assert query.count('pod=~"((chat-gpu)-[4-9b-df]{1,10}-[a-z0-9]{5})"') == 12
    assert query.count('namespace=~"ns"') == 12


async def test_pods_of_the_same_name_in_another_namespace_are_not_those(mark):
    theirs = [dict(one, metric=one["metric"] | {"namespace": "theirs"}) for one in series("in_flight", a=0, b=0, c=0)]
    assert (await mark(1, theirs))[0] == []


@pytest.fixture
async def mark(api_server, policy_body):
    cache, policy, kube = WatchCache(), Registry().put(policy_body()), Kube(Configuration(host=api_server.url))
    cache.pods["ns", "chat-gpu"] = dict.fromkeys(PODS, False)
    api_server.text = "{}"

    async def run(fewer, answer):
        async def ask(_, __):
            if isinstance(answer, Exception):
                raise answer
            return answer

        api_server.paths.clear()
        await IdlePods(kube, ConcurrencyLimiter(8), cache, ask, 2.0).mark(policy, "chat-gpu", fewer)
        return sorted(path.rpartition("/")[2] for path in api_server.paths), cache.pods["ns", "chat-gpu"]

    run.cache = cache
    yield run
    await kube.close()


def on(node, name, **metadata):
    metadata = {"namespace": "ns", "name": name} | metadata
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


async def test_among_pods_that_are_equally_idle_the_one_that_empties_a_node_goes(mark, api_server):
    cache = mark.cache
    cache.holders = NodeHolders()
    for body in (on("n1", A), on("n1", "web", namespace="theirs"), on("n2", B), on("n3", C)):
        cache.holders.put(body)
    cache.holders.put(on("n2", "agent", namespace="kube-system", ownerReferences=[{"kind": "DaemonSet"}]))
    assert (await mark(1, series("in_flight", a=0, b=0.5, c=9)))[0] == [B]
    assert (await mark(1, series("in_flight", a=0, b=4, c=9)))[0] == [A, B], "nothing in flight is lost for a node"


async def test_only_what_changes_is_written_and_a_spared_pod_loses_its_mark(mark):
    assert await mark(1, series("in_flight", a=0, b=1, c=2)) == ([A], {A: True, B: False, C: False})
    assert await mark(1, series("in_flight", a=0, b=1, c=2)) == ([], {A: True, B: False, C: False})
    assert await mark(1, series("in_flight", a=3, b=1, c=2)) == ([A, B], {A: False, B: True, C: False})


async def test_nothing_is_marked_where_nothing_is_known_or_all_pods_go(mark):
    assert (await mark(1, MetricsError("away")))[0] == []
    assert (await mark(3, series("in_flight", a=0, b=1, c=2)))[0] == []
    assert (await mark(0, series("in_flight", a=0, b=1, c=2)))[0] == []


async def test_a_mark_that_is_refused_is_tried_again_the_next_time(mark, api_server):
    api_server.status = 403
    assert (await mark(1, series("cpu", a=0, b=1)))[1] == dict.fromkeys(PODS, False)
    api_server.status = 200
    assert (await mark(1, series("cpu", a=0, b=1)))[0] == [A]


def test_the_cache_knows_pods_and_our_marks_only():
    cache = WatchCache()

    def pod(name, cost):
        owner = {"kind": "ReplicaSet", "name": "chat-gpu-6b7f"}
        annotations = {} if cost is None else {"controller.kubernetes.io/pod-deletion-cost": cost}
        labels = {"pod-template-hash": "6b7f"}
        metadata = {"namespace": "ns", "name": name, "uid": name, "labels": labels, "annotations": annotations}
        return {"metadata": metadata | {"ownerReferences": [owner]}, "status": {}}

    for name, cost in ((A, IDLE), (B, "5"), (C, None)):
        cache.put_pod(pod(name, cost))
    assert cache.pods["ns", "chat-gpu"] == {A: True, B: False, C: False}
    leaving = pod(C, IDLE)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cache.put_pod(leaving)
    assert set(cache.pods["ns", "chat-gpu"]) == {A, B}, "a pod on its way out is not marked once more"
    cache.put_pod(pod(C, None))
    cache.drop_pod(key_of(pod(B, "5")))
    assert set(cache.pods["ns", "chat-gpu"]) == {A, C}
