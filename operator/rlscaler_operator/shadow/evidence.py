"""One day of a comparison: what it says, and whether it counts. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlscaler_core.api.promotion import EvidenceDay, MeasuredDay, Regret, RegretInterval
from rlscaler_operator.shadow.statistics import ConfidenceInterval, interval

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
"""The modelled late share of the replicas that really ran may be off by so many points plus this share of what was
measured."""

AGREEING_SHARE = 0.75
"""Share of a day's windows in which the model's 95th percentile has to agree with the measured one."""

P95_FACTOR = 1.5
"""It agrees where it is at most this factor outside the bucket in which the measured one lies."""

MEASURED_SHARE = 0.5
"""Share of the compared time that has to have been measured as well."""

WINDOW_SECONDS = 600.0
"""Length of a window of the calibration."""

FEW_REQUESTS = 500.0
"""A day with fewer requests needs no calibration: hardly anything could have been late."""


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
    """Did the model, run over the replicas that really ran, say what was measured?"""
    if day.requests < FEW_REQUESTS:
        return True
    measured = day.measured
    if measured is None or measured.windows * WINDOW_SECONDS < MEASURED_SHARE * day.hours * 3600:
        return False
    return agrees(measured)


def agrees(measured: MeasuredDay) -> bool:
    """Are the modelled late share and, in most windows, the modelled percentile those that were measured?"""
    return late_agrees(measured) and measured.agreeing >= AGREEING_SHARE * measured.windows


def late_agrees(measured: MeasuredDay) -> bool:
    """Is the modelled late share within the tolerance of what the histogram allows?"""
    if measured.requests <= 0 or measured.modelled_requests <= 0:
        return False
    low = 100 * measured.late / measured.requests
    high = 100 * measured.late_at_most / measured.requests
    modelled = 100 * measured.modelled_late / measured.modelled_requests
    tolerance = LATE_TOLERANCE_POINTS + LATE_TOLERANCE_SHARE * (low + high) / 2
    return low - tolerance <= modelled <= high + tolerance


def p95_agrees(modelled_ms: float, low_ms: float, high_ms: float, finest_ms: float = 0.0) -> bool:
    """`low_ms` to `high_ms` is the bucket of the measured percentile; the last bucket has no upper end.

    `finest_ms` is the first bound of the model's own histogram: what is modelled below it may be anything from 0 on.
    """
    least_ms = modelled_ms if modelled_ms > finest_ms else 0.0
    return math.isfinite(modelled_ms) and low_ms / P95_FACTOR <= modelled_ms and least_ms <= high_ms * P95_FACTOR


def cost_regret(day: EvidenceDay) -> float:
    """%; below 0 the policy is cheaper."""
    return 100 * (day.cost / day.other_cost - 1)


def late_regret(day: EvidenceDay) -> float:
    """Percentage points of the requests; below 0 the policy is less late."""
    return 100 * (day.late - day.other_late) / day.requests if day.requests > 0 else 0.0


def counting(days: Sequence[EvidenceDay], today: str) -> list[EvidenceDay]:
    """The days that are over, whole and calibrated."""
    return [day for day in days if day.date < today and is_whole(day) and is_calibrated(day)]


def compare(days: Sequence[EvidenceDay]) -> Compared:
    """Confidence sequences over `days`, all of which count."""
    return Compared(
        len(days),
        interval([cost_regret(day) for day in days], ALPHA / 2, COST_RESOLUTION),
        interval([late_regret(day) for day in days], ALPHA / 2, LATE_RESOLUTION),
    )


def to_regret(compared: Compared) -> Regret | None:
    """The comparison as the status shows it; None before the first day."""
    if not compared.days:
        return None
    return Regret(cost_percent=_rounded(compared.cost), late_points=_rounded(compared.late))


def _rounded(found: ConfidenceInterval) -> RegretInterval:
    low, high = (round(bound, 3) if math.isfinite(bound) else None for bound in (found.low, found.high))
    return RegretInterval(mean=round(found.mean, 3), low=low, high=high)
