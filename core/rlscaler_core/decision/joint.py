"""The worst of several latencies that have objectives, as of the first and of each further token. Pure."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import Float, Int


def worst_latency(shares: Float, ages: Float | float = 0.0) -> Int:
    """Return the column (N,) of the latency that stands for all of a row; -1 where none does.

    `shares` (N, K) are latencies over their objectives, not finite = unknown, and `ages` their ages in seconds. Where
    one of them is unknown none stands for all, unless another is above its objective.
    """
    # Whatever the others are, a latency above its objective is overload, which has to raise replicas. Of several the
    # youngest counts: a stale one would hide it. Below its objective one latency does not stand for the others: a
    # renamed histogram would pass for a fast server.
    known = np.isfinite(shares)
    late = known & (shares > 1)
    youngest = late & (ages == np.where(late, ages, np.inf).min(axis=1, keepdims=True))
    counts = np.where(late.any(axis=1, keepdims=True), youngest, known.all(axis=1, keepdims=True))
    worst = np.where(counts, shares, -np.inf).argmax(axis=1)
    return np.where(counts.any(axis=1), worst, -1).astype(np.int32)
