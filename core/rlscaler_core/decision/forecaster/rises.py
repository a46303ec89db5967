"""Distribution of the load's rise above its present level within a horizon: empirical, and recalibrated online.

A forecast is open until its horizon is over; the highest rate meanwhile is then counted as a rise, in the context in
which the forecast was made. Quantiles are recalibrated as in adaptive conformal inference (Gibbs and Candès, "Adaptive
conformal inference under distribution shift", 2021): each miss raises the level that is read from the distribution,
each hit lowers it, so that a q-quantile is exceeded in 1-q of the cases whatever the load does.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster import regression
from rlscaler_core.decision.forecaster.memory import BINS, CONTEXTS, LEVELS, PENDING, Recent
from rlscaler_core.decision.types import Bool, Float, Float32

Rows = NDArray[np.intp]

EPSILON = 0.1
"""Requests/s that are added before a logarithm is taken: to a service that gets next to nothing, little is no rise."""

KEPT = 2000.0
"""Forecasts of a context after which an older one counts for 1/e."""

COUNTED = 20_000.0
"""Forecasts after which coverage has forgotten an older one to 1/e: some days."""

SHRINKAGE = 20.0
"""Forecasts over all contexts that a context's own are joined by."""

PACE = 0.01
"""Step of a quantile's logit for a standard deviation of surprise, with every forecast that is over."""

FARTHEST_SHIFT = 3.0

_LOGIT = np.log(np.array(LEVELS) / (1 - np.array(LEVELS)))
_FINEST, _LOWEST, _HIGHEST = 0.03, -1.5, 3.5
EDGES = np.sinh(np.linspace(np.arcsinh(_LOWEST / _FINEST), np.arcsinh(_HIGHEST / _FINEST), BINS + 1)) * _FINEST
"""Bounds of the bins, in log rises: fine around no rise at all, coarse where the load multiplies."""

_EDGES = EDGES.astype(np.float32)


def log_rate(rate: Float | Float32) -> Float32:
    """Return the logarithm of rates in requests/s, of any shape."""
    return np.asarray(np.log(np.maximum(rate, 0) + EPSILON), np.float32)


def context_of(recent: Recent) -> Float32:
    """Number (N,) the situation: does the load fall, stay or rise, was it higher lately, is it above its daily mean."""
    fast = log_rate(recent.fast)
    trend = fast - log_rate(recent.slow)
    rising = (trend > -0.05).astype(np.float32) + (trend > 0.1)
    peaked = log_rate(recent.peak) - fast > 0.25
    high = fast > log_rate(recent.mean)
    return np.asarray(rising * 4 + peaked * 2 + high, np.float32)


def features(recent: Recent) -> Float32:
    """Return the features (N, FEATURES) of this moment."""
    return regression.features_of(*(log_rate(part) for part in (recent.fast, recent.slow, recent.peak, recent.long)))


def rise_quantile(recent: Recent, context: Float32, level: Float32) -> Float32:
    """Return quantiles (N, 2, L) of the log rise above the line; `level` is (N, 2, L), `context` (N,).

    The distribution of the context, shrunk to that over all contexts, before any recalibration. 0 where there is
    none yet.
    """
    rows = np.arange(len(context))
    everything = recent.rises[:, :, CONTEXTS]
    total = np.maximum(everything.sum(axis=2, keepdims=True), 1e-6)
    weights = recent.rises[rows, :, context.astype(np.intp)] + SHRINKAGE * everything / total
    reached = np.cumsum(weights, axis=2)
    wanted = level * reached[:, :, -1:]
    place = np.minimum((reached[:, :, None, :] < wanted[..., None]).sum(axis=3), BINS - 1)
    below = np.where(place > 0, np.take_along_axis(reached, np.maximum(place - 1, 0), axis=2), 0)
    here = np.take_along_axis(weights, place, axis=2)
    part = np.clip((wanted - below) / np.maximum(here, 1e-9), 0, 1)
    quantiles = _EDGES[place] + part * (_EDGES[place + 1] - _EDGES[place])
    return np.asarray(np.where(reached[:, :, -1:] > 0, quantiles, 0), np.float32)


def between_levels(level: Float) -> tuple[Float, Float]:
    """Return how far `level` (N,) is from the first of `LEVELS` to the second, and from that to the third; 0-1 each."""
    wanted = np.log(level / (1 - level))
    parts = [np.clip((wanted - low) / (high - low), 0, 1) for low, high in itertools.pairwise(_LOGIT)]
    return parts[0], parts[1]


def true_level(recent: Recent, level: Float) -> Float32:
    """Return the level (N, 2) at which the distribution has to be read so that its quantile is one of `level` (N,)."""
    wanted = np.log(level / (1 - level))
    low, middle, high = (recent.shift[:, :, k] for k in range(3))
    first, second = (part[:, None] for part in between_levels(level))
    shift = low + first * (middle - low) + second * (high - middle)
    return _squashed(wanted[:, None] + shift)


def _squashed(logit: Float | Float32) -> Float32:
    return np.asarray(1 / (1 + np.exp(-logit)), np.float32)


def make_forecasts(recent: Recent, due: Bool) -> None:
    """Open a forecast in place in the rows and pools `due` (N, 2) that have room for one."""
    slot = np.isnan(recent.age).argmax(axis=2)
    free = np.isnan(np.take_along_axis(recent.age, slot[..., None], axis=2))[..., 0]
    row, pool = np.nonzero(due & free)
    if not row.size:
        return
    chosen = Recent(*[part[row] for part in recent])
    context = context_of(chosen)
    levels = _squashed(_LOGIT + chosen.shift)
    promised = rise_quantile(chosen, context, levels)
    seen = features(chosen)
    expected = regression.expected_rise(chosen, seen)
    here, place = np.arange(len(row)), slot[row, pool]
    recent.age[row, pool, place] = 0
    recent.start[row, pool, place] = chosen.fast
    recent.context[row, pool, place] = context
    recent.features[row, pool, place] = seen
    recent.expected[row, pool, place] = expected[here, pool]
    recent.highest[row, pool, place] = 0
    recent.promised[row, pool, place] = promised[here, pool]
    recent.issued[row, pool] = 0


def watch(recent: Recent, rate: Float32, elapsed: Float32, fresh: Bool) -> None:
    """Let `elapsed` (N,) seconds pass in place where `fresh` (N,), up to the `rate`; count finished forecasts."""
    passed = np.where(fresh, elapsed, 0).astype(np.float32)
    recent.issued[...] += passed[:, None]
    recent.age[...] += passed[:, None, None]
    seen = fresh[:, None, None]
    np.maximum(recent.highest, rate[:, None, None], out=recent.highest, where=seen)
    over = seen & (recent.age >= recent.horizon[..., None])
    if over.any():
        for slot in range(PENDING):
            row, pool = np.nonzero(over[:, :, slot])
            if row.size:
                _close(recent, row, pool, slot)


def _close(recent: Recent, row: Rows, pool: Rows, slot: int) -> None:
    """Count the forecasts (M,) of one slot, whose horizon is over. Rows and pools occur once."""
    rise = log_rate(recent.highest[row, pool, slot]) - log_rate(recent.start[row, pool, slot])
    keep = np.float32(1 - 1 / KEPT)
    regression.fit(recent, row, pool, recent.features[row, pool, slot], rise, keep)
    rise = rise - recent.expected[row, pool, slot]
    context = np.nan_to_num(recent.context[row, pool, slot].clip(0, CONTEXTS - 1)).astype(np.intp)
    place = np.clip(np.searchsorted(_EDGES, rise, side="right") - 1, 0, BINS - 1)
    for where in (context, CONTEXTS):
        recent.rises[row, pool, where] *= keep
        recent.rises[row, pool, where, place] += 1
    missed = rise[:, None] > recent.promised[row, pool, slot]
    keep = np.float32(1 - 1 / COUNTED)
    recent.missed[row, pool] = recent.missed[row, pool] * keep + missed
    recent.judged[row, pool] = recent.judged[row, pool] * keep + 1
    level = np.array(LEVELS)
    error = (missed - (1 - level)) / np.sqrt(level * (1 - level))
    shift = recent.shift[row, pool] + PACE * error
    recent.shift[row, pool] = np.clip(shift, -FARTHEST_SHIFT, FARTHEST_SHIFT)
    recent.age[row, pool, slot] = np.nan


def forget_open(recent: Recent, rows: Bool) -> None:
    """Drop the open forecasts of the `rows` (N,) in place: the load meanwhile is not known."""
    recent.age[rows] = np.nan


def new_horizon(recent: Recent, rows: Bool, horizon: Float32) -> None:
    """Begin anew in place where (N, 2): the distribution is of the rises within another horizon (N, 2)."""
    sums = (recent.rises, recent.products, recent.targets, recent.slopes, recent.shift, recent.missed, recent.judged)
    for part in sums:
        part[rows] = 0
    recent.age[rows] = np.nan
    recent.issued[rows] = np.inf
    recent.horizon[rows] = horizon[rows]


def judge_anew(recent: Recent) -> None:
    """Forget in place how often forecasts held; the forecasts themselves stay the same."""
    recent.missed[...] = 0
    recent.judged[...] = 0


def coverage(recent: Recent) -> Float:
    """Return the share (N, 2, LEVELS) of forecasts that held; NaN where there was none."""
    judged = recent.judged[..., None].astype(np.float64)
    return np.where(judged > 0, 1 - recent.missed / np.maximum(judged, 1e-9), np.nan)
