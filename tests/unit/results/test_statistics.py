"""Intervals: coverage, pairing, blocks, training seeds, degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_rl.results.statistics import (
    Design,
    Interval,
    Verdict,
    blocks_of,
    mean_interval,
    over_seeds,
    ratio_interval,
    seed_weights,
    weights,
    widening,
)


def interval(scores: np.ndarray, seed: int = 0, blocks: tuple[int, ...] | None = None) -> Interval:
    return Interval.of(scores.mean(), weights(Design(*scores.shape, blocks), 0, seed) @ scores.ravel())


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-2.0, -0.1, Verdict.WIN),
        (0.1, 2.0, Verdict.LOSS),
        (-0.1, 0.1, Verdict.UNDECIDED),
        (0.0, 0.0, Verdict.UNDECIDED),
    ],
)
def test_an_interval_that_touches_zero_decides_nothing(low, high, verdict):
    assert Interval((low + high) / 2, low, high).verdict is verdict


def test_an_interval_stays_within_what_its_quantity_can_be():
    apart = np.array([0.0, 0.1, 9.0])
    assert mean_interval(apart).low < 0
    shares = mean_interval(apart).within(0.0, 5.0)
    assert (shares.low, shares.high) == (0.0, 5.0)
    assert ratio_interval(apart, np.array([10.0, 10.0, 10.0])).low == -100.0
    few = mean_interval(apart[:2]).within(0.0)
    assert np.isinf(few.low), "no bounds are no bounds at 0"


def test_pairing_finds_a_small_difference_under_large_common_noise():
    generator = np.random.default_rng(1)
    common = generator.normal(10, 5, (5, 16))
    policy, contender = common + generator.normal(0, 0.1, common.shape), common + 0.3
    assert interval(policy - contender).verdict is Verdict.WIN
    shuffled = generator.permuted(contender.ravel()).reshape(contender.shape)
    assert interval(policy - shuffled).verdict is Verdict.UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 4), (1, 8), (5, 16)])
def test_coverage_is_near_the_nominal_level(shape):
    generator = np.random.default_rng(3)
    trials = [interval(generator.normal(1, 1, shape), trial % 4) for trial in range(1000)]
    assert 915 <= sum(found.low <= 1 <= found.high for found in trials) <= 975


@pytest.mark.parametrize("count", [3, 5, 12])
def test_few_blocks_cover_as_they_should_although_their_episodes_repeat(count):
    """20 episodes replay `count` blocks; what a block does to the score is far larger than what its arrivals do."""
    generator = np.random.default_rng(count)
    blocks = tuple(np.resize(np.arange(count), 20).tolist())
    covered = naive = 0
    for trial in range(60):
        effect = generator.normal(0, 1, count)
        scores = (effect[list(blocks)] + generator.normal(0, 0.1, 20)).reshape(1, 20)
        found, alone = interval(scores, trial % 4, blocks), interval(scores, trial % 4)
        covered += found.low <= 0 <= found.high
        naive += alone.low <= 0 <= alone.high
    assert covered >= 51
    if count < 12:
        assert naive < covered


def test_repeats_of_one_block_are_no_evidence():
    scores = np.random.default_rng(6).normal(-1, 0.1, (2, 8))
    assert Design(2, 8, (0,) * 16).units == 1
    assert not Design(2, 8, (0, 1) * 8).decidable
    assert Design(2, 8, (0, 1, 2, 0) * 4).decidable
    assert interval(scores, 0, (0,) * 16).low < scores.mean()


@pytest.mark.parametrize(("runs", "episodes", "decidable"), [(1, 1, False), (1, 2, False), (1, 3, True), (3, 1, True)])
def test_two_episodes_decide_nothing(runs, episodes, decidable):
    assert Design(runs, episodes).decidable is decidable


def test_drawn_episodes_are_resampled_alike_in_all_workloads_because_they_share_their_seeds():
    drawn, replayed = Design(2, 3), Design(2, 3, (0, 1, 2) * 2)
    assert (weights(drawn, 0) == weights(drawn, 1)).all()
    assert (weights(replayed, 0) != weights(replayed, 1)).any()


def test_blocks_are_found_by_their_rates():
    rate = np.repeat(np.arange(6.0)[:, None], 10, axis=1)
    assert blocks_of(rate[[3, 1, 3, 5, 1]]) == (0, 1, 0, 2, 1)


@given(st.integers(2, 200))
def test_widening_shrinks_to_nothing_with_many_units(units):
    assert widening(units) > widening(units + 1) > 1


@given(
    runs=st.integers(1, 4),
    episodes=st.integers(1, 6),
    blocks=st.none() | st.integers(1, 4),
)
def test_the_weights_of_a_resample_add_up_to_one(runs, episodes, blocks):
    labels = None if blocks is None else tuple((np.arange(runs * episodes) % blocks).tolist())
    if labels is not None:
        labels = tuple(sorted(labels))
    found = weights(Design(runs, episodes, labels))
    assert found.shape[1] == runs * episodes
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found.mean(axis=0), 1 / (runs * episodes), atol=0.1)


def test_training_seeds_that_disagree_widen_the_interval():
    same = over_seeds([np.zeros(10_000) + shift for shift in (0.0, 0.01, -0.01)])
    apart = over_seeds([np.zeros(10_000) + shift for shift in (0.0, 1.0, -1.0)])
    assert np.ptp(np.quantile(apart, [0.025, 0.975])) > 50 * np.ptp(np.quantile(same, [0.025, 0.975]))
    np.testing.assert_allclose(seed_weights(3, 500).sum(axis=1), 1.0)


def test_one_seed_is_itself():
    means = np.random.default_rng(0).normal(size=10_000)
    np.testing.assert_allclose(over_seeds([means]), means)


def test_one_run_uses_its_episodes():
    scores = np.random.default_rng(4).normal(2, 1, (1, 50))
    found = interval(scores)
    assert found.low < found.mean < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(50), rel=0.3)


def test_equal_scores_and_single_episodes_give_a_point():
    for scores in (np.full((5, 4), 2.5), np.full((1, 1), 2.5)):
        found = interval(scores)
        assert (found.low, found.high) == pytest.approx((2.5, 2.5))


def test_the_same_seed_gives_the_same_interval():
    scores = np.random.default_rng(5).normal(0, 1, (3, 7))
    assert interval(scores, 9) == interval(scores, 9)


def test_many_episodes_stay_affordable():
    scores = np.random.default_rng(6).normal(1, 1, (5, 1000))
    found = interval(scores)
    assert found.low < 1.05
    assert found.high > 0.95
    assert found.high - found.low < 0.2
