"""Paired intervals over runs (seeds) and episodes.

Contenders play the same arrivals with the same cold starts, so scores are compared episode by episode; the
differences are resampled on two levels, runs first and episodes within runs, because episodes of one run share a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.types import Float

CONFIDENCE = 0.95
RESAMPLES = 10_000
MANY_EPISODES = 2_000
"""Above this the resampling weights would take hundreds of megabytes."""


class Verdict(StrEnum):
    """From the policy's point of view; lower scores are better."""

    WIN = "win"
    LOSS = "loss"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its bootstrap confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """For a difference policy - contender: an interval that touches zero decides nothing."""
        if self.high < 0:
            return Verdict.WIN
        return Verdict.LOSS if self.low > 0 else Verdict.UNDECIDED


def interval(scores: Float, seed: int = 0) -> Interval:
    """The mean of `scores` (runs, episodes), or (workloads, runs, episodes) with equal weight per workload.

    Several runs: percentile bootstrap over runs and episodes. One run: BCa over its episodes (`scipy.stats.bootstrap`).
    Fewer than two observations, or all equal: the interval is the mean itself. NaN episodes are refused, because a
    mean over what happened to be defined is not a paired comparison.
    """
    stacked = np.atleast_3d(scores) if scores.ndim == 3 else scores[None, ...]
    if not np.isfinite(stacked).all():
        raise ValueError("scores contain NaN; every episode of a paired comparison needs a score")
    mean = float(stacked.mean())
    if np.ptp(stacked, axis=(1, 2)).max() < 1e-12:
        return Interval(mean, mean, mean)
    workloads, runs, _ = stacked.shape
    if runs == 1 and workloads == 1:
        return _bca(stacked[0, 0], mean, seed)
    low, high = np.quantile(_resampled_means(stacked, seed), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(mean, float(low), float(high))


def paired_difference(policy: Float, contender: Float, seed: int = 0) -> Interval:
    """`policy` - `contender`, same shapes, row by row; below zero the policy is better."""
    if policy.shape != contender.shape:
        raise ValueError(f"paired scores need one shape, got {policy.shape} and {contender.shape}")
    return interval(policy - contender, seed)


def _resampled_means(stacked: Float, seed: int) -> Float:
    """(resamples,) means; runs are drawn once for all workloads, since a run is a seed shared by all of them."""
    workloads, runs, episodes = stacked.shape
    total: Float = np.zeros(1)
    for index, scores in enumerate(stacked):
        centre = scores.mean()
        total = total + centre + _weights(runs, episodes, index, seed) @ (scores - centre).ravel().astype(np.float32)
    return np.asarray(total / workloads)


@lru_cache(maxsize=8)
def _weights(runs: int, episodes: int, workload: int, seed: int) -> NDArray[np.float32]:
    """(resamples, runs x episodes): how often each episode was drawn, over their number. The same resamples serve
    every row of a report, so drawing them once makes a report 20 times as fast. Many episodes need few resamples."""
    resamples = RESAMPLES if runs * episodes <= MANY_EPISODES else RESAMPLES // 5
    drawn_runs = np.random.default_rng([seed, 0]).integers(0, runs, (resamples, runs))
    generator = np.random.default_rng([seed, 1, workload])
    counts = np.zeros((resamples, runs, episodes), dtype=np.float32)
    rows = np.arange(resamples)
    for draw in range(runs):
        of_episodes = generator.multinomial(episodes, np.full(episodes, 1 / episodes), resamples)
        counts[rows, drawn_runs[:, draw]] += of_episodes.astype(np.float32)
    return counts.reshape(resamples, -1) / np.float32(runs * episodes)


def _bca(scores: Float, mean: float, seed: int) -> Interval:
    from scipy.stats import bootstrap

    generator = np.random.default_rng(seed)
    found = bootstrap((scores,), np.mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, rng=generator)
    return Interval(mean, float(found.confidence_interval.low), float(found.confidence_interval.high))
