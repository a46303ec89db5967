"""The upper forecast, the trend and the variance, from histories whose future is plain."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.forecast import load_trend, recent, upper_forecast, variance_of
from rlscaler_core.decision.types import RATE_HISTORY, Float

EMPTY = np.full(RATE_HISTORY, np.nan)


def history(rate: Float, spacing: float = 5.0) -> tuple[Float, Float]:
    """(1, RATE_HISTORY) time and value with the newest sample at time 0."""
    time, value = EMPTY.copy(), EMPTY.copy()
    time[RATE_HISTORY - len(rate) :] = spacing * np.arange(1 - len(rate), 1)
    value[RATE_HISTORY - len(rate) :] = rate
    return time[None], value[None]


def upper(rate: Float, horizon: float = 90.0, now: float = 0.0) -> float:
    return float(upper_forecast(*history(rate), np.array([now]), np.array([horizon]))[0])


@pytest.mark.parametrize("count", [1, 2, 30, RATE_HISTORY])
def test_a_steady_load_stays(count: int) -> None:
    assert upper(np.full(count, 40.0)) == pytest.approx(42.0, rel=1e-3)


def test_a_rising_load_goes_on_rising_with_the_horizon() -> None:
    rising = np.linspace(10, 40, 31)
    assert 40 < upper(rising, 20) < upper(rising, 90)
    assert upper(rising, 90) >= 40 + 90 * 0.2 * 0.9


def test_a_peak_is_expected_back_for_three_minutes() -> None:
    rate = np.full(60, 10.0)
    rate[30] = 50.0
    assert upper(rate) >= 50
    assert upper(rate, now=60.0) < 20


def test_noise_lifts_the_forecast() -> None:
    rng = np.random.default_rng(1)
    noisy = 40 + 5 * rng.standard_normal(60)
    assert upper(noisy) > 44


def test_no_history_no_forecast() -> None:
    assert np.isnan(upper(np.empty(0)))
    assert np.isnan(upper(np.full(10, 5.0), now=600.0))


def test_never_negative() -> None:
    assert upper(np.linspace(100, 0, 20)) >= 0
    assert upper(np.zeros(20)) == 0


def test_the_order_of_magnitude_does_not_matter() -> None:
    rate = 20 + 10 * np.sin(np.arange(60) / 5)
    assert upper(1e5 * rate) == pytest.approx(1e5 * upper(rate), rel=1e-4)


def test_trend_is_the_normalised_difference() -> None:
    trend = load_trend(np.array([30.0, 10.0, 0.0]), np.array([10.0, 30.0, 0.0]))
    assert trend == pytest.approx([0.499, -0.499, 0.0], abs=1e-3)


def test_variance_is_the_coefficient_of_variation_of_the_last_minute() -> None:
    def variance(rate: Float) -> float:
        return float(variance_of(recent(*history(rate), np.array([0.0])))[0])

    assert variance(np.full(40, 7.0)) == 0
    assert variance(np.array([7.0])) == 0
    assert variance(np.zeros(10)) == 0
    alternating = np.tile([10.0, 30.0], 6)
    assert variance(alternating) == pytest.approx(0.5, rel=1e-5)
    assert variance(np.r_[np.full(20, 500.0), alternating, 10.0]) == pytest.approx(0.5, rel=0.05)
    assert variance(np.r_[np.zeros(11), 100.0]) == 1
