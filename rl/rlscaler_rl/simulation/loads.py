"""Loads for training: patterns, bursts, loads that stay where they are, and recorded ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.patterns import rates

if TYPE_CHECKING:
    from rlscaler_rl.simulation.randomisation import Ranges

Float = NDArray[np.float64]

PATTERNS = ("ramp", "spike", "periodic", "random")

PLANNED = 100 / 240
"""The demo's highest load over the capacity of all replicas; a recorded load's 99th percentile is put there too."""

Loads = Callable[[int, int, np.random.Generator], NDArray[np.float32]]
"""(rows, seconds, rng) -> (rows, seconds) recorded loads in units in which their 99th percentile is 1."""


def drawn_loads(
    n: int, rng: np.random.Generator, seconds: int, capacity: Float, ranges: Ranges, loads: Loads | None
) -> tuple[Float, NDArray[Any]]:
    """(N, seconds) patterns, bursts, steady loads and, where there are recordings, recorded ones; and what each is
    called, (N,)."""
    kind = rng.random(n)
    recorded = kind < (0.0 if loads is None else ranges.trace_share)
    steady = ~recorded & (kind >= 1 - ranges.steady_share)
    bursts = ~recorded & ~steady & (kind >= 1 - ranges.steady_share - ranges.burst_share)
    plain = rng.random(n) < ranges.nominal_load_share
    rate = np.empty((n, seconds))
    names = np.full(n, "steady", dtype="<U16")
    level = np.where(rng.random(n) < ranges.idle_share, 0.0, capacity * rng.uniform(*ranges.steady, n))
    rate[steady] = level[steady, None]
    if loads is not None and len(rows := np.flatnonzero(recorded)):
        low, high = map(math.log, ranges.trace_scale)
        factor = np.where(plain[rows], 1.0, np.exp(rng.uniform(low, high, len(rows))))
        rate[rows], names[rows] = loads(len(rows), seconds, rng) * (factor * PLANNED * capacity[rows])[:, None], "trace"
    if len(rows := np.flatnonzero(bursts)):
        rate[rows], names[rows] = _bursts(rng, seconds, capacity[rows], ranges), "bursts"
    if len(rows := np.flatnonzero(~recorded & ~steady & ~bursts)):
        rate[rows], names[rows] = _patterns(rng, seconds, capacity[rows], plain[rows], ranges)
    return rate, names


def _patterns(
    rng: np.random.Generator, seconds: int, capacity: Float, plain: NDArray[np.bool_], ranges: Ranges
) -> tuple[Float, list[str]]:
    """(n, seconds) the four patterns, `plain` ones as the demo has them, the others at drawn levels, periods and
    phases and some of them two patterns added; and their names."""
    n = len(plain)
    names = rng.permutation(np.resize(PATTERNS, n)).tolist()
    period = np.where(plain, min(seconds, 300), np.exp(rng.uniform(np.log(90), np.log(900), n)))
    shape = _unit(names, seconds, rng, n, np.where(plain, 0.0, rng.random(n)), period)
    if len(both := np.flatnonzero(~plain & (rng.random(n) >= 0.7))):
        others = rng.permutation(np.resize(PATTERNS, len(both))).tolist()
        periods = period[both] * rng.uniform(0.3, 2, len(both))
        other = _unit(others, seconds, rng, len(both), rng.random(len(both)), periods)
        share = rng.uniform(0.1, 0.6, len(both))[:, None]
        shape[both] = (1 - share) * shape[both] + share * other
    high = np.where(plain, capacity * PLANNED, capacity * rng.uniform(*ranges.peak, n))
    low = np.where(plain, 0.1 * high, high * rng.uniform(*ranges.valley, n))
    return low[:, None] + (high - low)[:, None] * shape, names


def _bursts(rng: np.random.Generator, seconds: int, capacity: Float, ranges: Ranges) -> Float:
    """(n, seconds): quiet and burst take turns, both of exponential length (a Markov-modulated Poisson process); means
    are a row's own, and so is how much the heights differ."""
    n = len(capacity)
    high = capacity * rng.uniform(*ranges.peak, n)
    low = high * rng.uniform(0.0, 0.3, n)
    means = np.exp(rng.uniform(np.log([[15.0], [5.0]]), np.log([[240.0], [90.0]]), (2, n)))
    evenness = rng.uniform(1.0, 6.0, n)
    second = np.arange(seconds)
    rate = np.empty((n, seconds))
    for row in range(n):
        turns = 2 + int(4 * seconds / means[:, row].sum())
        lengths = rng.exponential(means[:, row], (turns, 2))
        lengths[0, 0] *= rng.random()
        ends = np.cumsum(lengths)
        heights = low[row] + (high[row] - low[row]) * rng.beta(evenness[row], 1.0, turns)
        levels = np.append(np.stack([np.full(turns, low[row]), heights], axis=1), low[row])
        rate[row] = levels[np.searchsorted(ends, second, side="right")]
    return rate


def _unit(names: list[str], seconds: int, rng: np.random.Generator, n: int, phase: Float, period: Float) -> Float:
    return rates(names, seconds, rng, n, low=0.0, high=1.0, start=0.0, phase=phase, period_s=period)
