"""Taking in one more arrival rate: what is forecast, counted and forgotten at a sensing tick.

Bad history teaches nothing rather than something wrong. After a gap the open forecasts are dropped, since it is not
known how high the load rose meanwhile, and no jump is seen across it. A service that gets nothing is not looked at: a
month of zeros leaves what was known as it was. A load that changes for good is followed at the pace at which the past
is forgotten.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.forecaster import calendar as jumps
from rlscaler_core.decision.forecaster import rises, season
from rlscaler_core.decision.forecaster.calendar import Moment
from rlscaler_core.decision.forecaster.memory import MINUTES_OF_DAY, PENDING, Calendar, Recent, calendar_of, recent_of
from rlscaler_core.decision.types import Bool, Float, Float32, Params

GAP_SECONDS = 90.0
"""Time without a sample after which what happened meanwhile is not known."""

FAST_SECONDS, SLOW_SECONDS, PEAK_SECONDS, DAY_SECONDS, LONG_SECONDS = 10.0, 60.0, 600.0, 86400.0, 900.0
_PACES = -1 / np.array([FAST_SECONDS, SLOW_SECONDS, PEAK_SECONDS, DAY_SECONDS, LONG_SECONDS], np.float32)

IDLE_RATE = 0.05
"""Requests/s below which nothing is learned."""

JUMP_RATIO = 1.5
"""A jump is a rate above so many times the mean of the last minute, and beyond what chance explains."""

CHANCE = 4.0
"""Standard deviations of a Poisson count over `FAST_SECONDS` that chance explains."""

MEASURED_SECONDS = 60.0
"""The height of a jump is the highest rate of so many seconds from its begin."""

RECOVERY_SECONDS = 120.0
"""Time after a jump before another one is seen."""

NEAR_SECONDS = 10.0
"""A window of the load up to which its age counts for nothing."""

NEW_HORIZON = 0.2
"""Relative change of a horizon above which what was learned about rises is of another question."""


def horizons(params: Params) -> Float:
    """Give the seconds (N, 2) from the load that is known until what is ordered now is replaced; 0 for no pool.

    Capacity ordered now has to do for a cold start and an interval. The load that is known is the mean of a window,
    half of it ago; how cautious the forecast is was found out where that window was `NEAR_SECONDS`.
    """
    since = params.interval_seconds + np.maximum(params.window_seconds - NEAR_SECONDS, 0.0) / 2
    return np.where(params.present, params.cold_start_seconds + since[:, None], 0.0)


def learn(
    params: Params, recent: Float32, calendar: Float32, taken: Float, rate: Float, fresh: Bool
) -> tuple[Float32, Float32]:
    """Give both rows of memory after the rates (N,) that were `taken` (N,) at these Unix seconds, where `fresh` (N,).

    Nothing that is passed in is changed; `calendar` itself comes back where no minute began and nothing jumped.
    """
    recent = recent.copy()
    kept = recent_of(recent)
    with np.errstate(invalid="ignore", over="ignore"):
        elapsed = _elapsed(kept, taken)
        known = fresh & ((rate > IDLE_RATE) | (kept.slow > IDLE_RATE))
        gap = known & ~(elapsed <= GAP_SECONDS)
        if gap.any():
            _begin_again(kept, gap, rate)
        _new_horizons(kept, horizons(params), fresh)
        passed: Float32 = np.where(gap, 0.0, elapsed).astype(np.float32)
        measured: Float32 = rate.astype(np.float32)
        rises.watch(kept, measured, passed, known)
        calendar = _follow_calendar(kept, calendar, taken, measured, passed, known, gap)
        _average(kept, measured, passed, known)
        day = np.floor(taken / 86400)
        _set(kept.day, fresh, day)
        _set(kept.second, fresh, taken - 86400 * day)
        spacing = kept.horizon / PENDING
        due = known[:, None] & (kept.horizon > 0) & (kept.issued >= spacing)
        if due.any():
            rises.make_forecasts(kept, due)
    return recent, calendar


def _elapsed(kept: Recent, taken: Float) -> Float:
    """Give the seconds (N,) since the newest sample; NaN where there was none."""
    return (taken - 86400 * kept.day.astype(np.float64)) - kept.second


def _begin_again(kept: Recent, rows: Bool, rate: Float) -> None:
    """Take the rate (N,) for the level in place: the `rows` (N,) were not seen for a while, or never."""
    for part in (kept.fast, kept.slow, kept.peak, kept.long):
        part[rows] = rate[rows]
    rises.forget_open(kept, rows)
    kept.issued[rows] = np.inf
    kept.jump_age[rows] = np.nan
    kept.jump_open[rows] = 0
    kept.slot_sum[rows] = kept.slot_count[rows] = 0


def _new_horizons(kept: Recent, horizon: Float, fresh: Bool) -> None:
    changed = fresh[:, None] & (np.abs(horizon - kept.horizon) > NEW_HORIZON * np.maximum(kept.horizon, 1.0))
    if changed.any():
        rises.new_horizon(kept, changed, horizon.astype(np.float32))


def _average(kept: Recent, rate: Float32, elapsed: Float32, known: Bool) -> None:
    """Move the averages and the sinking peak in place."""
    left = np.exp(elapsed[:, None] * _PACES)
    fast, slow = rate + left[:, 0] * (kept.fast - rate), rate + left[:, 1] * (kept.slow - rate)
    _set(kept.long, known, rate + left[:, 4] * (kept.long - rate))
    _set(kept.fast, known, fast)
    _set(kept.slow, known, slow)
    _set(kept.peak, known, np.maximum(rate, kept.slow + (kept.peak - kept.slow) * left[:, 2]))
    weight = 1 - left[:, 3] * (1 - kept.mean_weight)
    share = (weight - kept.mean_weight * left[:, 3]) / np.maximum(weight, np.float32(1e-9))
    _set(kept.mean, known, kept.mean + np.where(weight > 0, share, 1) * (rate - kept.mean))
    _set(kept.mean_weight, known, weight)
    _set(kept.slot_sum, known, kept.slot_sum + rises.log_rate(rate))
    _set(kept.slot_count, known, kept.slot_count + 1)


def _set(part: Float32, where: Bool, value: Float32 | Float) -> None:
    """Write `value` (N,) to a part in place where (N,) that is asked for."""
    np.copyto(part, value, where=where, casting="same_kind")


def _follow_calendar(
    kept: Recent, row: Float32, taken: Float, rate: Float32, elapsed: Float32, known: Bool, gap: Bool
) -> Float32:
    """Give the calendar after these samples; `kept` changes in place. Called before the averages move."""
    chance = CHANCE * np.sqrt(np.maximum(kept.slow, IDLE_RATE) / np.float32(FAST_SECONDS))
    high = known & ~gap & (rate > JUMP_RATIO * kept.slow + chance)
    _set(kept.jump_age, known, kept.jump_age + elapsed)
    began = high & ~(kept.jump_age <= RECOVERY_SECONDS)
    _set(kept.jump_highest, known, np.maximum(kept.jump_highest, rate))
    closed = known & (kept.jump_open > 0) & (kept.jump_age >= MEASURED_SECONDS)
    turned = known & (np.floor(taken / 60) % MINUTES_OF_DAY != kept.minute)
    if not (turned.any() or began.any() or closed.any()):
        return row
    row = row.copy()
    calendar = calendar_of(row)
    if closed.any():
        _measure(kept, calendar, taken, closed)
    if turned.any():
        _turn(kept, calendar, taken, turned)
    if began.any():
        rows = np.flatnonzero(began)
        jumps.count_jump(calendar, rows, Moment(taken[rows]))
        kept.jump_age[rows] = 0
        kept.jump_level[rows] = kept.slow[rows]
        kept.jump_highest[rows] = rate[rows]
        kept.jump_open[rows] = 1
    return row


def _measure(kept: Recent, calendar: Calendar, taken: Float, closed: Bool) -> None:
    rows = np.flatnonzero(closed)
    height = rises.log_rate(kept.jump_highest[rows]) - rises.log_rate(kept.jump_level[rows])
    jumps.measure_jump(calendar, rows, Moment(taken[rows] - kept.jump_age[rows]), height)
    kept.jump_open[rows] = 0


def _turn(kept: Recent, calendar: Calendar, taken: Float, turned: Bool) -> None:
    """Begin another minute in place, and another slot of the day where one is over."""
    rows = np.flatnonzero(turned)
    moment = Moment(taken[rows])
    minutes = season.SLOT_SECONDS // 60
    running = kept.minute[rows]
    valid = (running >= 0) & (running < MINUTES_OF_DAY)  # a damaged memory may hold anything
    former = np.where(valid, running, 0).astype(np.int64) // minutes
    over = (moment.minute // minutes != former) & valid
    ended = rows[over]
    counted = kept.slot_count[ended] > 0
    if counted.any():
        some = ended[counted]
        season.end_slot(calendar, some, former[over][counted], kept.slot_sum[some] / kept.slot_count[some])
    kept.slot_sum[ended] = kept.slot_count[ended] = 0
    jumps.begin_minute(calendar, rows, moment)
    kept.minute[rows] = moment.minute
