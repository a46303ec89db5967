"""The rate that capacity is to be held for, from a service's own past and the prices of lateness and replicas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.forecaster import calendar as jumps
from rlscaler_core.decision.forecaster import regression, rises, season
from rlscaler_core.decision.forecaster.calendar import Moment
from rlscaler_core.decision.forecaster.memory import CONTEXTS, LEVELS, Recent, calendar_of, recent_of
from rlscaler_core.decision.types import Bool, Float, Float32

TRUSTED = 400.0
"""Closed forecasts at which the distribution counts as much as the forecast without a past; some two hours."""

LEAST_JUMPS = 1.5
"""Jumps without which the calendar announces nothing."""

EARLY_SECONDS = 10.0
"""Seconds by which a jump may come before its minute: clocks differ, and rates are measured over a window."""


class Announced(NamedTuple):
    """Jumps that the calendar announces until a horizon; (N,) each."""

    probability: Float
    """That the load jumps."""
    moment: Moment
    """The likeliest minute."""


def expected_rise(recent_row: Float32, level: Float) -> tuple[Float, Float]:
    """Return the log rise (N, 2) that is exceeded in 1-`level` (N,) of the cases, and how far to trust it, 0-1."""
    recent = recent_of(recent_row)
    rise = rises.rise_quantile(recent, rises.context_of(recent), rises.true_level(recent, level)[..., None])[..., 0]
    rise = rise + regression.expected_rise(recent, rises.features(recent))
    counted = recent.rises[:, :, CONTEXTS].sum(axis=2)
    return rise.astype(np.float64), counted / (counted + TRUSTED)


def promised_rate(recent_row: Float32, level: Float) -> Float:
    """Return the highest rate (N, 2) that an open forecast expects to be exceeded in 1-`level` (N,) of the cases, or 0.

    A forecast stands until its horizon is over: a rise expected within a cold start may still come, and a replica that
    is given back in a dip and ordered again is paid for while it starts.
    """
    recent = recent_of(recent_row)
    first, second = (part[:, None, None] for part in rises.between_levels(level))
    low, middle, high = (recent.promised[..., k].astype(np.float64) for k in range(3))
    rate = _rate(recent, low + first * (middle - low) + second * (high - middle))
    return np.asarray(np.where(recent.age >= 0, rate, 0.0).max(axis=2), np.float64)


def newest_forecast(recent_row: Float32) -> Float:
    """Return the rates (N, 2, LEVELS) of each pool's newest open forecast; NaN where it has none."""
    recent = recent_of(recent_row)
    age = np.where(recent.age >= 0, recent.age, np.inf)
    newest = age.argmin(axis=2)[..., None, None]
    rates = np.stack([_rate(recent, recent.promised[..., k].astype(np.float64)) for k in range(len(LEVELS))], axis=-1)
    chosen = np.take_along_axis(rates, newest, axis=2)[:, :, 0]
    return np.where(np.any(np.isfinite(age), axis=2, keepdims=True), chosen, np.nan)


def _rate(recent: Recent, rise: Float) -> Float:
    """Return the rate (N, 2, PENDING) that forecasts expect with the log `rise` above the mean."""
    return np.asarray((recent.start + rises.EPSILON) * np.exp(recent.expected + rise) - rises.EPSILON, np.float64)


def announced(calendar_row: Float32, now: Float, horizon: Float, jumped: Bool) -> Announced:
    """Look ahead from `now` (N,) over `horizon` (N,) seconds, at every minute that it touches.

    Where the load has `jumped` (N,) just now, the running minute is left out: its jump has come.
    """
    calendar = calendar_of(calendar_row)
    none, likeliest = np.ones(len(now)), now.copy()
    most = np.full(len(now), -1.0)
    last = np.floor((now + horizon + EARLY_SECONDS) / 60) - np.floor(now / 60)
    last = np.where(np.isfinite(last), last, 0)
    for ahead in range(int(last.max(initial=0)) + 1):
        moment = Moment(now + 60.0 * ahead)
        chance = jumps.corrected(calendar, jumps.hazard(calendar, moment))
        if ahead == 0:
            left = np.clip(1 - (now % 60 - 2 * EARLY_SECONDS) / 60, 0, 1)
            chance = np.where(jumped, 0.0, chance * left)
        chance = np.where(ahead <= last, chance, 0.0)
        none *= 1 - chance
        likelier = chance > most
        most, likeliest = np.where(likelier, chance, most), np.where(likelier, now + 60.0 * ahead, likeliest)
    enough = calendar.jumps >= LEAST_JUMPS
    return Announced(np.where(enough, 1 - none, 0.0), Moment(likeliest))


def jump_rise(calendar_row: Float32, coming: Announced, level: Float) -> Float:
    """Return the log rise (N,) to be ready for so that more comes in 1-`level` (N,) of the cases; 0 for none."""
    worth = coming.probability > 1 - level
    inside = np.clip(1 - (1 - level) / np.maximum(coming.probability, 1e-9), 0.02, 0.98)
    rise = jumps.height_quantile(calendar_of(calendar_row), coming.moment, normal_quantile(inside))
    return np.where(worth, rise, 0.0)


def normal_quantile(probability: Float) -> Float:
    """Return the quantile of the normal distribution within 0.01, by the logistic one of about the same shape."""
    return np.asarray(np.log(probability / (1 - probability)) / 1.702, np.float64)


def season_rise(calendar_row: Float32, now: Float, horizon: Float) -> Float:
    """Return the log rise (N,) of the level by time of day over `horizon` (N,); 0 where it has not earned its place."""
    return np.maximum(season.change_ahead(calendar_of(calendar_row), now, horizon), 0.0)


def recent_jump(recent_row: Float32, within: float) -> Bool:
    """Return where (N,) the load jumped within so many seconds."""
    return np.asarray(recent_of(recent_row).jump_age <= within)


def daily_mean(recent_row: Float32) -> tuple[Float, Float]:
    """Return the mean rate (N,) of about the last day in requests/s, and how much of a day that is of, 0-1."""
    recent = recent_of(recent_row)
    return recent.mean.astype(np.float64), recent.mean_weight.astype(np.float64)
