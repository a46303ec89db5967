"""Sources of scenarios, and a buffer of prepared ones that restarts take a few rows at a time from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation import objectives, privileged
from rlscaler_rl.simulation.batch import PreparedScenarios
from rlscaler_rl.simulation.generative import draw
from rlscaler_rl.simulation.randomisation import Loads, randomised
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.simulation.remembered import SERVICES, Pool, pool
from rlscaler_rl.simulation.scenario import Scenarios

Int = NDArray[np.intp]

ScenarioSource = Callable[[int], Scenarios]
"""Draws a number of scenarios, all of one action interval."""

MOST_DRAWN = 512
"""The most scenarios that are drawn from a source at a time."""


class _Source(ABC):
    """Source of scenarios of one action interval; all draws come from `rng`."""

    def __init__(self, rng: np.random.Generator, durations: Sequence[int]) -> None:
        """`durations` of the episodes in seconds."""
        self.rng, self.durations = rng, durations
        self.before: dict[str, Any] = {}
        """State of `rng` before the last draw."""

    @abstractmethod
    def _drawn(self, n: int) -> Iterator[Scenarios]:
        """Draw N scenarios, as many of every duration."""

    def take(self, n: int) -> Scenarios:
        """N scenarios in random order, as many of every duration; their loads are padded to the longest."""
        self.before = dict(self.rng.bit_generator.state)
        longest = max(self.durations)
        drawn = Scenarios.concat([_padded(scenarios, longest) for scenarios in self._drawn(n)])
        return drawn.take(self.rng.permutation(n))


class RandomisedSource(_Source):
    """Source of randomised scenarios of one action interval in seconds."""

    def __init__(self, interval: int, rng: np.random.Generator, ranges: Ranges, loads: Loads = draw) -> None:
        super().__init__(rng, ranges.durations)
        self.interval, self.ranges, self.loads = interval, ranges, loads

    def _drawn(self, n: int) -> Iterator[Scenarios]:
        for share, duration in zip(np.array_split(np.arange(n), len(self.durations)), self.durations, strict=True):
            if share.size:
                yield randomised(len(share), self.rng, self.interval, duration, self.ranges, self.loads)


class RememberedSource(_Source):
    """Source of episodes of services whose forecaster has seen the hours before: the `rows` of a pool."""

    def __init__(self, services: Pool, rows: Int, rng: np.random.Generator, durations: Sequence[int]) -> None:
        super().__init__(rng, durations)
        self.services, self.rows = services, rows

    def _drawn(self, n: int) -> Iterator[Scenarios]:
        shares = np.array_split(self.rng.choice(self.rows, n), len(self.durations))
        for share, duration in zip(shares, self.durations, strict=True):
            if share.size:
                yield self.services.take(share, duration, self.rng)


def sources_of(
    rngs: Sequence[np.random.Generator],
    ranges: Ranges,
    loads: Loads = draw,
    hours: float = 0.0,
    services: int = SERVICES,
) -> Sequence[RandomisedSource | RememberedSource]:
    """Return a source for each action interval, with one of `rngs` each.

    With `hours`, episodes are of `services` that are drawn now and have been there for up to so many hours.
    """
    if not hours:
        return [
            RandomisedSource(interval, rng, ranges, loads) for interval, rng in zip(ranges.intervals, rngs, strict=True)
        ]
    pools = pool(rngs, ranges, hours, loads, services)
    return [RememberedSource(*known, rng, ranges.durations) for known, rng in zip(pools, rngs, strict=True)]


class ChunkedSource:
    """A source that draws `size` scenarios at a time by `draw` and hands out any number, each of them once."""

    def __init__(self, draw: ScenarioSource, size: int = 256) -> None:
        self._draw, self._size = draw, size
        self._left: Scenarios | None = None

    def __call__(self, n: int) -> Scenarios:
        """N scenarios."""
        parts = [] if self._left is None else [self._left]
        while sum(map(len, parts)) < n:
            parts.append(self._draw(self._size))
        drawn = type(parts[0]).concat(parts)
        self._left = drawn.take(slice(n, None)) if len(drawn) > n else None
        return drawn.take(slice(0, n))


class ScenarioBuffer:
    """Prepared scenarios of several sources, one segment of rows for each, drawn anew when it is used up.

    Segments of longer action intervals come first. The rows that were taken have to be used before more are taken.
    """

    def __init__(self, sources: Sequence[ScenarioSource], counts: Sequence[int]) -> None:
        """`counts` is how many episodes of each source run side by side; nothing is drawn from a source with none."""
        self._size = min(4 * max(counts), MOST_DRAWN)
        drawn = [(source(self._size), i) for i, source in enumerate(sources) if counts[i]]
        drawn.sort(key=lambda pair: -float(pair[0].interval_seconds[0]))
        order = [i for _, i in drawn]
        self.sources, self.counts = [sources[i] for i in order], [counts[i] for i in order]
        longest = max(scenarios.rate.shape[1] for scenarios, _ in drawn)
        self.prepared = PreparedScenarios.concat([PreparedScenarios.of(_padded(part, longest)) for part, _ in drawn])
        scenarios = self.prepared.scenarios
        self.norms, self.hidden = objectives.norms(scenarios), privileged.hidden(scenarios)
        self.taken = np.zeros(len(drawn), np.int64)
        """(segments,) how many rows of each segment have been taken."""

    def template(self) -> Scenarios:
        """Scenarios to set up as many episodes with as run side by side; they are not taken from the buffer."""
        rows = [segment * self._size + np.arange(count) % self._size for segment, count in enumerate(self.counts)]
        return self.prepared.scenarios.take(np.concatenate(rows))

    def take(self, counts: NDArray[np.int64]) -> Iterator[list[Int]]:
        """Rows of the buffer for each source, `counts` (segments,) in all; several parts where a segment runs out."""
        left = counts.copy()
        while left.any():
            for segment in np.flatnonzero((self.taken == self._size) & (left > 0)):
                self.refill(int(segment))
            now = np.minimum(left, self._size - self.taken)
            begin = np.arange(len(left)) * self._size + self.taken
            yield [np.arange(first, first + count) for first, count in zip(begin, now, strict=True)]
            self.taken += now
            left -= now

    def refill(self, segment: int) -> None:
        """Draw the scenarios of a segment anew."""
        rows = slice(segment * self._size, (segment + 1) * self._size)
        scenarios = _padded(self.sources[segment](self._size), self.prepared.scenarios.rate.shape[1])
        self.prepared.put(rows, PreparedScenarios.of(scenarios))
        self.norms.put(rows, objectives.norms(scenarios))
        self.hidden.put(rows, privileged.hidden(scenarios))
        self.taken[segment] = 0


def _padded(scenarios: Scenarios, seconds: int) -> Scenarios:
    """The same scenarios with loads of so many seconds, 0 after their own end."""
    missing = seconds - scenarios.rate.shape[1]
    if not missing:
        return scenarios
    rate, arrivals = (np.pad(load, ((0, 0), (0, missing))) for load in (scenarios.rate, scenarios.arrivals))
    return replace(scenarios, rate=rate, arrivals=arrivals)
