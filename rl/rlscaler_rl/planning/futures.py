"""Futures of a load as its own past suggests them: what came after moments of the past that were like this one.

A moment is known by its trend, by the peak of late, by its level and by the time of day. What came after it, relative
to the rate at that moment, is played on from the rate of now: an ensemble of analogues (Delle Monache and others,
"Probabilistic weather prediction with an analog ensemble", 2013), which is the empirical distribution of relative
changes given the situation. Jumps at minutes that have jumped before come from the forecaster's calendar. Nothing but
measured rates is looked at, so nothing of the future can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster import calendar as jumps
from rlscaler_core.decision.forecaster.calendar import Moment
from rlscaler_core.decision.forecaster.memory import calendar_of
from rlscaler_core.decision.forecaster.outlook import LEAST_JUMPS
from rlscaler_core.decision.forecaster.rises import EPSILON
from rlscaler_core.decision.types import RATE_HISTORY
from rlscaler_rl.simulation.batch import SENSE_SECONDS

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]

MOMENTS = 20_000
"""Most moments of the past that are compared, drawn at random: neighbouring ones say nearly the same."""

LAG_TICKS = 2
"""Ticks after a moment until requests that came just after it are in the middle of the rate window."""

MINUTE_TICKS, PEAK_TICKS = 12, 36
"""Ticks of the means and of the peak that a moment is known by."""

DAY_SECONDS = 86_400

WEIGHTS = np.array([2.0, 1.0, 1.0, 1.0, 0.5, 0.5], np.float32)
"""What a difference of one standard deviation counts for in each number that a moment is known by."""


def situation(recent: Float, seconds: Float) -> Float32:
    """Give what moments are known by (M, 6), from the rates (M, RATE_HISTORY) until each and its time (M,) of day in
    seconds: the rate now, the peak and the longer mean against that of the last minute, the level, the time of day.
    """
    logs = np.log(np.maximum(recent, 0.0) + EPSILON)
    minute = logs[:, -MINUTE_TICKS:].mean(axis=1)
    turn = 2 * np.pi * seconds / DAY_SECONDS
    return np.stack(
        [
            logs[:, -1] - minute,
            logs[:, -PEAK_TICKS:].max(axis=1) - minute,
            logs.mean(axis=1) - minute,
            minute,
            np.sin(turn),
            np.cos(turn),
        ],
        axis=1,
    ).astype(np.float32)


@dataclass(frozen=True, slots=True)
class KnownPast:
    """The moments of one service's past, M of them, and what came after each in K stages of a sensing tick."""

    situations: Float32  # (M, 6) each number multiplied by what a difference in it counts for
    scale: Float32  # (6,) what they were multiplied by
    after: Float32  # (M, K) requests/s of every stage over those at the moment

    @classmethod
    def of(cls, history: Float, stages: int, rng: np.random.Generator) -> KnownPast:
        """Take in the rates (T,) in requests/s that were measured at every sensing tick until the day begins.

        Raises ValueError for a history too short to hold `RATE_HISTORY` moments.
        """
        last = len(history) - LAG_TICKS - stages
        if last < 2 * RATE_HISTORY:
            least = (2 * RATE_HISTORY + LAG_TICKS + stages) * SENSE_SECONDS / 60
            raise ValueError(f"history: {len(history)} ticks; at least {least:.0f} minutes before the day are needed")
        ends = np.arange(RATE_HISTORY - 1, last)
        if len(ends) > MOMENTS:
            ends = np.sort(rng.choice(ends, MOMENTS, replace=False))
        known = np.lib.stride_tricks.sliding_window_view(history, RATE_HISTORY)[ends - RATE_HISTORY + 1]
        coming = np.lib.stride_tricks.sliding_window_view(history, stages)[ends + LAG_TICKS]
        found = situation(known, SENSE_SECONDS * (ends + 1 - len(history)).astype(np.float64))
        scale = WEIGHTS / np.maximum(found.std(axis=0), 1e-3)
        after = (coming + EPSILON) / (history[ends, None] + EPSILON)
        return cls(found * scale, scale, after.astype(np.float32))

    def futures(self, recent: Float, seconds: float, count: int) -> Float:
        """Give `count` futures (S, K) in requests/s of a load whose rates until now are `recent` (RATE_HISTORY,).

        `seconds` are those since the day began. There are at most as many as there are moments.
        """
        here = situation(recent[None], np.array([seconds]))[0] * self.scale
        apart = ((self.situations - here) ** 2).sum(axis=1)
        count = min(count, len(apart))
        nearest = np.argpartition(apart, count - 1)[:count]
        return np.maximum((recent[-1] + EPSILON) * self.after[nearest] - EPSILON, 0.0).astype(np.float64)


def coming_jumps(calendar_row: Float32, now: float, count: int, stages: int, rng: np.random.Generator) -> Float:
    """Draw factors (S, K) on the rates of K stages from `now`, in Unix seconds, by which a load jumps in S futures.

    `calendar_row` (1, CALENDAR_SIZE) is the forecaster's. A jump begins with a minute, comes as likely as the calendar
    says and is as high, and stays until the last stage. The running minute is left out: nothing that is ordered now
    would be ready for its begin.
    """
    calendar = calendar_of(calendar_row)
    rise = np.zeros((count, stages))
    if calendar.jumps[0] < LEAST_JUMPS:
        return np.exp(rise)
    middles = now + SENSE_SECONDS * (np.arange(stages) + 0.5)
    for ahead in range(1, int(np.ceil(stages * SENSE_SECONDS / 60)) + 1):
        begin = 60 * (np.floor(now / 60) + ahead)
        moment = Moment(np.array([begin]))
        chance = jumps.corrected(calendar, jumps.hazard(calendar, moment))
        usual, high = (jumps.height_quantile(calendar, moment, np.array([score])) for score in (0.0, 1.0))
        comes = rng.random(count) < chance
        height = np.maximum(usual + (high - usual) * rng.standard_normal(count), 0.0)
        rise = np.maximum(rise, (comes * height)[:, None] * (middles >= begin))
    return np.exp(rise)
