"""The generative model of loads: seeded, relative to a busy level, and like nothing that could be learned by heart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_rl.simulation.generative import HOUR, JOB_PERIODS, MODEL, draw

QUIET = replace(
    MODEL,
    flat_share=1.0,
    weekend=(1.0, 1.0 + 1e-9),
    switching_share=0.0,
    bursting_share=0.0,
    job_share=0.0,
    wander=(1e-9, 2e-9),
    variance=(1e-12, 2e-12),
    empty_share=0.0,
)


def test_every_draw_comes_from_the_generator():
    one, other, third = (draw(20, 600, np.random.default_rng(seed)) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one.rate, other.rate)
    np.testing.assert_array_equal(one.daily_mean, other.daily_mean)
    assert not np.allclose(one.rate, third.rate)


def test_without_any_part_the_load_is_its_busy_level():
    drawn = draw(10, 600, np.random.default_rng(0), QUIET)
    np.testing.assert_allclose(drawn.rate, 1.0, rtol=1e-4)
    np.testing.assert_allclose(drawn.daily_mean, 1.0, rtol=1e-4)


def test_rates_are_finite_and_not_negative_whatever_is_drawn():
    rate = draw(500, HOUR, np.random.default_rng(1)).rate
    assert np.isfinite(rate).all()
    assert rate.min() >= 0
    silent = (rate == 0).all(axis=1)
    assert silent.mean() == pytest.approx(MODEL.empty_share, abs=0.02)


def test_a_day_has_the_drawn_peak_over_its_valley():
    diurnal = replace(QUIET, flat_share=0.0, peak_over_valley=(5.0, 5.0 + 1e-9), second_harmonic=(0.0, 1e-9))
    drawn = draw(20, 24 * HOUR, np.random.default_rng(2), diurnal)
    np.testing.assert_allclose(drawn.rate.max(axis=1), 1.0, rtol=0.01)
    np.testing.assert_allclose(drawn.rate.max(axis=1) / drawn.rate.min(axis=1), 5.0, rtol=0.02)
    np.testing.assert_allclose(drawn.rate.mean(axis=1), drawn.daily_mean, rtol=0.01)


def test_the_modulation_has_the_drawn_variance_and_no_influence_on_the_mean():
    modulated = replace(QUIET, variance=(0.2, 0.2 + 1e-9), variance_seconds=(5.0, 5.0 + 1e-9))
    rate = draw(40, 2 * HOUR, np.random.default_rng(3), modulated).rate.astype(np.float64)
    assert rate.mean() == pytest.approx(1.0, abs=0.02)
    assert rate.var() == pytest.approx(0.2, rel=0.1)
    around = rate - rate.mean()
    lagged = (around[:, 5:] * around[:, :-5]).mean() / around.var()
    assert lagged == pytest.approx(np.exp(-1), abs=0.06), "the correlation time is five seconds"


def test_jobs_come_at_the_same_minute_again_and_at_no_minute_of_the_stretch():
    sure = {"job_share": 1.0, "job_certainty": (1.0, 1.0 + 1e-9), "job_height": (2.0, 2.0 + 1e-9)}
    jobs = replace(QUIET, **sure, job_seconds=(20.0, 20.0 + 1e-9))
    rate = draw(300, 2 * HOUR, np.random.default_rng(4), jobs).rate
    high = rate > 1.8
    begins = [np.flatnonzero(row[1:] & ~row[:-1]) for row in high]
    gaps = np.concatenate([np.diff(row) for row in begins])
    nearest = JOB_PERIODS[np.abs(gaps[:, None] - JOB_PERIODS).argmin(axis=1)]
    assert (np.abs(gaps - nearest) < 20).mean() > 0.97
    first = np.array([row[0] for row in begins if len(row)])
    phases = np.histogram(first % 300, bins=5, range=(0, 300))[0] / len(first)
    assert phases.max() < 0.35, "a clock that training could learn"
