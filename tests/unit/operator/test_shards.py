"""Who acts for which policy."""

from collections import Counter

import pytest

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards, shard_of
from rlscaler_operator.settings import Settings

KEYS = [(f"team-{i % 7}", f"service-{i}") for i in range(3000)]


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_policies_are_spread_evenly(shards):
    counts = Counter(shard_of(key, shards) for key in KEYS)
    assert set(counts) == set(range(shards))
    assert max(counts.values()) < 1.15 * len(KEYS) / shards


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_one_more_shard_moves_only_what_it_takes_over(shards):
    moved = [key for key in KEYS if shard_of(key, shards) != shard_of(key, shards + 1)]
    assert {shard_of(key, shards + 1) for key in moved} == {shards}
    assert len(moved) < 1.25 * len(KEYS) / (shards + 1)


def test_each_policy_is_fenced_by_the_lease_of_its_own_shard():
    shards = Shards(Kube.__new__(Kube), Settings(shards=3))
    for key in KEYS[:20]:
        assert shards.of(key) is shards.leases[shard_of(key, 3)]
    shards.leases[1]._deadline = float("inf")
    assert not shards.held, "not without the Lease that says how many shards there are"
    shards._split._deadline = float("inf")
    assert shards.held
    assert set(shards.holds()) == {1}


async def test_what_is_handed_back_is_not_written_under_while_writes_end(api_server, kube):
    shards = Shards(kube, Settings(shards=2, lease_seconds=2, write_timeout_seconds=0.2))
    lease = shards.leases[0]
    lease._deadline, lease._held = float("inf"), {"metadata": {}, "spec": {"holderIdentity": "me"}}
    shards._hand_back(lease)
    assert not lease.held
    assert not api_server.paths
    await shards._leaving[lease]
    assert api_server.paths == ["/apis/coordination.k8s.io/v1/namespaces/default/leases/rlscaler-0"]
