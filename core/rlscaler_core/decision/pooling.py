"""Utilization of large pools: spare capacity has to grow with the square root of the load only.

Source: Halfin and Whitt, "Heavy-traffic limits for queues with many exponential servers", 1981.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.situation import pays_for_starts
from rlscaler_core.decision.types import Float, Params

LOADING = 1.15
"""Replicas are loaded this much above `targetUtilization`, never above their whole capacity, where a start has a
price."""

SMALL_POOL = 3.0
"""Replicas up to which a utilization holds as it is."""

LEAST_SPARE = 0.25
"""Part of the spare capacity that is always kept: the law is one of chance alone, and real loads also wander, and are
not spread evenly over the replicas."""


def pooled(utilization: Float, load: Float, unit: Float) -> Float:
    """Return the utilization (N, 2) that many replicas bear as well as `SMALL_POOL` of them bear the one given (N, 2).

    `load` (N,) is in requests/s, `unit` (N, 2) the capacity of one replica.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Halfin and Whitt: n servers need spare capacity in proportion to sqrt(n), so its share falls with 1/sqrt(n).
        share = np.sqrt(np.clip(SMALL_POOL * unit / load[:, None], LEAST_SPARE**2, 1.0))
    return np.asarray(1 - (1 - utilization) * np.where(np.isnan(share), 1.0, share), np.float64)


def eased(params: Params, arrivals: Float) -> Float:
    """Return rates (N,) whose replicas at `target_utilization` are those of `arrivals` (N,) at the pooled utilization.

    The pool of the larger replicas counts, which is the fewer replicas. Where starts have a price the utilization is
    that of the forecast rule. Never less than the arrivals need at full capacity, and NaN where they are not known.
    """
    # A floor stricter than the rule starts a replica for the peaks of the noise, which the rule then removes: ten
    # times the starts on a smooth load, and the replica is rarely ready before it goes.
    loading = np.where(pays_for_starts(params), LOADING, 1.0)[:, None]
    unit = np.where(params.present, np.nan_to_num(params.requests_per_second), 0.0)
    largest = np.repeat(unit.max(axis=1, keepdims=True), 2, axis=1)
    target = np.where(params.present, params.target_utilization, 1.0)
    ratio = target / pooled(np.minimum(loading * target, 1.0), arrivals, largest)
    return np.asarray(arrivals * np.where(params.present, ratio, 0.0).max(axis=1), np.float64)
