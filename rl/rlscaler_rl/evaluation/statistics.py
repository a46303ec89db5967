"""Paired bootstrap over what is independent: drawn episodes, blocks of a trace, training seeds.

Contenders play the same arrivals with the same cold starts, so one resample of the episodes serves all: every
contender's mean is taken under the same weights, and a difference, a ratio or a share of such means is paired without
further ado. Of loads that are drawn anew every episode has a seed of its own and is resampled by itself. Episodes that
replay one block of a trace with other arrivals are not independent: whole blocks are resampled. Where there are few of
either their spread is widened as Student's t widens a standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from rlscaler_core.decision.types import Float

CONFIDENCE = 0.95
RESAMPLES = 10_000
MANY_EPISODES = 2_000
"""Above this the resampling weights would take hundreds of megabytes."""

FEWEST_UNITS = 3
"""A row with fewer independent draws is never decided: two cannot say how they differ."""


class Verdict(StrEnum):
    """Verdict from the policy's point of view; lower scores are better."""

    WIN = "win"
    LOSS = "loss"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its bootstrap confidence interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean: float, resampled: Float) -> Interval:
        """Percentile interval of `resampled` (B,); a point when nothing varies."""
        if np.ptp(resampled) < 1e-12:
            return cls(mean, mean, mean)
        low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return cls(mean, float(low), float(high))

    @property
    def verdict(self) -> Verdict:
        """What a difference policy - contender says: an interval that touches zero decides nothing."""
        if self.high < 0:
            return Verdict.WIN
        return Verdict.LOSS if self.low > 0 else Verdict.UNDECIDED


@dataclass(frozen=True, slots=True)
class Design:
    """How the episodes of one workload hang together; rows run by run."""

    runs: int
    episodes: int
    """Per run."""

    blocks: tuple[int, ...] | None = None
    """Which block of a trace every episode replays; None where every episode is a draw of its own."""

    @property
    def units(self) -> int:
        """Independent draws: episodes, or distinct blocks."""
        return self.runs * self.episodes if self.blocks is None else len(set(self.blocks))

    @property
    def decidable(self) -> bool:
        return self.units >= FEWEST_UNITS


def blocks_of(rate: NDArray[np.floating[Any]]) -> tuple[int, ...]:
    """Which episodes replay the same block: equal rows of the expected rate (N, T), numbered as they appear."""
    seen: dict[bytes, int] = {}
    return tuple(seen.setdefault(np.ascontiguousarray(row).tobytes(), len(seen)) for row in rate)


@lru_cache(maxsize=32)
def weights(design: Design, workload: int = 0, seed: int = 0) -> Float:
    """(B, N) weight of every episode in every resample; rows add up to 1.

    Drawn loads are resampled alike in all workloads, because episode i has the same seed in all of them; blocks of
    traces by themselves in each (`workload` is its number). Of a single block its episodes, which decide nothing.
    """
    count = design.runs * design.episodes
    resamples = RESAMPLES if count <= MANY_EPISODES else RESAMPLES // 5
    if count == 1:
        return np.ones((resamples, 1))
    if design.blocks is None or design.units == 1:
        return _of_units(np.arange(count), np.random.default_rng([seed, 1]), resamples)
    return _of_units(np.array(design.blocks), np.random.default_rng([seed, 2, workload]), resamples)


def _of_units(units: np.ndarray, generator: np.random.Generator, resamples: int) -> Float:
    """Whole units, however many episodes each has; linear in how often one was drawn, hence without bias.

    `widening` makes the spread that of a t interval with as few degrees of freedom.
    """
    count = int(units.max()) + 1
    drawn = generator.multinomial(count, np.full(count, 1 / count), resamples)
    surplus = drawn[:, units] - 1.0
    surplus -= surplus.mean(axis=1, keepdims=True)
    return np.asarray((1 + widening(count) * surplus) / len(units))


def widening(units: int) -> float:
    """How much wider a 95 % t interval of `units` draws is than what their bootstrap shows.

    The bootstrap's variance is (K - 1)/K of the unbiased one and its tails are normal instead of t with K - 1
    degrees of freedom (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 3.2).
    """
    tail = (1 + CONFIDENCE) / 2
    return float(np.sqrt(units / (units - 1)) * stdtrit(units - 1, tail) / ndtri(tail))


@lru_cache(maxsize=8)
def seed_weights(models: int, resamples: int, seed: int = 0) -> Float:
    """(B, M) weight of every trained seed in every resample, widened like blocks: there are few."""
    if models == 1:
        return np.ones((resamples, 1))
    drawn = np.random.default_rng([seed, 3]).multinomial(models, np.full(models, 1 / models), resamples) / models
    return np.asarray(1 / models + widening(models) * (drawn - 1 / models))


def over_seeds(resampled: Sequence[Float], seed: int = 0) -> Float:
    """(B,) means over trained seeds and episodes at once, from the resampled means (B,) of every seed's policy."""
    stacked = np.stack(resampled, axis=1)
    return np.asarray((seed_weights(stacked.shape[1], len(stacked), seed) * stacked).sum(axis=1))
