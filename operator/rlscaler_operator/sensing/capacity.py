"""The capacity of one replica, learned from intervals under load. Pure: times are passed in.

The rate that a replica answers is a lower bound of its capacity. Divided by the utilization it is an estimate of the
capacity, where the utilization follows the load. The utilization of a GPU under continuous batching may not: it is near
100 % whenever anything runs, and the same division then gives less with every replica that is added. So

- no capacity is learned from a utilization that does not follow the load, nor from a high one of a GPU that has not
  been seen to follow it,
- a learned capacity is lowered only where replicas were overloaded, never because they answer less,
- and never below a rate that a replica was seen to answer, unless more arrives than is answered.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import covariance, mean, median, stdev, variance
from typing import NamedTuple

LOADED_PERCENT = 50.0
"""Least utilization of a sample: below it the answered rate says little about the capacity."""

SUSPECT_PERCENT = 85.0
"""Utilization of a GPU from which on it counts only if it was seen to follow the load."""

KEPT = 60
"""Number of remembered samples: the newest ones."""

NEEDED = 8
"""Samples before a value is published, and samples of one block."""

BLOCKS_KEPT = 24
"""Number of remembered blocks: the newest ones, of three hours or more."""

SPREAD = 1.4
"""Least ratio of the loads per replica of two blocks for a verdict on whether utilization follows the load."""

FOLLOWS, IGNORES = 0.6, 0.3
"""Percent by which utilization grows with each percent of load: from the first on it follows the load, up to the second
it does not. Between the two the last verdict stays."""

SUSTAINED = 3
"""Windows in a row in which a replica must have answered a rate before the rate counts as proven, or as overflowing."""

OVERFLOW = 1.05
"""Ratio of arriving to answered requests from which on a queue grows, or requests are refused."""

DEVIATIONS = 3.0
"""Standard errors between the mean and its lower bound: one-sided 99 % for `NEEDED` samples by Student's distribution,
and a higher confidence for more samples. As later samples do not lower the value, the highest bound counts."""

MOVE_PER_HOUR = 0.10
"""Largest rise of the published value in an hour, as a share of it: a load test does not upset it."""

MOVE_PER_WINDOW = 0.10
"""Largest fall in one window of overload, as a share of the value."""

DIGITS = 3
"""Significant digits of the published value."""


class Sample(NamedTuple):
    """One rate window, per replica."""

    answered: float
    """Requests/s."""
    utilization: float
    """Share of the replica's resource request, from 0.5 on."""


@dataclass(slots=True)
class Capacity:
    """The learned capacity of each replica of one pool, in requests/s."""

    value: float | None = None
    """Lower confidence bound, within the allowed moves; None before `NEEDED` samples.

    It stays while it is not published: the next published value begins there.
    """
    moved_at: float = 0.0
    may_saturate: bool = True
    """True where the utilization may be high whenever anything runs, as that of a GPU. CPU time grows with the work."""
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=KEPT))
    follows: bool | None = None
    """Whether the utilization follows the load; None = no verdict, for want of loads that differ enough."""
    proven: float = 0.0
    """Highest rate that a replica was seen to answer for `SUSTAINED` windows."""
    _blocks: deque[Sample] = field(default_factory=lambda: deque(maxlen=BLOCKS_KEPT))
    _block: list[Sample] = field(default_factory=list)
    _overflows: int = 0
    _taken_at: float = float("-inf")
    _ready: int = -1
    _steady_since: float = float("-inf")

    def look(
        self,
        now: float,
        window_seconds: float,
        answered: float,
        ready: int,
        replicas: int,
        utilization: float,
        arrived: float = math.nan,
        late: bool = False,
    ) -> None:
        """Take in one interval: `answered` requests/s by `ready` of `replicas` at `utilization` %; NaN = unknown.

        `now` is a time in seconds; `arrived` requests/s came in; `late` is True where the latency was above the SLO.
        Only a rate window with constant replicas counts, and each window counts once.
        """
        if ready != self._ready:
            self._ready, self._steady_since = ready, now
            self._block.clear()
        if now - self._steady_since < window_seconds or now - self._taken_at < window_seconds:
            return
        if ready <= 0 or ready != replicas or not (answered > 0 and LOADED_PERCENT <= utilization < math.inf):
            return
        self._taken_at = now
        self.samples.append(Sample(answered / ready, utilization / 100))
        self._judge()
        self._overflows = self._overflows + 1 if late and arrived > OVERFLOW * answered else 0
        # The lowest rate of the newest windows: a peak in one window proves nothing.
        newest = min(sample.answered for sample in list(self.samples)[-SUSTAINED:])
        if len(self.samples) >= SUSTAINED:
            self.proven = newest if self._overflows >= SUSTAINED else max(self.proven, newest)
        # Late requests at the proven rate show that the value is too high: it falls by steps, not below that rate.
        if late and self.value is not None and self.proven > 0:
            self.value = min(self.value, max(self.proven, (1 - MOVE_PER_WINDOW) * self.value))
        self._publish(now)

    def _judge(self) -> None:
        """Update `follows` from blocks of windows with constant replicas."""
        self._block.append(self.samples[-1])
        if len(self._block) < NEEDED:
            return
        self._blocks.append(Sample(median(s.answered for s in self._block), median(s.utilization for s in self._block)))
        self._block.clear()
        loads = [math.log(block.answered) for block in self._blocks]
        if len(loads) < 2 or max(loads) - min(loads) < math.log(SPREAD):
            return
        # Slope of a regression line through the logarithms: percent of utilization per percent of load.
        slope = covariance(loads, [math.log(block.utilization) for block in self._blocks]) / variance(loads)
        if slope >= FOLLOWS or slope <= IGNORES:
            self.follows = slope >= FOLLOWS

    def _publish(self, now: float) -> None:
        if self.follows is False:
            return
        bound = self._bound()
        if self.value is None:
            self.value, self.moved_at = bound, now
        elif bound is not None and bound > self.value:
            # The allowed rise grows with the time since the last one, for an hour at most: a rest saves up no rise.
            reach = MOVE_PER_HOUR * self.value * min(1.0, (now - self.moved_at) / 3600)
            self.value, self.moved_at = min(bound, self.value + reach), now

    def _bound(self) -> float | None:
        """Return the lower confidence bound of the capacity; None where the samples do not support one."""
        if len(self.samples) < NEEDED:
            return None
        high = 100 * mean(sample.utilization for sample in self.samples) > SUSPECT_PERCENT
        if self.may_saturate and self.follows is None and high:
            return None
        estimates = [sample.answered / sample.utilization for sample in self.samples]
        bound = mean(estimates) - DEVIATIONS * stdev(estimates) / math.sqrt(len(estimates))
        return bound if bound > 0 else None

    @property
    def published(self) -> float | None:
        """The value for the status and the decision, rounded so that it does not change with every interval."""
        if self.value is None or self.follows is False:
            return None
        return float(f"{self.value:.{DIGITS}g}")
