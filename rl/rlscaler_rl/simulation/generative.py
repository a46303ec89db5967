"""Generative model of loads: an hour or two of some day of a service, drawn anew for every stretch.

A load is a product of parts, every one with parameters of its own that are drawn once a stretch:

- the *diurnal* curve, two harmonics over 24 h, times a factor for the weekend;
- *regimes*: the level wanders, and switches to another one at random times, at once or over minutes;
- *bursts*: at random times with heavy-tailed heights, and from jobs at fixed minutes of the hour;
- *dispersion*: a gamma distributed modulation with mean 1 and a drawn correlation time, around which requests arrive as
  a Poisson process (a doubly stochastic Poisson process, Cox 1955; in one second negative binomial).

Rates are relative to the busy level of the load's day, so that a caller puts them at any scale. Nothing is fitted to
single loads: `statistics` beside those of recorded loads show whether the drawn ones cover them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]

DAY, HOUR, MINUTE = 86_400, 3600, 60

Pair = tuple[float, float]


class Stretches(NamedTuple):
    """Loads of N stretches of T seconds."""

    rate: Float32  # (N, T) requests/s relative to the busy level of the load's day
    daily_mean: Float  # (N,) mean of that day, in the same unit


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Distributions of the parameters of a stretch; pairs bound a uniform draw, or a log-uniform one where it says
    "log"."""

    flat_share: float = 0.15
    """Probability of a load without day and night."""
    peak_over_valley: Pair = (1.3, 12.0)
    """Log: highest over lowest level of the diurnal curve."""
    second_harmonic: Pair = (0.0, 0.5)
    """Amplitude of the half-day part over that of the whole-day part."""
    weekend: Pair = (0.35, 1.15)
    """Log: level of Saturday and Sunday over that of a weekday."""
    wander: Pair = (0.01, 0.35)
    """Log: standard deviation of the logarithm of the wandering level."""
    wander_seconds: Pair = (300.0, 21_600.0)
    """Log: its correlation time."""
    switches_per_hour: Pair = (0.02, 6.0)
    """Log: how often the regime switches; `switching_share` of the loads have switches."""
    switching_share: float = 0.35
    switch_height: Pair = (0.1, 0.7)
    """Standard deviation of the logarithm of a regime's level."""
    switch_seconds: Pair = (1.0, 300.0)
    """Log: time that a switch takes."""
    bursting_share: float = 0.4
    """Probability of bursts at random times."""
    bursts_per_hour: Pair = (0.2, 30.0)
    """Log."""
    burst_height: Pair = (0.1, 2.0)
    """Log: least height of a burst over the level around; heights follow a Pareto distribution from there on."""
    burst_tail: Pair = (1.5, 4.0)
    """Exponent of that distribution: the lower, the heavier its tail."""
    highest_burst: float = 10.0
    burst_seconds: Pair = (4.0, 400.0)
    """Log: mean length of a load's bursts; each one's own varies around it by a factor of about 2."""
    job_share: float = 0.25
    """Probability of jobs at fixed minutes."""
    job_height: Pair = (0.2, 3.0)
    """Log."""
    job_seconds: Pair = (10.0, 400.0)
    """Log."""
    job_certainty: Pair = (0.4, 1.0)
    """Probability that a job comes when it is due."""
    variance: Pair = (1e-4, 0.5)
    """Log: relative variance of the modulation."""
    variance_seconds: Pair = (1.0, 60.0)
    """Log: its correlation time."""
    empty_share: float = 0.02
    """Probability of a load without any requests."""


MODEL = LoadModel()

JOB_PERIODS = np.array([300.0, 600.0, 900.0, 1800.0, 3600.0])
"""Seconds between two runs of a job, one of these."""


def draw(n: int, seconds: int, rng: np.random.Generator, model: LoadModel = MODEL) -> Stretches:
    """N stretches of so many seconds, each of a load of its own at a random time of its week; all draws from `rng`."""
    drawn = _parameters(n, rng, model)
    rate = np.empty((n, seconds), np.float32)
    mean = _levels(drawn, seconds, rate)
    _modulate(drawn, rate, rng)
    empty = rng.random(n) < model.empty_share
    rate[empty], mean[empty] = 0.0, 0.0
    return Stretches(rate, mean)


_FIELDS = (
    "begin",  # seconds into the week
    "depth",  # of the logarithmic diurnal curve
    "half",  # amplitude of its second harmonic
    "phase",
    "half_phase",
    "weekend",
    "wander",
    "wander_seconds",
    "switches",  # a second
    "switch_height",
    "switch_seconds",
    "bursts",  # a second
    "burst_height",
    "burst_tail",
    "highest_burst",
    "burst_seconds",
    "job_period",  # 0 = no job
    "job_offset",
    "job_height",
    "job_seconds",
    "job_certainty",
    "variance",
    "variance_seconds",
)
_RECORD = np.dtype([(name, "f8") for name in _FIELDS])


def _parameters(n: int, rng: np.random.Generator, model: LoadModel) -> NDArray[Any]:
    """(N,) drawn parameters of each load."""

    def uniform(bounds: Pair) -> Float:
        return rng.uniform(*bounds, n)

    def log(bounds: Pair) -> Float:
        return np.exp(rng.uniform(np.log(bounds[0]), np.log(bounds[1]), n))

    def some(share: float, values: Float) -> Float:
        return np.where(rng.random(n) < share, values, 0.0)

    table = np.zeros(n, _RECORD)
    table["begin"] = rng.uniform(0, 7 * DAY, n)
    table["depth"] = some(1 - model.flat_share, np.log(log(model.peak_over_valley)) / 2)
    table["half"] = table["depth"] * uniform(model.second_harmonic)
    table["phase"], table["half_phase"] = uniform((0, DAY)), uniform((0, DAY))
    table["weekend"] = log(model.weekend)
    table["wander"], table["wander_seconds"] = log(model.wander), log(model.wander_seconds)
    table["switches"] = some(model.switching_share, log(model.switches_per_hour) / HOUR)
    table["switch_height"], table["switch_seconds"] = uniform(model.switch_height), log(model.switch_seconds)
    table["bursts"] = some(model.bursting_share, log(model.bursts_per_hour) / HOUR)
    table["burst_height"], table["burst_tail"] = log(model.burst_height), uniform(model.burst_tail)
    table["highest_burst"] = model.highest_burst
    table["burst_seconds"] = log(model.burst_seconds)
    table["job_period"] = some(model.job_share, rng.choice(JOB_PERIODS, n))
    table["job_offset"] = np.floor(uniform((0, 60))) * MINUTE + uniform((0, 15))
    table["job_height"], table["job_seconds"] = log(model.job_height), log(model.job_seconds)
    table["job_certainty"] = uniform(model.job_certainty)
    table["variance"], table["variance_seconds"] = log(model.variance), log(model.variance_seconds)
    return table


GRID = 60
"""Seconds between the points at which the diurnal curve is computed; it is a straight line between them."""


def _levels(load: NDArray[Any], seconds: int, rate: Float32) -> Float:
    """Fill `rate` (N, T) with the diurnal level relative to the busiest one; return its mean over a week (N,)."""
    week = np.arange(0, 7 * DAY, 900.0)[None, :]
    level = _diurnal(load, week)
    busiest = level.max(axis=1, keepdims=True)
    points = np.arange(0, seconds + GRID, GRID, dtype=np.float64)
    here = _diurnal(load, load["begin"][:, None] + points) / busiest
    second = np.arange(seconds)
    place, part = second // GRID, (second % GRID) / GRID
    rate[...] = here[:, place] * (1 - part) + here[:, place + 1] * part
    return np.asarray((level / busiest).mean(axis=1), np.float64)


def _diurnal(load: NDArray[Any], moment: Float) -> Float:
    """(N, K) the level at moments (N, K) or (1, K) in seconds of the week, which begins on a Monday."""
    day = np.cos(2 * np.pi * (moment - load["phase"][:, None]) / DAY)
    half = np.cos(4 * np.pi * (moment - load["half_phase"][:, None]) / DAY)
    weekday = (moment / DAY) % 7
    # Saturday and Sunday come and go over some hours, as people do.
    weekend = np.clip(8 * (weekday - 4.95), 0, 1) * np.clip(8 * (7.0 - weekday), 0, 1)
    shape = load["depth"][:, None] * day + load["half"][:, None] * half + np.log(load["weekend"])[:, None] * weekend
    return np.asarray(np.exp(shape), np.float64)


@njit(cache=True, nogil=True, error_model="numpy")
def _modulate(load: NDArray[Any], rate: Float32, rng: np.random.Generator) -> None:
    """Multiply `rate` (N, T) in place by regimes, bursts and modulation.

    A gamma variable is made of a normal one by the approximation of Wilson and Hilferty (1931).
    """
    seconds = rate.shape[1]
    boost = np.empty(seconds)
    for n in range(rate.shape[0]):
        parameters = load[n]
        boost[:] = 1.0
        _add_bursts(parameters, boost, rng)
        if parameters.job_period > 0:
            _add_jobs(parameters, boost, rng)
        _follow_regimes(parameters, boost, rng)
        step = np.exp(-1.0 / parameters.variance_seconds)
        jitter = np.sqrt(1 - step * step)
        score = rng.standard_normal()
        mean, spread = 1.0 - parameters.variance / 9.0, np.sqrt(parameters.variance) / 3.0
        for t in range(seconds):
            score = step * score + jitter * rng.standard_normal()
            cube = max(mean + spread * score, 0.0)
            rate[n, t] *= boost[t] * cube * cube * cube


STRIDE = 5
"""Seconds between the points at which the wandering level is drawn; it is a straight line between them."""


@njit(cache=True, nogil=True, error_model="numpy")
def _follow_regimes(parameters: Any, boost: Float, rng: np.random.Generator) -> None:
    """Multiply `boost` (T,) in place by the level, which wanders and switches between regimes."""
    keep = np.exp(-STRIDE / parameters.wander_seconds)
    noise = parameters.wander * np.sqrt(1 - keep * keep)
    wander = parameters.wander * rng.standard_normal()
    switching = parameters.switches > 0
    towards = parameters.switch_height * rng.standard_normal() if switching else 0.0
    regime, following = towards, 1 - np.exp(-STRIDE / parameters.switch_seconds)
    next_switch = rng.exponential() / parameters.switches if switching else np.inf
    before = np.exp(wander + regime)
    for begin in range(0, len(boost), STRIDE):
        wander = keep * wander + noise * rng.standard_normal()
        if begin >= next_switch:
            towards = parameters.switch_height * rng.standard_normal()
            next_switch = begin + rng.exponential() / parameters.switches
        regime += (towards - regime) * following
        after = np.exp(wander + regime)
        for t in range(begin, min(begin + STRIDE, len(boost))):
            boost[t] *= before + (after - before) * ((t - begin + 1) / STRIDE)
        before = after


@njit(cache=True, nogil=True)
def _add_bursts(parameters: Any, boost: Float, rng: np.random.Generator) -> None:
    """Raise `boost` (T,) in place by bursts at random times, some of which began before the stretch."""
    if parameters.bursts <= 0:
        return
    begin = -4.0 * parameters.burst_seconds
    while True:
        begin += rng.exponential() / parameters.bursts
        if begin >= len(boost):
            return
        height = parameters.burst_height * (1.0 - rng.random()) ** (-1.0 / parameters.burst_tail)
        length = parameters.burst_seconds * np.exp(0.7 * rng.standard_normal())
        _raise(boost, begin, min(height, parameters.highest_burst), length, rng.random() < 0.5)


@njit(cache=True, nogil=True)
def _add_jobs(parameters: Any, boost: Float, rng: np.random.Generator) -> None:
    """Raise `boost` (T,) in place by a job that comes every so many minutes of the clock, most times it is due."""
    first = (
        parameters.begin + ((parameters.job_offset - parameters.begin) % parameters.job_period) - parameters.job_period
    )
    due = first - parameters.begin
    while due < len(boost):
        if rng.random() < parameters.job_certainty:
            height = parameters.job_height * np.exp(0.15 * rng.standard_normal())
            length = parameters.job_seconds * np.exp(0.2 * rng.standard_normal())
            _raise(boost, due + 2.0 * rng.standard_normal(), height, length, True)
        due += parameters.job_period


@njit(cache=True, nogil=True)
def _raise(boost: Float, begin: float, height: float, length: float, falling: bool) -> None:
    """Raise `boost` (T,) in place by `height` from `begin` on: a plateau of `length` seconds, or one that falls off."""
    ends = begin + (4.0 * length if falling else length)
    rise = min(5.0, 0.2 * length)
    for t in range(max(int(begin), 0), min(int(ends) + 1, len(boost))):
        since = t - begin
        grown = min(max(since, 0.0) / max(rise, 1e-9), 1.0)
        boost[t] += height * grown * (np.exp(-since / length) if falling else 1.0)
