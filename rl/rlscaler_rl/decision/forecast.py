"""What the arrival rate will be, from its history only; numpy, vectorised over N.

The history may be in any order: everything is weighted by age, NaN slots count for nothing.
"""

from __future__ import annotations

import numpy as np

from rlscaler_rl.decision.types import Float

MEMORY_SECONDS = 30.0
"""Samples weigh exp(-age / MEMORY_SECONDS) in the fitted line."""

DAMPING_SECONDS = 60.0
"""A trend is extrapolated over DAMPING_SECONDS * (1 - exp(-h / DAMPING_SECONDS)), not over h: trends end
(Gardner and McKenzie 1985, damped trend)."""

QUANTILE_Z = 1.28
"""Standard deviations of the residual above the line: the 90th percentile of a normal residual."""

TREND_EPSILON = 0.1
"""Requests/s; keeps the trend of a service that gets next to nothing at 0."""

VARIANCE_WINDOW_SECONDS = 60.0


def upper_forecast(rate_time: Float, rate_value: Float, now: Float, horizon_seconds: Float) -> Float:
    """(N,) requests/s: an upper quantile of the rate between half the horizon and the horizon.

    A capacity ordered now serves from one cold start on, hence "half" where the horizon is two cold starts.
    A weighted least-squares line through the recent samples, damped, plus QUANTILE_Z residual deviations; for a
    falling rate the value at half the horizon counts. `rate_time`, `rate_value` are (N, H), the others (N,).
    NaN where the history is empty.
    """
    age = (now[:, None] - rate_time).astype(np.float32)
    weight = np.exp(age * np.float32(-1 / MEMORY_SECONDS))
    empty = np.isnan(age)
    weight[empty] = 0.0
    age[empty] = 0.0
    value = np.where(empty, 0.0, rate_value).astype(np.float32)
    total = weight.sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight_age, weight_value = weight * age, weight * value
        mean_age = weight_age.sum(axis=1) / total
        mean_value = weight_value.sum(axis=1) / total
        var_age = (weight_age * age).sum(axis=1) / total - mean_age**2
        var_value = (weight_value * value).sum(axis=1) / total - mean_value**2
        covariance = (weight_value * age).sum(axis=1) / total - mean_age * mean_value
        slope = -covariance / (np.maximum(var_age, 0.0) + _SLOPE_PRIOR)
        level = mean_value + slope * mean_age
        residual = np.sqrt(np.maximum(var_value + slope * covariance, 0.0))
        reach = DAMPING_SECONDS * (1 - np.exp(-horizon_seconds / DAMPING_SECONDS))
        near = DAMPING_SECONDS * (1 - np.exp(-horizon_seconds / (2 * DAMPING_SECONDS)))
        line = level + slope * np.where(slope > 0, reach, near)
        upper = np.maximum(line + QUANTILE_Z * residual, 0.0)
    return np.where(total > 0, upper, np.nan)


_SLOPE_PRIOR = 25.0
"""Square seconds added to the variance of the ages: a line through samples less than some seconds apart is noise."""


def load_trend(upper: Float, now_rate: Float) -> Float:
    """(N,) -1..1: how far the forecast is above the present rate."""
    trend: Float = (upper - now_rate) / (upper + now_rate + TREND_EPSILON)
    return trend


def load_variance(rate_time: Float, rate_value: Float, now: Float) -> Float:
    """(N,) 0..1: coefficient of variation over the last minute, clipped; 0 with fewer than two samples."""
    recent = (now[:, None] - rate_time) <= VARIANCE_WINDOW_SECONDS
    value = np.where(recent, rate_value, 0.0)
    count = np.maximum(recent.sum(axis=1), 1)
    mean = value.sum(axis=1) / count
    variance = (value * value).sum(axis=1) / count - mean * mean
    deviation = np.sqrt(np.maximum(variance, 0.0))
    variation: Float = np.minimum(deviation / np.maximum(mean, 1e-9), 1.0)
    return variation
