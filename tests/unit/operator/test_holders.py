"""What is known of the pods on nodes."""

import pytest

from rlscaler_operator.cluster.bodies import key_of
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.holders import UNKNOWN, NodeHolders


def pod(name, node="n1", gpu=None, owner=None, phase="Running", deleted=False, namespace="ns"):
    metadata = {"namespace": namespace, "name": name, "uid": name}
    if gpu is not None:
        metadata["annotations"] = {"rlscaler.io/gpu-index": gpu}
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": owner, "name": "x"}]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


def holders(*bodies):
    made = NodeHolders()
    for body in bodies:
        made.put(body)
    return made


def keys(*names):
    return frozenset(("ns", name) for name in names)


def test_nodes_and_shared_gpus_name_all_their_holders():
    found = holders(pod("a", gpu="0"), pod("b", gpu="0"), pod("c", gpu="1"), pod("d", "n2")).of(keys("a", "d"))
    assert set(found.nodes) == {keys("a", "b", "c"), keys("d")}
    assert found.gpus == (keys("a", "b"),)


@pytest.mark.parametrize(
    "other",
    [
        pod("b", owner="DaemonSet"),
        pod("b", owner="Node"),
        pod("b", phase="Succeeded"),
        pod("b", phase="Failed"),
        pod("b", deleted=True),
        pod("b", node=""),
    ],
)
def test_what_stays_with_a_node_or_is_over_holds_nothing(other):
    assert holders(pod("a"), other).of(keys("a")).nodes == (keys("a"),)
    assert holders(other).of(keys("b")) == UNKNOWN


def test_a_pod_of_another_namespace_holds_a_node():
    (found,) = holders(pod("a"), pod("a", namespace="theirs")).of(keys("a")).nodes
    assert found == {("ns", "a"), ("theirs", "a")}


def test_the_cache_follows_pods_of_every_owner_where_it_is_told_to():
    cache = WatchCache(holders=NodeHolders())
    for body in (pod("a"), pod("b"), pod("c")):
        cache.put_pod(body)
    cache.put_pod(pod("b", phase="Succeeded"))
    cache.drop_pod(key_of(pod("c")))
    assert cache.holders.of(keys("a")).nodes == (keys("a"),)
    cache.drop_pod(key_of(pod("a")))
    assert cache.holders.of(keys("a")) == UNKNOWN
    WatchCache().put_pod(pod("a"))
