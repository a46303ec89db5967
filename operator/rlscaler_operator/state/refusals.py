"""Scale writes that the API server refuses, such as by an admission policy: what is tried meanwhile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Params

HOLD_SECONDS = 120.0
"""Time for which no more is tried than the API server may take."""


@dataclass(slots=True)
class Refusal:
    """The bounds of one target between two attempts at what was refused.

    Each refusal halves the change that is tried next, so that the pool comes as near as the API server lets it, and
    decisions count on no more.
    """

    words: str = ""
    """The API server's words."""
    most: float = math.inf
    fewest: float = 0.0
    until: float = -math.inf
    """Monotonic time until which the bounds are in force."""

    def refused(self, base: int, desired: int, words: str, now: float) -> None:
        """Note that a write of `desired` in place of `base` replicas was refused."""
        if not self.holds(now):
            self.most, self.fewest, self.until = math.inf, 0.0, now + HOLD_SECONDS
        if desired > base:
            self.most = base + (desired - base) // 2
        else:
            self.fewest = base - (base - desired) // 2
        self.words = words

    def holds(self, now: float) -> bool:
        """Return whether the bounds are in force."""
        return now < self.until


def within(params: Params, pools: Iterable[tuple[int, int, Refusal]], now: float) -> Params:
    """Return `params` (one row) with limits that the API server accepts; `pools` are number, replicas and refusal.

    What runs already is within them, whoever set it.
    """
    lowest, highest = params.min_replicas, params.max_replicas
    for pool, running, refusal in pools:
        if refusal.holds(now):
            most, fewest = max(refusal.most, running), min(refusal.fewest, running)
            at = np.arange(2) == pool
            highest = np.where(at, np.minimum(highest, most), highest).astype(np.int32)
            lowest = np.minimum(np.where(at, np.maximum(lowest, fewest), lowest), highest).astype(np.int32)
    unchanged = lowest is params.min_replicas and highest is params.max_replicas
    return params if unchanged else replace(params, min_replicas=lowest, max_replicas=highest)
