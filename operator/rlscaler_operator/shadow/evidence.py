"""One day of a comparison: its regret and whether it counts, and confidence sequences over the days. Pure.

A day is one value: within it everything depends on everything. Both functions on days rest on the Bayes factor of the
t-test with a standard normal prior on the effect size, which is a test martingale under normal days of unknown variance
(Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", 2023): by
Ville's inequality it ever exceeds 1 / alpha with a probability of alpha at most, so looking every day costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_core.api.promotion import EvidenceDay, MeasuredDay, Regret, RegretInterval

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
    """Return the confidence sequence of the mean of `days` (n,): for every n, all hold with probability 1 - `alpha`.

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
    # Solved for the mean at which the Bayes factor (1 + n)^-1/2 * ((1 + t^2/v) / (1 + t^2/(v (1 + n))))^(n/2) is 1 /
    # alpha, with v = n - 1 degrees of freedom.
    reached = (np.sqrt(1 + n) / alpha) ** (2 / n)
    if reached >= 1 + n:
        return ConfidenceInterval(mean, float("-inf"), float("inf"))
    squared = (n - 1) * (reached - 1) / (1 - reached / (1 + n))
    half = spread * float(np.sqrt(squared / n))
    return ConfidenceInterval(mean, mean - half, mean + half)


def turned_above(days: ArrayLike, limit: float, days_between_false_alarms: float, resolution: float) -> bool:
    """Return whether the mean of `days` (n,) has come to lie above `limit`, on some day or other.

    Every day may be the turn: the Bayes factors of all stretches that end today add up to a detector that, while the
    mean is not above the limit, gives a false alarm once in `days_between_false_alarms` days on average or less often
    (an e-detector of Shiryaev and Roberts' kind; Shin, Ramdas and Rinaldo, 2022). It looks upwards only: where the days
    lie lower, each factor that counts is smaller, day by day.
    """
    # Newest day first: row n of the cumulative sums is the stretch of the last n days.
    values = np.asarray(days, np.float64)[::-1] - limit
    n = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / n
    variance = np.maximum(np.cumsum(values**2) - n * mean**2, 0.0) / np.maximum(n - 1, 1)
    student = n * mean**2 / np.maximum(variance, max(resolution, LEAST_SPREAD) ** 2)
    freedom = np.maximum(n - 1, 1)
    # The logarithm of the Bayes factor of each stretch.
    gained = 0.5 * n * (np.log1p(student / freedom) - np.log1p(student / (freedom * (1 + n)))) - 0.5 * np.log1p(n)
    counts = (mean > 0) & (n >= FEWEST_DAYS)
    factors = np.where(counts, np.exp(np.minimum(gained, 700.0)), 0.0)
    return bool(factors.sum() >= days_between_false_alarms)


ALPHA = 0.01
"""Chance that one of the two confidence sequences is ever wrong, on normal days. How often they
are wrong on other days was measured at commit 5c41c3e."""

WHOLE_DAY_HOURS = 18.0
"""A day of fewer compared hours does not count: half a day is no day."""

COST_RESOLUTION = 0.1
"""%; days that are more alike than this are believed to differ by as much."""

LATE_RESOLUTION = 0.01
"""Percentage points, the same."""

LATE_TOLERANCE_POINTS = 1.0
LATE_TOLERANCE_SHARE = 0.25
"""The modelled late share of the replicas that really ran may be off by so many points plus this share of the measured
late share."""

AGREEING_SHARE = 0.75
"""Share of a day's windows in which the model's 95th percentile has to agree with the measured one."""

P95_FACTOR = 1.5
"""It agrees where it is at most this factor outside the bucket in which the measured one lies."""

MEASURED_SHARE = 0.5
"""Share of the compared time that has to have been measured as well."""

WINDOW_SECONDS = 600.0
"""Length of a window of the calibration."""

FEW_REQUESTS = 500.0
"""A day with fewer requests counts whatever was measured: hardly anything could have been late. The measurements of all
days that count have to be enough and to agree together."""


class Compared(NamedTuple):
    """Confidence sequences over the days that count."""

    days: int
    cost: ConfidenceInterval
    """% of the other side's cost."""
    late: ConfidenceInterval
    """Percentage points."""


def is_whole(day: EvidenceDay) -> bool:
    return day.hours >= WHOLE_DAY_HOURS and day.other_cost > 0


def is_calibrated(day: EvidenceDay) -> bool:
    """Return whether the model, run over the replicas that really ran, matches the measurements."""
    if day.requests < FEW_REQUESTS:
        return True
    measured = day.measured
    if measured is None or measured.windows * WINDOW_SECONDS < MEASURED_SHARE * day.hours * 3600:
        return False
    return agrees(measured)


def agrees(measured: MeasuredDay) -> bool:
    """Return whether the modelled late share and, in most windows, the modelled percentile match the measured ones."""
    return late_agrees(measured) and measured.agreeing >= AGREEING_SHARE * measured.windows


def late_agrees(measured: MeasuredDay) -> bool:
    """Return whether the modelled late share is within the tolerance of the histogram's bounds."""
    if measured.requests <= 0 or measured.modelled_requests <= 0:
        return False
    low = 100 * measured.late / measured.requests
    high = 100 * measured.late_at_most / measured.requests
    modelled = 100 * measured.modelled_late / measured.modelled_requests
    # Points for small shares, a part of the share for large ones.
    tolerance = LATE_TOLERANCE_POINTS + LATE_TOLERANCE_SHARE * (low + high) / 2
    return low - tolerance <= modelled <= high + tolerance


def together(measured: Sequence[MeasuredDay]) -> MeasuredDay:
    """Return the sum of the measurements of some windows or days."""
    names = MeasuredDay.model_fields
    return MeasuredDay(**{name: round(sum(getattr(each, name) for each in measured), 2) for name in names})


def p95_agrees(modelled_ms: float, low_ms: float, high_ms: float, finest_ms: float = 0.0) -> bool:
    """Return whether a modelled percentile agrees with the measured one in the bucket `low_ms` to `high_ms`.

    The last bucket has no upper end. `finest_ms` is the first bound of the model's own histogram: a modelled value
    below it may be anything from 0 on.
    """
    # The model's own histogram is no finer than its first bound.
    least_ms = modelled_ms if modelled_ms > finest_ms else 0.0
    return math.isfinite(modelled_ms) and low_ms / P95_FACTOR <= modelled_ms and least_ms <= high_ms * P95_FACTOR


def cost_regret(day: EvidenceDay) -> float:
    """Return the excess cost in %; below 0 the policy is cheaper."""
    return 100 * (day.cost / day.other_cost - 1)


def late_regret(day: EvidenceDay) -> float:
    """Return the excess of late requests in percentage points; below 0 the policy is less late."""
    return 100 * (day.late - day.other_late) / day.requests if day.requests > 0 else 0.0


def counting(days: Sequence[EvidenceDay], today: str) -> list[EvidenceDay]:
    """Return the days that are over, whole and calibrated."""
    return [day for day in days if day.date < today and is_whole(day) and is_calibrated(day)]


def compare(days: Sequence[EvidenceDay]) -> Compared:
    """Return confidence sequences over `days`, all of which count."""
    return Compared(
        len(days),
        interval([cost_regret(day) for day in days], ALPHA / 2, COST_RESOLUTION),
        interval([late_regret(day) for day in days], ALPHA / 2, LATE_RESOLUTION),
    )


def to_regret(compared: Compared) -> Regret | None:
    """Return the comparison as the status shows it; None before the first day."""
    if not compared.days:
        return None
    return Regret(cost_percent=_rounded(compared.cost), late_points=_rounded(compared.late))


def _rounded(of_days: ConfidenceInterval) -> RegretInterval:
    low, high = (round(bound, 3) if math.isfinite(bound) else None for bound in (of_days.low, of_days.high))
    return RegretInterval(mean=round(of_days.mean, 3), low=low, high=high)
