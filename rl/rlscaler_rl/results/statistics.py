"""Paired bootstrap over independent units: drawn episodes, blocks of a trace, origins of loads, pools, training seeds.

Contenders play the same arrivals with the same cold starts, so one resample of the units serves all: the mean of each
contender is taken under the same weights, and a difference, a ratio or a share of such means is paired. Each episode of
a drawn load has a seed of its own and is one unit. Episodes that replay one block of a trace with other arrivals are
not independent: the block is the unit. Few units widen the interval as Student's t widens a standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator
from scipy.special import ndtri, stdtrit

from rlscaler_core.decision.types import Float

CONFIDENCE = 0.95
RESAMPLES = 10_000
MANY_EPISODES = 2_000
"""Episodes above which a fifth of the resamples is drawn: the weights would take hundreds of megabytes."""

FEWEST_UNITS = 3
"""Independent units below which no comparison is decided."""


class Verdict(StrEnum):
    """Verdict on the subject of a comparison; lower scores are better."""

    WIN = "win"
    LOSS = "loss"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its bootstrap confidence interval; the bounds are infinite where the units are too few for one."""

    mean: float
    low: Annotated[float, BeforeValidator(lambda bound: -np.inf if bound is None else bound)]
    high: Annotated[float, BeforeValidator(lambda bound: np.inf if bound is None else bound)]
    """JSON knows no infinity: a bound that is not there is null in a result file."""

    @classmethod
    def of(cls, mean: float, resampled: Float) -> Interval:
        """Percentile interval of `resampled` (B,); a point when nothing varies."""
        if np.ptp(resampled) < 1e-12:
            return cls(mean, mean, mean)
        low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return cls(mean, float(low), float(high))

    def within(self, low: float, high: float = np.inf) -> Interval:
        """Return the interval within the bounds of the quantity, of which the t widening of few units knows nothing."""
        return self if np.isinf(self.low) else Interval(self.mean, max(self.low, low), min(self.high, high))

    @property
    def verdict(self) -> Verdict:
        """Verdict of a difference, subject minus rival: an interval that touches zero decides nothing."""
        if self.high < 0:
            return Verdict.WIN
        return Verdict.LOSS if self.low > 0 else Verdict.UNDECIDED

    def __format__(self, form: str) -> str:
        """Return `shown` of a form such as `.2f`, and of a form and a unit such as `+.1f %`."""
        form, space, unit = form.partition(" ")
        return self.shown(form, space + unit)

    def shown(self, form: str = "+.1f", unit: str = "") -> str:
        """Return text such as `+1.3 % [-0.2, +2.8]`, the mean alone where there are no bounds."""
        bounds = f" [{self.low:{form}}, {self.high:{form}}]" if np.isfinite(self.low) else ""
        return f"{self.mean:{form}}{unit}{bounds}"


@dataclass(frozen=True, slots=True)
class Design:
    """Dependence between the episodes of one workload; rows run by run."""

    runs: int
    episodes: int
    """Per run."""

    blocks: tuple[int, ...] | None = None
    """Number of the trace block that each episode replays; None where each episode is drawn by itself."""

    @property
    def units(self) -> int:
        """Number of independent units: episodes, or distinct blocks."""
        return self.runs * self.episodes if self.blocks is None else len(set(self.blocks))

    @property
    def decidable(self) -> bool:
        return self.units >= FEWEST_UNITS


def blocks_of(rate: NDArray[np.floating[Any]]) -> tuple[int, ...]:
    """Return the block number of each episode: equal rows of the expected rate (N, T), numbered as they appear."""
    seen: dict[bytes, int] = {}
    return tuple(seen.setdefault(np.ascontiguousarray(row).tobytes(), len(seen)) for row in rate)


@lru_cache(maxsize=32)
def weights(design: Design, workload: int = 0, seed: int = 0) -> Float:
    """Return the weight of each episode in each resample, (B, N); rows add up to 1.

    `workload` is the number of the workload, `seed` that of the resampling.
    """
    count = design.runs * design.episodes
    resamples = RESAMPLES if count <= MANY_EPISODES else RESAMPLES // 5
    if count == 1:
        return np.ones((resamples, 1))
    if design.blocks is None or design.units == 1:
        # Episode i has the same seed in all workloads, so drawn loads are resampled alike in all of them. A single
        # block is resampled by its episodes, and its verdict is undecided.
        return _of_units(np.arange(count), np.random.default_rng([seed, 1]), resamples)
    return _of_units(np.array(design.blocks), np.random.default_rng([seed, 2, workload]), resamples)


def _of_units(units: np.ndarray, generator: np.random.Generator, resamples: int) -> Float:
    """Return weights (B, N) that draw whole units, however many episodes each has."""
    count = int(units.max()) + 1
    drawn = generator.multinomial(count, np.full(count, 1 / count), resamples)
    # Weights that are linear in the number of draws keep the mean without bias.
    surplus = drawn[:, units] - 1.0
    surplus -= surplus.mean(axis=1, keepdims=True)
    return np.asarray((1 + widening(count) * surplus) / len(units))


def widening(units: int) -> float:
    """Return the width of a 95 % t interval of `units` draws over that of their bootstrap interval."""
    # The bootstrap's variance is (K - 1)/K of the unbiased one, and its tails are normal instead of t with K - 1
    # degrees of freedom (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 3.2).
    tail = (1 + CONFIDENCE) / 2
    return float(np.sqrt(units / (units - 1)) * stdtrit(units - 1, tail) / ndtri(tail))


@lru_cache(maxsize=8)
def seed_weights(models: int, resamples: int, seed: int = 0) -> Float:
    """Return the weight of each training seed in each resample, (B, M), widened like blocks, since seeds are few."""
    if models == 1:
        return np.ones((resamples, 1))
    drawn = np.random.default_rng([seed, 3]).multinomial(models, np.full(models, 1 / models), resamples) / models
    return np.asarray(1 / models + widening(models) * (drawn - 1 / models))


def over_seeds(resampled: Sequence[Float], seed: int = 0) -> Float:
    """Return means (B,) over training seeds and episodes, of the resampled means (B,) of the network of each seed."""
    stacked = np.stack(resampled, axis=1)
    return np.asarray((seed_weights(stacked.shape[1], len(stacked), seed) * stacked).sum(axis=1))


def mean_interval(values: Float, fewest: int = FEWEST_UNITS) -> Interval:
    """Return the mean of `values`, (units,) or (training seeds, units), with its interval over both.

    Fewer than `fewest` units give no bounds.
    """
    rows = np.atleast_2d(values)
    mean = float(rows.mean())
    if rows.shape[1] < fewest:
        return Interval(mean, -np.inf, np.inf)
    return Interval.of(mean, over_seeds([weights(Design(1, rows.shape[1])) @ row for row in rows]))


def ratio_interval(values: Float, others: Float) -> Interval:
    """Return the mean of `values` over the mean of `others` (units,), minus 1, in percent, with its interval.

    `values` are (units,) or (training seeds, units). None of them is below 0.
    """
    rows = np.atleast_2d(values)
    drawn = weights(Design(1, rows.shape[1]))
    ratios = [100 * (drawn @ row / (drawn @ others) - 1) for row in rows]
    return Interval.of(float(100 * (rows.mean() / others.mean() - 1)), over_seeds(ratios)).within(-100.0)
