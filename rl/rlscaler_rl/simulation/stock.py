"""Scenarios in store, ready to be taken a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation import objectives, privileged
from rlscaler_rl.simulation.batch import joined, settle
from rlscaler_rl.simulation.loads import Loads
from rlscaler_rl.simulation.randomisation import Ranges, randomised
from rlscaler_rl.simulation.scenario import Scenarios

Int = NDArray[np.intp]

Take = Callable[[int], Scenarios]
"""How many episodes are wanted -> as many scenarios, all of one action interval."""

SHELF = 512
"""The most scenarios that are drawn at a time."""


class Randomised:
    """Randomised scenarios of one interval; all draws come from `rng`."""

    def __init__(self, interval: int, rng: np.random.Generator, ranges: Ranges, loads: Loads | None = None) -> None:
        self.interval, self.rng, self.ranges, self.loads = interval, rng, ranges, loads
        self.before: dict[str, Any] = {}
        """State of `rng` before the last draw."""

    def take(self, n: int) -> Scenarios:
        """As many of every duration, in random order; loads padded to the longest."""
        self.before = dict(self.rng.bit_generator.state)
        durations = self.ranges.durations
        shares = [len(share) for share in np.array_split(np.arange(n), len(durations))]
        drawn = Scenarios.concat(
            [
                _padded(randomised(share, self.rng, self.interval, duration, self.ranges, self.loads), max(durations))
                for share, duration in zip(shares, durations, strict=True)
                if share
            ]
        )
        return drawn.take(self.rng.permutation(n))


class Stock:
    """An endless supply from several sources, with everything that follows from the scenarios worked out.

    One shelf of rows a source, those of longer action intervals first. What was taken has to be used before more is.
    """

    def __init__(self, sources: Sequence[Take], counts: Sequence[int]) -> None:
        """`counts` is how many episodes of each source run side by side; of a source with none nothing is drawn."""
        self._size = min(4 * max(counts), SHELF)
        drawn = [(source(self._size), i) for i, source in enumerate(sources) if counts[i]]
        drawn.sort(key=lambda pair: -float(pair[0].interval_seconds[0]))
        self.order = [i for _, i in drawn]
        """Of the sources, shelf by shelf."""
        self.sources, self.counts = [sources[i] for i in self.order], [counts[i] for i in self.order]
        longest = max(scenarios.rate.shape[1] for scenarios, _ in drawn)
        self.settled = joined([settle(_padded(one, longest)) for one, _ in drawn])
        scenarios = self.settled.scenarios
        self.norms, self.hidden = objectives.norms(scenarios), privileged.hidden(scenarios)
        self.taken = np.zeros(len(drawn), np.int64)
        """Rows of each shelf that are gone."""

    def template(self) -> Scenarios:
        """Scenarios to set up as many episodes as run side by side with; they remain in stock."""
        rows = [shelf * self._size + np.arange(count) % self._size for shelf, count in enumerate(self.counts)]
        return self.settled.scenarios.take(np.concatenate(rows))

    def take(self, counts: NDArray[np.int64]) -> Iterator[list[Int]]:
        """Rows of the stock, `counts` of each source; in several parts where a shelf runs out."""
        left = counts.copy()
        while left.any():
            for shelf in np.flatnonzero((self.taken == self._size) & (left > 0)):
                self.refill(int(shelf))
            now = np.minimum(left, self._size - self.taken)
            begin = np.arange(len(left)) * self._size + self.taken
            yield [np.arange(first, first + count) for first, count in zip(begin, now, strict=True)]
            self.taken += now
            left -= now

    def _rows(self, shelf: int) -> slice:
        return slice(shelf * self._size, (shelf + 1) * self._size)

    def refill(self, shelf: int) -> None:
        """Draw a shelf anew."""
        rows = self._rows(shelf)
        scenarios = _padded(self.sources[shelf](self._size), self.settled.scenarios.rate.shape[1])
        self.settled.put(rows, settle(scenarios))
        self.norms.put(rows, objectives.norms(scenarios))
        self.hidden.put(rows, privileged.hidden(scenarios))
        self.taken[shelf] = 0


def _padded(scenarios: Scenarios, seconds: int) -> Scenarios:
    """The same with loads of so many seconds, 0 at the end."""
    missing = seconds - scenarios.rate.shape[1]
    if not missing:
        return scenarios
    rate, arrivals = (np.pad(load, ((0, 0), (0, missing))) for load in (scenarios.rate, scenarios.arrivals))
    return replace(scenarios, rate=rate, arrivals=arrivals)


class Chunks:
    """Episodes drawn `size` at a time by `draw`, handed out in any number; nobody gets what another got before."""

    def __init__(self, draw: Take, size: int = 256) -> None:
        self._draw, self._size = draw, size
        self._left: Scenarios | None = None

    def __call__(self, n: int) -> Scenarios:
        """(n,) episodes."""
        parts = [] if self._left is None else [self._left]
        while sum(map(len, parts)) < n:
            parts.append(self._draw(self._size))
        pool = type(parts[0]).concat(parts)
        self._left = pool.take(slice(n, None)) if len(pool) > n else None
        return pool.take(slice(0, n))
