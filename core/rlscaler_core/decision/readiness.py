"""The rate that the forecast rule holds capacity for, from the forecaster's memory of this service.

How sure to be is the newsvendor's question: capacity that is not needed costs its price for a while, capacity that is
missing makes requests late. One percent of late requests is worth `late_price` replicas of the dearer pool, so a rate
that is exceeded with a probability of 1-q is held for where 1-q is the price of holding over the price of missing.
Source: Arrow, Harris and Marschak, "Optimal inventory policy", 1951.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.error_budget import price_factor
from rlscaler_core.decision.forecaster import outlook
from rlscaler_core.decision.forecaster.learn import IDLE_RATE, LONG_SECONDS, RECOVERY_SECONDS, horizons
from rlscaler_core.decision.forecaster.memory import is_kept, recent_of
from rlscaler_core.decision.forecaster.rises import EPSILON
from rlscaler_core.decision.types import Float, Float32, Params, Samples, State
from rlscaler_core.decision.units import about_a_request

LEAST_LEVEL, MOST_LEVEL = 0.5, 0.995
"""Bounds of q."""

LEAST_MEAN = 0.02
"""Share of a day that must have been seen before the day's mean is believed: half an hour."""


class Prices(NamedTuple):
    """Prices of lateness; each is one value for all rows, or (N,) of them."""

    late: Float | float
    """Replicas of the dearer pool per percent of late requests, before the error budget steers it."""
    caution: Float | float
    """Factor on the price of missing a rise."""
    jump_caution: Float | float
    """Factor on the price of missing a jump."""


def prepared_rate(
    params: Params,
    state: State,
    samples: Samples,
    plain: Float,
    prices: Prices,
    bound: Float | float = np.inf,
) -> Float:
    """Return the load (N,) in its unit to hold capacity for.

    `plain` (N,) is the forecast that knows nothing of this service's past; it counts less the more learned forecasts
    were compared with the load that came, and alone where lateness has no price. Nothing but a jump that the calendar
    announces goes beyond `bound` (N,), which is infinite where starts are free.
    """
    if not is_kept(state.load_recent):
        return plain
    late_price = prices.late * price_factor(params, state)
    request, rate = about_a_request(params.unit), plain
    plain = plain / request
    recent = recent_of(state.load_recent)
    horizon = horizons(params)
    slow = np.where(horizon[:, 0] >= horizon[:, 1], 0, 1)
    rows = np.arange(len(slow))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        missing = _price_of_missing(state, late_price)
        level = _bounded(1 - 1 / np.maximum(missing * prices.caution, 1e-9))
        rise, trust = outlook.expected_rise(state.load_recent, level)
        season = outlook.season_rise(state.load_calendar, samples.time, horizon[rows, slow])
        known = _raised(recent.fast, rise[rows, slow] + season)
        known = np.maximum(known, outlook.promised_rate(state.load_recent, level)[rows, slow])
        trusted = trust[rows, slow]
        held = np.exp(trusted * np.log(known + EPSILON) + (1 - trusted) * np.log(plain + EPSILON)) - EPSILON
        held = np.minimum(held, bound / request)
        jumped = outlook.recent_jump(state.load_recent, RECOVERY_SECONDS)
        coming = outlook.announced(state.load_calendar, samples.time, horizon[rows, slow], jumped)
        level = _bounded(1 - 1 / np.maximum(missing * prices.jump_caution, 1e-9))
        jump = outlook.jump_rise(state.load_calendar, coming, level)
        # In a train of bursts the next one rises from where the last one began, and not from its height.
        train = np.isfinite(bound) & (recent.jump_age <= LONG_SECONDS)
        before = np.where(train, np.minimum(recent.slow, recent.jump_level), recent.slow)
        held = np.where(jump > 0, np.maximum(held, _raised(before, jump)), held)
    usable = np.isfinite(held) & np.isfinite(recent.day) & (recent.fast > IDLE_RATE)
    return np.where(usable & np.isfinite(plain) & (np.asarray(late_price) > 0), held * request, rate)


def _bounded(level: Float) -> Float:
    return np.clip(level, LEAST_LEVEL, MOST_LEVEL)


def _raised(rate: Float32 | Float, rise: Float) -> Float:
    return np.asarray((rate.astype(np.float64) + EPSILON) * np.exp(rise) - EPSILON, np.float64)


def _price_of_missing(state: State, late_price: Float | float) -> Float:
    """Return the price (N,), in replicas, of all requests of this moment late: their share of a day's requests."""
    mean, seen = outlook.daily_mean(state.load_recent)
    now = recent_of(state.load_recent).fast.astype(np.float64)
    share = np.where((seen >= LEAST_MEAN) & (mean > 0), now / np.maximum(mean, 1e-9), 1.0)
    return np.asarray(100 * np.asarray(late_price) * share, np.float64)
