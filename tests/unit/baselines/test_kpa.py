"""Knative's autoscaler against what its documentation and its own tests say it does."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.baselines.kpa import CONCURRENCY, Decider, Kpa, KpaSettings

TEN_FOLD = {"max_scale_up_rate": 10.0, "max_scale_down_rate": 10.0}
"""The rates that Knative's own tests use; its defaults are 1000 and 2."""


def decider(ready=1, now=0.0, **settings):
    return Decider(KpaSettings(**{**TEN_FOLD, **settings}), np.array([ready]), now)


def scale(autoscaler, now, ready, stable, panic, target=10.0):
    return int(autoscaler.scale(now, np.array([ready]), np.array([stable]), np.array([panic]), target)[0])


@pytest.mark.parametrize(
    ("settings", "target", "ready", "stable", "panic", "expected", "why"),
    [
        ({}, 10, 1, 0, 0, 0, "no traffic, no pods; minReplicas is applied afterwards"),
        ({}, 10, 1, 50, 50, 5, "50 over 10 a pod"),
        ({}, 10, 5, 50, 50, 5, "already there"),
        ({}, 181, 1, 21, 26, 1, "a fraction of a pod is a pod"),
        ({}, 10, 1, 50, 100, 10, "the panic window asks for ten times the ready pods: panic, and its value counts"),
        ({}, 10, 1, 50, 10, 5, "the panic window below the stable one changes nothing"),
        ({}, 10, 1, 1000, 1001, 10, "never more than ten times the ready pods"),
        ({}, 10, 10, 1000, 1001, 100, "and ten times those the next time"),
        ({}, 10, 100, 1, 1, 10, "never less than a tenth of them"),
        ({}, 10, 0, 1000, 888, 10, "no pod ready counts as one"),
        ({"max_scale_up_rate": 1.1}, 1, 2, 3, 3.1, 3, "a rate too small for one more pod allows one more pod"),
        ({"max_scale_down_rate": 1.1}, 10, 100, 1, 1, 90, "100 / 1.1 rounded down"),
    ],
)
def test_one_decision_out_of_stable_mode(settings, target, ready, stable, panic, expected, why):
    assert scale(decider(**settings), 0.0, ready, stable, panic, target) == expected, why


@pytest.mark.parametrize(
    ("stable", "panic", "expected", "why"),
    [
        (50, 30, 50, "in panic mode the larger of the two windows counts: the stable one"),
        (20, 30, 30, "and here the panic one"),
        (1, 1, 5, "and never less than before"),
    ],
)
def test_panic_mode_takes_the_larger_and_never_goes_down(stable, panic, expected, why):
    assert scale(decider(ready=5), 5.0, 5, stable, panic, target=1.0) == expected, why


@pytest.mark.parametrize(("ready", "holds"), [(0, False), (1, False), (2, True)])
def test_it_starts_in_panic_mode_where_more_than_one_pod_is_ready(ready, holds):
    assert (scale(decider(ready=ready), 1.0, ready, 0, 0) > 0) is holds


def test_panic_ends_a_stable_window_after_the_threshold_was_last_passed():
    autoscaler = decider()
    assert scale(autoscaler, 0.0, 10, 11, 25, target=1.0) == 25
    assert scale(autoscaler, 30.0, 40, 30, 41, target=1.0) == 41, "41 for 40 pods is no panic, but the mode lasts"
    assert scale(autoscaler, 62.0, 55, 50, 56, target=1.0) == 50, "over: back to the stable window, downwards too"


def test_another_surge_extends_the_panic():
    autoscaler = decider()
    scale(autoscaler, 0.0, 10, 11, 25, target=1.0)
    assert scale(autoscaler, 30.0, 40, 30, 80, target=1.0) == 80
    assert scale(autoscaler, 62.0, 80, 30, 30, target=1.0) == 80, "the mode counts from the second surge"
    assert scale(autoscaler, 91.0, 80, 30, 30, target=1.0) == 30


def test_after_a_panic_the_traffic_that_fell_off_counts():
    autoscaler = decider()
    assert scale(autoscaler, 0.0, 10, 100, 1000) == 100
    assert scale(autoscaler, 30.0, 10, 1, 1) == 100
    assert scale(autoscaler, 61.0, 10, 1, 1) == 1


def test_panic_threshold_is_a_percentage_of_the_ready_pods():
    calm, alarmed = decider(panic_threshold_percentage=300.0), decider(panic_threshold_percentage=200.0)
    assert scale(calm, 0.0, 10, 100, 250) == 10, "25 pods for 10: two and a half times"
    assert scale(alarmed, 0.0, 10, 100, 250) == 25


def test_scale_down_waits_for_the_delay_and_scale_up_does_not():
    autoscaler = decider(scale_down_delay_seconds=300.0, panic_threshold_percentage=10_000.0)
    steps = [(2, 40, 4), (300, 0, 4), (302, 0, 0), (540, 40, 4), (600, 30, 4), (660, 0, 4), (840, 0, 3), (900, 0, 0)]
    assert [scale(autoscaler, t, 1, load, load) for t, load, _ in steps] == [pods for *_, pods in steps]


def test_without_a_delay_a_lower_value_counts_at_once():
    autoscaler = decider(panic_threshold_percentage=10_000.0)
    assert [scale(autoscaler, t, 4, load, load) for t, load in ((0.0, 40), (0.5, 20))] == [4, 2]


def test_no_data_decides_nothing():
    assert scale(decider(), 0.0, 3, np.nan, np.nan) == -1


def play(kpa, params, rates, utilization=np.nan):
    kpa.reset(params)
    state, replicas, seen = initial_state(len(params), 1), params.min_replicas, []
    for tick, rate in enumerate(rates):
        measured = {"arrival_rate": rate, "gpu_utilization": utilization, "cpu_utilization": utilization}
        samples = make_samples(
            len(params), time=5.0 * tick, **measured, spec_replicas=replicas, ready_replicas=replicas
        )
        replicas, _ = kpa(params, state, samples, np.random.default_rng(0))
        seen.append(replicas[0].tolist())
    return seen


def test_each_pool_is_sized_for_the_requests_that_reach_it_at_seventy_percent():
    params = make_params(1, requests_per_second=(20.0, 4.0))
    assert play(Kpa(), params, [28.0] * 14)[-1] == [1, 5], "14 / 14 GPU, 14 / 2.8 CPU at equal weights"


def test_concurrency_counts_busy_replicas():
    params = make_params(1, requests_per_second=(20.0, 4.0), min_replicas=4)
    seen = play(Kpa(KpaSettings(metric=CONCURRENCY, target=0.5)), params, [1.0] * 3, utilization=100.0)
    assert seen[0] == [8, 8], "four busy replicas at half a request each"


def test_without_measurements_the_replicas_stay():
    params = make_params(1, requests_per_second=(20.0, 4.0), min_replicas=3)
    assert play(Kpa(), params, [np.nan] * 3) == [[3, 3]] * 3
