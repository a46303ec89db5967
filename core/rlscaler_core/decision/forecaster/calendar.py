"""Minutes at which the load jumps: hazard and height by minute of the hour, minute of the day and day of the week.

Every minute is one trial. A minute's hazard is shrunk to that of its minute of the hour, and that one to the hazard of
all minutes, so that a minute counts once it has jumped twice, and a service that never jumps announces nothing.
Announced jumps are graded by the jumps that came (`grade_*`), and corrected. The clock is that of UTC: a clock change
moves local jobs by an hour, after which minutes of the day are learned again, while minutes of the hour stay true.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.memory import GRADES, MINUTES_OF_DAY, Calendar
from rlscaler_core.decision.types import Float, Float32

Rows = NDArray[np.intp]

HOUR_KEPT = 0.5 ** (1 / (7 * 24))
"""Factor on earlier visits of a minute of the hour at every visit: half is forgotten after a week."""

DAY_KEPT = 0.5 ** (1 / 10)
"""The same of a minute of the day: half after ten days."""

ALL_KEPT = 0.5 ** (1 / (10 * 1440))
HOUR_PRIOR, DAY_PRIOR, WEEK_PRIOR, HEIGHT_PRIOR, GRADE_PRIOR = 3.0, 1.0, 6.0, 2.0, 4.0
"""Visits, jumps or minutes that the next coarser estimate counts for."""

LEAST_HAZARD = 1e-5
UNCERTAIN_HEIGHT = 0.35
"""Standard deviation of log heights before enough of them were seen."""

GRADE_BOUNDS = np.array([0.003, 0.02, 0.08, 0.25, 0.5])


class Moment:
    """The place (N,) of a time in the calendar."""

    def __init__(self, seconds: Float) -> None:
        """`seconds` (N,) since the Unix epoch; NaN counts as 0."""
        minutes = np.floor(np.where(np.isfinite(seconds), seconds, 0.0) / 60).astype(np.int64)
        self.minute = minutes % MINUTES_OF_DAY
        self.of_hour = self.minute % 60
        self.hour = self.minute // 60
        self.part = self.minute // 15
        self.weekday = (minutes // MINUTES_OF_DAY + 4) % 7


def hazard(calendar: Calendar, moment: Moment) -> Float:
    """Return the probability (N,) of a jump in the minute of `moment`, as counted, before correction by the grades."""
    rows = np.arange(len(moment.minute))
    whole = (calendar.jumps + 0.01) / (calendar.seen_minutes + 1440.0)
    hour = calendar.hour_jumps[rows, moment.of_hour] + HOUR_PRIOR * whole
    hour = hour / (calendar.hour_seen[rows, moment.of_hour] + HOUR_PRIOR)
    day = calendar.day_jumps[rows, moment.minute] + DAY_PRIOR * hour
    day = day / (calendar.day_seen[rows, moment.hour] + DAY_PRIOR)
    expected = calendar.week_seen[rows, moment.weekday] * calendar.jumps / np.maximum(calendar.seen_minutes, 1.0)
    week = (calendar.week_jumps[rows, moment.weekday] + WEEK_PRIOR) / (expected + WEEK_PRIOR)
    return np.clip(day * week, LEAST_HAZARD, 0.99).astype(np.float64)


def corrected(calendar: Calendar, announced: Float) -> Float:
    """Return the hazards `announced` (N,), corrected by the share of jumps that came on this service, (N,)."""
    rows, grade = np.arange(len(announced)), np.searchsorted(GRADE_BOUNDS, announced)
    seen, expected = calendar.grade_seen[rows, grade], calendar.grade_announced[rows, grade]
    factor = (calendar.grade_jumps[rows, grade] + GRADE_PRIOR * announced) / (expected + GRADE_PRIOR * announced)
    return np.asarray(np.where(seen > 0, np.minimum(announced * factor, 0.99), announced), np.float64)


def height_quantile(calendar: Calendar, moment: Moment, score: Float) -> Float:
    """Return log heights (N,) of a jump at `moment`, `score` (N,) standard deviations above its mean."""
    rows = np.arange(len(score))
    measured = calendar.measured
    mean = calendar.height / np.maximum(measured, 1e-6)
    square = calendar.height_square / np.maximum(measured, 1e-6)
    here = calendar.part_measured[rows, moment.part]
    local = (calendar.part_height[rows, moment.part] + HEIGHT_PRIOR * mean) / (here + HEIGHT_PRIOR)
    spread = (np.maximum(square - mean**2, 0) * measured + 2 * UNCERTAIN_HEIGHT**2) / (measured + 2)
    return np.asarray(np.maximum(local + score * np.sqrt(spread), 0), np.float64)


def begin_minute(calendar: Calendar, rows: Rows, moment: Moment) -> None:
    """Count a visit in place in the `rows` (M,), of whose `moment` a new minute begins; forget a little."""
    picked = Calendar(*[part[rows] for part in calendar])
    announced = hazard(picked, moment)
    for name in ("seen_minutes", "jumps", "measured", "height", "height_square"):
        getattr(calendar, name)[rows] *= np.float32(ALL_KEPT)
    calendar.seen_minutes[rows] += 1
    for jumps, seen, place, factor in (
        (calendar.hour_jumps, calendar.hour_seen, moment.of_hour, HOUR_KEPT),
        (calendar.week_jumps, calendar.week_seen, moment.weekday, ALL_KEPT**2),
    ):
        jumps[rows, place] *= np.float32(factor)
        seen[rows, place] = seen[rows, place] * np.float32(factor) + 1
    calendar.day_jumps[rows, moment.minute] *= np.float32(DAY_KEPT)
    calendar.day_seen[rows, moment.hour] = calendar.day_seen[rows, moment.hour] * np.float32(DAY_KEPT ** (1 / 60)) + (
        np.float32(1 / 60)
    )
    for table in (calendar.part_measured, calendar.part_height):
        table[rows, moment.part] *= np.float32(DAY_KEPT ** (1 / 15))
    grade = np.searchsorted(GRADE_BOUNDS, announced)
    for table in (calendar.grade_jumps, calendar.grade_seen, calendar.grade_announced):
        table[rows, grade] *= np.float32(HOUR_KEPT)
    calendar.grade_seen[rows, grade] += 1
    calendar.grade_announced[rows, grade] += announced.astype(np.float32)
    calendar.announced[rows] = announced


def count_jump(calendar: Calendar, rows: Rows, moment: Moment) -> None:
    """Count a jump in place in the `rows` (M,), in the minute of `moment`."""
    for table, place in (
        (calendar.hour_jumps, moment.of_hour),
        (calendar.day_jumps, moment.minute),
        (calendar.week_jumps, moment.weekday),
    ):
        table[rows, place] += 1
    calendar.jumps[rows] += 1
    grade = np.searchsorted(GRADE_BOUNDS, calendar.announced[rows])
    calendar.grade_jumps[rows, np.minimum(grade, GRADES - 1)] += 1


def measure_jump(calendar: Calendar, rows: Rows, moment: Moment, height: Float32) -> None:
    """Count the log heights (M,) in place of jumps that began at `moment` in the `rows` (M,)."""
    calendar.measured[rows] += 1
    calendar.height[rows] += height
    calendar.height_square[rows] += height**2
    calendar.part_measured[rows, moment.part] += 1
    calendar.part_height[rows, moment.part] += height
