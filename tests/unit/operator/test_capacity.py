"""What a replica can answer, learned: three replicas that can do 20 requests/s each."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.api.status import Learned, LearnedPool
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.learn import learn_capacity, learned
from rlscaler_operator.sensing.capacity import NEEDED, Capacity
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.state.registry import Registry

WINDOW = 60.0


def watched(count, capacity=None, *, begin=0.0, utilization=60.0, rps=20.0, ready=3, replicas=3, every=WINDOW):
    """After `count` looks at replicas that can do `rps`."""
    capacity = capacity or Capacity()
    for i in range(count):
        answered = rps * ready * utilization / 100
        capacity.look(begin + i * every, WINDOW, answered, ready, replicas, utilization)
    return capacity


def test_nothing_is_known_before_enough_was_seen():
    assert watched(NEEDED).published is None, "the first window only shows that the replicas stay"
    assert watched(NEEDED + 1).published == 20.0


@pytest.mark.parametrize(
    "odd",
    [
        {"utilization": 49.9},
        {"utilization": math.nan},
        {"utilization": math.inf},
        {"rps": 0.0},
        {"rps": math.nan},
        {"ready": 2},
        {"ready": 0, "replicas": 0},
    ],
)
def test_only_steady_loaded_replicas_teach(odd):
    assert not watched(50, **odd).samples


def test_each_window_counts_once_however_often_it_is_looked_at():
    assert len(watched(101, every=5.0).samples) == 8


def test_replicas_that_come_and_go_teach_nothing():
    capacity = Capacity()
    for i in range(100):
        ready = 3 + i % 2
        capacity.look(i * 30.0, WINDOW, 40.0, ready, ready, 60.0)
    assert not capacity.samples


def test_what_is_published_is_a_lower_bound():
    rng = np.random.default_rng(3)
    bounds = []
    for _ in range(200):
        capacity = Capacity()
        for i, noise in enumerate(rng.normal(1.0, 0.2, 13)):
            capacity.look(i * WINDOW, WINDOW, 36.0 * noise, 3, 3, 60.0)
        bounds.append(capacity.value)
    assert np.mean(np.array(bounds) <= 20.0) >= 0.95
    assert np.mean(bounds) > 15.0


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(50, 400)), min_size=20, max_size=60))
def test_it_moves_by_at_most_a_tenth_an_hour(seen):
    capacity, before = Capacity(20.0, 0.0), 20.0
    for i, (answered, utilization) in enumerate(seen):
        capacity.look(i * WINDOW, WINDOW, answered, 3, 3, utilization)
    hours = len(seen) * WINDOW / 3600
    assert math.exp(-0.11 * hours) * before <= capacity.value <= math.exp(0.11 * hours) * before


def test_a_faster_service_is_believed_slowly():
    capacity = watched(NEEDED + 1)
    watched(50, capacity, begin=1e4, rps=40.0)
    assert 17.0 < capacity.published < 20.0, "measurements that disagree make the bound lower at first"
    watched(120, capacity, begin=2e4, rps=40.0)
    assert 20.0 < capacity.published < 28.0


def test_a_long_rest_does_not_save_up_moves():
    capacity = Capacity(20.0, 0.0)
    watched(NEEDED + 1, capacity, begin=1e6, rps=200.0)
    assert capacity.published <= 22.0


@pytest.fixture
def policy(policy_body):
    body = policy_body()
    body["spec"]["targets"] = {
        "gpu": {"deployment": "g", "maxReplicas": 4, "coldStartSeconds": 30},
        "cpu": {"deployment": "c", "maxReplicas": 4, "requestsPerSecond": 4, "coldStartSeconds": 8},
    }
    return Registry().put(body)


def look(policy, count, age=2.0, begin=0.0):
    policy.decision.readings["gpu_utilization"] = Reading(60.0, 2.0)
    pools = {"gpu": Reading(36.0, age), "cpu": Reading(4.0, age)}
    answers = {"answer_rate": {("ns", "chat"): Reading(40.0, age, pools=pools)}}
    for i in range(count):
        learn_capacity(policy, answers, (3, 2), (3, 2), WINDOW, begin + i * WINDOW)
    policy.decision.learned = learned(policy, WatchCache())
    return policy.decision.learned


def test_the_pool_whose_capacity_is_open_is_learned(policy):
    assert look(policy, 3) is None
    assert np.isnan(policy.params().requests_per_second[0, 0])
    known = look(policy, 10, begin=1e3)
    assert (known.gpu.requests_per_second, known.cpu) == (20.0, None)
    assert policy.params().requests_per_second.tolist() == [[20.0, 4.0]]


def test_stale_measurements_teach_nothing(policy):
    assert look(policy, 20, age=61.0) is None


def test_what_was_learned_before_a_restart_goes_on_and_moves_slowly(policy):
    policy.decision.learned = Learned(gpu=LearnedPool(requests_per_second=10.0, samples=60))
    assert look(policy, 1).gpu.requests_per_second == 10.0
    assert 10.0 < look(policy, 20, begin=1e3).gpu.requests_per_second < 10.8
