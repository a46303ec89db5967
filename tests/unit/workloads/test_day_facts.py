"""The statistics of a load, on series whose statistics are known."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.day_facts import day_facts, drawing, facts_of, jumps, table
from rlscaler_rl.workloads.days import DAY, Seconds, day_load

WEEK = 7 * DAY


def cron(hours: int = 48, minute: int = 30) -> np.ndarray:
    """10 requests/s, and 100 for two minutes at the same minute of every hour."""
    rate = np.full(hours * 3600, 10.0)
    for hour in range(hours):
        rate[hour * 3600 + minute * 60 :][:120] = 100
    return rate


def test_jumps_of_every_hour_are_counted_once_each_and_recur():
    trace = Trace(cron(), 1.0)
    assert jumps(trace, 10).tolist() == pytest.approx([h * 3600 + 1800 for h in range(48)], abs=10)
    facts = facts_of("mine", trace, Seconds.RECORDED, (0, DAY))
    assert facts.jumps_10s == facts.jumps_60s == 24
    assert facts.recurs_hour == facts.recurs_day == 1
    assert facts.recurs_by_chance == pytest.approx(0.05, abs=0.01)


def test_jumps_at_random_minutes_recur_no_more_than_by_chance():
    rng = np.random.default_rng(1)
    rate = np.full(WEEK, 10.0)
    for moment in rng.integers(0, WEEK - 300, 400):
        rate[moment : moment + 60] = 100
    facts = facts_of("mine", Trace(rate, 1.0), Seconds.RECORDED, (0, DAY))
    assert facts.recurs_day == pytest.approx(facts.recurs_by_chance, abs=0.06)
    assert facts.recurs_hour == pytest.approx(facts.recurs_by_chance, abs=0.06)


def test_chance_is_no_jump_and_a_rise_over_minutes_is_none_within_ten_seconds():
    few = np.random.default_rng(0).poisson(0.5, DAY).astype(float)
    assert len(jumps(Trace(few, 1.0), 10)) <= 2
    ramp = np.full(2 * 3600, 10.0)
    ramp[3600:] = 100
    ramp[3600:3720] = np.linspace(10, 100, 120)
    assert len(jumps(Trace(ramp, 1.0), 10)) == 0
    assert len(jumps(Trace(ramp, 1.0), 60)) == 1


def test_poisson_requests_have_dispersion_one_at_every_scale_and_no_variance():
    counts = np.random.default_rng(0).poisson(20, 3 * DAY).astype(float)
    facts = facts_of("mine", Trace(counts, 1.0), Seconds.RECORDED, (0, 2 * DAY))
    assert facts.dispersion == {scale: pytest.approx(1, abs=0.05) for scale in (1, 10, 60)}
    assert facts.variance == pytest.approx(0, abs=0.001)
    assert abs(facts.day_autocorrelation) < 0.05
    assert facts.peak_over_mean == pytest.approx(counts.max() / counts.mean())


def test_a_day_like_the_one_before_is_correlated_with_it():
    seconds = np.arange(4 * 1440)
    facts = facts_of("mine", Trace(2 + np.sin(2 * np.pi * seconds / 1440), 60.0), Seconds.DRAWN, (0, DAY))
    assert facts.day_autocorrelation == pytest.approx(1)


def test_what_the_bins_cannot_say_is_none():
    facts = facts_of("mine", Trace(np.arange(1.0, 400.0), 300.0), Seconds.DRAWN, (0, DAY))
    assert facts.dispersion == {1: None, 10: None, 60: None}
    assert facts.jumps_10s is facts.jumps_60s is facts.recurs_hour is facts.recurs_day is None
    drawn = facts_of("mine", Trace(cron(), 1.0), Seconds.DRAWN, (0, DAY))
    assert drawn.jumps_10s is None
    assert drawn.jumps_60s == 24


def test_drawing_keeps_the_dispersion_of_poisson_requests():
    counts = np.random.default_rng(0).poisson(20, 2 * DAY).astype(float)
    for recorded, drawn in drawing(Trace(counts, 1.0), "mine", (0, DAY)).within.values():
        assert drawn == pytest.approx(recorded, rel=0.1)


def test_drawing_loses_bursts_of_seconds_and_says_so():
    rate = np.full(2 * DAY, 20.0)
    rate[80:90] = rate[3030:3040] = 120
    assert drawing(Trace(rate, 1.0), "mine", (DAY, 2 * DAY)).jumps_10s == (2, 0)


def test_a_load_of_the_library_and_the_table():
    facts = day_facts("worldcup")
    assert facts.days == pytest.approx(87, abs=0.1)
    assert facts.mean == pytest.approx(179.9, abs=0.1)
    header, known, unknown = table({name: day_load(name) for name in ("worldcup", "taxi")}, {"worldcup": facts})
    assert len(header) == len(known) == len(unknown)
    assert known[:6] == ("worldcup", "worldcup", "1", "86", "60", "drawn")
    assert set(unknown[6:]) == {"-"}
