"""What the forecaster learns of a load, and what bad history must not teach it."""

from collections.abc import Callable

import numpy as np
import pytest

from rlscaler_core.decision.forecaster import outlook, rises
from rlscaler_core.decision.forecaster.calendar import Moment, hazard
from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import (
    CALENDAR_SIZE,
    LEVELS,
    RECENT_SIZE,
    calendar_of,
    nothing_learned,
    recent_of,
)
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.types import Float, Float32, Params

TICK = 30.0
DAY = 86400.0
MONDAY = 1_767_571_200.0
Load = Callable[[float, np.random.Generator], float]


def fed(
    load: Load,
    begin: float,
    seconds: float,
    memory: tuple[Float32, Float32] | None = None,
    params: Params | None = None,
    seed: int = 0,
) -> tuple[Float32, Float32]:
    """The memory of one service after `load(time, draw)` from `begin` on; NaN is a sample that did not come."""
    params = make_params(1) if params is None else params
    recent, calendar = nothing_learned(1) if memory is None else memory
    draw = np.random.default_rng(seed)
    for time in np.arange(begin, begin + seconds, TICK):
        rate = load(float(time), draw)
        recent, calendar = learn(
            params, recent, calendar, np.array([time]), np.array([rate]), np.array([not np.isnan(rate)])
        )
    return recent, calendar


def noisy(rate: float, draw: np.random.Generator) -> float:
    return float(draw.poisson(rate * 10) / 10)


def job(minute_of_day: Callable[[int], bool], level: float = 20.0, height: float = 3.0) -> Load:
    """A level that is `height` times as high in the minutes that are asked for."""
    return lambda time, draw: noisy(level * (height if minute_of_day(int(time % DAY // 60)) else 1), draw)


def half_hourly(minute: int) -> bool:
    return minute % 30 == 0


def chance(memory: tuple[Float32, Float32], time: float, horizon: float = 75.0) -> float:
    coming = outlook.announced(memory[1], np.array([time]), np.array([horizon]), np.array([False]))
    return float(coming.probability[0])


@pytest.fixture(scope="module")
def two_days_of_jobs() -> tuple[Float32, Float32]:
    return fed(job(half_hourly), MONDAY, 2 * DAY)


def test_a_service_is_a_few_kilobytes() -> None:
    assert 4 * (RECENT_SIZE + CALENDAR_SIZE) < 12 * 1024


def walk(spread: float) -> Load:
    """A load that wanders by `spread` (logarithm) a tick."""
    level = [30.0]

    def load(time: float, draw: np.random.Generator) -> float:
        level[0] = float(np.clip(level[0] * np.exp(draw.normal(0, spread)), 5, 200))
        return level[0]

    return load


def covered_after_a_change() -> Float:
    """Coverage (2, LEVELS) within six hours in which the load wanders ten times as far as in the ten before."""
    memory = fed(walk(0.01), MONDAY, 36_000)
    before = recent_of(memory[0].copy())
    after = recent_of(fed(walk(0.1), MONDAY + 36_000, 21_600, memory)[0])
    keep = (after.judged / (after.judged + 1e-9)) * (1 - 1 / rises.COUNTED) ** (after.judged - before.judged)
    judged = after.judged - keep * before.judged
    assert (judged > 500).all()
    return 1 - (after.missed - keep[..., None] * before.missed)[0] / judged[0, :, None]


@pytest.mark.slow
def test_quantiles_are_exceeded_as_often_as_they_say_though_the_load_changes_its_nature() -> None:
    assert covered_after_a_change() == pytest.approx(np.array([LEVELS, LEVELS]), abs=0.08)


@pytest.mark.slow
def test_without_the_recalibration_they_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rises, "PACE", 0.0)
    assert np.abs(covered_after_a_change() - np.array([LEVELS, LEVELS])).max() > 0.1


@pytest.mark.slow
def test_a_minute_counts_once_it_has_jumped_twice() -> None:
    """03:17 and nothing else: not announced after one day's jump among quiet minutes, announced after two."""
    load = job(lambda minute: minute == 197)
    first = fed(load, MONDAY, DAY)
    assert chance(first, MONDAY + DAY + 196 * 60 + 30) == 0.0
    second = fed(load, MONDAY + DAY, DAY, first)
    ahead = MONDAY + 2 * DAY + 196 * 60 + 30
    assert chance(second, ahead) > 0.4
    assert chance(second, ahead + 600) < 0.02


@pytest.mark.slow
def test_jobs_of_the_half_hour_are_announced_before_they_come_and_not_after(
    two_days_of_jobs: tuple[Float32, Float32],
) -> None:
    at = MONDAY + 2 * DAY + 5 * 1800
    assert chance(two_days_of_jobs, at - 60) > 0.7
    assert chance(two_days_of_jobs, at - 600) < 0.02
    assert chance(two_days_of_jobs, at + 120) < 0.02
    coming = outlook.announced(two_days_of_jobs[1], np.array([at - 60]), np.array([75.0]), np.array([False]))
    height = outlook.jump_rise(two_days_of_jobs[1], coming, np.array([0.9]))
    assert 2.5 < np.exp(height[0]) < 4.5


@pytest.mark.slow
def test_a_jump_that_has_come_is_not_waited_for_in_its_minute(two_days_of_jobs: tuple[Float32, Float32]) -> None:
    at = np.array([MONDAY + 2 * DAY + 5 * 1800 + 20.0])
    jumped = outlook.announced(two_days_of_jobs[1], at, np.array([10.0]), np.array([True]))
    waiting = outlook.announced(two_days_of_jobs[1], at, np.array([10.0]), np.array([False]))
    assert jumped.probability[0] == 0.0 < waiting.probability[0]


@pytest.mark.slow
def test_jobs_that_stop_fade_within_days(two_days_of_jobs: tuple[Float32, Float32]) -> None:
    quiet = fed(lambda time, draw: noisy(20.0, draw), MONDAY + 2 * DAY, 3 * DAY, two_days_of_jobs)
    assert chance(quiet, MONDAY + 5 * DAY + 1740) < 0.3 < 0.7 < chance(two_days_of_jobs, MONDAY + 2 * DAY + 1740)


@pytest.mark.slow
def test_bursts_at_no_particular_minute_announce_little() -> None:
    draw = np.random.default_rng(2)
    bursts = set(draw.integers(0, 3 * 1440, 60).tolist())
    memory = fed(
        lambda time, draw: noisy(60.0 if int((time - MONDAY) // 60) in bursts else 20.0, draw), MONDAY, 3 * DAY
    )
    found = [chance(memory, MONDAY + 3 * DAY + 60 * minute) for minute in range(1440)]
    assert np.mean(found) < 0.12, "some 3 % of such windows hold a burst"


@pytest.mark.slow
def test_noise_of_a_small_service_is_no_jump() -> None:
    memory = fed(lambda time, draw: noisy(1.0, draw), MONDAY, DAY)
    assert calendar_of(memory[1]).jumps[0] < 3


@pytest.mark.long
def test_days_off_lower_the_hazard_of_their_weekday() -> None:
    def weekdays(time: float, draw: np.random.Generator) -> float:
        off = int((time - MONDAY) // DAY) % 7 >= 5
        return noisy(20.0 * (3 if half_hourly(int(time % DAY // 60)) and not off else 1), draw)

    memory = calendar_of(fed(weekdays, MONDAY, 9 * DAY)[1])
    noon = 12 * 3600.0
    saturday, monday = (hazard(memory, Moment(np.array([MONDAY + day * DAY + noon])))[0] for day in (12, 14))
    assert saturday < 0.85 * monday


def test_a_gap_is_no_jump_and_closes_no_forecast() -> None:
    """Ten minutes without samples, after which the load is four times as high."""
    before = fed(lambda time, draw: noisy(20.0, draw), MONDAY, 3600)
    gone = fed(lambda time, draw: float("nan"), MONDAY + 3600, 600, before)
    judged = recent_of(gone[0]).judged.copy()
    after = fed(lambda time, draw: noisy(80.0, draw), MONDAY + 4200, 20, gone)
    assert calendar_of(after[1]).jumps[0] == 0
    assert (recent_of(after[0]).judged == judged).all()


@pytest.mark.slow
def test_a_month_of_zeros_teaches_nothing(two_days_of_jobs: tuple[Float32, Float32]) -> None:
    quiet = two_days_of_jobs
    params, time = make_params(1), MONDAY + 2 * DAY
    for later in [*np.arange(0, 1800, TICK), *np.arange(1800, 30 * DAY, 600)]:
        quiet = learn(params, *quiet, np.array([time + later]), np.zeros(1), np.ones(1, bool))
    assert chance(quiet, MONDAY + 32 * DAY + 1740) > 0.6
    before, after = recent_of(two_days_of_jobs[0]), recent_of(quiet[0])
    assert after.rises.sum() == pytest.approx(before.rises.sum(), rel=0.01)
    assert after.mean[0] == pytest.approx(before.mean[0], rel=0.05)


@pytest.mark.slow
def test_a_load_that_changes_for_good_is_followed() -> None:
    memory = fed(lambda time, draw: noisy(20.0, draw), MONDAY, DAY)
    memory = fed(lambda time, draw: noisy(120.0, draw), MONDAY + DAY, 2 * DAY, memory)
    recent = recent_of(memory[0])
    assert recent.fast[0] == pytest.approx(120, rel=0.1)
    assert recent.mean[0] > 95
    rise, _ = outlook.expected_rise(memory[0], np.array([0.9]))
    assert (np.exp(rise) < 1.25).all(), "the one step is not expected again"


@pytest.mark.slow
def test_a_counter_reset_that_shows_as_one_absurd_rate_is_outlived() -> None:
    memory = fed(lambda time, draw: noisy(20.0, draw), MONDAY, 6 * 3600)
    params = make_params(1)
    memory = learn(params, *memory, np.array([MONDAY + 6 * 3600]), np.array([1e12]), np.ones(1, bool))
    memory = fed(lambda time, draw: noisy(20.0, draw), MONDAY + 6 * 3600 + 5, 6 * 3600, memory)
    rise, _ = outlook.expected_rise(memory[0], np.array([0.95]))
    assert (np.exp(rise) < 2).all()
    assert np.isfinite(memory[0][:, :9]).all()
    assert chance(memory, MONDAY + 12 * 3600) == 0.0


@pytest.mark.slow
def test_a_clock_change_moves_daily_jobs_and_they_are_learned_again() -> None:
    """A job at 03:17 local time is an hour earlier in UTC after the change."""
    memory = fed(job(lambda minute: minute == 197), MONDAY, 2 * DAY)
    shifted = job(lambda minute: minute == 137)
    memory = fed(shifted, MONDAY + 2 * DAY, 2 * DAY, memory)
    assert chance(memory, MONDAY + 4 * DAY + 136 * 60 + 30) > 0.4


def test_another_cold_start_begins_another_distribution() -> None:
    memory = fed(lambda time, draw: noisy(20.0, draw), MONDAY, 7200)
    longer = make_params(1, cold_start_seconds=(300.0, 8.0))
    memory = fed(lambda time, draw: noisy(20.0, draw), MONDAY + 7200, 10, memory, longer)
    recent = recent_of(memory[0])
    assert recent.horizon[0].tolist() == [315.0, 23.0]
    assert recent.judged[0, 0] == 0 < recent.judged[0, 1]


def test_a_service_learns_the_same_alone_and_among_others() -> None:
    draw = np.random.default_rng(7)
    rates = draw.gamma(2.0, 10.0, (200, 5))
    params, together, alone = make_params(5), nothing_learned(5), nothing_learned(1)
    for tick, row in enumerate(rates):
        taken = np.full(5, MONDAY + TICK * tick)
        together = learn(params, *together, taken, row, np.ones(5, bool))
        alone = learn(params.take([3]), *alone, taken[:1], row[3:4], np.ones(1, bool))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one[0], other[3])


@pytest.mark.slow
def test_what_is_passed_in_is_not_changed(two_days_of_jobs: tuple[Float32, Float32]) -> None:
    before = tuple(part.copy() for part in two_days_of_jobs)
    learn(make_params(1), *two_days_of_jobs, np.array([MONDAY + 2 * DAY]), np.array([500.0]), np.ones(1, bool))
    for part, kept in zip(two_days_of_jobs, before, strict=True):
        np.testing.assert_array_equal(part, kept)


@pytest.mark.slow
def test_yesterday_is_used_only_where_it_was_right() -> None:
    def daily(time: float, draw: np.random.Generator) -> float:
        return noisy(60 * np.exp(1.2 * np.sin(2 * np.pi * time / DAY * 4)), draw)

    def aimless(time: float, draw: np.random.Generator) -> float:
        return noisy(60 * np.exp(np.sin(time / 1234.5) * np.cos(time / 777.7)), draw)

    long = make_params(1, cold_start_seconds=(900.0, 8.0))
    now: Float = np.array([MONDAY + 3 * DAY])
    horizon = np.array([900.0])
    known = fed(daily, MONDAY, 3 * DAY, params=long)
    assert outlook.season_rise(known[1], now, horizon)[0] == pytest.approx(1.2 * np.sin(2 * np.pi / 24), rel=0.25)
    assert outlook.season_rise(known[1], now, np.array([75.0]))[0] == 0
    assert outlook.season_rise(fed(aimless, MONDAY, 3 * DAY, params=long)[1], now, horizon)[0] == 0
