"""Scenarios for training: the nominal service and others around it, under loads of many kinds.

What the actor is not told (SLO, cold starts, price ratio, capacity ratio, lag, size) varies between episodes, so that
one policy serves them all; `ranges.envelope` is what the manifest states about it. Some of the episodes have the
nominal service. The others keep the nominal value of each column with some probability and draw it otherwise, each
column on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.patterns import rates
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, build
from rlscaler_rl.simulation.tables import CVS

Float = NDArray[np.float64]

PATTERNS = ("ramp", "spike", "periodic", "random")

PLANNED = 100 / 240
"""Highest load of the demo over the capacity of all replicas; the 99th percentile of a recorded load is put there."""

Loads = Callable[[int, int, np.random.Generator], NDArray[np.float32]]
"""(rows, seconds, rng) -> (rows, seconds) recorded loads in units in which their 99th percentile is 1."""


def randomised(
    n: int,
    rng: np.random.Generator,
    interval_seconds: float,
    duration_seconds: int,
    ranges: Ranges = RANGES,
    loads: Loads | None = None,
) -> Scenarios:
    """N scenarios of one action interval and one duration, both in seconds; every draw comes from `rng`.

    `loads` draws the recorded loads; without it there are none (`Ranges.trace_share`).
    """
    kind = rng.random(n)
    service = _service(n, rng, ranges)
    _make_nominal(service, kind < min(ranges.wholly_nominal_share, 1 - ranges.one_pool_share))
    present, rps = _present(rng, kind >= 1 - ranges.one_pool_share), service["rps"]
    service["max_replicas"] = service["max_replicas"] * present
    capacity = (service["max_replicas"] * rps).sum(1)
    rate, names = _loads(n, rng, duration_seconds, capacity, ranges, loads)
    initial = _initial(n, rng, rate[:, 0], rps, service["max_replicas"])
    columns: dict[str, Any] = {
        **service,
        "present": present,
        "pattern": names,
        "seed": np.zeros(n),
        "duration": duration_seconds,
        "rate": rate.astype(np.float32),
        "arrivals": rng.poisson(rate).astype(np.float32),
        "past_rate": np.where(rng.random(n) < 0.3, 0.0, rate[:, 0]),
        "initial": np.maximum(initial, ranges.min_replicas) * present,
        "min_replicas": present * ranges.min_replicas,
        "interval_seconds": interval_seconds,
        "key": rng.integers(0, 2**63, n, dtype=np.uint64),
    }
    floor = rng.uniform(*ranges.floor, n)
    columns["target_utilization"] = np.where(rng.random(n) < ranges.floor_share, NOMINAL["target_utilization"], floor)
    return build(n, columns)


def _service(n: int, rng: np.random.Generator, ranges: Ranges) -> dict[str, NDArray[Any]]:
    """Drawn columns of a service and of its measurement; `max_replicas` is drawn for an absent pool too."""
    draw = _Draw(n, rng, ranges.nominal_share)
    max_replicas = draw.integers("max_replicas", ranges.max_replicas, same=0.5)
    slo_ms = draw.uniform("slo_ms", ranges.slo_ms)
    rps = _rps(draw, ranges, slo_ms)
    gpu_mean = draw.uniform("gpu", ranges.gpu_cold_start, nominal=45.0)
    cpu_mean = draw.uniform("cpu", ranges.cpu_cold_start, nominal=8.0)
    cold_start = np.stack([gpu_mean, cpu_mean], axis=1)
    spread = ranges.cold_start_spread * cold_start
    scrape = draw.choice("scrape", ranges.scrape)
    room = np.maximum((max_replicas * rng.uniform(0.5, 1, (n, 1))).astype(int), 1)
    return {
        "max_replicas": max_replicas,
        "slo_ms": slo_ms,
        "price_ratio": draw.uniform("price_ratio", ranges.price_ratio),
        "rps": rps,
        "believed_rps": rps * (1 + draw.spread((n, 2), ranges.believed_error)),
        "cold_start_low": cold_start - spread,
        "cold_start_high": cold_start + spread,
        "schedulable": np.where(rng.random((n, 1)) < 0.1, room, 64),
        "cv": rng.choice(len(CVS), n, p=[0.15, 0.7, 0.15]),
        "memory_seconds": rng.uniform(20, 50, n),
        "routing": rng.uniform(1.0, 2.0, n),
        "scrape": scrape,
        "phase": np.floor(rng.uniform(0, 1, n) * scrape),
        "delay": draw.choice("delay", tuple(range(ranges.delay[0], ranges.delay[1] + 1))),
        "window": scrape * np.where(scrape > 10, 4, rng.choice([4, 5, 6], n)),
        "noise": rng.uniform(0, 0.05, n),
        "cpu_factor": rng.uniform(0.85, 1.05, n),
        "memory_base": rng.uniform(25, 60, n),
        "memory_slope": rng.uniform(0, 30, n),
    }


class _Draw:
    """Draws columns whose values are nominal with probability `share`."""

    def __init__(self, n: int, rng: np.random.Generator, share: float) -> None:
        self.n, self.rng, self.share = n, rng, share

    def _mixed(self, values: Any, nominal: Any) -> Any:
        return np.where(self.rng.random(self.n) < self.share, nominal, values)

    def uniform(self, name: str, bounds: tuple[float, float], nominal: float | None = None) -> Float:
        return self._mixed(self.rng.uniform(*bounds, self.n), NOMINAL[name] if nominal is None else nominal)

    def choice(self, name: str, values: tuple[int, ...]) -> Float:
        return self._mixed(self.rng.choice(values, self.n), NOMINAL[name]).astype(np.float64)

    def integers(self, name: str, bounds: tuple[int, int], same: float) -> NDArray[np.int64]:
        """(N, 2) whole numbers; both pools have the same one with probability `same`."""
        drawn = self.rng.integers(bounds[0], bounds[1] + 1, (self.n, 2))
        drawn[:, 1] = np.where(self.rng.random(self.n) < same, drawn[:, 0], drawn[:, 1])
        keep = self.rng.random((self.n, 1)) < self.share
        return np.where(keep, np.array(NOMINAL[name]), drawn)

    def spread(self, shape: tuple[int, ...], error: float) -> Float:
        kept = self.rng.random((self.n, 1)) < self.share
        return np.where(kept, 0.0, self.rng.uniform(-error, error, shape))


def _make_nominal(service: dict[str, NDArray[Any]], rows: NDArray[np.bool_]) -> None:
    for name, column in service.items():
        nominal = NOMINAL["rps" if name == "believed_rps" else name]
        service[name] = np.where(rows[:, None] if column.ndim == 2 else rows, nominal, column)


def _present(rng: np.random.Generator, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(N, 2) which pools a service has: both, or a random one of them where `single` (N,)."""
    present = np.ones((len(single), 2), dtype=np.bool_)
    present[np.flatnonzero(single), rng.integers(0, 2, int(single.sum()))] = False
    return present


def _rps(draw: _Draw, ranges: Ranges, slo_ms: Float) -> Float:
    """(N, 2) requests/s of one replica.

    The mean service time of a CPU replica stays within half the SLO; no policy could meet the SLO otherwise.
    """
    gpu = draw.uniform("gpu_rps", ranges.gpu_rps, nominal=NOMINAL["rps"][0])
    ratio = draw.uniform("rps_ratio", ranges.rps_ratio, nominal=NOMINAL["rps"][0] / NOMINAL["rps"][1])
    slowest = 2.0 * 1000 / slo_ms
    cpu = np.maximum(gpu / ratio, slowest)
    return np.stack([np.maximum(gpu, cpu * ranges.rps_ratio[0]), cpu], axis=1)


def _initial(
    n: int, rng: np.random.Generator, rate: Float, rps: Float, max_replicas: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(N, 2) initial replicas.

    40 % of the rows have one to three replicas in each pool, 45 % about as many as the first rate needs, split between
    the pools at random, and the others any number.
    """
    split = rng.beta(0.7, 0.7, n)
    need = rate[:, None] * np.stack([split, 1 - split], axis=1) / rps / rng.uniform(0.5, 0.9, (n, 1))
    anything = rng.uniform(0, 1, (n, 2)) * max_replicas
    few = rng.choice(3, (n, 2), p=[0.6, 0.2, 0.2]) + 1
    kind = rng.random((n, 1))
    wanted = np.where(kind < 0.4, few, np.where(kind < 0.85, np.ceil(need), np.ceil(anything)))
    return np.clip(wanted, 1, max_replicas).astype(np.int64)


def _loads(
    n: int, rng: np.random.Generator, seconds: int, capacity: Float, ranges: Ranges, loads: Loads | None
) -> tuple[Float, NDArray[Any]]:
    """(N, seconds) rates in requests/s and (N,) names: patterns, bursts, steady loads and, where `loads` is given,
    recorded loads."""
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
    """(n, seconds) rates of the four patterns and their n names.

    Rows that are `plain` have the demo's levels, periods and phases. The others have drawn ones, and some of them are
    the weighted sum of two patterns.
    """
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
    """(n, seconds) rates of loads in which quiet stretches and bursts take turns (Markov-modulated Poisson process).

    The lengths of both are exponential. Every row has its own mean lengths and its own spread of the bursts' heights.
    """
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
