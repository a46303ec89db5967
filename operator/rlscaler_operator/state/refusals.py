"""Scale writes that the API server refuses, such as by an admission policy, and bounds of the next attempts. Pure."""

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
    """Bounds of one target until the refused number of replicas is tried again.

    Each attempt goes half of the way to the refused number, so that the pool comes as near as the API server allows,
    and decisions count on no more replicas.
    """

    words: str = ""
    """The API server's words."""
    growth: float = math.inf
    """The fewest replicas that were refused when the pool should grow."""
    shrinking: float = -math.inf
    """The most replicas that were refused when it should shrink."""
    until: float = -math.inf
    """Monotonic time until which the bounds are in force."""

    def refused(self, base: int, desired: int, words: str, now: float) -> None:
        """Note that a write of `desired` in place of `base` replicas was refused."""
        if not self.holds(now):
            self.growth, self.shrinking, self.until = math.inf, -math.inf, now + HOLD_SECONDS
        if desired > base:
            self.growth = desired
        else:
            self.shrinking = desired
        self.words = words

    def bounds(self, running: int) -> tuple[float, float]:
        """Return the fewest and the most replicas that are tried beside those that run."""
        most = math.inf if math.isinf(self.growth) else max(running, (running + self.growth) // 2)
        fewest = 0 if math.isinf(self.shrinking) else min(running, (running + self.shrinking + 1) // 2)
        return fewest, most

    def holds(self, now: float) -> bool:
        """Return whether the bounds are in force."""
        return now < self.until


def within(params: Params, pools: Iterable[tuple[int, int, Refusal]], now: float) -> Params:
    """Return `params` (one row) with limits that the API server accepts; `pools` are number, replicas and refusal.

    Replicas that run already are within the limits, whichever client set them.
    """
    lowest, highest = params.min_replicas, params.max_replicas
    for pool, running, refusal in pools:
        if refusal.holds(now):
            fewest, most = refusal.bounds(running)
            at = np.arange(2) == pool
            highest = np.where(at, np.minimum(highest, most), highest).astype(np.int32)
            lowest = np.minimum(np.where(at, np.maximum(lowest, fewest), lowest), highest).astype(np.int32)
    unchanged = lowest is params.min_replicas and highest is params.max_replicas
    return params if unchanged else replace(params, min_replicas=lowest, max_replicas=highest)
