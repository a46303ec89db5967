"""GPUs go to pods in the order of their creation, none is idle while a pod waits, and none is taken away."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_rl.tenants.room import SharedRoom, share_held


def test_a_pod_that_was_created_earlier_goes_first_whosever_it_is() -> None:
    room = SharedRoom(np.array([0, 0, 0]), np.array([4]), np.array([4, 0, 0]))
    assert room.place(np.array([4, 0, 2]), 0).tolist() == [4, 0, 0]
    assert room.place(np.array([4, 3, 2]), 5).tolist() == [4, 0, 0]
    assert room.place(np.array([1, 3, 2]), 10).tolist() == [1, 1, 2]
    assert room.place(np.array([2, 3, 2]), 15).tolist() == [1, 1, 2]
    assert room.place(np.array([2, 3, 0]), 20).tolist() == [1, 3, 0], "the later pod of the first tenant waits"


def test_pools_do_not_lend_to_one_another() -> None:
    room = SharedRoom(np.array([1, 0, 1]), np.array([9, 2]), np.zeros(3, np.int64))
    assert room.place(np.array([2, 3, 2]), 0).sum() == 5
    assert room.held[1] == 3


def test_the_newest_waiting_pod_leaves_first() -> None:
    room = SharedRoom(np.array([0, 0]), np.array([1]), np.array([1, 0]))
    room.place(np.array([1, 1]), 0)
    room.place(np.array([2, 2]), 5)
    room.place(np.array([2, 1]), 10)
    assert room.place(np.array([0, 1]), 15).tolist() == [0, 1]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_against_a_list_of_pods(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, pools = int(rng.integers(1, 7)), int(rng.integers(1, 3))
    pool, gpus = rng.integers(0, pools, n), rng.integers(0, 9, pools)
    room = SharedRoom(pool, gpus, np.zeros(n, np.int64), seed)
    waiting: list[list[float]] = [[] for _ in range(n)]
    held = np.zeros(n, np.int64)
    for step in range(25):
        now = 5.0 * step
        pods = rng.integers(0, 8, n)
        kept = np.minimum(held, pods)
        for i in range(n):
            count = int(pods[i] - kept[i])
            waiting[i] = (waiting[i] + [now] * count)[:count]
        after = room.place(pods, now)
        assert (after >= kept).all(), "a GPU was taken away"
        assert (after <= pods).all()
        assert (np.bincount(pool, after, pools) <= np.maximum(gpus, np.bincount(pool, kept, pools))).all()
        for i in range(n):
            got = int(after[i] - kept[i])
            given, waiting[i] = waiting[i][:got], waiting[i][got:]
            for j in np.flatnonzero(pool == pool[i]):
                left = waiting[j][int(after[j] - kept[j]) if j > i else 0 :]
                assert not (given and left) or max(given) <= min(left), "somebody who came later went first"
        for p in range(pools):
            idle = gpus[p] > after[pool == p].sum()
            assert not (idle and any(waiting[i] for i in np.flatnonzero(pool == p))), "a GPU is idle and a pod waits"
        held = after.copy()


def test_the_share_of_what_a_tenant_holds_alone() -> None:
    assert share_held(np.array([1.0, 3.0, 0.0]), np.array([2.0, 2.0, 0.0])).tolist() == [0.5, 1.0, 1.0]
