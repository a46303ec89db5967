"""HeldRates as Prometheus takes them, seen through scrapes, lags and an exporter that stops."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_operator.sensing.presets import PRESETS
from rlscaler_operator.sensing.queries import Window, of_arrivals, windows
from rlscaler_operator.sensing.results import HeldRate, HeldRates
from rlscaler_operator.settings import Settings

RATE, LESS, MORE = 100.0, 20.0, 400.0
NAME = (("ns", "chat"), "")
NEVER = (math.inf, math.inf)
PART = 1024
"""Times are whole parts of a second, about a millisecond as Prometheus's are, and exact in binary: a rounding error
would put a sample that has the time of a query behind it."""


class World(NamedTuple):
    """How often a service is scraped and asked for; all in seconds."""

    window: Window
    longer: Window
    """What is asked where the window has fewer than two samples; the window itself, but for arrivals."""
    sense: float
    scrape_phase: float
    sense_phase: float
    lag: float
    """From a scrape until Prometheus shows it."""

    @property
    def scrape(self) -> float:
        return self.window.scrape_seconds

    @property
    def begun(self) -> float:
        """By then the first window is full and was seen full."""
        return 2 * self.longer.seconds + self.lag + 3 * (self.scrape + self.sense)


@st.composite
def worlds(draw: st.DrawFn, lags: bool = True, quick: bool = False, arrivals: bool | None = None) -> World:
    """`quick` = the service is asked for as often as it is scraped, or more often.

    With `arrivals` the window is that of two scrapes; by None it is that or the longer one.
    """
    often = st.sampled_from([1.0, 2.0, 5.0, 15.0, 30.0]) | _times(1.0, 30.0)
    sense = draw(often)
    scrape = max(5.0, draw(often)) if arrivals else draw(often)
    if quick:
        sense = min(scrape, sense)
    lag = draw(_times(0.0, 2 * scrape)) if lags else 0.0
    longer, _ = windows(Settings(scrape_interval_seconds=scrape))
    if arrivals is None:
        arrivals = draw(st.booleans())
    window = of_arrivals(PRESETS[""], longer) if arrivals else longer
    return World(window, longer, sense, draw(_times(0.0, scrape)), draw(_times(0.0, sense)), lag)


def _times(first: float, below: float) -> st.SearchStrategy[float]:
    """Draw a time from `first` to less than `below`, in whole parts of a second."""
    return st.integers(round(first * PART), math.ceil(below * PART) - 1).map(lambda n: n / PART)


def rate(times: list[float], counts: list[float], end: float, window: float) -> float:
    """`rate` of a counter that is far from 0, as extrapolatedRate in promql/functions.go; NaN = no value."""
    if len(times) < 2:
        return math.nan
    sampled = times[-1] - times[0]
    mean = sampled / (len(times) - 1)
    gaps = [gap if gap < 1.1 * mean else mean / 2 for gap in (times[0] - (end - window), end - times[-1])]
    return (counts[-1] - counts[0]) * (sampled + sum(gaps)) / sampled / window


def seen(
    world: World, until: float, silent: tuple[float, float] = NEVER, turns: float = math.inf, to: float = RATE
) -> Iterator[tuple[float, float, HeldRate]]:
    """(time, Prometheus's value, what counts) of a service that says nothing for a while, or turns to another load."""
    rates = HeldRates(world.window)
    count = max(0, math.ceil((until - world.scrape_phase) / world.scrape))
    scrapes = (world.scrape_phase + i * world.scrape for i in range(count))
    times = [at for at in scrapes if not silent[0] < at < silent[1]]
    counts = [1e6 + RATE * min(at, turns) + to * max(0.0, at - turns) for at in times]
    at = world.sense_phase
    while at < until:
        last = bisect_right(times, at - world.lag)
        for seconds in (world.window.seconds, world.longer.seconds):
            first = bisect_right(times, at - seconds)
            value = rate(times[first:last], counts[first:last], at, seconds)
            if not math.isnan(value):
                break
        if math.isnan(value):
            rates.forget(NAME)
        else:
            yield at, value, rates.hold(NAME, value, times[last - 1], at)
        at += world.sense


@settings(max_examples=100)
@given(worlds(lags=False, quick=True), st.floats(0.0, 1.0))
def test_an_exporter_that_dies_lowers_nothing(world, part):
    dies = part * (world.begun + world.scrape + world.sense)
    until = dies + 2 * world.longer.seconds
    lowering = [one.value for _, _, one in seen(world, until, silent=(dies, math.inf)) if one.may_lower]
    assert lowering == pytest.approx([RATE] * len(lowering))


@settings(max_examples=100)
@given(worlds(lags=False, quick=True), st.floats(0.0, 1.0), st.floats(1.0, 2.0))
def test_one_that_comes_back_lowers_nothing_while_its_window_fills(world, part, windows_long):
    dies = part * (world.begun + world.scrape + world.sense)
    back = dies + windows_long * world.longer.seconds + 2 * world.scrape
    until = back + 2 * world.begun
    lowering = [(at, one.value) for at, _, one in seen(world, until, silent=(dies, back)) if one.may_lower]
    assert [value for _, value in lowering] == pytest.approx([RATE] * len(lowering))
    assert any(at > back for at, _ in lowering)


@settings(max_examples=100)
@given(worlds(lags=False, quick=True, arrivals=True), st.floats(0.0, 1.0), st.integers(1, 2))
def test_missed_scrapes_lower_no_arrivals(world, part, missed):
    began = world.begun + part * world.scrape
    gap = began, began + missed * world.scrape
    until = gap[1] + 3 * world.longer.seconds
    lowering = [one.value for _, _, one in seen(world, until, silent=gap) if one.may_lower]
    assert lowering == pytest.approx([RATE] * len(lowering), rel=0.04)


@settings(max_examples=100)
@given(worlds(), st.floats(0.0, 1.0))
def test_one_that_is_late_or_seldom_asked_for_lacks_its_lag_and_one_scrape_at_most(world, part):
    dies = world.begun + part * 2 * (world.scrape + world.sense)
    least = 1 - (world.lag + world.scrape) / world.window.seconds
    for at, _, one in seen(world, dies + 2 * world.longer.seconds, silent=(dies, math.inf)):
        if at >= world.begun and one.may_lower:
            assert one.value >= RATE * least - 1e-6


@settings(max_examples=100)
@given(worlds())
def test_a_load_that_falls_is_believed(world):
    passed = world.begun + world.longer.seconds + world.lag
    until = passed + 3 * (world.scrape + world.sense)
    known = [one for at, _, one in seen(world, until, turns=world.begun, to=LESS) if at >= passed]
    assert not known or any(one.may_lower and one.value <= LESS * 1.001 for one in known)


@settings(max_examples=100)
@given(worlds())
def test_a_load_that_rises_counts_with_the_first_sample_that_shows_it(world):
    newest = -math.inf
    for _, value, one in seen(world, 2 * world.begun, turns=world.begun, to=MORE):
        if one.taken > newest:
            assert one.value == value
        newest = one.taken
