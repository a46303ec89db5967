"""Changes of shared pools in the middle of an episode: tenants come and go, GPUs are lost and come back.

An absent tenant has no load, no pods and no place in the budget. Its Deployment comes back with one replica. A lost GPU
takes its pod with it; the ReplicaSet creates another, which waits for a GPU and then for its cold start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.tenants.room import Long

Change = Literal["none", "join", "leave", "gpus"]
"""Change in each pool: none; the first tenant comes after half of the episode; the first tenant is absent in the middle
third; a quarter of the GPUs is lost in the middle third."""

LOST = 0.25
"""Part of a pool's GPUs that is lost, rounded."""


@dataclass(frozen=True, slots=True)
class Course:
    """When N tenants are away and how many GPUs of P pools are lost when, in seconds from the begin of the episode."""

    away_from: Float
    """(N,) inf: never."""
    away_until: Float
    """(N,)"""
    lost: Long
    """(P,) GPUs."""
    lost_from: float = np.inf
    lost_until: float = np.inf

    def away(self, second: float) -> Bool:
        """Return the tenants (N,) that are absent at a second of the episode."""
        return (self.away_from <= second) & (second < self.away_until)

    def there(self, seconds: int) -> Bool:
        """Return the seconds of an episode (N, seconds) in which each tenant is present."""
        time = np.arange(seconds)
        return ~((self.away_from[:, None] <= time) & (time < self.away_until[:, None]))


def course(change: Change, pool: Int, gpus: Long, seconds: int) -> Course:
    """Lay out a change for tenants of the pools `pool` (N,), with `gpus` (P,), over an episode of so many seconds."""
    third, half = (int(seconds / part // SENSE_SECONDS) * SENSE_SECONDS for part in (3, 2))
    spans = {"join": (0, half), "leave": (third, 2 * third)}
    begin, end = np.full((2, len(pool)), np.inf)
    if change in spans:
        first = np.unique(pool, return_index=True)[1]
        begin[first], end[first] = spans[change]
    if change == "gpus":
        return Course(begin, end, np.round(LOST * gpus).astype(np.int64), third, 2 * third)
    return Course(begin, end, np.zeros(len(gpus), np.int64))
