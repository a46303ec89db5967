"""The level by time of day: yesterday's change from now to a horizon ahead, used where it was right before.

It earns its place on every service by itself: the error of "as yesterday" is counted beside that of "as now", and it
stays out until it is the smaller one. Over a cold start of a minute it hardly ever is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.memory import SLOTS_OF_DAY, Calendar
from rlscaler_core.decision.types import Float, Float32

Rows = NDArray[np.intp]

SLOT_SECONDS = 86400 // SLOTS_OF_DAY
NEWEST = 0.3
"""Weight of the newest day in the level by time of day."""

KEPT = 1 - 1 / 432
"""Slots after which an older error counts for 1/e: three days."""

LEAST_JUDGED = 72.0
"""Errors, of half a day, without which it stays out."""

NEEDED = 0.9
"""It is used where its error is below this times that of persistence."""

SHORTEST_HORIZON = 150.0
"""Seconds below which the errors, which are of changes over ten minutes, say nothing."""

MOST_CHANGE = 1.0
"""A change by more than this, in logarithms, is no season but another load."""


def change_ahead(calendar: Calendar, seconds: Float, horizon: Float) -> Float:
    """Return the log change (N,) of the level in `horizon` (N,) seconds after `seconds` (N,); 0 where unused."""
    earned = (calendar.level_judged >= LEAST_JUDGED) & (
        calendar.level_error[:, 1] < NEEDED * calendar.level_error[:, 0]
    )
    change = _level(calendar, seconds + horizon) - _level(calendar, seconds)
    usable = earned & np.isfinite(change) & (horizon >= SHORTEST_HORIZON)
    return np.where(usable, np.clip(np.nan_to_num(change), -MOST_CHANGE, MOST_CHANGE), 0.0)


def _level(calendar: Calendar, seconds: Float) -> Float:
    """Return the log level (N,) at `seconds` (N,), between the middles of two slots."""
    rows = np.arange(len(seconds))
    place = np.nan_to_num(seconds) % 86400 / SLOT_SECONDS - 0.5
    first = np.floor(place).astype(np.int64)
    part = place - first
    low, high = calendar.level[rows, first % SLOTS_OF_DAY], calendar.level[rows, (first + 1) % SLOTS_OF_DAY]
    return np.asarray(low + part * (high - low), np.float64)


def end_slot(calendar: Calendar, rows: Rows, slot: NDArray[np.int64], level: Float32) -> None:
    """Take in place the mean log rate (M,) of the `slot` (M,) that has just ended in the `rows` (M,).

    Where the slot before was seen too, both forecasts of the change between them are judged.
    """
    known, before = calendar.level[rows, slot], calendar.slot_before[rows]
    change = level - before[:, 0]
    yesterday = known - before[:, 1]
    judged = (before[:, 2] == (slot - 1) % SLOTS_OF_DAY) & np.isfinite(change) & np.isfinite(yesterday)
    errors = np.nan_to_num(np.stack([np.abs(change), np.abs(change - yesterday)], axis=1))
    count = np.where(judged, calendar.level_judged[rows] * np.float32(KEPT) + 1, calendar.level_judged[rows])
    step = (judged / np.maximum(count, 1))[:, None]
    calendar.level_error[rows] += (step * (errors - calendar.level_error[rows])).astype(np.float32)
    calendar.level_judged[rows] = count
    calendar.slot_before[rows] = np.stack([level, known, slot.astype(np.float32)], axis=1)
    calendar.level[rows, slot] = np.where(np.isnan(known), level, known + np.float32(NEWEST) * (level - known))
