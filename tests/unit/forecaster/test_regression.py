"""The line that says what rise to expect: what a noisy load and a wandering one teach it, and what cannot break it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.forecaster import outlook, regression
from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import FEATURES, nothing_learned, recent_of
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.types import Float, Float32

MONDAY, TICK = 1_767_571_200.0, 10.0
Memory = tuple[Float32, Float32]


def fed(rates: Float, memory: Memory | None = None, begin: float = MONDAY) -> Memory:
    params = make_params(1)
    recent, calendar = nothing_learned(1) if memory is None else memory
    for index, rate in enumerate(rates):
        taken = np.array([begin + index * TICK])
        recent, calendar = learn(params, recent, calendar, taken, np.array([rate]), np.ones(1, np.bool_))
    return recent, calendar


def noisy_minutes(hours: float, seed: int = 0) -> Float:
    """A load whose every minute is drawn anew around 50 requests/s: counts of a small web site, scaled up."""
    draw = np.random.default_rng(seed)
    minutes = draw.gamma(9.0, 50 / 9.0, int(hours * 60))
    return np.repeat(minutes, int(60 / TICK))


def wandering(hours: float, seed: int = 0) -> Float:
    """A load that moves a little at every tick and has no level to come back to."""
    draw = np.random.default_rng(seed)
    return np.asarray(50 * np.exp(np.cumsum(draw.normal(0, 0.01, int(hours * 3600 / TICK)))), np.float64)


def upper(memory: Memory, rate: float) -> float:
    """The 90 % forecast in requests/s of the GPU pool, after the load has been at `rate` for a quarter of a minute."""
    memory = fed(np.array([rate, rate]), memory, begin=recent_begin(memory))
    rise, _ = outlook.expected_rise(memory[0], np.array([0.9]))
    return float(recent_of(memory[0]).fast[0] * np.exp(rise[0, 0]))


def recent_begin(memory: Memory) -> float:
    kept = recent_of(memory[0])
    return float(kept.day[0] * 86400.0 + kept.second[0]) + TICK


@pytest.mark.slow
def test_where_minutes_are_noise_the_forecast_hardly_follows_one_of_them() -> None:
    memory = fed(noisy_minutes(8))
    low, high = upper(memory, 25.0), upper(memory, 90.0)
    assert high / low < 1.7 < 90.0 / 25.0
    assert low > 45.0, "a quiet minute says little of the next"


@pytest.mark.slow
def test_without_the_line_it_would_follow_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regression, "STEEPEST", 0.0)
    memory = fed(noisy_minutes(8))
    assert upper(memory, 90.0) / upper(memory, 25.0) > 1.9


@pytest.mark.slow
def test_where_the_load_wanders_it_is_expected_to_stay_where_it_is() -> None:
    memory = fed(wandering(8))
    now = float(recent_of(memory[0]).fast[0])
    for rate in (0.7 * now, 1.3 * now):
        assert 0.9 < upper(memory, rate) / rate < 1.6


@pytest.mark.slow
def test_sums_that_were_damaged_are_begun_anew() -> None:
    recent, calendar = fed(noisy_minutes(2))
    recent = recent.copy()
    kept = recent_of(recent)
    kept.products[...], kept.targets[...], kept.slopes[...] = np.nan, np.inf, np.nan
    after = recent_of(fed(noisy_minutes(4, seed=1), (recent, calendar), recent_begin((recent, calendar)))[0])
    assert np.isfinite(after.slopes).all()
    assert np.abs(after.slopes).max() > 0.05


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 4, st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=40)
)
def test_whatever_comes_the_slopes_stay_within_bounds(cases: list[tuple[float, ...]]) -> None:
    recent = recent_of(nothing_learned(1)[0])
    row, pool = np.array([0]), np.array([0])
    for fast, slow, peak, long, rise in cases:
        features = regression.features_of(*(np.array([part], np.float32) for part in (fast, slow, peak, long)))
        regression.fit(recent, row, pool, features, np.array([rise], np.float32), np.float32(0.9995))
        assert features.shape == (1, FEATURES)
        assert (np.abs(recent.slopes) <= regression.STEEPEST).all()


def test_the_slopes_are_those_of_least_squares() -> None:
    """Many forecasts of one nature: the sweeps have come to what the inverse of the sums gives."""
    draw = np.random.default_rng(3)
    recent = recent_of(nothing_learned(1)[0])
    features = draw.normal(0, 0.4, (1, 4000, FEATURES)).astype(np.float32)
    features[..., -1] = 1
    true = np.array([0.5, -0.3, 0.2, 0.1])
    for feature in features[0]:
        rise = np.array([feature @ true + draw.normal(0, 0.05)], np.float32)
        regression.fit(recent, np.array([0]), np.array([0]), feature[None], rise, np.float32(1 - 1 / 2000))
    np.testing.assert_allclose(recent.slopes[0, 0], true, atol=0.02)
