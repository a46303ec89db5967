"""Greedy by cost: the order in which replicas are added, and how Kthena's modes move along it."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.baselines.greedy import Greedy, GreedySettings, scaling_order

RPS = (20.0, 4.0)


def order(low, high, price, expansion):
    found = scaling_order(np.array([low]), np.array([high]), np.array([price], float), np.array([expansion]))
    return found[0].tolist()


def test_one_package_a_pool_fills_the_cheaper_pool_first():
    assert order((0, 0), (2, 2), (1.0, 2.0), 1.0) == [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]
    assert order((0, 0), (2, 2), (2.0, 1.0), 1.0) == [[0, 0], [0, 1], [0, 2], [1, 2], [2, 2]]


def test_doubling_packages_interleave_the_pools_by_what_a_package_costs():
    """Packages of 1 and 2: CPU 1 (cost 1), CPU 2 (2), GPU 1 (3), GPU 2 (6)."""
    assert order((0, 0), (3, 3), (3.0, 1.0), 2.0) == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 3], [2, 3], [3, 3]]
    """At equal prices the pools take turns: 1, 1, then 2, 2."""
    assert order((0, 0), (3, 3), (1.0, 1.0), 2.0) == [[0, 0], [1, 0], [1, 1], [2, 1], [3, 1], [3, 2], [3, 3]]


def test_it_starts_at_the_minimum_and_rows_may_differ_in_length():
    low, high = np.array([[1, 2], [0, 0]]), np.array([[2, 2], [1, 2]])
    found = scaling_order(low, high, np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([2.0, 2.0]))
    assert found[0].tolist() == [[1, 2], [2, 2], [2, 2], [2, 2]], "the last step repeats"
    assert found[1].tolist() == [[0, 0], [1, 0], [1, 1], [1, 2]]


def play(rates, **settings):
    params = make_params(1, requests_per_second=RPS)
    greedy = Greedy(GreedySettings(**settings))
    greedy.reset(params)
    state, replicas, seen = initial_state(1, 1), params.min_replicas, []
    for tick, rate in enumerate(rates):
        samples = make_samples(1, time=15.0 * tick, arrival_rate=rate, spec_replicas=replicas, ready_replicas=replicas)
        replicas, _ = greedy(params, state, samples, np.random.default_rng(0))
        seen.append(replicas[0].tolist())
    return seen


@pytest.mark.parametrize(
    ("rate", "by_capacity", "expected", "why"),
    [
        (19.0, True, [1, 1], "24 requests/s at 80 % carry it"),
        (22.0, True, [2, 1], "a GPU replica costs .125 a request/s, a CPU replica .156"),
        (22.0, False, [1, 2], "but a CPU replica is the cheaper replica"),
    ],
)
def test_replicas_are_added_in_the_order_of_their_cost(rate, by_capacity, expected, why):
    assert play([rate], by_capacity=by_capacity)[0] == expected, why


def test_within_the_tolerance_nothing_moves():
    assert play([20.0], tolerance=0.1)[0] == [1, 1], "20 / .8 is 4 % above 24"
    assert play([20.0], tolerance=0.0)[0] != [1, 1]


def test_scale_down_waits_for_its_window():
    seen = play([60.0] + [10.0] * 6, scale_down_window_seconds=60.0, panic_threshold_percent=1e6)
    high = seen[0]
    assert seen[:4] == [high] * 4
    assert seen[4] == [1, 1]


def test_a_scale_up_window_delays_unless_it_is_a_panic():
    calm = {"scale_up_window_seconds": 30.0, "panic_threshold_percent": 1e6}
    assert play([10.0, 60.0, 60.0, 60.0], **calm)[1] == [1, 1]
    assert play([10.0, 60.0, 60.0, 60.0], **calm)[3] != [1, 1]
    hurried = play([10.0, 60.0], scale_up_window_seconds=30.0, panic_threshold_percent=200.0)
    assert hurried[1] != [1, 1], "75 for 24 is more than twice"


def test_in_panic_nothing_goes_down():
    held = play([60.0] + [10.0] * 5, scale_down_window_seconds=0.0, panic_hold_seconds=45.0)
    assert held[:4] == [held[0]] * 4
    assert held[4] == [1, 1]


def test_an_unknown_load_moves_nothing():
    assert play([60.0, np.nan])[1] == play([60.0])[0]
