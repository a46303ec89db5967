"""What a replica can answer, learned: three replicas that can do 20 requests/s each."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.api.status import Learned, LearnedPool
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.learn import learn_capacity, learned, without_saturated
from rlscaler_operator.sensing.capacity import NEEDED, Capacity
from rlscaler_operator.sensing.measure import nothing_measured
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


def test_cpu_time_above_what_was_requested_teaches_at_once():
    capacity = watched(NEEDED + 1, Capacity(may_saturate=False), utilization=375.0)
    assert capacity.published == 20.0
    assert watched(NEEDED + 1, utilization=95.0).published is None, "that of a GPU may be so high at any load"


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
def test_it_rises_by_at_most_a_tenth_an_hour_and_does_not_fall(seen):
    capacity, before = Capacity(20.0, 0.0), 20.0
    for i, (answered, utilization) in enumerate(seen):
        capacity.look(i * WINDOW, WINDOW, answered, 3, 3, utilization)
    hours = len(seen) * WINDOW / 3600
    assert capacity.value is None or before <= capacity.value <= math.exp(0.11 * hours) * before


def test_a_faster_service_is_believed_slowly():
    capacity = watched(NEEDED + 1)
    watched(50, capacity, begin=1e4, rps=40.0, utilization=90.0)
    assert 20.0 <= capacity.published <= 22.0, "measurements that disagree make the bound lower at first"
    watched(120, capacity, begin=2e4, rps=40.0, utilization=90.0)
    assert 20.0 < capacity.published < 28.0


def test_more_load_at_the_same_utilization_is_one_that_does_not_follow_it():
    capacity = watched(NEEDED + 1)
    assert watched(50, capacity, begin=1e4, rps=40.0).published is None


def test_a_long_rest_does_not_save_up_moves():
    capacity = Capacity(20.0, 0.0)
    watched(NEEDED + 1, capacity, begin=1e6, rps=200.0)
    assert capacity.published <= 22.0


class Pool:
    """A GPU pool that the reactive floor scales by what is learned; a replica answers 40 requests/s.

    `saturates` is the utilization that is shown whenever anything runs, as under continuous batching; None = it follows
    the load.
    """

    TRUE = 40.0

    def __init__(self, replicas=5, saturates=95.0, noise=0.02):
        self.replicas, self.saturates, self.noise = replicas, saturates, noise
        self.capacity, self.time, self.rng, self.p95 = Capacity(), 0.0, np.random.default_rng(1), 200.0
        # Tables are made once and filled in at each minute: to make them takes longer than to decide.
        self.params = make_params(1, present=(True, False), requests_per_second=(1.0, np.nan), max_replicas=(50, 1))
        self.samples = make_samples(1, time=0.0, spec_replicas=(0, 0), ready_replicas=(0, 0))
        self.state = initial_state(1, 1)

    def minute(self, load, late=None):
        whole = self.TRUE * self.replicas
        late = load > whole if late is None else late
        self.time += WINDOW
        shown = min(load, whole) * (1 + self.noise * self.rng.standard_normal())
        used = self.saturates or min(100.0, 100 * load / whole)
        self.capacity.look(self.time, WINDOW, shown, self.replicas, self.replicas, used, arrived=load, late=late)
        if self.capacity.published is not None:
            self.replicas = max(self.replicas, self.floor(load))

    def floor(self, load):
        self.params.requests_per_second[0, 0] = self.capacity.published
        self.samples.time[:], self.samples.arrival_rate[:] = self.time, load
        self.samples.spec_replicas[0, 0] = self.samples.ready_replicas[0, 0] = self.replicas
        outcome = decide(self.params, self.state.copy(), self.samples, kind="floor")
        return int(outcome.decision.desired[0, 0])

    def hours(self, hours, load, **given):
        for _ in range(int(hours * 60)):
            self.minute(load(self.time) if callable(load) else load, **given)
        return self.capacity.published


STEPS = {"constant": lambda _: 100.0, "a day": lambda t: 110.0 - 80.0 * math.cos(2 * math.pi * t / 86400)}


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("saturates", [88.0, 95.0, 100.0])
@pytest.mark.parametrize("load", STEPS.values(), ids=STEPS)
def test_two_days_of_a_saturated_utilization_teach_nothing_and_add_no_replicas(load, saturates, noise):
    """What a replica answers is a lower bound of what it could: more replicas only make the bound lower."""
    pool = Pool(saturates=saturates, noise=noise)
    assert pool.hours(48, load) is None
    assert pool.replicas == 5


@pytest.mark.parametrize("saturates", [60.0, 75.0])
def test_one_that_saturates_lower_is_given_up_once_loads_differ(saturates):
    pool = Pool(saturates=saturates)
    pool.hours(6, 100.0)
    most = pool.replicas
    assert most <= 5
    assert pool.hours(42, STEPS["a day"]) is None
    assert pool.replicas <= 2 * math.ceil(190 / (0.8 * Pool.TRUE))


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("load", STEPS.values(), ids=STEPS)
def test_a_utilization_that_follows_the_load_teaches_within_a_tenth(load, noise):
    pool = Pool(saturates=None, replicas=4, noise=noise)
    learned = pool.hours(24, load)
    assert 0.9 * Pool.TRUE <= learned <= 1.05 * Pool.TRUE
    assert pool.replicas <= math.ceil(190 / (0.8 * 0.9 * Pool.TRUE))


def test_replicas_that_are_added_by_hand_lower_nothing():
    pool = Pool(saturates=None, replicas=4)
    before = pool.hours(2, 100.0)
    pool.saturates, pool.replicas = 95.0, 5
    pool.hours(2, 100.0)
    pool.replicas = 6
    after = pool.hours(24, 100.0)
    assert after is None or after >= before


def test_what_was_learned_too_high_is_lowered_by_overload_to_what_is_answered():
    pool = Pool(saturates=None, replicas=3)
    pool.capacity = Capacity(80.0, 0.0)
    pool.minute = lambda load: Pool.minute(pool, load)
    for _ in range(20):
        pool.replicas = 3
        pool.minute(200.0)
    assert 0.9 * Pool.TRUE <= pool.capacity.published <= 1.1 * Pool.TRUE


def test_a_latency_that_is_always_above_the_slo_is_no_ratchet():
    """An SLO that the service cannot keep even when idle: adding replicas helps nothing, so they teach nothing."""
    pool = Pool(saturates=95.0)
    pool.capacity = Capacity(40.0, 0.0)
    learned = pool.hours(24, 100.0, late=True)
    assert learned is None or learned >= 19.0, "20 requests/s are what each replica was seen to answer"
    assert pool.replicas <= 7


@pytest.fixture
def policy(policy_body):
    body = policy_body()
    body["spec"]["targets"] = {
        "gpu": {"deployment": "g", "maxReplicas": 4, "coldStartSeconds": 30},
        "cpu": {"deployment": "c", "maxReplicas": 4, "requestsPerSecond": 4, "coldStartSeconds": 8},
    }
    return Registry().put(body)


def look(policy, count, age=2.0, begin=0.0, utilization=60.0):
    readings = nothing_measured() | {"gpu_utilization": Reading(utilization, 2.0), "p95_latency": Reading(100.0, 2.0)}
    pools = {"gpu": Reading(36.0, age), "cpu": Reading(4.0, age)}
    answers = {"answer_rate": {("ns", "chat"): Reading(40.0, age, pools=pools)}}
    for i in range(count):
        learn_capacity(policy, readings, answers, (3, 2), (3, 2), WINDOW, begin + i * WINDOW)
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


@pytest.mark.parametrize(
    ("utilization", "p95", "used"),
    [(95.0, 100.0, False), (95.0, 300.0, True), (95.0, math.nan, True), (80.0, 100.0, True)],
)
def test_a_high_utilization_that_proves_nothing_is_unknown_while_the_latency_is_low(policy, utilization, p95, used):
    """Nor may the HPA formula or the actor add replicas by it. The SLO is 500 ms."""
    look(policy, 3, utilization=utilization)
    readings = nothing_measured() | {
        "gpu_utilization": Reading(utilization, 2.0),
        "p95_latency": Reading(p95, 2.0),
        "cpu_utilization": Reading(99.0, 2.0),
    }
    seen = without_saturated(policy, readings)
    assert seen["gpu_utilization"].known is used
    assert seen["cpu_utilization"].value == 99.0, "its capacity is in the spec"
    if not used:
        assert seen["gpu_utilization"].reason == "UtilizationSaturated"
        assert "spec.targets.gpu.requestsPerSecond" in seen["gpu_utilization"].message
