"""Work of a consumer on its messages. It waits for the time instead of burning CPU, and each consumer has its own
account."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence

from rlscaler_loadgen.service.replica import ServiceTimes


class Account:
    """One consumer works on one message after another.

    A message that waited begins at the moment at which the one before it was due to end, so that a busy machine delays
    messages a little but does not take capacity away. All times are seconds of the monotonic clock.
    """

    def __init__(self, mean_seconds: float, times: ServiceTimes) -> None:
        """`mean_seconds` of work on a message; each is that long times a factor of `times`, whose mean is 1."""
        self._mean_seconds, self._times = mean_seconds, times
        self._free_at = -float("inf")
        self._now: tuple[float, tuple[float, ...], tuple[float, ...]] = (0.0, (), ())
        """Seconds worked before the batch, and begins and ends of its messages; replaced as a whole, since other
        threads read it."""

    def begin(self, arrived: Sequence[float], asked: float) -> tuple[float, ...]:
        """Take a batch, which is not empty, and return the moment at which the work on each message ends.

        :param arrived: seconds at which each message arrived. Work on a message begins when it has arrived, and when
            the work on the one before has ended.
        :param asked: second at which the consumer polled; no work begins before it, so that time of a rebalance is
            lost.
        """
        at = max(self._free_at, asked)
        begins, ends = [], []
        for moment in arrived:
            begins.append(max(at, moment))
            at = begins[-1] + self._mean_seconds * next(self._times)
            ends.append(at)
        self._free_at = at
        self._now = self._now[0], tuple(begins), tuple(ends)
        return self._now[2]

    def end(self, now: float | None = None) -> int:
        """End the batch and return the number of processed messages.

        :param now: second at which unfinished messages are given up; None: all are finished.
        """
        before, begins, ends = self._now
        done = len(ends) if now is None else bisect_right(ends, now)
        worked = sum(end - begin for begin, end in zip(begins[:done], ends[:done], strict=True))
        self._now = before + worked, (), ()
        return done

    @property
    def load(self) -> int:
        """Messages of the batch that is worked on."""
        return len(self._now[2])

    def busy_seconds(self, now: float | None = None) -> float:
        """Seconds of work until `now` (None = this moment), the message that is worked on included."""
        moment = time.monotonic() if now is None else now
        before, begins, ends = self._now
        return before + sum(min(max(0.0, moment - begin), end - begin) for begin, end in zip(begins, ends, strict=True))
