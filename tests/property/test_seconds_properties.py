"""What is promised of seconds drawn from wider bins, for any bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlscaler_rl.workloads.seconds import LARGEST_VARIANCE, draw_seconds, relative_variance

BINS = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1e6, allow_subnormal=False))
WIDTHS = st.sampled_from([2, 5, 10, 60, 300])
VARIANCES = st.floats(0, 2 * LARGEST_VARIANCE)
SEEDS = st.integers(0, 2**32)


@settings(deadline=None)
@given(bins=BINS, width=WIDTHS, variance=VARIANCES, seed=SEEDS)
def test_every_bin_keeps_its_mean_and_no_second_is_negative(bins, width, variance, seed):
    drawn = draw_seconds(bins, width, variance, np.random.default_rng(seed))
    assert drawn.shape == (len(bins) * width,)
    assert (drawn >= 0).all()
    assert np.isfinite(drawn).all()
    np.testing.assert_allclose(drawn.reshape(-1, width).mean(1), bins, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(bins=BINS, width=WIDTHS, variance=VARIANCES, seed=SEEDS)
def test_a_seed_gives_the_same_seconds(bins, width, variance, seed):
    first, again = (draw_seconds(bins, width, variance, np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@settings(deadline=None)
@given(bins=BINS, width=WIDTHS, variance=VARIANCES, seed=SEEDS, factor=st.floats(1e-3, 1e3))
def test_a_rescaled_load_is_drawn_rescaled(bins, width, variance, seed, factor):
    """The modulation has no unit: what a load is scaled by changes nothing else."""
    drawn, scaled = (draw_seconds(k * bins, width, variance, np.random.default_rng(seed)) for k in (1.0, factor))
    np.testing.assert_allclose(scaled, factor * drawn, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("width", [10, 60, 300])
@pytest.mark.parametrize("variance", [0.01, 0.1, 0.5, 1.0])
def test_the_relative_variance_inside_a_bin_is_the_one_asked_for(width, variance):
    drawn = draw_seconds(np.full(200_000 // width, 50.0), width, variance, np.random.default_rng(1)).reshape(-1, width)
    assert drawn.var(1).mean() / 50.0**2 == pytest.approx(variance, rel=0.12)


def test_the_requests_around_drawn_seconds_are_overdispersed_by_the_modulation():
    """Index of dispersion of a gamma-modulated Poisson process inside a bin: 1 + mean x relative variance."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(draw_seconds(np.full(20_000, 40.0), 60, 0.05, rng)).reshape(-1, 60)
    assert (counts.var(1, ddof=1) / counts.mean(1)).mean() == pytest.approx(1 + 40 * 0.05, rel=0.06)


def test_the_modulation_is_correlated_in_time():
    drawn = draw_seconds(np.full(5000, 50.0), 60, 0.2, np.random.default_rng(3)).reshape(-1, 60)
    neighbours, far = (np.corrcoef(drawn[:, :-lag].ravel(), drawn[:, lag:].ravel())[0, 1] for lag in (1, 30))
    assert neighbours > 0.8 > far


def test_without_variance_the_seconds_are_a_line_and_a_silent_bin_stays_silent():
    drawn = draw_seconds(np.array([10.0, 20.0, 30.0]), 10, 0.0, np.random.default_rng(0))
    assert (np.diff(drawn[5:25]) > 0).all()
    silent = draw_seconds(np.array([10.0, 0.0, 10.0]), 10, 0.5, np.random.default_rng(0))
    assert not silent[10:20].any()
    assert silent[:10].any()


@pytest.mark.parametrize("variance", [0.0, 0.01, 0.1, 0.5])
def test_the_measured_variance_is_that_beyond_chance(variance):
    rng = np.random.default_rng(4)
    rate = 100 * (rng.gamma(1 / variance, variance, 30_000) if variance else np.ones(30_000))
    assert relative_variance(rng.poisson(rate) / 60, 60.0) == pytest.approx(variance, rel=0.1, abs=0.001)


def test_a_slope_and_one_jump_are_no_variance():
    """A day that rises and falls, with one flash crowd in a month: neither belongs into every second."""
    minutes = np.arange(30 * 1440)
    rate = 100 * (1.5 + np.sin(2 * np.pi * minutes / 1440))
    rate[20_000:20_030] *= 20
    assert relative_variance(rate, 60.0) == 0.0


def test_too_few_bins_and_silence_have_no_variance():
    assert relative_variance(np.array([1.0, 2.0]), 60.0) == 0.0
    assert relative_variance(np.zeros(5000), 60.0) == 0.0
