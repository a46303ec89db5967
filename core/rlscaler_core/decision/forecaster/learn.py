"""Learning from one more arrival rate: a sensing tick of the forecaster.

Bad history teaches nothing rather than something wrong. After a gap, or a step of the clock, the open forecasts are
dropped, since it is not known how high the load rose meanwhile, and no jump is seen across it. A service without
requests is not looked at: a month of zeros leaves its memory as it was. A load that changes for good is followed at
the pace at which the past is forgotten.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.forecaster import calendar as jumps
from rlscaler_core.decision.forecaster import rises, season
from rlscaler_core.decision.forecaster.calendar import Moment
from rlscaler_core.decision.forecaster.memory import MINUTES_OF_DAY, PENDING, Calendar, Recent, calendar_of, recent_of
from rlscaler_core.decision.types import Bool, Float, Float32, Params

GAP_SECONDS = 90.0
"""Time without a sample after which the load meanwhile counts as unknown."""

STEP_SECONDS = 1.0
"""A sample older than the newest one by more than this shows a clock that was set back: the load meanwhile counts as
unknown. Less is the rounding of the memory and the difference between two processes' clocks."""

HIGHEST_RATE = 1e12
"""Requests/s above which nothing is learned: no service gets as many, and a float32 overflows not far beyond."""

FAST_SECONDS, SLOW_SECONDS, PEAK_SECONDS, DAY_SECONDS, LONG_SECONDS = 10.0, 60.0, 600.0, 86400.0, 900.0
_PACES = -1 / np.array([FAST_SECONDS, SLOW_SECONDS, PEAK_SECONDS, DAY_SECONDS, LONG_SECONDS], np.float32)

IDLE_RATE = 0.05
"""Requests/s below which nothing is learned."""

JUMP_RATIO = 1.5
"""A jump is a rate above so many times the mean of the last minute, and beyond chance."""

CHANCE = 4.0
"""Standard deviations of a Poisson count over `FAST_SECONDS` that chance explains."""

MEASURED_SECONDS = 60.0
"""The height of a jump is the highest rate of so many seconds from its begin."""

RECOVERY_SECONDS = 120.0
"""Time after a jump before another one is seen."""

NEAR_SECONDS = 10.0
"""A window of the load up to which its age counts for nothing."""

NEW_HORIZON = 0.2
"""Relative change of a horizon above which the learned rises answer another question and are judged anew."""


def horizons(params: Params) -> Float:
    """Return the seconds (N, 2) from the known load until capacity ordered now can be replaced; 0 for an absent pool.

    Capacity ordered now has to do for a cold start and an interval. The known load is the mean of a window, so it is
    half a window old; the forecast's caution was fitted where that window was `NEAR_SECONDS`.
    """
    since = params.interval_seconds + np.maximum(params.window_seconds - NEAR_SECONDS, 0.0) / 2
    return np.where(params.present, params.cold_start_seconds + since[:, None], 0.0)


def learn(
    params: Params, recent: Float32, calendar: Float32, taken: Float, rate: Float, fresh: Bool
) -> tuple[Float32, Float32]:
    """Return both rows of memory after the rates (N,) that were `taken` (N,) at these Unix seconds, where `fresh` (N,).

    No argument is changed; `calendar` itself comes back where no minute began and nothing jumped.
    """
    recent = recent.copy()
    memory = recent_of(recent)
    with np.errstate(invalid="ignore", over="ignore"):
        elapsed = _elapsed(memory, taken)
        fresh = fresh & (rate <= HIGHEST_RATE)
        known = fresh & ((rate > IDLE_RATE) | (memory.slow > IDLE_RATE))
        # An average moved over a negative time would leave the rate behind, by e to the power of the step.
        gap = known & ~((elapsed >= -STEP_SECONDS) & (elapsed <= GAP_SECONDS))
        if gap.any():
            _begin_again(memory, gap, rate)
        _new_horizons(memory, horizons(params), fresh)
        passed: Float32 = np.where(gap, 0.0, elapsed).astype(np.float32)
        measured: Float32 = rate.astype(np.float32)
        rises.watch(memory, measured, passed, known)
        calendar = _follow_calendar(memory, calendar, taken, measured, passed, known, gap)
        _average(memory, measured, passed, known)
        day = np.floor(taken / 86400)
        _set(memory.day, fresh, day)
        _set(memory.second, fresh, taken - 86400 * day)
        spacing = memory.horizon / PENDING
        due = known[:, None] & (memory.horizon > 0) & (memory.issued >= spacing)
        if due.any():
            rises.make_forecasts(memory, due)
    return recent, calendar


def _elapsed(memory: Recent, taken: Float) -> Float:
    """Return the seconds (N,) since the newest sample; NaN where there was none."""
    return (taken - 86400 * memory.day.astype(np.float64)) - memory.second


def _begin_again(memory: Recent, rows: Bool, rate: Float) -> None:
    """Take the rate (N,) for the level in place: the `rows` (N,) were not seen for a while, or never."""
    for part in (memory.fast, memory.slow, memory.peak, memory.long):
        part[rows] = rate[rows]
    rises.forget_open(memory, rows)
    memory.issued[rows] = np.inf
    memory.jump_age[rows] = np.nan
    memory.jump_open[rows] = 0
    memory.slot_sum[rows] = memory.slot_count[rows] = 0


def _new_horizons(memory: Recent, horizon: Float, fresh: Bool) -> None:
    changed = fresh[:, None] & (np.abs(horizon - memory.horizon) > NEW_HORIZON * np.maximum(memory.horizon, 1.0))
    if changed.any():
        rises.new_horizon(memory, changed, horizon.astype(np.float32))


def _average(memory: Recent, rate: Float32, elapsed: Float32, known: Bool) -> None:
    """Move the averages and the sinking peak in place."""
    left = np.exp(elapsed[:, None] * _PACES)
    fast, slow = rate + left[:, 0] * (memory.fast - rate), rate + left[:, 1] * (memory.slow - rate)
    _set(memory.long, known, rate + left[:, 4] * (memory.long - rate))
    _set(memory.fast, known, fast)
    _set(memory.slow, known, slow)
    _set(memory.peak, known, np.maximum(rate, memory.slow + (memory.peak - memory.slow) * left[:, 2]))
    weight = 1 - left[:, 3] * (1 - memory.mean_weight)
    share = (weight - memory.mean_weight * left[:, 3]) / np.maximum(weight, np.float32(1e-9))
    _set(memory.mean, known, memory.mean + np.where(weight > 0, share, 1) * (rate - memory.mean))
    _set(memory.mean_weight, known, weight)
    _set(memory.slot_sum, known, memory.slot_sum + rises.log_rate(rate))
    _set(memory.slot_count, known, memory.slot_count + 1)


def _set(part: Float32, where: Bool, value: Float32 | Float) -> None:
    """Write `value` (N,) to a part in place where (N,) that is asked for."""
    np.copyto(part, value, where=where, casting="same_kind")


def _follow_calendar(
    memory: Recent, row: Float32, taken: Float, rate: Float32, elapsed: Float32, known: Bool, gap: Bool
) -> Float32:
    """Return the calendar after these samples; `memory` changes in place. Called before the averages move."""
    chance = CHANCE * np.sqrt(np.maximum(memory.slow, IDLE_RATE) / np.float32(FAST_SECONDS))
    high = known & ~gap & (rate > JUMP_RATIO * memory.slow + chance)
    _set(memory.jump_age, known, memory.jump_age + elapsed)
    began = high & ~(memory.jump_age <= RECOVERY_SECONDS)
    _set(memory.jump_highest, known, np.maximum(memory.jump_highest, rate))
    closed = known & (memory.jump_open > 0) & (memory.jump_age >= MEASURED_SECONDS)
    turned = known & (np.floor(taken / 60) % MINUTES_OF_DAY != memory.minute)
    if not (turned.any() or began.any() or closed.any()):
        return row
    row = row.copy()
    calendar = calendar_of(row)
    if closed.any():
        _measure(memory, calendar, taken, closed)
    if turned.any():
        _turn(memory, calendar, taken, turned)
    if began.any():
        rows = np.flatnonzero(began)
        jumps.count_jump(calendar, rows, Moment(taken[rows]))
        memory.jump_age[rows] = 0
        memory.jump_level[rows] = memory.slow[rows]
        memory.jump_highest[rows] = rate[rows]
        memory.jump_open[rows] = 1
    return row


def _measure(memory: Recent, calendar: Calendar, taken: Float, closed: Bool) -> None:
    rows = np.flatnonzero(closed)
    height = rises.log_rate(memory.jump_highest[rows]) - rises.log_rate(memory.jump_level[rows])
    jumps.measure_jump(calendar, rows, Moment(taken[rows] - memory.jump_age[rows]), height)
    memory.jump_open[rows] = 0


def _turn(memory: Recent, calendar: Calendar, taken: Float, turned: Bool) -> None:
    """Begin another minute in place, and another slot of the day where one is over."""
    rows = np.flatnonzero(turned)
    moment = Moment(taken[rows])
    minutes = season.SLOT_SECONDS // 60
    running = memory.minute[rows]
    valid = (running >= 0) & (running < MINUTES_OF_DAY)  # a damaged memory may hold anything
    former = np.where(valid, running, 0).astype(np.int64) // minutes
    over = (moment.minute // minutes != former) & valid
    ended = rows[over]
    counted = memory.slot_count[ended] > 0
    if counted.any():
        some = ended[counted]
        season.end_slot(calendar, some, former[over][counted], memory.slot_sum[some] / memory.slot_count[some])
    memory.slot_sum[ended] = memory.slot_count[ended] = 0
    jumps.begin_minute(calendar, rows, moment)
    memory.minute[rows] = moment.minute
