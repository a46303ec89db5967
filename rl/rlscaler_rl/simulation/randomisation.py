"""Scenarios for training: the nominal service, and others around it.

What the actor is not told (SLO, cold starts, price ratio, capacity ratio, lag, size) varies between episodes, so
that one policy serves them all; `envelope()` is what the manifest states about it. A part of the episodes has the
nominal service; in the others every column is nominal with some probability and otherwise drawn, each on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.loads import Loads, drawn_loads
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, build
from rlscaler_rl.simulation.tables import CVS

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """What training draws from; uniform unless said otherwise."""

    intervals: tuple[int, ...] = (10, 15, 30, 60)
    """Seconds; every one has its own part of the environments."""
    durations: tuple[int, ...] = (300, 600, 900, 1200)
    wholly_nominal_share: float = 0.35
    """Probability of the nominal service: every column but the load and the replicas at the begin."""
    nominal_share: float = 0.5
    """Probability with which a column of the other services keeps its nominal value."""
    trace_share: float = 0.25
    """Probability of a recorded load, where there are any."""
    trace_scale: tuple[float, float] = (0.3, 1.5)
    """Log-uniform factor on a recorded load; 1 with probability `nominal_load_share`."""
    nominal_load_share: float = 0.5
    """Probability of the demo's own load levels and phases."""
    burst_share: float = 0.1
    """Probability of a load that jumps between a low rate and bursts of random length and height."""
    steady_share: float = 0.15
    """Probability of a load that stays where it is: without it an actor learns that every quiet service is about to
    be busy."""
    idle_share: float = 0.2
    """The part of the steady loads that are none at all."""
    steady: tuple[float, float] = (0.0, 0.5)
    """A steady load over the capacity of all replicas that may exist."""
    one_pool_share: float = 0.15
    floor_share: float = 0.5
    """Probability of the default target of the reactive floor, else uniform in `floor`."""
    floor: tuple[float, float] = (0.7, 1.0)
    slo_ms: tuple[float, float] = (200.0, 2000.0)
    gpu_rps: tuple[float, float] = (12.0, 30.0)
    rps_ratio: tuple[float, float] = (2.0, 12.0)
    price_ratio: tuple[float, float] = (0.1, 0.6)
    """CPU over GPU."""
    gpu_cold_start: tuple[float, float] = (10.0, 120.0)
    """Seconds, the mean; every pod's is drawn within `cold_start_spread` of it."""
    cpu_cold_start: tuple[float, float] = (4.0, 60.0)
    cold_start_spread: float = 0.3
    min_replicas: int = 1
    """Of every pool that is there; training tells an absent pool by its 0 replicas."""
    max_replicas: tuple[int, int] = (5, 20)
    peak: tuple[float, float] = (0.15, 0.85)
    """The load's highest level over the capacity of all replicas that may exist."""
    valley: tuple[float, float] = (0.02, 0.6)
    """The lowest level over the highest."""
    scrape: tuple[int, ...] = (2, 2, 5, 10, 15)
    delay: tuple[int, int] = (0, 15)
    believed_error: float = 0.1
    """Relative error of the capacity the operator assumes."""


RANGES = Ranges()

INTERVAL_WEIGHTS = {10: 0.1, 15: 0.25, 30: 0.5, 60: 0.15}
"""How much of the environments an interval has beside others; 30 s is the default of the custom resource."""


def interval_shares(ranges: Ranges) -> list[float]:
    """(len(ranges.intervals),) in proportion to `INTERVAL_WEIGHTS`; those not named there count 0.25."""
    weights = [INTERVAL_WEIGHTS.get(interval, 0.25) for interval in ranges.intervals]
    return [weight / sum(weights) for weight in weights]


def envelope(ranges: Ranges = RANGES) -> dict[str, Any]:
    """The manifest's trained envelope, [low, high] each; its price ratio is GPU over CPU."""
    return {
        "slo_ms": list(ranges.slo_ms),
        "cold_start_seconds": {"gpu": list(ranges.gpu_cold_start), "cpu": list(ranges.cpu_cold_start)},
        "price_ratio": [1 / ranges.price_ratio[1], 1 / ranges.price_ratio[0]],
        "interval_seconds": [float(min(ranges.intervals)), float(max(ranges.intervals))],
        "rps_ratio": list(ranges.rps_ratio),
        "lag_seconds": [0.0, float(ranges.delay[1] + max(ranges.scrape))],
    }


def randomised(
    n: int,
    rng: np.random.Generator,
    interval_seconds: float,
    duration_seconds: int,
    ranges: Ranges = RANGES,
    loads: Loads | None = None,
) -> Scenarios:
    """N episodes of one interval and one length; every draw comes from `rng`. loads: where recorded ones come from."""
    kind = rng.random(n)
    service = _service(n, rng, ranges)
    _make_nominal(service, kind < min(ranges.wholly_nominal_share, 1 - ranges.one_pool_share))
    present, rps = _present(rng, kind >= 1 - ranges.one_pool_share), service["rps"]
    service["max_replicas"] = service["max_replicas"] * present
    capacity = (service["max_replicas"] * rps).sum(1)
    rate, names = drawn_loads(n, rng, duration_seconds, capacity, ranges, loads)
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
    """The columns that make a service and its measurement, drawn; max_replicas also of an absent pool."""
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
    """Columns that are nominal with probability `share`."""

    def __init__(self, n: int, rng: np.random.Generator, share: float) -> None:
        self.n, self.rng, self.share = n, rng, share

    def _mixed(self, values: Any, nominal: Any) -> Any:
        return np.where(self.rng.random(self.n) < self.share, nominal, values)

    def uniform(self, name: str, bounds: tuple[float, float], nominal: float | None = None) -> Float:
        return self._mixed(self.rng.uniform(*bounds, self.n), NOMINAL[name] if nominal is None else nominal)

    def choice(self, name: str, values: tuple[int, ...]) -> Float:
        return self._mixed(self.rng.choice(values, self.n), NOMINAL[name]).astype(np.float64)

    def integers(self, name: str, bounds: tuple[int, int], same: float) -> NDArray[np.int64]:
        """(N, 2), both pools alike with probability `same`."""
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
    """(N, 2): both pools, or one of them where `single`."""
    present = np.ones((len(single), 2), dtype=np.bool_)
    present[np.flatnonzero(single), rng.integers(0, 2, int(single.sum()))] = False
    return present


def _rps(draw: _Draw, ranges: Ranges, slo_ms: Float) -> Float:
    """(N, 2); a CPU replica's mean service time stays within half the SLO, else no policy could meet it."""
    gpu = draw.uniform("gpu_rps", ranges.gpu_rps, nominal=NOMINAL["rps"][0])
    ratio = draw.uniform("rps_ratio", ranges.rps_ratio, nominal=NOMINAL["rps"][0] / NOMINAL["rps"][1])
    slowest = 2.0 * 1000 / slo_ms
    cpu = np.maximum(gpu / ratio, slowest)
    return np.stack([np.maximum(gpu, cpu * ranges.rps_ratio[0]), cpu], axis=1)


def _initial(
    n: int, rng: np.random.Generator, rate: Float, rps: Float, max_replicas: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(N, 2): one to three a pool in 40 %, else about what the first rate needs, split at random, or anything."""
    split = rng.beta(0.7, 0.7, n)
    need = rate[:, None] * np.stack([split, 1 - split], axis=1) / rps / rng.uniform(0.5, 0.9, (n, 1))
    anything = rng.uniform(0, 1, (n, 2)) * max_replicas
    few = rng.choice(3, (n, 2), p=[0.6, 0.2, 0.2]) + 1
    kind = rng.random((n, 1))
    wanted = np.where(kind < 0.4, few, np.where(kind < 0.85, np.ceil(need), np.ceil(anything)))
    return np.clip(wanted, 1, max_replicas).astype(np.int64)
