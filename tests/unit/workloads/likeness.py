"""How alike the drawn loads are to recorded ones: the statistics that decide how hard a load is to scale for.

All are of stretches of an hour. A rate is put where its mean is `MEAN_RPS`, and requests arrive around it by chance, so
that loads of any size compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.generative import draw
from rlscaler_rl.workloads.library import recording
from rlscaler_rl.workloads.names import HELD_OUT, TRACES, Part
from rlscaler_rl.workloads.stretches import StretchLoads

Float = NDArray[np.float64]
Statistics = Mapping[str, Float]
"""Name -> (N,) one value for each stretch; NaN where a stretch has no requests."""

HOUR = 3600
MEAN_RPS = 50.0
WIDTHS = (1, 10, 60)
"""Seconds over which requests are counted for the dispersion."""

LAGS = (60, 600)
JUMPS = (1.5, 2.5)
"""A jump is a rate over ten seconds that is so many times the mean of the minute before."""


def statistics(rate: NDArray[np.float32], rng: np.random.Generator) -> Statistics:
    """The statistics of stretches (N, T) of rates in any unit; T is a multiple of 60."""
    mean = rate.mean(axis=1, dtype=np.float64)
    known = mean > 0
    scaled = rate * (MEAN_RPS / np.where(known, mean, 1.0))[:, None]
    requests = rng.poisson(scaled).astype(np.float64)
    tens = _sums(requests, 10) / 10
    found = {"peak over mean": tens.max(axis=1) / MEAN_RPS}
    for width in WIDTHS:
        counts = _sums(requests, width)
        # Around the line of the ten minutes, so that day and night are no dispersion.
        around = counts - _smooth(counts, max(600 // width, 1))
        found[f"dispersion, {width} s"] = around.var(axis=1) / np.maximum(counts.mean(axis=1), 1e-9)
    for lag in LAGS:
        found[f"autocorrelation, {lag} s"] = _autocorrelation(tens, lag // 10)
    for height in JUMPS:
        found[f"jumps of {height:g}x an hour"] = _jumps(tens, height) * HOUR / rate.shape[1]
    return {name: np.where(known, values, np.nan) for name, values in found.items()}


def _sums(requests: Float, width: int) -> Float:
    return np.asarray(requests.reshape(len(requests), -1, width).sum(axis=2), np.float64)


def _smooth(counts: Float, width: int) -> Float:
    """(N, K) centred moving average; the ends take what there is."""
    padded = np.pad(counts, ((0, 0), (1, 0))).cumsum(axis=1)
    place = np.arange(counts.shape[1])
    first, last = np.maximum(place - width // 2, 0), np.minimum(place + width // 2 + 1, counts.shape[1])
    return np.asarray((padded[:, last] - padded[:, first]) / (last - first), np.float64)


def _autocorrelation(values: Float, lag: int) -> Float:
    around = values - values.mean(axis=1, keepdims=True)
    variance = np.maximum((around**2).mean(axis=1), 1e-12)
    return np.asarray((around[:, lag:] * around[:, :-lag]).mean(axis=1) / variance, np.float64)


def _jumps(tens: Float, height: float) -> Float:
    """(N,) how often the rate of ten seconds rises above `height` times the minute before; a jump counts once."""
    before = np.cumsum(np.pad(tens, ((0, 0), (1, 0))), axis=1)
    minute = (before[:, 6:-1] - before[:, :-7]) / 6
    high = tens[:, 6:] > height * minute
    return np.asarray((high[:, 1:] & ~high[:, :-1]).sum(axis=1), np.float64)


def drawn_and_recorded(stretches: int = 400, traces: Path | None = None, seed: int = 0) -> dict[str, Statistics]:
    """The statistics of drawn stretches, and of stretches of the train part of every recorded load that has one."""
    rng = np.random.default_rng(seed)
    found = {"drawn": statistics(draw(stretches, HOUR, rng).rate, rng)}
    for name in TRACES:
        if name != HELD_OUT:
            loads = StretchLoads([recording(name, traces)], 1.0, part=Part.TRAIN, changed=False)
            found[name] = statistics(loads(stretches, HOUR, rng).rate, rng)
    return found


def uncovered(found: Mapping[str, Statistics]) -> dict[str, list[str]]:
    """Recorded load -> statistics whose median lies outside of what 98 % of the drawn stretches have."""
    drawn = found["drawn"]
    low, high = ({name: np.nanquantile(values, level) for name, values in drawn.items()} for level in (0.01, 0.99))
    return {
        load: [name for name, values in columns.items() if not low[name] <= np.nanmedian(values) <= high[name]]
        for load, columns in found.items()
        if load != "drawn"
    }
