"""What a service has learned when a day begins: the days before it, as the sensors would have shown them.

The forecaster is fed at every sensing tick; no capacity is simulated, since what arrives does not depend on it.
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
from rlscaler_rl.evaluation.days.processes import cores, side_by_side
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Past
from rlscaler_rl.simulation.scenario import NOMINAL

WINDOW, DELAY = int(NOMINAL["window"]), 2
HISTORY_DAYS = 10
"""Days before a played one that are shown; what is older is forgotten anyway."""

BUDGET = ("counted_requests", "counted_late", "counted_time", "counted_slo_ms", "price_factor")
"""Columns of `State` and of `Past` that are about the error budget."""

FEWEST_ROWS = 16
"""Rows that a process gets at least: a tick of so many takes hardly longer than one of a single row."""

DayKey = tuple[int, int]
"""The place of a load among those of a batch, and the number of its day."""


def past_of(chosen: Sequence[tuple[ServiceLoad, int]], params: Params, history_days: int = HISTORY_DAYS) -> Past:
    """Show every row (N) of `chosen`, a load and a day of it, up to `history_days` days before its own."""
    n, length = len(chosen), chosen[0][0].length
    shown = np.array([min(number, history_days) for _, number in chosen])
    epoch = np.array([load.epoch(number) for load, number in chosen], np.float64)
    sensed: dict[DayKey, Float] = {}
    before: list[list[Float]] = []
    for (load, number), count in zip(chosen, shown, strict=True):
        keys = [(id(load), number - back) for back in range(int(count), 0, -1)]
        for key in keys:
            if key not in sensed:
                sensed[key] = sensed_day(load, key[1])
        before.append([sensed[key] for key in keys])
    groups = np.array_split(np.argsort(-shown, kind="stable"), min(cores(), max(n // FEWEST_ROWS, 1)))
    jobs = [(params.take(rows), epoch[rows], length, [before[int(i)] for i in rows]) for rows in groups]
    recent, calendar = nothing_learned(n)
    for rows, learned in zip(groups, side_by_side(_learned, jobs, float(length * shown.max())), strict=True):
        recent[rows], calendar[rows] = learned
    judge_anew(recent_of(recent))
    times, values = np.full((n, RATE_HISTORY), np.nan), np.full((n, RATE_HISTORY), np.nan)
    for row in np.flatnonzero(shown):
        yesterday = before[row][-1]
        ticks = np.arange(len(yesterday) - RATE_HISTORY, len(yesterday))
        times[row] = epoch[row] + (ticks * SENSE_SECONDS - DELAY - length)
        values[row] = yesterday[-RATE_HISTORY:]
    nothing = initial_state(n, 1, 1, forecaster=False)
    return Past(epoch, times, values, recent, calendar, **{name: getattr(nothing, name) for name in BUDGET})


def _learned(params: Params, epoch: Float, length: int, before: Sequence[Sequence[Float]]) -> tuple[Float32, Float32]:
    """Give both rows of memory of N services, each after its own days `before` (the oldest first) of one rate a tick.

    `epoch` (N,) are the Unix seconds at which those days are over.
    """
    recent, calendar = nothing_learned(len(before))
    shown = np.array([len(days) for days in before])
    for back in range(int(shown.max(initial=0)), 0, -1):
        rows = np.flatnonzero(shown >= back)
        sensed = np.stack([before[int(i)][-back] for i in rows])
        some, kept, table = params.take(rows), recent[rows], calendar[rows]
        always = np.ones(len(rows), np.bool_)
        for tick in range(sensed.shape[1]):
            taken = epoch[rows] - back * length + tick * SENSE_SECONDS - DELAY
            kept, table = learn(some, kept, table, taken, sensed[:, tick], always)
        recent[rows], calendar[rows] = kept, table
    return recent, calendar


def seed_of(load: ServiceLoad, number: int, seed: int) -> int:
    """Give the seed that the arrivals of a day are drawn with."""
    return zlib.crc32(f"{load.name} {number} {seed}".encode())


def sensed_day(load: ServiceLoad, number: int) -> NDArray[np.float64]:
    """Give what the sensors show of a day, one rate in requests/s for each sensing tick."""
    rate = load.day(number)
    arrivals = np.random.default_rng(seed_of(load, number, 0)).poisson(rate)
    total = np.concatenate([np.zeros(WINDOW + DELAY), np.cumsum(arrivals)])
    total[: WINDOW + DELAY] = -rate[0] * np.arange(WINDOW + DELAY, 0, -1)
    ends = np.arange(0, len(rate), SENSE_SECONDS) + WINDOW
    return np.asarray((total[ends] - total[ends - WINDOW]) / WINDOW, np.float64)
