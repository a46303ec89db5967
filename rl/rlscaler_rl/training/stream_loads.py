"""Training loads of consumers: shapes with levels and moments of their own, stretches of recorded loads, and consumer
groups of every kind under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.randomisation import Loads
from rlscaler_rl.simulation.streams.groups import Groups, groups
from rlscaler_rl.simulation.streams.protocols import NAMES

Shape = Callable[[np.random.Generator, int, float, float], Float]
"""(rng, seconds, low, peak) -> (seconds,) messages/s."""


def ramp(rng: np.random.Generator, seconds: int, low: float, peak: float) -> Float:
    begin, length = rng.uniform(seconds / 20, seconds / 3), rng.uniform(seconds / 10, seconds / 1.5)
    return low + (peak - low) * np.clip((np.arange(seconds) - begin) / length, 0, 1)


def spike(rng: np.random.Generator, seconds: int, low: float, peak: float) -> Float:
    begin, length = rng.integers(seconds // 10, seconds // 2), rng.integers(seconds // 10, seconds // 3)
    rate = np.full(seconds, low)
    rate[begin : begin + length] = rng.uniform(peak / 2, peak)
    return rate


def periodic(rng: np.random.Generator, seconds: int, low: float, peak: float) -> Float:
    turn = np.arange(seconds) / rng.uniform(0.3 * seconds, seconds) + rng.random()
    return (low + peak) / 2 + (peak - low) / 2 * np.sin(2 * np.pi * turn)


def random(rng: np.random.Generator, seconds: int, low: float, peak: float) -> Float:
    levels = [rng.uniform(low, peak)]
    while len(levels) < seconds / 30:
        levels.append(float(np.clip(levels[-1] * np.exp(rng.normal(0, 0.35)), low, peak)))
    return np.repeat(levels, 30)[:seconds]


SHAPES: tuple[Shape, ...] = (ramp, spike, periodic, random)


@dataclass(frozen=True, slots=True)
class StreamRanges:
    """Ranges that groups are drawn from. Pairs bound a log-uniform draw, unless a comment says otherwise."""

    protocols: tuple[str, ...] = NAMES
    partitions: tuple[int, int] = (4, 48)
    messages_per_second: tuple[float, float] = (20.0, 500.0)
    """That one consumer processes."""
    cold_start: tuple[float, float] = (3.0, 30.0)
    """Mean seconds; that of a pod is up to `cold_start_spread` shorter or longer."""
    cold_start_spread: float = 0.4
    objective: tuple[float, float] = (5.0, 60.0)
    """Seconds that a message may wait."""
    batch_seconds: tuple[float, float] = (0.05, 1.0)
    commit_seconds: tuple[float, float] = (0.5, 5.0)
    busy: tuple[float, float] = (0.2, 1.0)
    """Peak load over the throughput of one consumer for each partition; uniform."""
    low: tuple[float, float] = (0.03, 0.5)
    """The lowest load over the peak."""
    interval_seconds: float = 15.0
    """Seconds between two actions: the default of an RLScalingPolicy."""
    recorded_share: float = 0.3
    """Share of the groups with a stretch of a recorded load, 0 to 1."""
    seconds: int = 600


RANGES = StreamRanges()


def draw(n: int, most: int, rng: np.random.Generator, recorded: Loads, ranges: StreamRanges = RANGES) -> Groups:
    """N groups of up to `most` partitions; every draw comes from `rng`."""

    def log(bounds: tuple[float, float]) -> Float:
        return np.exp(rng.uniform(float(np.log(bounds[0])), float(np.log(bounds[1])), n))

    partitions = np.floor(log((ranges.partitions[0], most + 1))).astype(np.int32).clip(ranges.partitions[0], most)
    rate, cold, batch = log(ranges.messages_per_second), log(ranges.cold_start), log(ranges.batch_seconds)
    peak = partitions * rate * rng.uniform(*ranges.busy, n)
    loads = _loads(n, peak, peak * log(ranges.low), rng, recorded, ranges)
    spread = ranges.cold_start_spread
    return groups(
        loads,
        rng.integers(1 << 30, size=n),
        protocol=rng.choice(ranges.protocols, n),
        partitions=partitions,
        rate=rate,
        batch=np.maximum(batch * rate, 1.0),
        commit_seconds=log(ranges.commit_seconds),
        cold_start_low=cold * (1 - spread),
        cold_start_high=cold * (1 + spread),
        initial=np.clip(np.ceil(loads[:, 0] / rate), 1, partitions).astype(np.int32),
        max_replicas=partitions,
        slo_seconds=log(ranges.objective),
    )


def _loads(n: int, peak: Float, low: Float, rng: np.random.Generator, recorded: Loads, ranges: StreamRanges) -> Float:
    """(N, seconds) messages/s; a recorded stretch reaches the peak of its row."""
    rates = np.stack(
        [SHAPES[rng.integers(len(SHAPES))](rng, ranges.seconds, *bounds) for bounds in zip(low, peak, strict=True)]
    )
    rows = np.flatnonzero(rng.random(n) < ranges.recorded_share)
    if rows.size:
        stretches = recorded(len(rows), ranges.seconds, rng)[0].astype(np.float64)
        rates[rows] = peak[rows, None] * stretches / np.maximum(stretches.max(axis=1, keepdims=True), 1e-9)
    return rates
