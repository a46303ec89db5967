"""Stretches of days of services whose forecaster has seen the hours before them.

The days of a pool of services are shown to their forecasters once, all side by side: the load does not depend on the
actor, so that no capacity has to be simulated for it. At some moments of each day the forecasters' memory is stored,
and an episode that begins at such a moment begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import nothing_learned
from rlscaler_core.decision.types import Float32
from rlscaler_rl.simulation import generative
from rlscaler_rl.simulation.randomisation import RECENT, Loads, initial_replicas, randomised
from rlscaler_rl.simulation.ranges import Ranges, interval_shares
from rlscaler_rl.simulation.scenario import PAST_SECONDS, Scenarios
from rlscaler_rl.simulation.sensing import SENSE_SECONDS

Int = NDArray[np.int64]

HOUR, WEEK = 3600, 7 * 86_400

EPOCH = 1_704_067_200
"""Monday, 1 January 2024: the days lie in the week that begins there."""

GRID = 60
"""Seconds between the moments that episodes may begin at: scrapes of every interval fall on them."""

LEAST_HOURS = 0.5
"""Hours that a forecaster has seen at least."""

SERVICES, MOMENTS = 256, 24
"""Services in a pool for training, and moments of each that episodes begin at."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Days of N services, and the memory of their forecasters at K moments of each."""

    services: Scenarios
    """Everything but the loads, of which there are none in it."""

    rate: Float32  # (N, T) expected requests/s in each second
    arrivals: Float32  # (N, T) requests in each second
    begin: Int  # (N, K) second of the day
    recent: Float32  # (N, K, ...) as in `decision.types.State`
    calendar: Float32  # (N, K, ...) likewise

    @classmethod
    def of(cls, days: Scenarios, hours: float, duration: int, moments: int, rng: np.random.Generator) -> Pool:
        """Show the `days` to their forecasters. Episodes of `duration` seconds may begin after at most `hours` hours.

        The days have to last for as long as that together.
        """
        n, last = len(days), int(hours * HOUR)
        first = min(max(int(LEAST_HOURS * HOUR), PAST_SECONDS), last)
        drawn = rng.integers(first // GRID, last // GRID, (n, moments), endpoint=True) * GRID
        begin = np.sort(np.maximum(drawn, PAST_SECONDS), axis=1)
        assert days.rate.shape[1] >= begin.max() + duration
        epoch = EPOCH + rng.integers(0, WEEK // GRID, n).astype(np.float64) * GRID
        services = replace(days, rate=days.rate[:, :0], arrivals=days.arrivals[:, :0], epoch=epoch)
        recent, calendar = learned(replace(days, epoch=epoch), begin)
        return cls(services, days.rate, days.arrivals, begin, recent, calendar)

    def take(self, rows: NDArray[np.intp], duration: int, rng: np.random.Generator) -> Scenarios:
        """Return an episode of each of the services `rows` (M,), of so many seconds, at one of its moments."""
        which = rng.integers(self.begin.shape[1], size=len(rows))
        begin = self.begin[rows, which]
        scenarios = self.services.take(rows)
        rate, arrivals = (_cut(load, rows, begin, duration) for load in (self.rate, self.arrivals))
        before = _cut(self.rate, rows, begin - RECENT, RECENT).mean(axis=1, dtype=np.float64)
        past = _cut(self.arrivals, rows, begin - PAST_SECONDS, PAST_SECONDS)
        wanted = initial_replicas(rng, before, scenarios.rps, scenarios.max_replicas, scenarios.price_ratio)
        return replace(
            scenarios,
            duration=np.full(len(rows), duration),
            rate=rate,
            arrivals=arrivals,
            past_rate=before,
            past=np.where(np.isnan(scenarios.past), np.nan, past).astype(np.float32),
            epoch=scenarios.epoch + begin,
            initial=np.maximum(wanted, scenarios.min_replicas) * scenarios.present,
            load_recent=self.recent[rows, which],
            load_calendar=self.calendar[rows, which],
            key=rng.integers(0, 2**63, len(rows), dtype=np.uint64),
        )


def learned(days: Scenarios, begin: Int) -> tuple[Float32, Float32]:
    """Return the forecasters' memory of N days at the rising seconds `begin` (N, K) of them: (N, K, ...) each.

    The forecasters see the arrivals as the simulator's sensors measure them at every sensing tick before. A service
    with an unknown past has learned nothing.
    """
    n, moments = begin.shape
    params, sensors = days.params(), days.sensors()
    nothing = nothing_learned(1)
    memories = np.tile(nothing[0][0], (n, moments, 1)), np.tile(nothing[1][0], (n, moments, 1))
    knows = ~np.isnan(days.past).all(axis=1)
    recent, calendar = nothing_learned(n)
    total = np.concatenate([np.zeros((n, 1)), np.cumsum(days.arrivals, axis=1, dtype=np.float64)], axis=1)
    window, rows, next_moment = sensors.arrival_window.astype(np.int64), np.arange(n), np.zeros(n, np.int64)
    newest = np.full(n, -1)
    for now in range(0, int(begin.max()) + SENSE_SECONDS, SENSE_SECONDS):
        waiting = np.flatnonzero(next_moment < moments)
        reached = waiting[begin[waiting, next_moment[waiting]] <= now]
        while reached.size:
            place = next_moment[reached]
            for known, row in zip(memories, (recent, calendar), strict=True):
                known[reached, place] = row[reached]
            next_moment[reached] += 1
            reached = reached[next_moment[reached] < moments]
            reached = reached[begin[reached, next_moment[reached]] <= now]
        visible = now - sensors.delay + sensors.phase
        end = (np.floor(visible / sensors.scrape) * sensors.scrape - sensors.phase).astype(np.int64)
        fresh = knows & (end > newest) & (end >= window)
        at = np.clip(end, window, total.shape[1] - 1)
        rate = (total[rows, at] - total[rows, at - window]) / window
        recent, calendar = learn(params, recent, calendar, days.epoch + end, rate, fresh)
        newest = np.maximum(newest, end)
    return memories


def pool(
    rngs: Sequence[np.random.Generator],
    ranges: Ranges,
    hours: float,
    loads: Loads = generative.draw,
    services: int = SERVICES,
    moments: int = MOMENTS,
) -> list[tuple[Pool, NDArray[np.intp]]]:
    """Draw a pool of services for training, and return it with the rows of each action interval, one of `rngs` each."""
    longest = max(ranges.durations)
    seconds = int(hours * HOUR) + PAST_SECONDS + longest
    counts = np.maximum(np.rint(services * np.array(interval_shares(ranges))), 1).astype(int)
    drawn = [
        randomised(count, rng, interval, seconds, ranges, loads)
        for count, rng, interval in zip(counts, rngs, ranges.intervals, strict=True)
    ]
    made = Pool.of(Scenarios.concat(drawn), hours, longest, moments, rngs[0])
    ends = np.cumsum(counts)
    return [(made, np.arange(end - count, end)) for count, end in zip(counts, ends, strict=True)]


def _cut(load: Float32, rows: NDArray[np.intp], begin: Int, seconds: int) -> Float32:
    """Return (M, seconds) of the loads `rows` (M,) from `begin` (M,) on."""
    windows = np.lib.stride_tricks.sliding_window_view(load, seconds, axis=1)
    return np.ascontiguousarray(windows[rows, begin])
