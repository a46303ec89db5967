"""The capacity of one replica, learned from intervals under load. Pure: times are passed in."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import mean, stdev

LOADED_PERCENT = 50.0
"""Utilization below which the requests that a replica answers say little about how many it could answer."""

KEPT = 60
"""Samples that are kept: the newest ones."""

NEEDED = 8
"""Samples that must be there before a value is published."""

DEVIATIONS = 2.4
"""Standard errors between the mean and its lower bound: one-sided 97.5 % for `NEEDED` samples by Student's
distribution, and a higher confidence for more samples."""

MOVE_PER_HOUR = 0.10
"""The largest change of the published value in an hour, as a share of it: no load test and no outage upsets it."""

DIGITS = 3
"""Significant digits of the published value."""


@dataclass(slots=True)
class Capacity:
    """The learned capacity of each replica of one pool, in requests/s."""

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
        """Take in one interval: `answered` requests/s by `ready` of `replicas` at `utilization` %; NaN = not known.

        `now` is a time in seconds. Only a rate window in which the replicas stayed the same counts, and each window
        counts once.
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
        """The value as it is shown and used: rounded, so that it does not change with every interval."""
        return None if self.value is None else float(f"{self.value:.{DIGITS}g}")
