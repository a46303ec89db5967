"""Due times of a policy: action intervals and the sensing ticks between them; and pauses that grow. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

HURRY_SECONDS = 1.0

ACTIONS_AT_ONCE = 50
"""Actions that one tick may always have, however few there would be on an even spread."""

FAILURES = 3
LONGEST_BREAK_SECONDS = 10.0
"""Longest break of a policy whose ticks fail; short, as growth must not wait long once the cause has gone."""


class Due(IntEnum):
    """The tick that a policy is due for; an action includes a sensing tick."""

    NOTHING = 0
    SENSE = 1
    ACTION = 2


@dataclass(slots=True)
class Schedule:
    """Due times of one policy on the monotonic clock."""

    interval_seconds: float
    sense_seconds: float
    next_sense: float
    next_action: float
    last: float = float("-inf")

    @classmethod
    def starting(cls, interval_seconds: float, sense_seconds: float, now: float) -> Schedule:
        """Return a schedule that senses at once and acts after one interval, when the history has several samples."""
        # Due times lie on a grid, so that policies of one interval share a query to Prometheus.
        first = _grid(now, sense_seconds)
        return cls(interval_seconds, sense_seconds, now, first + interval_seconds)

    def retimed(self, interval_seconds: float, sense_seconds: float, now: float) -> Schedule:
        """Return the schedule after an edit of the spec: a shorter interval shortens the wait, never restarts it."""
        if (interval_seconds, sense_seconds) == (self.interval_seconds, self.sense_seconds):
            return self
        action = min(self.next_action, _grid(now, sense_seconds) + interval_seconds)
        return Schedule(interval_seconds, sense_seconds, now, action, self.last)

    def due(self, now: float, within: float = 0.0) -> Due:
        """Return the tick that is due at `now`, or within the given seconds after it."""
        if self.next_action <= now + within:
            return Due.ACTION
        return Due.SENSE if self.next_sense <= now + within else Due.NOTHING

    def hurry(self, now: float) -> None:
        """Make a sensing tick due soon, yet not twice within a second."""
        # Once a second at most: a burst of events would otherwise query Prometheus for each.
        self.next_sense = min(self.next_sense, max(now, self.last + HURRY_SECONDS))

    @property
    def share(self) -> float:
        """Share (0 to 1) of the sensing ticks that are actions, in the mean."""
        return min(1.0, self.sense_seconds / self.interval_seconds)

    def postpone(self, ticks: int) -> None:
        """Move the action so many sensing ticks later; it keeps its interval from there."""
        self.next_action += ticks * self.sense_seconds

    def next(self) -> float:
        return min(self.next_sense, self.next_action)

    def done(self, what: Due, now: float) -> None:
        """Set the next due times. Missed ones are skipped, not caught up with."""
        self.last = now
        self.next_sense = _grid(now, self.sense_seconds)
        if what is Due.ACTION:
            # An action late by several intervals is taken once, and the next one keeps the rhythm.
            missed = max(0, math.floor((now - self.next_action) / self.interval_seconds))
            self.next_action += (1 + missed) * self.interval_seconds
        # An action includes sensing: the two are merged where they are close.
        if self.next_action - self.next_sense < self.sense_seconds / 2:
            self.next_sense = self.next_action


@dataclass(slots=True)
class Breaker:
    """Pauses a policy whose ticks keep failing, so that they do not hold up those of other policies."""

    failures: int = 0
    until: float = float("-inf")
    """Monotonic time at which the pause ends."""

    def failed(self, now: float) -> None:
        """Pause 1, 2, 4, ... seconds from the third failure in a row on, never longer than `LONGEST_BREAK_SECONDS`."""
        self.failures += 1
        if self.failures >= FAILURES:
            # The exponent is capped before the power, which would overflow after many failures.
            self.until = now + min(LONGEST_BREAK_SECONDS, 2.0 ** min(self.failures - FAILURES, 10))

    def succeeded(self) -> None:
        self.failures, self.until = 0, float("-inf")


@dataclass(slots=True)
class Timing:
    """Due times of a policy, and pauses of its ticks. `loop/engine.py` writes it."""

    schedule: Schedule | None = None
    """None before the first look at a policy, and while it is not running."""
    busy: int = 0
    """Tasks under way for it."""
    breaker: Breaker = field(default_factory=Breaker)


def spread(due: list[tuple[Schedule, Due]], evenly: float) -> list[Due]:
    """Return the tick of each due policy: of very many actions at once, some are moved by a few ticks.

    An action costs ten times a sensing tick, and policies that were created together would act together for ever. Once
    `postpone`d they stay apart. `evenly` actions per tick would be due if all policies were spread evenly; at most
    twice as many act, so no policy waits longer than half an interval.
    """
    acting = [schedule for schedule, what in due if what is Due.ACTION]
    # Twice the even spread: a smaller limit would let a burst wait longer than half an interval.
    most = max(ACTIONS_AT_ONCE, math.ceil(2 * evenly))
    for number, schedule in enumerate(acting[most:]):
        schedule.postpone(1 + number // most)
    late = {id(schedule) for schedule in acting[most:]}
    return [Due.SENSE if id(schedule) in late else what for schedule, what in due]


def _grid(now: float, step: float) -> float:
    """Return the next multiple of `step` at least half a step away: policies with one step share their ticks."""
    # At least half a step away: an event just before a tick must not cause two in a row.
    return step * math.ceil(now / step + 0.5)


LONGEST_SECONDS = 3600.0
"""The longest pause, and the shortest quiet after which a repetition counts as the first one again."""


@dataclass(slots=True)
class GrowingBackoff:
    """A pause that doubles with every repetition. Times are in seconds by any clock that does not go backwards."""

    seconds: float = 0.0
    """The pause that the last repetition began; 0 = none."""
    until: float = float("-inf")
    """When that pause is over."""
    last: float = float("-inf")
    """When the last repetition came."""

    def again(self, now: float, first_seconds: float) -> None:
        """Note one more repetition.

        The first begins no pause, the second a pause of `first_seconds`, each further one twice the last. No pause is
        longer than `LONGEST_SECONDS`. An hour of quiet after the last pause begins anew.
        """
        repeated = now - max(self.last, self.until) <= LONGEST_SECONDS
        self.seconds = min(max(first_seconds, 2 * self.seconds), LONGEST_SECONDS) if repeated else 0.0
        self.last, self.until = now, now + self.seconds

    def waits(self, now: float) -> bool:
        """Return True while the pause is not over."""
        return now < self.until
