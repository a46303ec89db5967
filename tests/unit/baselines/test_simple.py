"""Sizing rules: the cheapest mix, foresight; and actors that stand in for the network."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.baselines.actors import FrozenActor, RandomActor, UntrainedActor
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.baselines.hindsight import Hindsight, HindsightSettings
from rlscaler_rl.baselines.hpa import KedaRequestRate
from rlscaler_rl.baselines.simple import (
    Static,
    StaticForPeak,
    StaticSettings,
    Unscaled,
)

RPS = (20.0, 4.0)
RNG = np.random.default_rng(0)


@given(
    need=st.integers(0, 3000).map(lambda tenths: tenths / 10),
    low=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    high=st.tuples(st.integers(2, 10), st.integers(2, 10)),
    prices=st.tuples(st.floats(0.5, 5), st.floats(0.05, 2)),
)
@settings(max_examples=200)
def test_the_cheapest_mix_is_the_one_that_trying_everything_finds(need, low, high, prices):
    params = make_params(1, requests_per_second=RPS, min_replicas=low, max_replicas=high, cost_per_hour=prices)
    gpu, cpu = cheapest_mix(params, np.array([need]))[0]
    every = product(range(low[0], high[0] + 1), range(low[1], high[1] + 1))
    carrying = [g * prices[0] + c * prices[1] for g, c in every if g * RPS[0] + c * RPS[1] >= need - 1e-6]
    if not carrying:
        assert (gpu, cpu) == high
    else:
        assert gpu * RPS[0] + cpu * RPS[1] >= need - 1e-6
        assert gpu * prices[0] + cpu * prices[1] == pytest.approx(min(carrying))


def test_the_cheapest_mix_with_one_pool_only():
    params = make_params(2, requests_per_second=RPS, present=np.array([[True, False], [False, True]]))
    assert cheapest_mix(params, np.array([50.0, 30.0])).tolist() == [[3, 0], [0, 8]]


def play(contender, params, rates):
    """Replicas after each tick of 5 s; every replica asked for is ready at the next tick."""
    contender.reset(params)
    state, replicas, seen = initial_state(len(params), 1), params.min_replicas, []
    for tick, rate in enumerate(rates):
        samples = make_samples(
            len(params), time=5.0 * tick, arrival_rate=rate, spec_replicas=replicas, ready_replicas=replicas
        )
        replicas, placement = contender(params, state, samples, RNG)
        assert (placement == 1).all()
        seen.append(replicas[0].tolist())
    return seen


def test_static_stays_put():
    params = make_params(1, requests_per_second=RPS)
    assert play(Static(), params, [10.0] * 8) == [[10, 10]] * 8
    assert play(Static(StaticSettings(0.5)), params, [10.0] * 8) == [[6, 6]] * 8


def test_static_for_peak_carries_the_peak():
    params = make_params(1, requests_per_second=RPS)
    rate = np.array([[10.0, 80.0, 10.0]])
    assert play(StaticForPeak(rate), params, [10.0] * 3) == [[4, 5]] * 3


def test_hindsight_orders_each_pool_one_cold_start_ahead():
    rate = np.where(np.arange(120) < 100, 10.0, 60.0)[None, :]
    params = make_params(1, requests_per_second=RPS, cold_start_seconds=(45.0, 10.0))
    seen = play(Hindsight(rate, HindsightSettings(target=1.0)), params, [10.0] * 24)
    ordered = next(5 * tick for tick, (gpu, _) in enumerate(seen) if gpu > 1)
    assert 100 - 65 <= ordered <= 100 - 45


def test_keda_divides_the_rate_that_reaches_the_pool():
    params = make_params(1, requests_per_second=RPS)
    keda = KedaRequestRate()
    keda.reset(params)
    state = initial_state(1, 1)
    state.weights[:] = (750, 250)
    samples = make_samples(1, arrival_rate=64.0, spec_replicas=(1, 1), ready_replicas=(1, 1))
    replicas, _ = keda(params, state, samples, RNG)
    assert replicas.tolist() == [[3, 5]], "48 / 16 GPU; 16 / 3.2 CPU"


def test_unscaled_keeps_what_is_there():
    controller, params = Unscaled(), make_params(1)
    controller.reset(params)
    samples = make_samples(1, arrival_rate=500.0, spec_replicas=(3, 4), ready_replicas=(3, 4))
    replicas, _ = controller(params, initial_state(1, 4), samples, RNG)
    assert replicas.tolist() == [[3, 4]]


def manifest():
    return Manifest(name="control", stack_size=4)


@pytest.mark.parametrize("actor", [RandomActor(manifest(), 1), FrozenActor(manifest()), UntrainedActor(manifest(), 1)])
def test_controls_give_probabilities_per_head(actor):
    found = actor.probabilities(RNG.standard_normal((7, 40)).astype(np.float32))
    assert found.shape == (7, 13)
    assert found.dtype == np.float32
    for head in np.split(found, [5, 10], axis=1):
        np.testing.assert_allclose(head.sum(axis=1), 1, rtol=1e-5)


def test_frozen_changes_nothing_and_random_changes_everything():
    stacked = np.zeros((500, 40), np.float32)
    frozen = FrozenActor(manifest()).probabilities(stacked)
    assert (frozen[:, [2, 7, 11]] == 1).all()
    drawn = RandomActor(manifest(), 1).probabilities(stacked)
    assert (drawn.mean(axis=0) > 0.1).all()


def test_an_untrained_network_is_its_seed():
    stacked = RNG.standard_normal((3, 40)).astype(np.float32)
    one, same, other = (UntrainedActor(manifest(), seed).probabilities(stacked) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0
    assert np.abs(one[:, :5] - 0.2).max() < 0.1, "nearly uniform, as stable-baselines3 starts"
