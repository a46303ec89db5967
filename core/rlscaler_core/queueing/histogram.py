"""Percentiles of latencies that were counted in buckets."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import Float

NARROWEST = 1e-12
"""Smallest share of the requests in a bucket that is divided by."""


def quantile(shares: Float, bounds: Float, level: float, narrowest: float = NARROWEST) -> Float:
    """Return the latency (N,) that the share `level` (0 to 1) of the requests did not exceed, in the unit of `bounds`.

    `bounds` (B,) are the upper bounds of the buckets, rising, and `shares` (N, B) the cumulative share of a row's
    requests within each bound, 0 to 1. The result is linear within the first bucket that reaches the level, whose
    lower bound is 0 for the first one, as in Prometheus' `histogram_quantile`. It is infinite where no bucket reaches
    the level: the caller chooses the latency of such a request.
    Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    if not len(bounds):
        return np.full(len(shares), np.inf)
    edges = np.concatenate([[0.0], bounds])
    heights = np.concatenate([np.zeros((len(shares), 1)), shares], axis=1)
    reached = heights >= level
    upper = np.maximum(reached.argmax(axis=1), 1)
    rows = np.arange(len(shares))
    below, above = heights[rows, upper - 1], heights[rows, upper]
    part = np.clip((level - below) / np.maximum(above - below, narrowest), 0.0, 1.0)
    latency = edges[upper - 1] + part * (edges[upper] - edges[upper - 1])
    return np.where(reached.any(axis=1), latency, np.inf)
