"""Memory of the forecaster for one service: two rows of float32 numbers, and the names of their parts.

A part is a view: writing to it writes to the row. Times of day are kept as a day and a second, since float32 does not
hold seconds of the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float32

LEVELS = (0.5, 0.9, 0.99)
"""Quantiles whose coverage is counted, and recalibrated."""

PENDING = 4
"""Forecasts per pool that are open at a time: a new one is made every quarter of a horizon."""

CONTEXTS = 12
"""Situations that are told apart: three of the trend, two of the last peak, two of the load (`rises.context_of`)."""

BINS = 32
"""Bins of the distribution of rises."""

FEATURES = 4
"""Numbers that the expected rise is a line through (`regression.features_of`), the constant among them."""

MINUTES_OF_DAY, MINUTES_OF_HOUR, PARTS_OF_DAY, SLOTS_OF_DAY = 1440, 60, 96, 144
GRADES = 6
"""Classes of announced hazard whose truth is counted."""


class Recent(NamedTuple):
    """The part that changes with every sample; (N, ...) each."""

    day: Float32  # of the newest sample, days since the epoch; NaN = there was none
    second: Float32  # of that day
    fast: Float32  # requests/s, mean over some 10 s
    slow: Float32  # requests/s, mean over some minute
    peak: Float32  # requests/s, the highest of late, sinking towards `slow`
    long: Float32  # requests/s, mean over some quarter of an hour
    mean: Float32  # requests/s, mean over some day
    mean_weight: Float32  # 0-1, how much of that day was seen
    horizon: Float32  # (N, 2) seconds that the distributions below are for; 0 = none yet
    issued: Float32  # (N, 2) seconds since the youngest open forecast was made
    age: Float32  # (N, 2, PENDING) seconds since a forecast was made; NaN = no such forecast
    start: Float32  # (N, 2, PENDING) requests/s that it was made at
    context: Float32  # (N, 2, PENDING)
    features: Float32  # (N, 2, PENDING, FEATURES) what it was made from
    expected: Float32  # (N, 2, PENDING) logarithm of the rise that was expected in the mean
    highest: Float32  # (N, 2, PENDING) requests/s since then
    promised: Float32  # (N, 2, PENDING, LEVELS) logarithm of the rise that it was for
    products: Float32  # (N, 2, FEATURES, FEATURES) of the features with each other, summed and forgotten
    targets: Float32  # (N, 2, FEATURES) of the features with the rises that came, likewise
    slopes: Float32  # (N, 2, FEATURES) of the line through them
    rises: Float32  # (N, 2, CONTEXTS + 1, BINS) weights of what came above the line; the last row is over all contexts
    shift: Float32  # (N, 2, LEVELS) what is added to a quantile's logit to make it true
    missed: Float32  # (N, 2, LEVELS) forecasts that were exceeded, forgotten slowly
    judged: Float32  # (N, 2) forecasts in all, forgotten likewise
    jump_age: Float32  # seconds since the last jump began; NaN = long ago
    jump_level: Float32  # requests/s before it
    jump_highest: Float32  # requests/s in its first minute
    jump_open: Float32  # 1 while its height is not known yet
    minute: Float32  # minute of the day that is running; -1 = none
    slot_sum: Float32  # log rates of the running slot of the day, summed
    slot_count: Float32  # how many of them


class Calendar(NamedTuple):
    """The part that changes once a minute and at jumps; (N, ...) each."""

    announced: Float32  # hazard that was announced for the running minute
    seen_minutes: Float32  # minutes in all, forgotten as the next
    jumps: Float32  # jumps in all
    measured: Float32  # jumps whose height is known
    height: Float32  # sum of their log heights
    height_square: Float32  # sum of their squares
    hour_jumps: Float32  # (N, MINUTES_OF_HOUR)
    hour_seen: Float32  # (N, MINUTES_OF_HOUR)
    day_jumps: Float32  # (N, MINUTES_OF_DAY)
    day_seen: Float32  # (N, 24) visits of each of the hour's minutes
    week_jumps: Float32  # (N, 7)
    week_seen: Float32  # (N, 7) minutes
    part_measured: Float32  # (N, PARTS_OF_DAY) jumps whose height is known
    part_height: Float32  # (N, PARTS_OF_DAY) sum of log heights
    grade_jumps: Float32  # (N, GRADES)
    grade_seen: Float32  # (N, GRADES) minutes that were announced in this class
    grade_announced: Float32  # (N, GRADES) sum of their hazards
    level: Float32  # (N, SLOTS_OF_DAY) mean log rate by time of day; NaN = not seen
    slot_before: Float32  # (N, 3) log level of the slot before, what was known of it then, its number; NaN = none
    level_error: Float32  # (N, 2) mean absolute error of persistence, and of yesterday's change
    level_judged: Float32  # how many errors these are of


_RECENT: dict[str, tuple[int, ...]] = {
    "horizon": (2,),
    "issued": (2,),
    **dict.fromkeys(("age", "start", "context", "expected", "highest"), (2, PENDING)),
    "features": (2, PENDING, FEATURES),
    "products": (2, FEATURES, FEATURES),
    **dict.fromkeys(("targets", "slopes"), (2, FEATURES)),
    "promised": (2, PENDING, len(LEVELS)),
    "rises": (2, CONTEXTS + 1, BINS),
    "shift": (2, len(LEVELS)),
    "missed": (2, len(LEVELS)),
    "judged": (2,),
}
_CALENDAR: dict[str, tuple[int, ...]] = {
    "hour_jumps": (MINUTES_OF_HOUR,),
    "hour_seen": (MINUTES_OF_HOUR,),
    "day_jumps": (MINUTES_OF_DAY,),
    "day_seen": (24,),
    "week_jumps": (7,),
    "week_seen": (7,),
    "part_measured": (PARTS_OF_DAY,),
    "part_height": (PARTS_OF_DAY,),
    "grade_jumps": (GRADES,),
    "grade_seen": (GRADES,),
    "grade_announced": (GRADES,),
    "level": (SLOTS_OF_DAY,),
    "slot_before": (3,),
    "level_error": (2,),
}

NAN_AT_FIRST = ("day", "second", "age", "jump_age", "level", "slot_before")


def _places(names: Sequence[str], shapes: dict[str, tuple[int, ...]]) -> list[tuple[slice, tuple[int, ...]]]:
    places, begin = [], 0
    for name in names:
        shape = shapes.get(name, ())
        end = begin + prod(shape)
        places.append((slice(begin, end), shape))
        begin = end
    return places


_RECENT_PLACES = _places(Recent._fields, _RECENT)
_CALENDAR_PLACES = _places(Calendar._fields, _CALENDAR)
RECENT_SIZE = _RECENT_PLACES[-1][0].stop
CALENDAR_SIZE = _CALENDAR_PLACES[-1][0].stop


def recent_of(row: Float32) -> Recent:
    """Name the parts of (N, RECENT_SIZE) numbers."""
    return Recent(*_parts(row, _RECENT_PLACES))


def calendar_of(row: Float32) -> Calendar:
    """Name the parts of (N, CALENDAR_SIZE) numbers."""
    return Calendar(*_parts(row, _CALENDAR_PLACES))


def _parts(row: Float32, places: list[tuple[slice, tuple[int, ...]]]) -> list[Float32]:
    n = len(row)
    return [row[:, place].reshape(n, *shape) for place, shape in places]


@cache
def _nothing() -> tuple[Float32, Float32]:
    recent, calendar = np.zeros((1, RECENT_SIZE), np.float32), np.zeros((1, CALENDAR_SIZE), np.float32)
    parts = recent_of(recent)._asdict() | calendar_of(calendar)._asdict()
    for name in NAN_AT_FIRST:
        parts[name][...] = np.nan
    parts["minute"][...] = -1
    return recent, calendar


def nothing_learned(n: int) -> tuple[Float32, Float32]:
    """Return the memory of N services without any sample: (N, RECENT_SIZE) and (N, CALENDAR_SIZE)."""
    recent, calendar = _nothing()
    return np.repeat(recent, n, axis=0), np.repeat(calendar, n, axis=0)


LARGEST = 1e12
"""Largest magnitude of a number in a sound memory."""


def sound(recent: Float32, calendar: Float32) -> tuple[Float32, Float32]:
    """Return both rows with the value of `nothing_learned` for every number that learning never leaves behind.

    An earlier release, or a hand, may have stored an infinity: an average never comes back from it.
    """
    recent, calendar = (
        # A part that is NaN at first may stay so: it was not seen yet.
        np.where((np.abs(row) <= LARGEST) | (np.isnan(row) & np.isnan(fresh)), row, fresh)
        for row, fresh in zip((recent, calendar), nothing_learned(len(recent)), strict=True)
    )
    return recent, calendar


def is_kept(recent: NDArray[np.float32]) -> bool:
    """Return whether a state has room for a forecaster; training and comparisons may leave it out (0 columns)."""
    return bool(recent.shape[1] > 0)
