"""What a series of days says about their mean, however often one looks. Pure.

A day is one value: within it everything depends on everything. Both functions rest on the Bayes factor of the t-test
with a standard normal prior on the effect size, which is a test martingale under normal days of unknown variance (Wang
and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", 2023): by Ville's
inequality it ever exceeds 1 / alpha with a probability of alpha at most, so looking every day costs nothing.
What is left of that with days that are not normal was measured at commit 5c41c3e.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.float64]

FEWEST_DAYS = 5
"""Fewer days in a row never count as a turn: two that happen to be alike would look like certainty."""

LEAST_SPREAD = 1e-9


class ConfidenceInterval(NamedTuple):
    """A mean and its confidence sequence at one moment."""

    mean: float
    low: float
    high: float


def interval(days: ArrayLike, alpha: float, resolution: float) -> ConfidenceInterval:
    """Confidence sequence of the mean of `days` (n,): all of them, for every n, hold with probability 1 - `alpha`.

    `resolution` is the least standard deviation that is believed. Unbounded until a few days are there (5 at 5 %).
    """
    values = np.asarray(days, np.float64)
    n = len(values)
    if n == 0:
        return ConfidenceInterval(float("nan"), float("-inf"), float("inf"))
    mean = float(values.mean())
    if n < 2:
        return ConfidenceInterval(mean, float("-inf"), float("inf"))
    spread = max(float(values.std(ddof=1)), resolution, LEAST_SPREAD)
    reached = (np.sqrt(1 + n) / alpha) ** (2 / n)
    if reached >= 1 + n:
        return ConfidenceInterval(mean, float("-inf"), float("inf"))
    squared = (n - 1) * (reached - 1) / (1 - reached / (1 + n))
    half = spread * float(np.sqrt(squared / n))
    return ConfidenceInterval(mean, mean - half, mean + half)


def turned_above(days: ArrayLike, limit: float, days_between_false_alarms: float, resolution: float) -> bool:
    """Has the mean of `days` (n,) come to lie above `limit`, on some day or other?

    Every day may be the one on which things turned: the Bayes factors of all stretches that end today add up to a
    detector that, while the mean is not above the limit, gives a false alarm once in `days_between_false_alarms` days
    on average or less often (an e-detector of Shiryaev and Roberts' kind; Shin, Ramdas and Rinaldo, 2022). It looks
    upwards only: where the days lie lower, each factor that counts is smaller, day by day.
    """
    values = np.asarray(days, np.float64)[::-1] - limit
    n = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / n
    variance = np.maximum(np.cumsum(values**2) - n * mean**2, 0.0) / np.maximum(n - 1, 1)
    student = n * mean**2 / np.maximum(variance, max(resolution, LEAST_SPREAD) ** 2)
    freedom = np.maximum(n - 1, 1)
    gained = 0.5 * n * (np.log1p(student / freedom) - np.log1p(student / (freedom * (1 + n)))) - 0.5 * np.log1p(n)
    counts = (mean > 0) & (n >= FEWEST_DAYS)
    factors = np.where(counts, np.exp(np.minimum(gained, 700.0)), 0.0)
    return bool(factors.sum() >= days_between_false_alarms)
