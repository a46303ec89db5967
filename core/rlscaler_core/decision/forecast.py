"""Forecast of the arrival rate from its history alone; numpy, vectorised over N.

Every sample is weighted by its age; NaN slots and samples older than `MEMORY_LIMIT_SECONDS` count for nothing.
The gains were fitted to the pinball loss of the 90 % quantile over the load patterns and the first part of recorded
traces; `benchmarks/forecast.py` of commit 5c41c3e did it, and shows loss and coverage for every load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Float32

MEMORY_SECONDS = 30.0
"""A sample weighs exp(-age / MEMORY_SECONDS) in the fitted line."""

MEMORY_LIMIT_SECONDS = 180.0
"""Time for which a peak is expected to come back, and age beyond which samples are ignored."""

TREND_GAIN = 1.4
"""Factor on the horizon up to which a rising line is followed: an upper quantile, and the rate window lags."""

RESIDUAL_GAIN = 2.0
"""Residual standard deviations above the line."""

PEAK_GAIN = 1.05
"""The forecast is at least this times the highest rate in memory."""

GROWN_AGAIN = 0.3
"""Part of its growth within memory by which a load is expected to grow further, where starts have a price."""

TREND_EPSILON = 0.1
"""Requests/s that are added to the rates, which keeps the trend of a service that gets next to nothing at 0."""

VARIANCE_WINDOW_SECONDS = 60.0


class Gains(NamedTuple):
    """Settings of the forecast's height above the history; each is one value for all rows, or (N,) of them."""

    trend: Float | float = TREND_GAIN
    residual: Float | float = RESIDUAL_GAIN
    peak: Float | float = PEAK_GAIN
    peak_seconds: Float | float = MEMORY_LIMIT_SECONDS
    """Greatest age of a peak that counts, in seconds; at most `MEMORY_LIMIT_SECONDS`."""


GAINS = Gains()
"""The gains that `load_trend` is made with; they are part of the observation contract."""

_SLOPE_PRIOR = 25.0
"""Square seconds added to the variance of the ages: a line through samples a few seconds apart is noise."""

_COLUMNS = 32
"""History is cut in blocks of so many columns, so that a row's sums do not depend on the rows beside it."""


_LONG_AGO = 1e4


class Recent(NamedTuple):
    """The part of the history that still counts; `value` is relative to `reference` for the sake of precision."""

    age: Float32  # (N, H') seconds; _LONG_AGO where empty
    value: Float32  # (N, H') requests/s above the reference; 0 where it does not count
    counts: Bool  # (N, H')
    reference: Float  # (N,) requests/s, the newest rate


def recent(rate_time: Float, rate_value: Float, now: Float) -> Recent:
    """Return the part of histories (N, H) within the memory limit, oldest first, at the time `now` (N,) in seconds."""
    first = 0
    for column in range(_COLUMNS, rate_time.shape[1], _COLUMNS):
        if np.any(now - rate_time[:, column - 1] <= MEMORY_LIMIT_SECONDS):
            break
        first = column
    age = np.fmin((now[:, None] - rate_time[:, first:]).astype(np.float32), np.float32(_LONG_AGO))
    counts = age <= MEMORY_LIMIT_SECONDS
    reference = np.where(np.isnan(rate_value[:, -1]), 0.0, rate_value[:, -1])
    value = np.where(counts, (rate_value[:, first:] - reference[:, None]).astype(np.float32), np.float32(0))
    return Recent(age, value, counts, reference)


def upper_forecast(
    rate_time: Float, rate_value: Float, now: Float, horizon_seconds: Float, gains: Gains = GAINS
) -> Float:
    """Return about the 90 % quantile (N,), in requests/s, of the highest rate between half the horizon and the horizon.

    Capacity ordered now serves from one cold start on, hence "half" where the horizon is two cold starts. The higher
    of a line through the recent samples plus its residuals, and the recent peak. `rate_time`, `rate_value` are (N, H),
    oldest first, the others (N,). NaN where the history of the last `MEMORY_LIMIT_SECONDS` is empty.
    """
    return upper_of(recent(rate_time, rate_value, now), horizon_seconds, gains)


def upper_of(history: Recent, horizon_seconds: Float, gains: Gains = GAINS) -> Float:
    """Return the `upper_forecast` where `recent` was called already."""
    age, value, counts, reference = history
    weight = np.exp(age * np.float32(-1 / MEMORY_SECONDS))
    weight *= counts
    total = np.einsum("ij->i", weight)
    filled = total > 0
    total = np.where(filled, total, 1)
    weight_value = weight * value
    mean_age = np.einsum("ij,ij->i", weight, age) / total
    mean_value = np.einsum("ij->i", weight_value) / total
    var_age = np.einsum("ij,ij,ij->i", weight, age, age) / total - mean_age**2
    var_value = np.einsum("ij,ij->i", weight_value, value) / total - mean_value**2
    covariance = np.einsum("ij,ij->i", weight_value, age) / total - mean_age * mean_value
    slope = -covariance / (np.maximum(var_age, 0) + np.float32(_SLOPE_PRIOR))
    residual = np.sqrt(np.maximum(var_value + slope * covariance, 0))
    ahead = gains.trend * np.maximum(slope, 0) * horizon_seconds
    line = reference + mean_value + slope * mean_age + ahead + gains.residual * residual
    peak = gains.peak * (reference + _highest(history, gains.peak_seconds))
    return np.where(filled, np.maximum(np.maximum(line, peak), 0.0), np.nan)


def grown_again(rate_time: Float, rate_value: Float, now: Float, peak: Float | float = PEAK_GAIN) -> Float:
    """Return the rate (N,) that the load reaches if it grows by `GROWN_AGAIN` of all that it grew within memory.

    A line through the begin of a burst leads to several times its height. Where pods cost nothing to start that is
    undone in a minute.
    """
    _, value, counts, reference = recent(rate_time, rate_value, now)
    highest = reference + value.max(axis=1)
    lowest = reference + np.where(counts, value, np.float32(np.inf)).min(axis=1)
    return np.asarray(np.maximum(highest + GROWN_AGAIN * (highest - lowest), peak * highest), np.float64)


def _highest(history: Recent, peak_seconds: Float | float) -> Float32:
    """Return the highest rate (N,) within the last `peak_seconds`, above the reference."""
    if np.all(np.asarray(peak_seconds) >= MEMORY_LIMIT_SECONDS):
        return np.asarray(history.value.max(axis=1), np.float32)
    young = history.age <= np.asarray(peak_seconds, np.float32)[..., None]
    return np.asarray(np.where(young, history.value, np.float32(0)).max(axis=1), np.float32)


def load_trend(upper: Float, now_rate: Float) -> Float:
    """Return how far the forecast (N,) is above the present rate (N,), from -1 to 1."""
    trend: Float = (upper - now_rate) / (upper + now_rate + TREND_EPSILON)
    return trend


def variance_of(history: Recent) -> Float:
    """Return the coefficient of variation (N,) over the last minute, clipped to 0..1; 0 with fewer than two samples."""
    within = history.age <= VARIANCE_WINDOW_SECONDS
    value = history.value * within
    count = np.maximum(np.count_nonzero(within, axis=1), 1)
    mean = np.einsum("ij->i", value) / count
    variance = np.einsum("ij,ij->i", value, value) / count - mean * mean
    deviation = np.sqrt(np.maximum(variance, 0.0))
    variation: Float = np.minimum(deviation / np.maximum(history.reference + mean, 1e-9), 1.0)
    return variation
