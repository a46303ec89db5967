"""Seconds out of wider bins: no bin's mean changes, and the rate moves inside a bin as it does between bins.

A count of a minute leaves the inside of the minute open, and a straight line between two minutes is smoother than any
service. So the rate inside a bin is a line between the middles of the bins times a random modulation with mean 1: gamma
distributed, correlated in time, with the relative variance that was measured between neighbouring bins beyond chance.
Requests drawn around such a rate are a gamma-modulated Poisson process, and in a single second negative binomial. The
relative variance has no unit, so it stays the same when a load is rescaled.

Drawn seconds are likely, not recorded: results on them are to be shown apart from results on recorded ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gdtrix, ndtr

Float = NDArray[np.float64]

CORRELATION_BINS = 0.25
"""Correlation time of the modulation, as a part of a bin."""

LARGEST_VARIANCE = 2.0
"""Relative variances above are taken to be this, a standard deviation of 1.4 times the mean."""

SMALLEST_VARIANCE = 1e-9
"""Relative variances below are taken to be 0: their gamma distribution is narrower than its quantiles are exact."""

BIN_OF_ESTIMATE = 86_400.0
"""Seconds of a stretch; the relative variance is the median of the stretches', so that single jumps do not make it."""


def relative_variance(rate: Float, width_s: float) -> float:
    """Relative variance of a rate (bins,) in requests/s around the line through its neighbours, beyond Poisson counts.

    Zero where the counts vary no more than chance alone would make them. The median over the days of the load: a jump
    that happens once in a week is in the bins themselves and need not be in every second.
    """
    counts = np.asarray(rate, float) * width_s
    if len(counts) < 3:
        return 0.0
    around = counts[1:-1] - (counts[:-2] + counts[2:]) / 2
    excess = around**2 / 1.5 - counts[1:-1]  # 1 + 1/4 + 1/4 of one bin's variance
    size = max(round(BIN_OF_ESTIMATE / width_s), 3)
    variances = []
    for begin in range(0, len(excess), size):
        inside = counts[1:-1][begin : begin + size]
        square = float(np.mean(inside**2 - inside))  # of the rate: that of the counts less what chance adds
        if square > 0:
            variances.append(float(np.mean(excess[begin : begin + size])) / square)
    if not variances:
        return 0.0
    of_square = min(float(np.median(variances)), LARGEST_VARIANCE / (1 + LARGEST_VARIANCE))
    return max(of_square / (1 - of_square), 0.0)


def draw_seconds(
    bins: Float, width: int, variance: float, rng: np.random.Generator, around: Float | None = None
) -> Float:
    """Draw requests/s of every second (len(bins) * width,); the mean of each bin stays exactly the same.

    :param bins: requests/s.
    :param width: seconds in a bin.
    :param variance: relative variance inside a bin, see `relative_variance`.
    :param around: (2,) the bins before and after, for the line at the ends; by default the first and last bin.
    """
    bins = np.asarray(bins, float)
    ends = bins[[0, -1]] if around is None else np.asarray(around, float)
    middles = (np.arange(-1, len(bins) + 1) + 0.5) * width
    line = np.interp(np.arange(len(bins) * width) + 0.5, middles, np.concatenate([ends[:1], bins, ends[1:]]))
    shape = (line * _modulation(len(line), width, variance, rng)).reshape(-1, width)
    mean = shape.mean(1, keepdims=True)
    level = bins[:, None]
    return np.asarray(np.where(mean > 0, shape / np.where(mean > 0, mean, 1.0) * level, level).ravel())


def _modulation(seconds: int, width: int, variance: float, rng: np.random.Generator) -> Float:
    """(seconds,) gamma distributed with mean 1, of a Gaussian autoregression of first order through its quantiles."""
    if variance < SMALLEST_VARIANCE or width < 2:
        return np.ones(seconds)
    ratio = 1 / CORRELATION_BINS
    left = 1 - 2 / ratio + 2 / ratio**2 * (1 - np.exp(-ratio))  # of the variance, once every bin has its own mean
    shape = left / min(variance, LARGEST_VARIANCE)
    # It takes seconds to import, and a wrong history is refused before any second is drawn.
    from scipy.signal import lfilter

    step = np.exp(-ratio / width)
    noise = rng.standard_normal(seconds)
    noise[1:] *= np.sqrt(1 - step**2)
    return np.asarray(gdtrix(shape, shape, ndtr(lfilter([1.0], [1.0, -step], noise))))
