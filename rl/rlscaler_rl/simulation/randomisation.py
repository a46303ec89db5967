"""Scenarios for training: stretches of days with the minutes before them, on services of many kinds.

Facts that the actor does not see (SLO, cold starts, price ratio, capacity ratio, lag, size) vary between episodes, so
that one policy serves them all; `ranges.envelope` is their range in the manifest. Some of the episodes have the nominal
service. The others keep the nominal value of each column with some probability and draw it otherwise, each column on
its own. A stretch begins anywhere in a day, with the minutes before it as history and with the replicas that the load
before it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation import generative
from rlscaler_rl.simulation.cluster import MAX_PODS
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.scenario import NOMINAL, PAST_SECONDS, Scenarios, arrival_window, build, start_seconds
from rlscaler_rl.simulation.tables import CVS

Float = NDArray[np.float64]

PLANNED = 100 / 240
"""Highest load of the demo over the capacity of all replicas; the 99th percentile of a recorded load is put there."""

CROWDED = 0.9
"""Most loads need, but for half a percent of the time, less than so many times the capacity of all replicas: where
nothing can be done, nothing can be learned."""

CROWDED_SHARE = 0.05
"""Share of the stretches for which that does not hold."""

Loads = Callable[[int, int, np.random.Generator], tuple[NDArray[np.float32], Float]]
"""(rows, seconds, rng) -> (rows, seconds) requests/s relative to the busy level of a load's day, and (rows,) the mean
of that day; `generative.draw` is one."""


def randomised(
    n: int,
    rng: np.random.Generator,
    interval_seconds: float,
    duration_seconds: int,
    ranges: Ranges = RANGES,
    loads: Loads = generative.draw,
) -> Scenarios:
    """N scenarios of one action interval and one duration, both in seconds; every draw comes from `rng`."""
    kind = rng.random(n)
    service = _service(n, rng, ranges)
    _make_nominal(service, kind < min(ranges.wholly_nominal_share, 1 - ranges.one_pool_share), rng)
    service |= _uncertain(service, rng, ranges)
    present, rps = _present(rng, kind >= 1 - ranges.one_pool_share), service["rps"]
    service["max_replicas"] = service["max_replicas"] * present
    capacity = (service["max_replicas"] * rps).sum(1)
    rate, daily_mean = _scaled(loads(n, PAST_SECONDS + duration_seconds, rng), rng, capacity, ranges)
    requests = rng.poisson(rate).astype(np.float32)
    before = rate[:, PAST_SECONDS - RECENT : PAST_SECONDS].mean(1)
    initial = initial_replicas(rng, before, rps, service["max_replicas"], service["price_ratio"])
    columns: dict[str, Any] = {
        **service,
        "present": present,
        "pattern": np.full(n, "stretch", dtype="<U16"),
        "seed": np.zeros(n),
        "duration": duration_seconds,
        "rate": rate[:, PAST_SECONDS:].astype(np.float32),
        "arrivals": np.ascontiguousarray(requests[:, PAST_SECONDS:]),
        "past_rate": before,
        "past": np.where(rng.random((n, 1)) < ranges.unknown_past_share, np.nan, requests[:, :PAST_SECONDS]),
        "daily_mean": daily_mean,
        "initial": np.maximum(initial, ranges.min_replicas) * present,
        "min_replicas": present * ranges.min_replicas,
        "interval_seconds": interval_seconds,
        "key": rng.integers(0, 2**63, n, dtype=np.uint64),
    }
    floor = rng.uniform(*ranges.floor, n)
    columns["target_utilization"] = np.where(rng.random(n) < ranges.floor_share, NOMINAL["target_utilization"], floor)
    return build(n, columns)


RECENT = 30
"""Seconds whose mean is the load that a service is sized for when its episode begins."""


def _scaled(
    drawn: tuple[NDArray[np.float32], Float], rng: np.random.Generator, capacity: Float, ranges: Ranges
) -> tuple[Float, Float]:
    """(N, T) rates and (N,) daily means in requests/s, at a drawn share of the service's capacity (N,)."""
    relative, mean = drawn
    low, high = map(math.log, ranges.busy_share)
    factor = np.exp(rng.uniform(low, high, len(mean))) * capacity
    highest = np.quantile(relative[:, ::5], 0.995, axis=1)
    limit = CROWDED * capacity / np.maximum(highest, 1e-9)
    factor = np.where(rng.random(len(mean)) < CROWDED_SHARE, factor, np.minimum(factor, limit))
    return relative * factor[:, None], mean * factor


def _service(n: int, rng: np.random.Generator, ranges: Ranges) -> dict[str, NDArray[Any]]:
    """Drawn columns of a service and of its measurement; `max_replicas` is drawn for an absent pool too."""
    draw = _Draw(n, rng, ranges.nominal_share)
    max_replicas = draw.sizes("max_replicas", ranges.max_replicas, same=0.5)
    slo_ms = draw.log("slo_ms", ranges.slo_ms)
    rps = _rps(draw, ranges, slo_ms)
    gpu_mean = draw.log("gpu", ranges.gpu_cold_start, nominal=45.0)
    cpu_mean = draw.log("cpu", ranges.cpu_cold_start, nominal=8.0)
    cold_start = np.stack([gpu_mean, cpu_mean], axis=1)
    spread = ranges.cold_start_spread * cold_start
    scrape = draw.choice("scrape", ranges.scrape)
    room = np.maximum((max_replicas * rng.uniform(0.5, 1, (n, 1))).astype(int), 1)
    return {
        "max_replicas": max_replicas,
        "slo_ms": slo_ms,
        "step_size": _steps(rng, max_replicas, ranges),
        "timeout": np.maximum(NOMINAL["timeout"], 3 * slo_ms / 1000),
        "price_ratio": draw.log("price_ratio", ranges.price_ratio),
        "rps": rps,
        "cold_start_low": cold_start - spread,
        "cold_start_high": cold_start + spread,
        "schedulable": np.where(rng.random((n, 1)) < 0.1, room, MAX_PODS),
        "cv": rng.choice(len(CVS), n, p=[0.15, 0.7, 0.15]),
        "memory_seconds": rng.uniform(20, 50, n),
        "routing": rng.uniform(1.0, 2.0, n),
        "scrape": scrape,
        "phase": np.floor(rng.uniform(0, 1, n) * scrape),
        "delay": draw.choice("delay", tuple(range(ranges.delay[0], ranges.delay[1] + 1))),
        "arrival_window": arrival_window(scrape),
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

    def log(self, name: str, bounds: tuple[float, float], nominal: float | None = None) -> Float:
        """(N,) log-uniform, so that a half and the double are as frequent."""
        drawn = np.exp(self.rng.uniform(math.log(bounds[0]), math.log(bounds[1]), self.n))
        return self._mixed(drawn, NOMINAL[name] if nominal is None else nominal)

    def choice(self, name: str, values: tuple[int, ...]) -> Float:
        return self._mixed(self.rng.choice(values, self.n), NOMINAL[name]).astype(np.float64)

    def sizes(self, name: str, bounds: tuple[int, int], same: float) -> NDArray[np.int64]:
        """(N, 2) whole numbers, log-uniform; both pools have the same one with probability `same`."""
        low, high = math.log(bounds[0]), math.log(bounds[1] + 1)
        drawn = np.minimum(np.exp(self.rng.uniform(low, high, (self.n, 2))).astype(np.int64), bounds[1])
        drawn[:, 1] = np.where(self.rng.random(self.n) < same, drawn[:, 0], drawn[:, 1])
        keep = self.rng.random((self.n, 1)) < self.share
        return np.where(keep, np.array(NOMINAL[name]), drawn)


_MEASURED = ("scrape", "phase", "delay", "arrival_window", "window")
"""Columns of the measurement, which half of the nominal services have drawn ones of."""


def _make_nominal(service: dict[str, NDArray[Any]], rows: NDArray[np.bool_], rng: np.random.Generator) -> None:
    quick = rows & (rng.random(len(rows)) < 0.5)
    for name, column in service.items():
        nominal = quick if name in _MEASURED else rows
        service[name] = np.where(nominal[:, None] if column.ndim == 2 else nominal, NOMINAL[name], column)


def _uncertain(service: dict[str, NDArray[Any]], rng: np.random.Generator, ranges: Ranges) -> dict[str, Float]:
    """Columns that no spec declares: error, swing and fall of the capacity, and the price of starts."""
    n = len(service["slo_ms"])

    def drawn(bounds: tuple[float, float], share: float) -> Float:
        return np.where(rng.random(n) < share, rng.uniform(*bounds, n), 0.0)[:, None].repeat(2, axis=1)

    error = rng.uniform(-ranges.believed_error, ranges.believed_error, (n, 2))
    # A new version of the software is on both pools: half of the services are off by the same part on both.
    error[:, 1] = np.where(rng.random(n) < 0.5, error[:, 0], error[:, 1])
    error[rng.random(n) < ranges.exact_share] = 0.0
    cold_start = (service["cold_start_low"] + service["cold_start_high"]) / 2
    return {
        "believed_rps": service["rps"] / (1 + error),
        "drift": drawn(ranges.drift, ranges.drift_share),
        "fall": drawn(ranges.fall, ranges.fall_share),
        "start_seconds": np.where(rng.random((n, 1)) < ranges.priced_share, start_seconds(cold_start), 0.0),
    }


def _present(rng: np.random.Generator, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(N, 2) which pools a service has: both, or a random one of them where `single` (N,)."""
    present = np.ones((len(single), 2), dtype=np.bool_)
    present[np.flatnonzero(single), rng.integers(0, 2, int(single.sum()))] = False
    return present


def _rps(draw: _Draw, ranges: Ranges, slo_ms: Float) -> Float:
    """(N, 2) requests/s of one replica.

    A CPU replica answers at least `LEAST_IN_TIME` requests one after the other within the SLO; no policy could meet the
    SLO otherwise. The nominal one answers four.
    """
    gpu = draw.log("gpu_rps", ranges.gpu_rps, nominal=NOMINAL["rps"][0])
    ratio = draw.log("rps_ratio", ranges.rps_ratio, nominal=NOMINAL["rps"][0] / NOMINAL["rps"][1])
    slowest = draw.rng.uniform(*LEAST_IN_TIME, draw.n) * 1000 / slo_ms
    cpu = np.maximum(gpu / ratio, slowest)
    return np.stack([np.maximum(gpu, cpu * ranges.rps_ratio[0]), cpu], axis=1)


LEAST_IN_TIME = (3.0, 8.0)
"""Uniform: requests that a CPU replica answers one after the other within the SLO, at least."""


def _steps(rng: np.random.Generator, max_replicas: NDArray[np.int64], ranges: Ranges) -> NDArray[np.int64]:
    """(N, 2) replicas an action step: 0, which is the default, or a drawn part of `max_replicas`."""
    part = rng.uniform(*ranges.step_part, max_replicas.shape)
    drawn = np.maximum(np.rint(part * max_replicas), 1).astype(np.int64)
    return np.where(rng.random((len(drawn), 1)) < ranges.default_step_share, 0, drawn)


def initial_replicas(
    rng: np.random.Generator, rate: Float, rps: Float, max_replicas: NDArray[np.int64], price_ratio: Float
) -> NDArray[np.int64]:
    """(N, 2) replicas that an episode begins with; `rps` and `max_replicas` are (N, 2), `price_ratio` is (N,).

    Of the rows, 60 % have about as many of the pool with the cheaper capacity as the `rate` (N,) before needs, 25 % a
    random split between the pools, and the others any number.
    """
    n = len(rate)
    dearer = rps[:, 0] * price_ratio < rps[:, 1]
    split = np.where(rng.random(n) < 0.6 / 0.85, np.where(dearer, 0.0, 1.0), rng.beta(0.7, 0.7, n))
    need = rate[:, None] * np.stack([split, 1 - split], axis=1) / rps / rng.uniform(0.6, 0.95, (n, 1))
    anything = rng.uniform(0, 1, (n, 2)) * max_replicas
    wanted = np.where(rng.random((n, 1)) < 0.85, np.ceil(need), np.ceil(anything))
    return np.clip(wanted, np.minimum(1, max_replicas), max_replicas).astype(np.int64)
