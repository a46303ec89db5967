"""Rates as Prometheus takes them, seen through scrapes, lags and an exporter that dies."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_operator.sensing.newest import Rates, Seen
from rlscaler_operator.settings import Settings

RATE, LESS, MORE = 100.0, 20.0, 400.0
NAME = (("ns", "chat"), "")


class World(NamedTuple):
    """How often a service is scraped and asked for; all in seconds."""

    scrape: float
    sense: float
    scrape_phase: float
    sense_phase: float
    lag: float
    """From a scrape until Prometheus shows it."""
    window: int

    @property
    def begun(self) -> float:
        """By then the first window is full and some rates were seen."""
        return self.window + self.lag + 3 * (self.scrape + self.sense)


@st.composite
def worlds(draw: st.DrawFn, lags: bool = True) -> World:
    often = st.one_of(st.sampled_from([1.0, 2.0, 5.0, 15.0, 30.0]), st.floats(1.0, 30.0))
    share = st.floats(0.0, 1.0, exclude_max=True)
    scrape, sense = draw(often), draw(often)
    lag = draw(st.floats(0.0, 2 * scrape)) if lags else 0.0
    window = Settings(scrape_interval_seconds=scrape).window_seconds
    return World(scrape, sense, draw(share) * scrape, draw(share) * sense, lag, window)


def rate(times: list[float], counts: list[float], end: float, window: float) -> float:
    """`rate` of a counter that is far from 0, as extrapolatedRate in promql/functions.go; NaN = no value."""
    if len(times) < 2:
        return math.nan
    sampled = times[-1] - times[0]
    mean = sampled / (len(times) - 1)
    gaps = [gap if gap < 1.1 * mean else mean / 2 for gap in (times[0] - (end - window), end - times[-1])]
    return (counts[-1] - counts[0]) * (sampled + sum(gaps)) / sampled / window


def seen(
    world: World, dies: float = math.inf, turns: float = math.inf, to: float = RATE
) -> Iterator[tuple[float, float, Seen]]:
    """(time, Prometheus's value, what counts), until all is over, of a service that dies, or turns to another load."""
    over = 2 * world.window + 6 * (world.scrape + world.sense) + world.lag + min(dies, turns)
    rates, times, counts = Rates(world.scrape), [], []
    at = world.scrape_phase
    while at <= min(dies, over):
        times.append(at)
        counts.append(1e6 + RATE * min(at, turns) + to * max(0.0, at - turns))
        at += world.scrape
    at = world.sense_phase
    while at < over:
        first, last = bisect_right(times, at - world.window), bisect_right(times, at - world.lag)
        value = rate(times[first:last], counts[first:last], at, world.window)
        if not math.isnan(value):
            yield at, value, rates.look(NAME, value, times[last - 1], at)
        at += world.sense


@settings(max_examples=100, deadline=None)
@given(worlds(lags=False), st.floats(0.0, 1.0))
def test_an_exporter_that_dies_lowers_nothing(world, part):
    dies = world.begun + part * 2 * (world.scrape + world.sense)
    lowering = [one.value for at, _, one in seen(world, dies) if at >= world.begun and one.may_lower]
    assert lowering == pytest.approx([RATE] * len(lowering))


@settings(max_examples=100, deadline=None)
@given(worlds(), st.floats(0.0, 1.0))
def test_one_behind_a_lag_lowers_no_further_than_its_lag_does(world, part):
    dies = world.begun + part * 2 * (world.scrape + world.sense)
    least = 1 - (world.lag + world.scrape) / world.window
    for at, _, one in seen(world, dies):
        if at >= world.begun and one.may_lower:
            assert one.value >= RATE * least - 1e-6


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_a_load_that_falls_is_believed(world):
    turns = world.begun
    soon = turns + world.window + world.lag + 3 * (world.scrape + world.sense)
    known = [
        (value, one)
        for at, value, one in seen(world, turns=turns, to=LESS)
        if turns + world.window + world.lag <= at < soon
    ]
    assert not known or any(one.may_lower and one.value <= LESS * 1.001 for _, one in known)


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_a_load_that_rises_counts_with_the_first_sample_that_shows_it(world):
    newest = -math.inf
    for _, value, one in seen(world, turns=world.begun, to=MORE):
        if one.taken > newest:
            assert one.value == value
        newest = one.taken
