"""The expected mean rise: a regression on the recent load, fitted to this service online.

Where minutes are noisy, the load of this moment says little and the peak of late says much; where the load wanders, it
is the other way round. Least squares with exponential forgetting finds out which service it is. The sums are kept, and
with every forecast that is over one sweep of Gauss and Seidel moves the line towards their solution, which needs no
inverse and cannot fail.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.memory import FEATURES, Recent
from rlscaler_core.decision.types import Float32

Rows = NDArray[np.intp]

FARTHEST = 1.5
"""Logarithms beyond which a feature or a rise is taken to be this, so that one outage does not make the line."""

RIDGE = 0.3
"""Sum of squares that every slope starts with: without evidence the load of this moment is expected."""

STEEPEST = 1.5
"""Slopes are kept within this, whatever stands in the sums."""


def features_of(fast: Float32, slow: Float32, peak: Float32, long: Float32) -> Float32:
    """Return (N, FEATURES) numbers: log ratios of mean and peak (N,) to the load now, and a constant."""
    above = [np.clip(part - fast, -FARTHEST, FARTHEST) for part in (slow, peak, long)]
    return np.stack([*above, np.ones_like(fast)], axis=1).astype(np.float32)


def expected_rise(recent: Recent, features: Float32) -> Float32:
    """Return the log rise (N, 2) above the load now to be expected within each pool's horizon, from `features`."""
    return np.asarray(np.einsum("npf,nf->np", recent.slopes, features), np.float32)


def fit(recent: Recent, row: Rows, pool: Rows, features: Float32, rise: Float32, factor: np.float32) -> None:
    """Count rises (M,) that came after `features` (M, FEATURES) in place; rows and pools occur once."""
    rise = np.clip(rise, -FARTHEST, FARTHEST)
    products = recent.products[row, pool] * factor + features[:, :, None] * features[:, None, :]
    targets = recent.targets[row, pool] * factor + features * rise[:, None]
    slopes = recent.slopes[row, pool]
    products, targets, slopes = (np.where(np.isfinite(part), part, 0) for part in (products, targets, slopes))
    recent.products[row, pool], recent.targets[row, pool] = products, targets
    for place in range(FEATURES):
        own = products[:, place, place] + np.float32(RIDGE)
        others = np.einsum("mf,mf->m", products[:, place], slopes) - products[:, place, place] * slopes[:, place]
        slopes[:, place] = np.clip((targets[:, place] - others) / own, -STEEPEST, STEEPEST)
    recent.slopes[row, pool] = slopes
