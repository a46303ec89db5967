"""What one replica can answer, learned from loaded intervals. Pure; times are passed in."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import mean, stdev

LOADED_PERCENT = 50.0
"""Below this utilization, what a replica answers says little about what it can."""

KEPT = 60
NEEDED = 8
"""Samples before anything is published."""

DEVIATIONS = 2.4
"""Standard errors below the mean: one-sided 97.5 % for `NEEDED` samples (Student), more for more."""

MOVE_PER_HOUR = 0.10
"""The most by which the published value may move, as a share of it: no load test and no outage turns it over."""

DIGITS = 3


@dataclass(slots=True)
class Capacity:
    """Of the replicas of one pool, in requests/s."""

    value: float | None = None
    """Lower confidence bound, as far as it was allowed to move; None before enough was seen."""
    moved_at: float = 0.0
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _taken_at: float = float("-inf")
    _ready: int = -1
    _steady_since: float = float("-inf")

    def look(
        self, now: float, window_seconds: float, answered: float, ready: int, replicas: int, utilization: float
    ) -> None:
        """Take one interval in: `answered` requests/s by `ready` of `replicas` at `utilization` %; NaN = not known.

        Only a rate window in which the replicas stayed the same counts, and each window once.
        """
        if ready != self._ready:
            self._ready, self._steady_since = ready, now
        if now - self._steady_since < window_seconds or now - self._taken_at < window_seconds:
            return
        if ready <= 0 or ready != replicas or not (answered > 0 and LOADED_PERCENT <= utilization < math.inf):
            return
        self._taken_at = now
        self.samples.append(answered / ready / (utilization / 100))
        self._publish(now)

    def _publish(self, now: float) -> None:
        count = len(self.samples)
        if count < NEEDED:
            return
        bound = mean(self.samples) - DEVIATIONS * stdev(self.samples) / math.sqrt(count)
        if bound <= 0:
            return
        if self.value is not None:
            reach = MOVE_PER_HOUR * self.value * min(1.0, (now - self.moved_at) / 3600)
            bound = min(max(bound, self.value - reach), self.value + reach)
        self.value, self.moved_at = bound, now

    @property
    def published(self) -> float | None:
        """The value for people and parameters: rounded, so that it does not change at every look."""
        return None if self.value is None else float(f"{self.value:.{DIGITS}g}")
