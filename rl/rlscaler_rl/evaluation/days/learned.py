"""Memory of a service at the begin of a day: the days before it, as the sensors would have measured them.

The forecaster gets a sample at every sensing tick. No capacity is simulated, since arrivals do not depend on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import nothing_learned, recent_of
from rlscaler_core.decision.forecaster.rises import judge_anew
from rlscaler_core.decision.tables import initial_state
from rlscaler_core.decision.types import RATE_HISTORY, Float, Float32, Params
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.processes import cores, side_by_side
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Past
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios

WINDOW, DELAY = int(NOMINAL["arrival_window"]), 2
HISTORY_DAYS = 10
"""Days before a played one that the forecaster gets; it forgets older ones anyway."""

BUDGET = ("counted_requests", "counted_late", "counted_time", "counted_slo_ms", "price_factor")
"""Columns of `State` and of `Past` that are about the error budget."""

FEWEST_ROWS = 16
"""Fewest rows of a process: a tick of so many takes hardly longer than a tick of one."""

DayKey = tuple[int, int, int, int]
"""A load, the number of its day, and the seconds between two scrapes and of the rate window that it was measured by."""


def past_of(chosen: Sequence[tuple[ServiceLoad, int]], days: Scenarios, history_days: int = HISTORY_DAYS) -> Past:
    """Return the memory of every row (N) of `chosen`, (load, day), after up to `history_days` days before its own.

    `days` are the scenarios of those rows; the days before were measured by the same sensors.
    """
    n, length = len(chosen), chosen[0][0].length
    shown = np.array([min(number, history_days) for _, number in chosen])
    epoch = np.array([load.epoch(number) for load, number in chosen], np.float64)
    sensed: dict[DayKey, Float] = {}
    before: list[list[Float]] = []
    for (load, number), count, scrape, window in zip(chosen, shown, days.scrape, days.arrival_window, strict=True):
        keys = [(id(load), number - back, int(scrape), int(window)) for back in range(int(count), 0, -1)]
        for key in keys:
            if key not in sensed:
                sensed[key] = sensed_day(load, key[1], *key[2:])
        before.append([sensed[key] for key in keys])
    taken = taken_at(length, days.scrape)
    params = days.params()
    groups = np.array_split(np.argsort(-shown, kind="stable"), min(cores(), max(n // FEWEST_ROWS, 1)))
    jobs = [(params.take(rows), epoch[rows], length, taken[rows], [before[int(i)] for i in rows]) for rows in groups]
    recent, calendar = nothing_learned(n)
    for rows, learned in zip(groups, side_by_side(_learned, jobs, float(length * shown.max())), strict=True):
        recent[rows], calendar[rows] = learned
    judge_anew(recent_of(recent))
    times, values = np.full((n, RATE_HISTORY), np.nan), np.full((n, RATE_HISTORY), np.nan)
    for row in np.flatnonzero(shown):
        yesterday = before[row][-1]
        known = np.flatnonzero(np.isfinite(yesterday))[-RATE_HISTORY:]
        times[row, RATE_HISTORY - len(known) :] = epoch[row] + (taken[row, known] - length)
        values[row, RATE_HISTORY - len(known) :] = yesterday[known]
    nothing = initial_state(n, 1, 1, forecaster=False)
    return Past(epoch, times, values, recent, calendar, **{name: getattr(nothing, name) for name in BUDGET})


def _learned(
    params: Params, epoch: Float, length: int, taken: Float, before: Sequence[Sequence[Float]]
) -> tuple[Float32, Float32]:
    """Return both rows of memory of N services, each after its own days `before`, the oldest first, one rate a tick.

    `epoch` (N,) are the Unix seconds at which those days are over, and `taken` (N, ticks) is of `taken_at`.
    """
    recent, calendar = nothing_learned(len(before))
    shown = np.array([len(days) for days in before])
    for back in range(int(shown.max(initial=0)), 0, -1):
        rows = np.flatnonzero(shown >= back)
        sensed = np.stack([before[int(i)][-back] for i in rows])
        own, memory, table = params.take(rows), recent[rows], calendar[rows]
        fresh, since = np.isfinite(sensed), epoch[rows] - back * length
        for tick in range(sensed.shape[1]):
            if fresh[:, tick].any():
                memory, table = learn(
                    own, memory, table, since + taken[rows, tick], np.nan_to_num(sensed[:, tick]), fresh[:, tick]
                )
        recent[rows], calendar[rows] = memory, table
    return recent, calendar


def seed_of(load: ServiceLoad, number: int, seed: int) -> int:
    """Return the seed that the arrivals of a day are drawn with."""
    return zlib.crc32(f"{load.name} {number} {seed}".encode())


def taken_at(length: int, scrape: Float) -> Float:
    """Return the second of a day (N, ticks) of each sensing tick's newest sample.

    `scrape` (N,) are the seconds between two scrapes; where they are fewer than those between two ticks, every tick has
    a sample of `DELAY` seconds before it.
    """
    ticks = np.arange(0, length, SENSE_SECONDS, dtype=np.float64)[None] - DELAY
    grid = np.where(scrape > SENSE_SECONDS, scrape, 1.0)[:, None]
    return np.asarray(np.floor(ticks / grid) * grid, np.float64)


def sensed_day(
    load: ServiceLoad, number: int, scrape: int = int(NOMINAL["scrape"]), window: int = WINDOW
) -> NDArray[np.float64]:
    """Return the measured rates of a day, requests/s, one for each sensing tick; NaN where there is no new sample."""
    rate = load.day(number)
    arrivals = np.random.default_rng(seed_of(load, number, 0)).poisson(rate)
    earlier = window + DELAY + scrape
    total = np.concatenate([np.zeros(earlier), np.cumsum(arrivals)])
    total[:earlier] = -rate[0] * np.arange(earlier, 0, -1)
    taken = taken_at(len(rate), np.array([float(scrape)]))[0].astype(np.int64)
    ends = taken + earlier
    sensed = (total[ends] - total[ends - window]) / window
    return np.asarray(np.where(np.diff(taken, prepend=taken[0] - 1) > 0, sensed, np.nan), np.float64)
