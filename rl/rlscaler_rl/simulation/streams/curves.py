"""Waits of messages, from the counts written and processed by the end of each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS, Groups

PERCENTILE = 95.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of the messages of each step; a partition is read in the order in which it was written."""

    seconds: Float  # (N, P, T) from being written to the end of the work; infinity where that did not come
    messages: Float  # (N, P, T) that they count for

    def percentile(self, percent: float = PERCENTILE) -> Float:
        """(N,) seconds that so many percent of the messages waited at most; NaN where there was none."""
        result = np.full(len(self.seconds), np.nan)
        for row, (seconds, messages) in enumerate(zip(self.seconds, self.messages, strict=True)):
            order = np.argsort(seconds, axis=None)
            summed = np.cumsum(messages.ravel()[order])
            if summed.size and summed[-1] > 0:
                result[row] = seconds.ravel()[order][np.searchsorted(summed, percent / 100 * summed[-1] - 1e-9)]
        return result

    def longer_than(self, limit: Float) -> Float:
        """(N,) messages that waited longer than `limit` (N,) seconds."""
        return np.asarray(np.where(self.seconds > limit[:, None, None], self.messages, 0.0).sum(axis=(1, 2)))

    def longest(self) -> Float:
        """(N,) seconds; 0 where there was no message."""
        return np.asarray(np.where(self.messages > 0, self.seconds, 0.0).max(axis=(1, 2)))


def waits_of(groups: Groups, reached: Float) -> Waits:
    """Waits of groups whose partitions were processed as far as `reached` (N, P, K) by the end of each step.

    K may be longer than the load: later steps count as well. A message stands for the middle of its step. None waits
    for less than the work on it takes.
    """
    written = np.cumsum(groups.arrivals, axis=2, dtype=np.float64)
    middle = written - groups.arrivals / 2
    times = STEP_SECONDS * np.arange(reached.shape[2] + 1)
    seconds = np.full(written.shape, np.inf)
    came = STEP_SECONDS * (np.arange(groups.steps) + 0.5)
    for row, partition in np.ndindex(*written.shape[:2]):
        passed = np.concatenate([[0.0], reached[row, partition]])
        seconds[row, partition] = _when(passed, times, middle[row, partition]) - came
    floor = (1 / groups.rate)[:, None, None]
    return Waits(np.maximum(seconds, floor), groups.arrivals.astype(np.float64))


def _when(passed: Float, times: Float, offsets: Float) -> Float:
    """When a curve that never falls, `passed` at `times`, first reaches each offset; infinity = it never does."""
    after = np.searchsorted(passed, offsets - 1e-6)
    inside = np.clip(after, 1, len(passed) - 1)
    low, high = passed[inside - 1], passed[inside]
    share = np.clip((offsets - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    waits = times[inside - 1] + share * (times[inside] - times[inside - 1])
    return np.where(after == 0, times[0], np.where(after < len(passed), waits, np.inf))
